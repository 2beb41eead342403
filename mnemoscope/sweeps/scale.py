"""Where the values of an axis stand along it: evenly in numbers, or evenly in their logarithms."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mnemoscope.core.errors import UserError, short


class Scale(NamedTuple):
    """The positions of an axis's values."""

    values: Float[np.ndarray, "value"]
    """The numbers, lowest first."""
    order: Int[np.ndarray, "value"]
    """Which value of the axis each of them is."""
    is_log: bool
    """Whether the axis is geometric: what lies between two values is found by logarithms."""

    @property
    def positions(self) -> Float[np.ndarray, "value"]:
        """The numbers, or their logarithms where the axis is geometric."""
        return np.log(self.values) if self.is_log else self.values

    def between(self, first: float, second: float, part: float) -> float:
        """The number so far on the way from one number to another.

        Args:
            first: where the way begins.
            second: where it ends.
            part: of the way, from 0 to 1.
        """
        if self.is_log:
            return math.exp((1 - part) * math.log(first) + part * math.log(second))
        return (1 - part) * first + part * second


def is_numeric(values: Sequence[Any]) -> bool:
    """Whether the values of an axis are numbers that can be put in order.

    Args:
        values: along the axis.
    """
    numbers = (int, float, np.integer, np.floating)
    return all(isinstance(x, numbers) and not isinstance(x, bool) for x in values) and all(
        math.isfinite(x) for x in values
    )


def is_geometric(numbers: Float[np.ndarray, "value"]) -> bool:
    """Whether the ratios of neighbors vary less than their differences do.

    Args:
        numbers: lowest first.
    """
    if len(numbers) < 3 or numbers[0] <= 0:
        return False
    steps = np.diff(numbers)
    ratios = np.diff(np.log(numbers))
    return bool(np.std(ratios) / np.mean(ratios) < np.std(steps) / np.mean(steps) - 1e-9)


def axis_scale(axis: str, values: Sequence[Any]) -> Scale:
    """How an axis of numbers is laid out.

    Args:
        axis: its name, for messages.
        values: along it, in any order.
    """
    if not is_numeric(values):
        raise UserError(
            f"a boundary runs along numbers; the values of {axis} are {short(tuple(values))}"
        )
    numbers = np.array([float(x) for x in values])
    order = np.argsort(numbers)
    return Scale(numbers[order], order, is_geometric(numbers[order]))
