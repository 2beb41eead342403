"""Stored seeds trained again: do the numbers that are kept come out of the program that is here?

A seed trains to the same bits alone as in its block on the same kind of CPU. Elsewhere sums are taken in another order,
and rounding grows with every step until two trainings of one seed are two trainings: there only the start and the
first losses are compared, each to a tolerance.
"""

import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mnemoscope.core.fingerprint import cpu_model, trained_by
from mnemoscope.execution.local import select
from mnemoscope.store import RunRow, Store, arrays_of
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import watch_of
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

START = 1e-5  # how far weights may be off before the first step on another kind of device
FIRST_LOSS = 1e-3  # and the mean loss up to the first stop, of its size


class Retrained(NamedTuple):
    """Whether a seed came out as it is stored, and in what."""

    same: bool
    words: str


def choose_seeds(store: Store, number: int) -> tuple[list[tuple[RunRow, int]], int]:
    """So many stored seeds that this program trained, chosen at random, and how many others there are."""
    program = trained_by().program()
    rows = store.rows()
    ours = [(row, seed) for row in rows if row.program == program for seed in range(row.first, row.last + 1)]
    others = sum(row.last - row.first + 1 for row in rows if row.program != program)
    return random.sample(ours, min(number, len(ours))), others


def retrain_seed(store: Store, row: RunRow, seed: int, progress: Callable[[int, int], None] | None = None) -> Retrained:
    """Train one seed of a stored block again, and compare."""
    stored = select([store.load(row)], (seed,))
    spec = Spec.model_validate_json(row.spec_json)
    again = fit(spec, [seed], observe=watch_of(spec), progress=progress)
    here = again.origins[0]
    on_cpu = here is not None and here.device == cpu_model()
    if on_cpu and stored.origins == again.origins:
        return _compare_bits(stored, again)
    return _compare_start(stored, again)


def _compare_bits(stored: Run, again: Run) -> Retrained:
    one, two = arrays_of(stored), arrays_of(again)
    other = [name for name, x in one.items() if not np.array_equal(x, two.get(name, ()), equal_nan=True)]
    if not other:
        return Retrained(True, f"all {len(one)} arrays, to the bit")
    return Retrained(False, f"{len(other)} of {len(one)} arrays differ, {other[0]} first")


def _compare_start(stored: Run, again: Run) -> Retrained:
    first = 0 in stored.spec.snapshot_steps()
    start = max(
        (float(np.abs(x[:, 0] - again.snapshots[n][:, 0]).max()) for n, x in stored.snapshots.items()), default=0.0
    )
    loss = float(np.abs(stored.losses[0, 0] - again.losses[0, 0]) / np.abs(stored.losses[0, 0]))
    same = (start <= START or not first) and loss <= FIRST_LOSS
    return Retrained(same, f"another kind of device; start off by {start:.1e}, first loss by {loss:.1e} of itself")
