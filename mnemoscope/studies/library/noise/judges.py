"""What N1 and N2 measure: who learns the noise, and what truncation does to it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import bind
from mnemoscope.probes.distraction import distraction
from mnemoscope.probes.threshold_steps import first_reach
from mnemoscope.probes.truncation import truncated
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.tasks import Bigrams
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
LEARNED = 1.0  # nats at the end: a smaller margin is none
LANES = 8  # models at once on an accelerator


class Cut(NamedTuple):
    """Where a model is truncated, and when."""

    shares: tuple[float, ...]
    """Of the width: the rank that is left in each layer's feed-forward matrices."""
    snapshot: int


def measure_times(evidence: Evidence) -> Measurement:
    """N1: when the margins of the feed-forward layers and of attention reach half of their largest.

    A seed does it if both end above 1 nat and the feed-forward margin, for noise, is there before
    attention's, for the right answer.
    """
    run = evidence.run("noisy")
    steps = np.array(run.spec.eval_steps())
    seen = {name: x[run.finished] for name, x in run.metrics.items()}
    margins = {name: seen[f"margin of {name}"] for name in ("feed-forward", "attention")}
    times = {name: first_reach(steps, x, x.max(axis=1) / 2) for name, x in margins.items()}
    ends = {name: x[:, -1] for name, x in margins.items()}
    in_order = times["feed-forward"] < times["attention"]
    learned = (ends["feed-forward"] > LEARNED) & (ends["attention"] > LEARNED)
    parts: dict[str, Any] = {"early and late": in_order & learned}
    for name in margins:
        parts[f"step of {name}"] = times[name]
        parts[f"last margin of {name}"] = ends[name]
    for name in ("to right", "to noise"):
        parts[f"attention {name}"] = seen[name][:, -1]
    curves = {name: Curve.over_seeds(steps, seen[name]) for name in FOLLOWED}
    named = {
        "feed-forward, for noise": times["feed-forward"],
        "attention, for the right answer": times["attention"],
    }
    by_seed = {name: x[np.isfinite(x)] for name, x in named.items()}
    return Measurement(parts, by_seed, Plots(curves=curves))


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
        model = bind(config, params)
        for layer, rank in enumerate(ranks):
            model = truncated(model, f"blocks.{layer}.mlp.W_*", rank)
        found = distraction(clean, model, SAMPLE)
        return {name: found[name] for name in READ}

    found = map_over_seeds(one, len(lanes), LANES)((params, np.array(ranks)))
    return {name: x.reshape(len(cuts), len(seeds)) for name, x in found.items()}


def measure_truncation(evidence: Evidence) -> Measurement:
    """N2: P(noise), P(right) and accuracy on clean text, with feed-forward matrices cut to rank
    int(rho d); a seed has less noise, or more of the right answer, if rho = 0 has than rho = 1.
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
    parts: dict[str, Any] = {}
    by_seed: dict[str, np.ndarray] = {}
    curves = {}
    for name in READ:
        for i, rho in enumerate(SHARES):
            by_step = found[name][i * n_steps : (i + 1) * n_steps]  # step seed
            curves[f"{name}: rho = {rho:g}"] = Curve.over_seeds(steps, by_step.T)
            by_seed[f"{name}, rho = {rho:g}"] = by_step[-1]
    parts["less noise"] = by_seed["P(noise), rho = 0"] < by_seed["P(noise), rho = 1"]
    parts["more of the right answer"] = by_seed["P(right), rho = 0"] > by_seed["P(right), rho = 1"]
    shown = [f"{name}, rho = {rho:g}" for name in ("P(noise)", "P(right)") for rho in SHARES]
    for name in (*shown, "accuracy, rho = 0", "accuracy, rho = 1"):
        parts[name] = by_seed[name]
    for layer in layers:
        parts[f"accuracy without layer {layer}"] = found["accuracy"][len(everywhere) + layer]
    return Measurement(parts, by_seed, Plots(curves=curves))
