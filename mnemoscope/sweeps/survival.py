"""How long it takes until the event comes, where it does not come in every seed.

    S(t) = product over times t_i <= t of (1 - d_i / n_i)                     Kaplan and Meier
    d_i    seeds that reach the event at t_i
    n_i    seeds that had not reached it before, and were still followed

A seed that has not reached by its last step is censored: its time is longer, and nobody knows by
how much. Such a time never becomes a number, so the median of a cell may be "more than 5,000".

Where all seeds were followed to the end, as in a sweep, S(t) is a plain share: its band is
Wilson's at each step, and the median's interval goes from one order statistic to another, exact for
any distribution. Where some seeds were followed for a shorter time, the band is log-log with
Greenwood's variance (SciPy's), and the median's interval is where the band contains one half
(Brookmeyer and Crowley). The result says which.

A time is that of the evaluation which saw the event; it came after the evaluation before.
"""

import math
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.shares import HALF, USUAL

Method = Literal["order statistics", "log-log"]


class MedianTime(NamedTuple):
    """After which step half of the seeds have reached the event."""

    value: float | None
    """None where fewer than half have: it is more than `followed`."""
    low: float | None
    """Lower end of the interval; None where nothing is known but that it is above 0."""
    high: float | None
    """Upper end of the interval; None where it is more than `followed`."""
    followed: float
    """The last step at which a seed was looked at."""
    method: Method
    """How the interval was made."""

    def __str__(self) -> str:
        beyond = f"more than {self.followed:,.0f}"
        if self.value is None and self.low == self.followed:
            return beyond
        value = beyond if self.value is None else f"{self.value:,.0f}"
        low = "0" if self.low is None else f"{self.low:,.0f}"
        high = beyond if self.high is None else f"{self.high:,.0f}"
        return f"{value} [{low}, {high}]"


class Survival(NamedTuple):
    """The share of seeds that have not reached yet, as steps of a curve."""

    steps: Float[np.ndarray, "change"]
    """After which the curve changes; the first is 0, the last is where following ended."""
    values: Float[np.ndarray, "change"]
    """From each step on, to the next."""
    low: Float[np.ndarray, "change"]
    """Lower end of the band, at each step alone."""
    high: Float[np.ndarray, "change"]
    """Upper end of the band, at each step alone."""
    at_risk: Int[np.ndarray, "change"]
    """How many seeds had not reached before each step and were still followed."""
    median: MedianTime
    """After which step half have reached."""
    method: Method
    """How band and interval were made."""


def survival(
    times: Float[np.ndarray, "seed"], reached: Bool[np.ndarray, "seed"], level: float = USUAL
) -> Survival:
    """The Kaplan-Meier curve of some seeds and their median time.

    Args:
        times: after which step the event was first seen; the last step where it was not.
        reached: whether it was seen.
        level: of the band and of the interval.
    """
    if len(times) == 0:
        raise UserError("a survival curve needs at least one seed, got none")
    if not np.isfinite(times).all() or (times < 0).any():
        raise UserError(
            "times must be steps, 0 or more; a seed that did not reach has the last step that it "
            "was followed to, and reached False"
        )
    followed = float(times.max())
    to_the_end = bool((times[~reached] == followed).all())
    curve = _followed_to_the_end if to_the_end else _followed_for_different_times
    return curve(times, reached, followed, level)


def cell_survival(cell: Cell, level: float = USUAL) -> Survival:
    """The Kaplan-Meier curve of a cell's seeds; one that diverged never reaches.

    Args:
        cell: whose seeds are followed.
        level: of the band and of the interval.
    """
    times = np.asarray(cell.times, float)
    # wherever a diverged seed was last looked at, it would not have reached later either
    times = np.where(cell.diverged, max(times, default=0.0), times)
    return survival(times, cell.reached, level)


def _changes(
    times: Float[np.ndarray, "seed"], reached: Bool[np.ndarray, "seed"], followed: float
) -> tuple[Float[np.ndarray, "change"], Int[np.ndarray, "change"], Int[np.ndarray, "change"]]:
    """Steps at which something changes; how many are at risk there, and how many reach."""
    steps = np.unique(np.concatenate([[0.0], times[reached], [followed]]))
    at_risk = (times[None, :] >= steps[:, None]).sum(axis=1)
    events = ((times[None, :] == steps[:, None]) & reached[None, :]).sum(axis=1)
    return steps, at_risk, events


def _followed_to_the_end(
    times: Float[np.ndarray, "seed"],
    reached: Bool[np.ndarray, "seed"],
    followed: float,
    level: float,
) -> Survival:
    """Where every seed that did not reach was followed to the last step."""
    steps, at_risk, events = _changes(times, reached, followed)
    n = len(times)
    left = n - np.cumsum(events)
    table = wilson_table(n, level)
    low_rank, high_rank = median_ranks(n, level)
    ordered = np.sort(np.where(reached, times, math.inf))
    middle = ordered[math.ceil(n * HALF) - 1]  # the first step at which at most half are left
    low = ordered[low_rank] if low_rank is not None else None
    high = ordered[high_rank] if high_rank is not None else math.inf
    median = MedianTime(
        value=float(middle) if math.isfinite(middle) else None,
        low=None if low is None else float(min(low, followed)),
        high=float(high) if math.isfinite(high) else None,
        followed=followed,
        method="order statistics",
    )
    return Survival(
        steps, left / n, table[left, 0], table[left, 1], at_risk, median, "order statistics"
    )


def _followed_for_different_times(
    times: Float[np.ndarray, "seed"],
    reached: Bool[np.ndarray, "seed"],
    followed: float,
    level: float,
) -> Survival:
    """Where some seeds were followed for a shorter time than others."""
    from scipy import stats

    steps, at_risk, _ = _changes(times, reached, followed)
    data = stats.CensoredData(uncensored=times[reached], right=times[~reached])
    curve = stats.ecdf(data).sf
    with np.errstate(divide="ignore", invalid="ignore"):
        # where the curve is 0 or 1 the formula has no value; that is looked after below
        band = _without_warnings(curve.confidence_interval, level)
    values = curve.evaluate(steps)
    low = band.low.evaluate(steps)
    high = band.high.evaluate(steps)
    # at 1 and at 0 nothing has varied: what a share of all that are left could still be
    for i in np.flatnonzero((values == 1) | (values == 0)):
        n = max(1, int(at_risk[i]))
        low[i], high[i] = wilson_table(n, level)[n if values[i] == 1 else 0]
    median = MedianTime(
        value=_first_step(steps, values <= HALF),
        low=_first_step(steps, low <= HALF),
        # the whole curve up to a step may lie above, and so the interval does not end there
        high=_first_step(steps, high < HALF),
        followed=followed,
        method="log-log",
    )
    if median.low is None:
        median = median._replace(low=followed)
    return Survival(steps, values, low, high, at_risk, median, "log-log")


def _without_warnings(confidence_interval: Any, level: float) -> Any:
    """SciPy's band, which warns where it is undefined."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return confidence_interval(confidence_level=level, method="log-log")


def _first_step(
    steps: Float[np.ndarray, "change"], holds: Bool[np.ndarray, "change"]
) -> float | None:
    """The first step at which something holds; None if at none."""
    return float(steps[int(holds.argmax())]) if holds.any() else None


@lru_cache(maxsize=4096)
def wilson_table(n: int, level: float) -> Float[np.ndarray, "hits ends=2"]:
    """Wilson's interval of each number of hits out of n, from 0 to n.

    Args:
        n: how many seeds there are.
        level: of the interval.
    """
    from mnemoscope.verdicts.intervals import wilson

    return np.array([wilson(float(hits), n, level) for hits in range(n + 1)])


@lru_cache(maxsize=4096)
def median_ranks(n: int, level: float) -> tuple[int | None, int | None]:
    """Between which of n ordered values the median lies, counted from 0; None: they are too few.

    A fair coin comes up heads fewer than k times in n with probability at most (1 - level) / 2:
    the median is below the k-th lowest value no more often.

    Args:
        n: how many values there are.
        level: of the interval.
    """
    from mnemoscope.verdicts.intervals import order_statistics

    found = order_statistics([float(i) for i in range(n)], level)
    return (None, None) if found is None else (int(found[0]), int(found[1]))
