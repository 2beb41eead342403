"""Bisection for many seeds at once: each asks its own question in every round, and all are trained together."""

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
    """The largest N up to `most` to which each seed says yes, if yes never follows no; 0 where it says no to 1.

    Brackets grow from the guess by factors of `reach`; bisection ends when a bracket is narrower than `resolution` times its lower
    end (0: when it is exact). `ask` gets an N for each seed.
    """
    n = np.broadcast_to(np.asarray(guess), (seeds,))
    if not (n.min() >= 1 and n.max() <= most):
        raise UserError(f"the guess must lie between 1 and {most}, got {guess}")
    low, high = np.zeros(seeds, int), np.full(seeds, most + 1)
    while True:
        yes = ask(np.clip(n, 1, most))
        low, high = np.where(yes, np.maximum(low, n), low), np.where(yes, high, np.minimum(high, n))
        going = high - low > np.maximum(1, resolution * low)
        if not going.any():
            return low
        # outwards until both ends were asked, then into the middle
        outwards = np.where(high > most, np.minimum(np.ceil(reach * np.maximum(low, 1)), most), high // reach).astype(
            int
        )
        inside = (low + high) // 2
        n = np.where(
            going,
            np.where((high > most) | (low == 0), np.clip(outwards, low + 1, high - 1), inside),
            np.maximum(low, 1),
        )
