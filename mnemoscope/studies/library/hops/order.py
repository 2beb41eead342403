"""H5: in which order hops are learned, and which layer each of them needs."""

import numpy as np

from mnemoscope.core.axes import Bool, Float
from mnemoscope.probes.hops import read_after, silenced
from mnemoscope.studies.claims import Grid, NotSettledError, Outcome, Pictures
from mnemoscope.studies.evidence import MIN_SEEDS, Evidence
from mnemoscope.studies.library.hops.accuracy import KNOWN, at_chance, at_end, curves, named, steps_to_know, task_of
from mnemoscope.studies.statistics import MOST, share_verdict


def in_order(steps: Float[np.ndarray, "level seed"]) -> Bool[np.ndarray, "seed"]:
    """Which seeds come to know each level strictly before the next."""
    return np.all(steps[1:] > steps[:-1], axis=0)


def needs_each(without: Float[np.ndarray, "seed layer level"], chance: float) -> Bool[np.ndarray, "seed"]:
    """Which seeds lose 2^i hops, more than half of the way to chance, when layer i is silenced, for every i."""
    return np.all(np.diagonal(without, axis1=1, axis2=2) < (1 + chance) / 2, axis=1)


def layer_by_layer(evidence: Evidence) -> Outcome:
    """H5."""
    run, shallow = evidence.run("mixture/k=4"), evidence.run("curriculum/shallow")
    knows = at_end(run, 4) >= KNOWN
    if knows.sum() < MIN_SEEDS:
        raise NotSettledError(
            f"{knows.sum()} of {len(knows)} seeds know 4 hops at the end; the order needs {MIN_SEEDS} that do."
        )
    hops = [2**level for level in range(task_of(run).levels)]
    steps = np.stack([steps_to_know(run, h)[knows] for h in hops])
    without, after = (np.asarray(evidence.measure("mixture/k=4", probe))[knows] for probe in (silenced, read_after))
    ordered, needed = in_order(steps), needs_each(without, 1 / task_of(run).n)
    verdict, share, interval = share_verdict(ordered & needed)
    lost = at_chance(shallow, 4)
    if verdict == "reproduced" and lost.mean() < MOST:
        verdict = "partly"
    typical = ", ".join(f"{np.median(x):,.0f}" for x in steps)
    own = ", ".join(f"{x:.0%}" for x in np.diagonal(without.mean(axis=0)))
    two = np.isfinite(steps_to_know(shallow, 2)).mean()
    sentence = (
        f"Of {knows.sum()} seeds that know 4 hops, {ordered.mean():.0%} learned them in order (median steps {typical} for "
        f"{', '.join(map(str, hops))} hops) and {needed.mean():.0%} need each layer for its hops (with layer i silenced, 2^i "
        f"hops are right in {own}). One layer fewer leaves 4 hops within .1 of chance in {lost.mean():.0%} of seeds, though "
        f"{two:.0%} came to know 2."
    )
    layers = [f"layer {i}" for i in range(run.spec.model.n_layers)]
    grids = {
        "silenced": Grid.of(hops, layers, without.mean(axis=0).T),
        "read after": Grid.of(hops, layers, after.mean(axis=0).T),
    }
    seeds = {f"steps to {named(h)}": x for h, x in zip(hops, steps, strict=True)}
    seeds |= {f"layer {i} silenced: {named(h)}": without[:, i, i] for i, h in enumerate(hops)}
    seeds["one layer fewer: 4 hops"] = at_end(shallow, 4)
    pictures = Pictures(curves={**curves(run, "mixture"), **curves(shallow, "one layer fewer")}, grids=grids)
    return Outcome(verdict, share, interval, sentence, seeds, pictures)
