"""Stored seeds trained again: do the numbers that are kept come out of the program that is here?

A seed trains to the same bits alone as in its block on the same kind of CPU. Elsewhere sums are
taken in another order, and rounding grows with every step until two trainings of one seed are two
trainings: there only the start and the first losses are compared, each to a tolerance.
"""

import random
from typing import NamedTuple

import numpy as np

from mnemoscope.core.fingerprint import cpu_model, trained_by
from mnemoscope.execution.local import select
from mnemoscope.store import RunRow, Store, arrays_of
from mnemoscope.training.loop import Progress, fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

START = 1e-5  # how far weights may be off before the first step on another kind of device
FIRST_LOSS = 1e-3  # and the mean loss up to the first stop, of its size


class Retrained(NamedTuple):
    """Whether a seed came out as it is stored, and in what."""

    same: bool  # whether it came out as it is stored
    words: str  # what was compared, and what differs


def choose_seeds(store: Store, number: int) -> tuple[list[tuple[RunRow, int]], int]:
    """Stored seeds that this program trained, chosen at random, and how many others there are."""
    program = trained_by().program()
    rows = store.rows()
    ours = []
    others = 0
    for row in rows:
        seeds = range(row.first, row.last + 1)
        if row.program == program:
            ours += [(row, seed) for seed in seeds]
        else:
            others += len(seeds)
    return random.sample(ours, min(number, len(ours))), others


def retrain_seed(
    store: Store, row: RunRow, seed: int, progress: Progress | None = None
) -> Retrained:
    """Train one seed of a stored block again, and compare.

    Args:
        store: where the block is.
        row: the block.
        seed: one of its seeds.
        progress: called with optimizer steps done and in total.
    """
    stored = select([store.load(row)], (seed,))
    spec = Spec.model_validate_json(row.spec_json)
    again = fit(spec, [seed], progress=progress)
    here = again.origins[0]
    on_cpu = here is not None and here.device == cpu_model()
    if on_cpu and stored.origins == again.origins:
        return _compare_bits(stored, again)
    return _compare_start(stored, again)


def _compare_bits(stored: Run, again: Run) -> Retrained:
    """Compare every array, to the bit."""
    kept = arrays_of(stored)
    new = arrays_of(again)
    differing = [
        name
        for name, array in kept.items()
        if not np.array_equal(array, new.get(name, ()), equal_nan=True)
    ]
    if not differing:
        return Retrained(True, f"all {len(kept)} arrays, to the bit")
    words = f"{len(differing)} of {len(kept)} arrays differ, {differing[0]} first"
    return Retrained(False, words)


def _compare_start(stored: Run, again: Run) -> Retrained:
    """Compare the weights before the first step, if they are kept, and the first loss."""
    off = []
    for name, weights in stored.snapshots.items():
        distance = np.abs(weights[:, 0] - again.snapshots[name][:, 0])
        off.append(float(distance.max()))
    start = max(off, default=0.0)
    first_loss = stored.losses[0, 0]
    loss = float(np.abs(first_loss - again.losses[0, 0]) / np.abs(first_loss))
    starts_at_0 = 0 in stored.spec.snapshot_steps()
    same = (start <= START or not starts_at_0) and loss <= FIRST_LOSS
    words = f"start off by {start:.1e}, first loss by {loss:.1e} of itself"
    return Retrained(same, f"another kind of device; {words}")
