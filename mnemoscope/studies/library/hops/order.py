"""H5: in which order hops are learned, and which layer each of them needs."""

from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Float
from mnemoscope.probes.hop_accuracy import ablate_each_layer, read_after
from mnemoscope.studies.claims import Grid, InconclusiveError, Outcome, Plots
from mnemoscope.studies.evidence import MIN_SEEDS, Evidence
from mnemoscope.studies.library.hops.accuracy import (
    KNOWN,
    at_chance,
    at_end,
    curves,
    named,
    steps_to_know,
    task_of,
)
from mnemoscope.studies.statistics import MOST, share_verdict
from mnemoscope.training.run import Run


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
    """What was read off the mixture's seeds that know 4 hops at the end."""

    steps: Float[np.ndarray, "level seed"]  # the first evaluation that knows so many hops
    without: Float[np.ndarray, "seed layer level"]  # accuracy with a layer ablated
    after: Float[np.ndarray, "seed layer level"]  # accuracy read after a layer


def _read_mixture(evidence: Evidence, hops: list[int]) -> MixtureSeeds:
    """The seeds that know 4 hops; too few of them settle nothing."""
    run = evidence.run("mixture/k=4")
    knows = at_end(run, 4) >= KNOWN
    if knows.sum() < MIN_SEEDS:
        raise InconclusiveError(
            f"{knows.sum()} of {len(knows)} seeds know 4 hops at the end; "
            f"the order needs {MIN_SEEDS} that do."
        )
    return MixtureSeeds(
        steps=np.stack([steps_to_know(run, h)[knows] for h in hops]),
        without=np.asarray(evidence.measure("mixture/k=4", ablate_each_layer))[knows],
        after=np.asarray(evidence.measure("mixture/k=4", read_after))[knows],
    )


def _sentence(read: MixtureSeeds, hops: list[int], chance: float, shallow: Run) -> str:
    """What was measured, in words."""
    n_seeds = read.steps.shape[1]
    ordered = in_order(read.steps).mean()
    needed = needs_each(read.without, chance).mean()
    typical = ", ".join(f"{np.median(x):,.0f}" for x in read.steps)
    own = ", ".join(f"{x:.0%}" for x in np.diagonal(read.without.mean(axis=0)))
    lost = at_chance(shallow, 4).mean()
    knew_two = np.isfinite(steps_to_know(shallow, 2)).mean()
    return (
        f"Of {n_seeds} seeds that know 4 hops, {ordered:.0%} learned them in order "
        f"(median steps {typical} for {', '.join(map(str, hops))} hops) and {needed:.0%} "
        f"need each layer for its hops (with layer i ablated, 2^i hops are right in {own}). "
        f"One layer fewer leaves 4 hops within .1 of chance in {lost:.0%} of seeds, though "
        f"{knew_two:.0%} came to know 2."
    )


def layer_by_layer(evidence: Evidence) -> Outcome:
    """H5: when the mixture's seeds come to know 1, 2 and 4 hops, and what each loses with a layer.

    Of the seeds that know 4 hops at the end (at least 8, else undecided), one does it if it learns
    them one after another and ablating layer i brings 2^i hops below the middle between chance and
    1: reproduced if at least 90% do, refuted if at most 10%, partly in between, and at most partly
    unless one layer fewer leaves 4 hops within .1 of chance in at least 90% of seeds.
    """
    run = evidence.run("mixture/k=4")
    shallow = evidence.run("curriculum/shallow")
    task = task_of(run)
    hops = [2**level for level in range(task.levels)]
    read = _read_mixture(evidence, hops)
    verdict, share, interval = share_verdict(
        in_order(read.steps) & needs_each(read.without, 1 / task.n)
    )
    if verdict == "reproduced" and at_chance(shallow, 4).mean() < MOST:
        verdict = "partly"
    seeds = {f"steps to {named(h)}": x for h, x in zip(hops, read.steps, strict=True)}
    for i, h in enumerate(hops):
        seeds[f"layer {i} ablated: {named(h)}"] = read.without[:, i, i]
    seeds["one layer fewer: 4 hops"] = at_end(shallow, 4)
    layers = [f"layer {i}" for i in range(run.spec.model.n_layers)]
    grids = {
        "ablated": Grid.of(hops, layers, read.without.mean(axis=0).T),
        "read after": Grid.of(hops, layers, read.after.mean(axis=0).T),
    }
    plots = Plots(curves=curves(run, "mixture") | curves(shallow, "one layer fewer"), grids=grids)
    sentence = _sentence(read, hops, 1 / task.n, shallow)
    return Outcome(verdict, share, interval, sentence, seeds, plots)
