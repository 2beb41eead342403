"""The share of a cell's seeds that reach the event, with its interval.

    share = seeds that reached / seeds,    Wilson's interval

A diverged seed is one that did not reach, and is counted beside it. The interval is of one cell
alone: of a hundred cells about five miss their truth.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.cell import Cell

USUAL = 0.95
"""The level of intervals where none is asked for."""
HALF = 0.5
"""The share at which a boundary runs."""


class Share(NamedTuple):
    """How many of a cell's seeds reach the event."""

    value: float
    """Between 0 and 1."""
    low: float
    """Lower end of the interval."""
    high: float
    """Upper end of the interval."""
    reached: int
    """How many seeds reached."""
    seeds: int
    """How many seeds there are, diverged ones among them."""
    diverged: int
    """How many of the seeds diverged."""

    @property
    def is_open(self) -> bool:
        """Whether the interval contains one half: the cell may lie on either side."""
        return self.low <= HALF <= self.high

    def __str__(self) -> str:
        lost = f", {self.diverged} diverged" if self.diverged else ""
        interval = f"[{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f} {interval}: {self.reached} of {self.seeds}{lost}"


def share_of(reached: Bool[np.ndarray, "seed"], diverged: int = 0, level: float = USUAL) -> Share:
    """The share of seeds that reached, with Wilson's interval.

    Args:
        reached: whether each seed did.
        diverged: how many of them diverged; these have not reached.
        level: of the interval.
    """
    # SciPy's statistics take longer to load than all else here
    from mnemoscope.verdicts.intervals import wilson

    n = len(reached)
    if n == 0:
        raise UserError("a share needs at least one seed, got none")
    hits = int(reached.sum())
    low, high = wilson(float(hits), n, level)
    return Share(hits / n, low, high, hits, n, diverged)


def cell_share(cell: Cell, level: float = USUAL) -> Share:
    """The share of a cell's seeds that reached.

    Args:
        cell: whose seeds are counted.
        level: of the interval.
    """
    return share_of(cell.reached, int(cell.diverged.sum()), level)
