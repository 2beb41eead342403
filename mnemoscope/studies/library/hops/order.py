"""What H5 measures: in which order hops are learned, and which layer each of them needs."""

from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Float
from mnemoscope.probes.hop_accuracy import ablate_each_layer, read_after
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.hops.accuracy import (
    at_chance,
    at_end,
    curves,
    knows,
    named,
    steps_to_know,
    task_of,
)
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.studies.plot_data import Grid, Plots
from mnemoscope.verdicts.claim import PLAIN

HOPS = (1, 2, 4)


def in_order(steps: Float[np.ndarray, "level seed"]) -> Bool[np.ndarray, "seed"]:
    """Which seeds come to know each level strictly before the next."""
    return np.all(steps[1:] > steps[:-1], axis=0)


def needs_each(
    without: Float[np.ndarray, "seed layer level"], chance: float
) -> Bool[np.ndarray, "seed"]:
    """Which seeds lose 2^i hops when layer i is ablated, for every i.

    Lost is what falls more than half of the way to chance.
    """
    own = np.diagonal(without, axis1=1, axis2=2)
    return np.all(own < (1 + chance) / 2, axis=1)


class MixtureSeeds(NamedTuple):
    """What was read off a mixture's seeds."""

    knows: Bool[np.ndarray, "seed"]  # whether it knows 4 hops at the end
    steps: Float[np.ndarray, "level seed"]  # the first evaluation that knows so many hops
    without: Float[np.ndarray, "seed layer level"]  # accuracy with a layer ablated
    after: Float[np.ndarray, "seed layer level"]  # accuracy read after a layer


def _read_mixture(evidence: Evidence, name: str) -> MixtureSeeds:
    """What a mixture of 1, 2 and 4 hops came to."""
    run = evidence.run(name)
    return MixtureSeeds(
        knows=knows(run, 4),
        steps=np.stack([steps_to_know(run, hops) for hops in HOPS]),
        without=np.asarray(evidence.measure(name, ablate_each_layer)),
        after=np.asarray(evidence.measure(name, read_after)),
    )


def measure_order(evidence: Evidence) -> Measurement:
    """H5: when the mixture's seeds come to know 1, 2 and 4 hops, and what each loses with a layer.

    A seed that knows 4 hops at the end has the order if it comes to know each number of hops
    strictly before the next, and needs its layers if ablating layer i brings 2^i hops below the
    middle between chance and 1, for every i.
    """
    chance = 1 / task_of(evidence.run("mixture/k=4")).n
    read = evidence.by_reading("mixture/k=4", lambda name: _read_mixture(evidence, name))
    shallow = evidence.by_reading("curriculum/shallow", evidence.run)
    plain = read[PLAIN]
    parts: dict[str, Any] = {
        "order": {name: among(each.knows, in_order(each.steps)) for name, each in read.items()},
        "layers": {
            name: among(each.knows, needs_each(each.without, chance)) for name, each in read.items()
        },
        "mixture of a reading": {name: each.knows for name, each in read.items() if name != PLAIN},
        "one layer fewer": {name: at_chance(run, 4) for name, run in shallow.items()},
        "one layer fewer knows 2 hops": np.isfinite(steps_to_know(shallow[PLAIN], 2)),
    }
    by_seed: dict[str, np.ndarray] = {}
    for i, hops in enumerate(HOPS):
        steps = plain.steps[i]
        by_seed[f"steps to {named(hops)}"] = steps[plain.knows & np.isfinite(steps)]
        by_seed[f"layer {i} ablated: {named(hops)}"] = plain.without[plain.knows, i, i]
        parts[f"steps to {named(hops)}"] = among(plain.knows, steps)
        parts[f"layer {i} ablated"] = among(plain.knows, plain.without[:, i, i])
    by_seed["one layer fewer: 4 hops"] = at_end(shallow[PLAIN], 4)
    return Measurement(parts, by_seed, _pictures(evidence, plain))


def _pictures(evidence: Evidence, read: MixtureSeeds) -> Plots:
    """Accuracy through training, and of those that know 4 hops without each layer and after it."""
    mixture = evidence.run("mixture/k=4")
    shallow = evidence.run("curriculum/shallow")
    drawn = curves(mixture, "mixture") | curves(shallow, "one layer fewer")
    if not read.knows.any():
        return Plots(curves=drawn)
    layers = [f"layer {i}" for i in range(mixture.spec.model.n_layers)]
    grids = {
        "ablated": Grid.of(HOPS, layers, read.without[read.knows].mean(axis=0).T),
        "read after": Grid.of(HOPS, layers, read.after[read.knows].mean(axis=0).T),
    }
    return Plots(curves=drawn, grids=grids)
