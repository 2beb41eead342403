"""In which order the cells of a grid are trained: the coarsest first, so that a picture means
something early.

    level of a value on its axis   0 for both ends, 1 for the middle, 2 for the middles of the
                                   halves, and so on
    level of a cell                the largest of its axes

Cells of one level come in random order, by a fixed key: what is drawn when a sweep is cut off is
not its left half.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mnemoscope.sweeps.grid import Place

KEY = 0


def axis_levels(n: int) -> tuple[int, ...]:
    """The level of each of so many values on an axis.

    Args:
        n: how many.
    """
    levels = {0: 0, n - 1: 0}
    known = sorted(levels)
    level = 0
    while len(levels) < n:
        level += 1
        for low, high in pairwise(known):
            if high - low > 1:
                levels[(low + high) // 2] = level
        known = sorted(levels)
    return tuple(levels[i] for i in range(n))


def coarse_first(shape: Sequence[int]) -> list[Place]:
    """Every place of a grid, the coarsest first.

    Args:
        shape: how many values each axis has.
    """
    levels = [axis_levels(n) for n in shape]
    places = [tuple(int(i) for i in place) for place in np.ndindex(*shape)]
    shuffled = np.random.default_rng(KEY).permutation(len(places))
    return sorted(
        (places[i] for i in shuffled),  # sorting keeps the order of what is equal
        key=lambda place: max(by_axis[i] for by_axis, i in zip(levels, place, strict=True)),
    )
