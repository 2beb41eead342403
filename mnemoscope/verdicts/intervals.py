"""Intervals over units: seeds, draws, sentences.

    share              Wilson's
    share difference   Newcombe's, of two groups of units
    mean               Student's t; a slope for each unit is a mean too
    mean difference    Welch's, of two groups of units
    median             order statistics
    exact              none: the value itself

Nothing is drawn at random, so no random key can change a verdict. Values that are all the same are
no certainty: they need as many units as a share does. A value that is not finite, such as a time
that lies beyond the end of training, never becomes a number: nothing is then known of the part.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

Kind = Literal["share", "share difference", "mean", "mean difference", "median", "exact"]
OF_TWO_GROUPS: tuple[Kind, ...] = ("share difference", "mean difference")
RANGES: dict[Kind, tuple[float, float]] = {
    "share": (0.0, 1.0),
    "share difference": (-1.0, 1.0),
    "mean": (-math.inf, math.inf),
    "mean difference": (-math.inf, math.inf),
    "median": (-math.inf, math.inf),
    "exact": (-math.inf, math.inf),
}
MIN_UNITS = 8
"""Fewer units than this settle nothing, unless the value is exact."""
MOST = 0.9
"""Of all units: nearly every one."""
USUAL = 0.95
"""The level at which verdicts are given."""
FIRM = 0.999
"""The level at which a verdict is called firm."""


class Estimate(NamedTuple):
    """What is known of a number from some units."""

    value: float | None
    """None where nothing was measured."""
    interval: tuple[float, float] | None
    """None where the units say nothing of where the number lies."""
    units: int
    """How many units it rests on; of two groups the sum."""
    why_open: str = ""
    """Why there is no interval."""


def units_for_certainty(level: float) -> int:
    """How many units that all agree show that at least 90% do.

    The lower end of Wilson's interval of n out of n is n / (n + z^2), at least .9 from n = 9 z^2.

    Args:
        level: of the interval.
    """
    return math.ceil(MOST / (1 - MOST) * _normal_quantile(level) ** 2)


def _normal_quantile(level: float) -> float:
    """How many standard deviations a two-sided interval has on each side."""
    return float(stats.norm.ppf((1 + level) / 2))


def wilson(hits: float, n: int, level: float) -> tuple[float, float]:
    """Wilson's interval of a share.

    Args:
        hits: how many units do it.
        n: how many units there are.
        level: of the interval.
    """
    z = _normal_quantile(level)
    share = hits / n
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # without rounding: of none the lower end is 0, of all the upper end 1
    low = 0.0 if hits == 0 else center - half
    high = 1.0 if hits == n else center + half
    return low, high


def newcombe(
    hits: float, n: int, other_hits: float, other_n: int, level: float
) -> tuple[float, float]:
    """Newcombe's interval of the difference of two shares, from Wilson's of each.

    Args:
        hits: how many units of the first group do it.
        n: how many units the first group has.
        other_hits: how many units of the other group do it.
        other_n: how many units the other group has.
        level: of the interval.
    """
    one = hits / n
    other = other_hits / other_n
    one_low, one_high = wilson(hits, n, level)
    other_low, other_high = wilson(other_hits, other_n, level)
    low = one - other - math.hypot(one - one_low, other_high - other)
    high = one - other + math.hypot(one_high - one, other - other_low)
    return low, high


def student(values: Sequence[float], level: float) -> tuple[float, float]:
    """Student's interval of a mean.

    Args:
        values: of at least two units.
        level: of the interval.
    """
    n = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1)) * error
    mean = float(np.mean(values))
    return mean - half, mean + half


def welch(values: Sequence[float], others: Sequence[float], level: float) -> tuple[float, float]:
    """Welch's interval of the difference of two means.

    Args:
        values: of the first group, at least two.
        others: of the other group, at least two.
        level: of the interval.
    """
    one = float(np.var(values, ddof=1)) / len(values)
    other = float(np.var(others, ddof=1)) / len(others)
    difference = float(np.mean(values) - np.mean(others))
    freedom = (one + other) ** 2 / (one**2 / (len(values) - 1) + other**2 / (len(others) - 1))
    half = float(stats.t.ppf((1 + level) / 2, freedom)) * math.sqrt(one + other)
    return difference - half, difference + half


def order_statistics(values: Sequence[float], level: float) -> tuple[float, float] | None:
    """The interval of a median, from one value to another; None if there are too few.

    It goes from the k-th lowest to the k-th highest for the largest k at which a fair coin comes up
    heads fewer than k times in n with probability at most (1 - level) / 2.

    Args:
        values: of the units.
        level: of the interval.
    """
    ordered = sorted(values)
    n = len(ordered)
    k = int(stats.binom.ppf((1 - level) / 2, n, 0.5))
    if stats.binom.cdf(k, n, 0.5) > (1 - level) / 2:
        k -= 1
    # at most k heads are unlikely: the interval begins at the value after the k-th
    return None if k < 0 else (ordered[k], ordered[n - 1 - k])


def estimate(
    kind: Kind, values: Sequence[float], others: Sequence[float] = (), level: float = USUAL
) -> Estimate:
    """A number and its interval, from the values of units.

    Args:
        kind: what the number is.
        values: one for each unit; of an exact number only one.
        others: of the second group, for a difference.
        level: of the interval.
    """
    if kind == "exact":
        return _exact(values)
    groups = (values, others) if kind in OF_TWO_GROUPS else (values,)
    n_units = sum(map(len, groups))
    fewest = min(map(len, groups))
    if fewest == 0:
        return Estimate(None, None, n_units, "nothing was measured")
    censored = sum(not math.isfinite(x) for group in groups for x in group)
    if censored:
        why = f"{censored} of {n_units} have no finite value"
        return Estimate(None, None, n_units, why)
    value = _value(kind, values, others)
    if fewest < MIN_UNITS:
        return Estimate(value, None, n_units, f"{fewest} units; {MIN_UNITS} are needed")
    needed = units_for_certainty(level)
    if kind == "share" and n_units < needed:
        # fewer could show at most that it lies between, and that wrongly in one case of fifteen
        why = f"{sum(values):.0f} of {n_units} do; {needed} would decide"
        return Estimate(value, None, n_units, why)
    same = [len(group) for group in groups if len(group) < needed and np.ptp(group) == 0]
    if same and "share" not in kind:
        why = f"{min(same)} units agree; {needed} would be needed"
        return Estimate(value, None, n_units, why)
    interval = _interval(kind, values, others, level)
    if interval is None:
        return Estimate(value, None, n_units, f"too few units for an interval of {level:.1%}")
    return Estimate(value, interval, n_units)


def _exact(values: Sequence[float]) -> Estimate:
    """A number that needs no units."""
    if len(values) != 1:
        raise ValueError(f"an exact part has one value, got {len(values)}")
    (value,) = values
    if not math.isfinite(value):
        return Estimate(None, None, 0, "it has no finite value")
    return Estimate(value, (value, value), 0)


def _value(kind: Kind, values: Sequence[float], others: Sequence[float]) -> float:
    """The number itself."""
    if kind == "median":
        return float(np.median(values))
    mean = float(np.mean(values))
    return mean - float(np.mean(others)) if kind in OF_TWO_GROUPS else mean


def _interval(
    kind: Kind, values: Sequence[float], others: Sequence[float], level: float
) -> tuple[float, float] | None:
    """The interval of a number that has enough units."""
    if kind == "share":
        return wilson(sum(values), len(values), level)
    if kind == "share difference":
        return newcombe(sum(values), len(values), sum(others), len(others), level)
    if kind == "median":
        return order_statistics(values, level)
    if kind == "mean":
        return student(values, level)
    if np.ptp(values) == 0 and np.ptp(others) == 0:
        difference = _value(kind, values, others)
        return difference, difference
    return welch(values, others, level)
