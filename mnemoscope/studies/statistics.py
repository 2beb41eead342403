"""Intervals over seeds and the rules that turn them into verdicts."""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from mnemoscope.studies.claims import Verdict

MOST, FEW = 0.9, 0.1  # "nearly every seed" and "hardly any seed"
Interval = tuple[float, float]


def share_interval(hits: Sequence[bool] | np.ndarray) -> tuple[float, Interval]:
    """The share of seeds that do it, with its 95% Wilson interval."""
    k, n = int(np.sum(hits)), len(hits)
    bounds = stats.binomtest(k, n).proportion_ci(0.95, method="wilson")
    return k / n, (float(bounds.low), float(bounds.high))


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, Interval]:
    """The mean over seeds with its 95% bootstrap interval (percentiles of 9,999 resamples, always the same ones)."""
    values = np.asarray(values, float)
    mean = float(values.mean())
    if np.ptp(values) == 0:  # nothing to resample; SciPy would warn of a degenerate distribution
        return mean, (mean, mean)
    at_once = 200 if len(values) > 1000 else None  # all resamples of many values would be gigabytes
    result = stats.bootstrap((values,), np.mean, method="percentile", rng=np.random.default_rng(0), batch=at_once)
    return mean, (float(result.confidence_interval.low), float(result.confidence_interval.high))


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """The exponent b of the power law y = c x^b that fits best in logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def share_verdict(hits: Sequence[bool] | np.ndarray) -> tuple[Verdict, float, Interval]:
    """Reproduced when at least 90% of seeds do it, refuted when at most 10% do, partly in between.

    Undecided when there are so few seeds that the interval holds both.
    """
    share, interval = share_interval(hits)
    if interval[0] <= FEW and interval[1] >= MOST:
        return "undecided", share, interval
    return "reproduced" if share >= MOST else "refuted" if share <= FEW else "partly", share, interval
