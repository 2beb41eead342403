"""F2 and F3: how many facts trained models store.

How attention and the feed-forward layer share the work.
"""

from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Float
from mnemoscope.studies.claims import Grid, InconclusiveError, Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.facts.sweep import LEVEL, Shape, capacity, trainer
from mnemoscope.studies.statistics import mean_interval, parts_verdict

PUBLISHED = 0.15  # facts for each parameter


class Sweep(NamedTuple):
    """Which shapes F2 trains at a scale."""

    widths: tuple[int, ...]
    alphas: tuple[float, ...]  # shares of attention, H d_h / d
    betas: tuple[float, ...]  # shares of the MLP, m / d
    seeds: int
    training: dict[str, Any]  # fields of Shape that say how each is trained


# With eight heads a share of a half needs a width of 16. The paper has 25 shares and widths to
# 181: three widths a factor of three apart settle a slope, and shares from a ninth to two thirds of
# the parameters in the MLP settle whether sharing matters.
SWEEP = {
    "quick": Sweep(
        widths=(8, 16),
        alphas=(1.0,),
        betas=(1.0,),
        seeds=8,
        training={"rates": (1e-2,), "batch": 256, "steps": 1024, "eval_every": 128},
    ),
    "full": Sweep(widths=(16, 32, 48), alphas=(0.5, 2.0), betas=(0.5, 2.0), seeds=8, training={}),
}

# the grid of F3
HEADS = (2, 4, 5, 6, 8, 12, 16)
HIDDEN = (4, 16, 32, 48, 64, 96, 128)
GRID_SEEDS = 8


class Stored(NamedTuple):
    """What every shape of a sweep stores."""

    shares: list[tuple[float, float]]  # alpha and beta of each shape
    parameters: Float[np.ndarray, "shape"]
    facts: Float[np.ndarray, "shape seed"]

    def rates_by_share(self) -> dict[tuple[float, float], np.ndarray]:
        """Facts for each parameter and seed, on average over widths, by share."""
        rates = self.facts / self.parameters[:, None]
        found = {}
        for share in dict.fromkeys(self.shares):
            of_share = [each == share for each in self.shares]
            found[share] = rates[of_share].mean(axis=0)
        return found


def _sweep(sweep: Sweep) -> Stored:
    """Search for the most facts that every shape stores."""
    shares = []
    parameters = []
    facts = []
    for d in sweep.widths:
        for alpha in sweep.alphas:
            hidden = tuple(round(beta * d) for beta in sweep.betas)
            shape = Shape(d=d, d_head=int(alpha * d / 8), d_mlp=max(hidden), **sweep.training)
            counts = [shape.parameters(m) for m in hidden]
            guess = tuple(max(2, int((PUBLISHED * n) ** 0.5)) for n in counts)
            room = int(1.6 * max(guess)) + 2
            found = capacity(shape, hidden, sweep.seeds, guess, room=room)
            shares += [(alpha, beta) for beta in sweep.betas]
            parameters += counts
            facts += list(np.maximum(found, 1) ** 2)
    return Stored(shares, np.array(parameters, float), np.array(facts, float))


def _slopes(stored: Stored) -> Float[np.ndarray, "seed"]:
    """Each seed's slope of log facts against log parameters, over all shapes together."""
    x = np.log(stored.parameters)
    return np.array([np.polyfit(x, np.log(facts), 1)[0] for facts in stored.facts.T])


def stored_facts(evidence: Evidence) -> Outcome:
    """F2: how the largest number of facts that is stored grows with parameters.

    Three statements: the slope of log facts against log parameters has its 95% interval within .8
    to 1.2; facts per parameter lie within a factor of 2 of .15 on average; no share between
    attention and MLP is more than 2 times as good as another. Reproduced if all three hold, refuted
    if none does, partly in between; the quick scale is undecided.
    """
    stored = _sweep(SWEEP[evidence.scale])
    slope, (low, high) = mean_interval(_slopes(stored))
    rates = stored.facts / stored.parameters[:, None]
    by_share = stored.rates_by_share()
    means = [x.mean() for x in by_share.values()]
    in_proportion = low >= 0.8 and high <= 1.2
    as_many = PUBLISHED / 2 <= rates.mean() <= 2 * PUBLISHED
    however_shared = max(means) <= 2 * min(means)
    verdict = parts_verdict([in_proportion, bool(as_many), bool(however_shared)])
    if len(by_share) == 1 or evidence.scale == "quick":
        # one share says nothing of others, and training is cut to an eighth of its steps
        verdict = "undecided"
    seeds = {f"H d_h = {a:g} d, m = {b:g} d": x for (a, b), x in by_share.items()}
    table = ", ".join(f"{x.mean():.3f} at {name}" for name, x in seeds.items())
    sentence = (
        f"Facts stored grow as parameters to the power {slope:.2f} [{low:.2f}, {high:.2f}]; "
        f"facts per parameter: {table} (published {PUBLISHED}), "
        f"{stored.parameters.min():,.0f} to {stored.parameters.max():,.0f} parameters."
    )
    value, interval = mean_interval(rates.mean(axis=0))
    return Outcome(verdict, value, interval, sentence, seeds)


def should_recall(d: int, d_head: int, heads: int, hidden: int) -> bool:
    """What the published boundary says of a cell of the trade-off grid.

    Args:
        d: width.
        d_head: size of a head.
        heads: how many.
        hidden: hidden units of the feed-forward layer.
    """
    attention = d * d_head * heads
    return attention >= 1280 and d * hidden >= 2300 - attention / 2


def trade_off(evidence: Evidence) -> Outcome:
    """F3: which numbers of heads and of hidden units recall 1,024 facts; see `judge_grid`.

    The quick scale is undecided.
    """
    if evidence.scale == "quick":
        raise InconclusiveError(
            "The grid of S = R = 32 takes hours on two cores; "
            "'mnemoscope run facts --scale full' on a GPU settles it."
        )
    best = np.zeros((len(HEADS), len(HIDDEN), GRID_SEEDS))
    each_seed = np.tile(np.arange(GRID_SEEDS), len(HIDDEN))
    each_hidden = np.repeat(HIDDEN, GRID_SEEDS)
    each_size = np.full(len(each_seed), 32)
    for i, heads in enumerate(HEADS):
        # the one rate of the paper's program for this grid
        shape = Shape(d=32, n_heads=heads, d_head=8, d_mlp=max(HIDDEN), rates=(1e-2,))
        found = trainer(shape, 32, len(each_seed))(each_seed, each_size, each_hidden)
        best[i] = found.reshape(len(HIDDEN), GRID_SEEDS)
    return judge_grid(best)


def _least_hidden(recalls: Bool[np.ndarray, "heads hidden"]) -> dict[int, float]:
    """The fewest hidden units with which each number of heads recalls; infinite if none do."""
    least = {}
    for heads, row in zip(HEADS, recalls, strict=True):
        least[heads] = float(HIDDEN[int(np.argmax(row))]) if row.any() else np.inf
    return least


def judge_grid(best: np.ndarray) -> Outcome:
    """F3's verdict from the best accuracies: heads, hidden units, seeds.

    A cell recalls if at least half of its seeds reach 99%: reproduced if at least 85% of the cells
    are as the published boundary says and fewer hidden units are needed with 16 heads than with 6;
    partly if at least 70% are; else refuted.
    """
    recalls = (best >= LEVEL).mean(axis=2) >= 0.5
    expected = np.array([[should_recall(32, 8, heads, m) for m in HIDDEN] for heads in HEADS])
    agree = float((recalls == expected).mean())
    least = _least_hidden(recalls)
    verdict: Verdict = "refuted"
    if agree >= 0.85 and least[16] < least[6]:
        verdict = "reproduced"
    elif agree >= 0.7:
        verdict = "partly"
    # each seed's own agreement, so that the interval is over seeds
    seed_recalls = np.moveaxis(best >= LEVEL, 2, 0)
    by_seed = np.array([(each == expected).mean() for each in seed_recalls])
    needs = ", ".join(
        f"{heads}: {'none of these' if np.isinf(units) else f'{units:.0f}'}"
        for heads, units in least.items()
    )
    sentence = (
        f"{agree:.0%} of {recalls.size} cells are as the published boundary says. "
        f"Hidden units needed, by number of heads: {needs}."
    )
    grid = Grid.of(HEADS, HIDDEN, best.mean(axis=2))
    interval = mean_interval(by_seed)[1]
    seeds = {"agreement with the boundary": by_seed}
    return Outcome(verdict, agree, interval, sentence, seeds, Plots(grids={"accuracy": grid}))
