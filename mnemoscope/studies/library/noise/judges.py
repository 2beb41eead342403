"""N1-N3: who learns the noise, and what truncation does to it.

And how many samples each memory needs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import Transformer
from mnemoscope.probes.distraction import distraction
from mnemoscope.probes.threshold_steps import first_reach
from mnemoscope.probes.truncation import truncated
from mnemoscope.studies.claims import Curve, InconclusiveError, Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST, Interval, share_verdict
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.noise import draw, margins_after, population_margins
from mnemoscope.training.run import Run

SHARES = (0.0, 0.1, 0.2, 1.0)  # of the width: singular values that are kept
SAMPLE = 128
READ = ("P(noise)", "P(right)", "accuracy")
FOLLOWED = (  # through training, for the figures
    "margin of feed-forward",
    "margin of attention",
    "to right",
    "to noise",
    "P(right)",
    "P(noise)",
)
# vocabularies, draws, and how many samples for each token there are at most
SIZES = {"quick": ((16, 32, 64, 128, 256), 20, 256), "full": ((64, 128, 256, 512, 1024), 32, 64)}
STEP = 1.25  # numbers of samples grow by a quarter
LANES = 8  # models at once on an accelerator
RESAMPLES = 499


class Cut(NamedTuple):
    """Where a model is truncated, and when."""

    shares: tuple[float, ...]
    """Of the width: the rank that is left in each layer's feed-forward matrices."""
    snapshot: int


def early_and_late(evidence: Evidence) -> Outcome:
    """N1: when the margins of the feed-forward layers and of attention reach half of their largest.

    A seed does it if both end above 1 nat and the feed-forward margin, for noise, is there before
    attention's, for the right answer. Reproduced if at least 90% of seeds do, refuted if at most
    10%, partly in between.
    """
    run = evidence.run("noisy")
    steps = np.array(run.spec.eval_steps())
    seen = {name: x[run.finished] for name, x in run.metrics.items()}
    fed = seen["margin of feed-forward"]
    attended = seen["margin of attention"]
    early, late = (first_reach(steps, x, x.max(axis=1) / 2) for x in (fed, attended))
    does_it = (early < late) & (fed[:, -1] > 1) & (attended[:, -1] > 1)
    verdict, share, interval = share_verdict(does_it)
    ends = {name: seen[name][:, -1].mean() for name in ("to right", "to noise")}
    sentence = (
        f"Half of its largest margin: feed-forward, for noise, at step {np.median(early):.0f}; "
        f"attention, for the right answer, at step {np.median(late):.0f} (medians). At the end the "
        f"margins are {fed[:, -1].mean():.1f} and {attended[:, -1].mean():.1f} nats, and attention "
        f"lies on the right token with {ends['to right']:.2f}, on noise with "
        f"{ends['to noise']:.2f}."
    )
    curves = {name: Curve.over_seeds(steps, seen[name]) for name in FOLLOWED}
    times = {"feed-forward, for noise": early, "attention, for the right answer": late}
    by_seed = {name: x[np.isfinite(x)] for name, x in times.items()}
    return Outcome(verdict, share, interval, sentence, by_seed, Plots(curves=curves))


def _cut(run: Run, cuts: Sequence[Cut]) -> dict[str, Float[np.ndarray, "cut seed"]]:
    """What every finished seed answers on clean text, for each cut."""
    task = run.spec.task
    config = run.spec.model
    assert isinstance(task, Bigrams)
    clean = task.model_copy(update={"noise": 0.0})
    seeds = np.flatnonzero(run.finished)
    lanes = [(cut, seed) for cut in cuts for seed in seeds]
    ranks = [[int(share * config.d_model) for share in cut.shares] for cut, _ in lanes]
    params = {
        name: np.stack([value[seed, cut.snapshot] for cut, seed in lanes])
        for name, value in run.snapshots.items()
    }

    def one(each: tuple[Params, Array]) -> dict[str, Array]:
        params, ranks = each
        model = Transformer(config, params)
        for layer, rank in enumerate(ranks):
            model = truncated(model, f"blocks.{layer}.mlp.W_*", rank)
        found = distraction(clean, model, SAMPLE)
        return {name: found[name] for name in READ}

    found = map_over_seeds(one, len(lanes), LANES)((params, np.array(ranks)))
    return {name: x.reshape(len(cuts), len(seeds)) for name, x in found.items()}


def truncation(evidence: Evidence) -> Outcome:
    """N2: P(noise) and P(right) on clean text, with feed-forward matrices cut to rank int(rho d).

    A seed does it if at rho = 0 P(noise) is lower and P(right) higher than at rho = 1, at the end
    of training. Reproduced if at least 90% of seeds do, refuted if at most 10%, partly in between.
    """
    run = evidence.run("noisy")
    steps = np.array(run.spec.snapshot_steps())
    n_steps = len(steps)
    layers = range(run.spec.model.n_layers)
    everywhere = [Cut((share,) * len(layers), at) for share in SHARES for at in range(n_steps)]
    alone = [
        Cut(tuple(0.0 if each == layer else 1.0 for each in layers), n_steps - 1)
        for layer in layers
    ]
    found = _cut(run, everywhere + alone)  # all of it at once, for one compilation
    by_share = {}  # rho, name: step seed
    for i, rho in enumerate(SHARES):
        part = slice(i * n_steps, (i + 1) * n_steps)
        by_share[rho] = {name: x[part] for name, x in found.items()}
    last = {rho: {name: x[-1] for name, x in each.items()} for rho, each in by_share.items()}
    less_noise = last[0.0]["P(noise)"] < last[1.0]["P(noise)"]
    more_right = last[0.0]["P(right)"] > last[1.0]["P(right)"]
    verdict, share, interval = share_verdict(less_noise & more_right)
    table = "; ".join(
        f"rho = {rho:g}: {x['P(noise)'].mean():.2f}, {x['P(right)'].mean():.2f}, "
        f"{x['accuracy'].mean():.0%}"
        for rho, x in last.items()
    )
    noise = found["P(noise)"][len(everywhere) :].mean(axis=1)
    accuracy = found["accuracy"][len(everywhere) :].mean(axis=1)
    singles = [f"layer {i} alone: {noise[i]:.2f}, {accuracy[i]:.0%}" for i in layers]
    sentence = (
        f"P(noise), P(right) and accuracy on clean text: {table}. P(noise) and accuracy "
        f"without the feed-forward of {'; '.join(singles)}."
    )
    curves = {}
    by_seed = {}
    for name in READ:
        for rho in SHARES:
            curves[f"{name}: rho = {rho:g}"] = Curve.over_seeds(steps, by_share[rho][name].T)
            by_seed[f"{name}, rho = {rho:g}"] = last[rho][name]
    return Outcome(verdict, share, interval, sentence, by_seed, Plots(curves=curves))


def samples_needed(n: int, draws: int, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of samples, and whether each draw's memories are there: feed-forward, attention.

    Args:
        n: Tokens of the vocabulary.
        draws: How many streams of samples are drawn.
        most: Samples for each token, at most.
    """
    grow = np.arange(int(np.log(most * n) / np.log(STEP)) + 1)
    sizes = np.unique(np.rint(STEP**grow).astype(int))
    fed, valued = population_margins(n)
    fed_there = []
    valued_there = []
    for seed in range(draws):
        counts, y = draw(n, int(sizes[-1]), np.random.default_rng(seed))
        by_fed, by_value = margins_after(n, counts, y, sizes)
        fed_there.append(by_fed >= fed / 2)
        valued_there.append((by_value >= valued / 2).mean(axis=1) >= MOST)
    return sizes, np.array(fed_there), np.array(valued_there)


def first_enough(sizes: np.ndarray, there: Float[np.ndarray, "draw size"] | np.ndarray) -> float:
    """The smallest number of samples from which on nearly every draw has its memory."""
    enough = there.mean(axis=0) >= MOST
    if enough.all():
        return float(sizes[0])
    if not enough[-1]:
        return float(np.inf)
    return float(sizes[len(enough) - np.argmin(enough[::-1])])


def _tilt(vocabularies: Sequence[int], needed: np.ndarray) -> float:
    """The slope of log samples against log N."""
    return float(np.polyfit(np.log(vocabularies), np.log(needed), 1)[0])


def _vocabulary_verdict(fed: Interval, valued: Interval) -> Verdict:
    """The rule of N3: the slope of the feed-forward memory about 0, that of attention about 1."""
    holds = [fed[0] >= -0.3 and fed[1] <= 0.3, valued[0] >= 0.7 and valued[1] <= 1.4]
    if all(holds):
        return "reproduced"
    return "partly" if any(holds) else "refuted"


def against_vocabulary(evidence: Evidence) -> Outcome:
    """N3: how the samples that each memory needs grow with the vocabulary N.

    Reproduced if the slope of log samples against log N has its interval within -.3 to .3 for the
    feed-forward memory and within .7 to 1.4 for attention's, partly if one does, else refuted.
    """
    vocabularies, draws, most = SIZES[evidence.scale]
    found = [samples_needed(n, draws, most) for n in vocabularies]
    rng = np.random.default_rng(0)
    resamples = [rng.integers(0, draws, draws) for _ in range(RESAMPLES)]
    slopes = {}
    needed = {}
    curves = {}
    for i, name in enumerate(("feed-forward", "attention"), 1):
        there = [(memories[0], memories[i]) for memories in found]
        needed[name] = np.array([first_enough(sizes, hits) for sizes, hits in there])
        again = np.array(
            [[first_enough(sizes, hits[rows]) for sizes, hits in there] for rows in resamples]
        )
        if not np.isfinite(again).all():
            raise InconclusiveError(
                f"{name.capitalize()} has not learned it "
                f"from {most} samples for each token in some draws."
            )
        low, high = np.quantile([_tilt(vocabularies, row) for row in again], [0.025, 0.975])
        slopes[name] = (_tilt(vocabularies, needed[name]), (float(low), float(high)))
        curves[name] = Curve.over_seeds(np.array(vocabularies), again)
    value, interval = slopes["attention"]
    verdict = _vocabulary_verdict(slopes["feed-forward"][1], interval)
    if evidence.scale == "quick" and verdict != "reproduced":
        # in small vocabularies chance repeats among the free places crowd what is to be learned
        verdict = "undecided"
    table = "; ".join(
        f"{name} {', '.join(f'{x:,.0f}' for x in row)}" for name, row in needed.items()
    )
    shown = " and ".join(f"{x:.2f} [{low:.2f}, {high:.2f}]" for x, (low, high) in slopes.values())
    sentence = (
        f"Samples needed at N = {', '.join(map(str, vocabularies))}: {table}. "
        f"Slopes against N: {shown}."
    )
    return Outcome(verdict, value, interval, sentence, {}, Plots(curves=curves))
