"""Bisection for many seeds at once.

Each asks its own question in every round, and all are trained together.
"""

from collections.abc import Callable

import numpy as np

from mnemoscope.core.axes import Bool, Int
from mnemoscope.core.errors import UserError


def largest(
    ask: Callable[[Int[np.ndarray, "seed"]], Bool[np.ndarray, "seed"]],
    seeds: int,
    guess: int | Int[np.ndarray, "seed"],
    most: int,
    resolution: float = 0.0,
    reach: float = 2.0,
) -> Int[np.ndarray, "seed"]:
    """The largest N up to `most` to which each seed says yes, if yes never follows no.

    0 where a seed says no to 1. Brackets grow from the guess until both ends were asked; then they
    are cut in half.

    Args:
        ask: gets an N for each seed, and says to which of them it is a yes.
        seeds: how many.
        guess: where the search begins, for all seeds or for each.
        most: the largest N that may be asked.
        resolution: bisection ends when a bracket is narrower than this times its lower end (0: when
            it is exact).
        reach: the factor by which brackets grow.
    """
    n = np.broadcast_to(np.asarray(guess), (seeds,))
    if not (n.min() >= 1 and n.max() <= most):
        raise UserError(f"the guess must lie between 1 and {most}, got {guess}")
    low = np.zeros(seeds, int)  # the largest yes
    high = np.full(seeds, most + 1)  # the smallest no
    while True:
        yes = ask(np.clip(n, 1, most))
        low = np.where(yes, np.maximum(low, n), low)
        high = np.where(yes, high, np.minimum(high, n))
        going = high - low > np.maximum(1, resolution * low)
        if not going.any():
            return low
        # outwards until both ends were asked, then into the middle
        upwards = np.minimum(np.ceil(reach * np.maximum(low, 1)), most)
        outwards = np.where(high > most, upwards, high // reach).astype(int)
        one_end_open = (high > most) | (low == 0)
        between = np.clip(outwards, low + 1, high - 1)
        middle = (low + high) // 2
        # seeds that are done ask what they know already
        n = np.where(going, np.where(one_end_open, between, middle), np.maximum(low, 1))
