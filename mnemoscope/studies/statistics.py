"""Intervals over seeds and the rules that turn them into verdicts."""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from mnemoscope.studies.claims import Verdict

MOST = 0.9  # of the seeds: nearly every one
FEW = 0.1  # of the seeds: hardly any
Interval = tuple[float, float]


def share_interval(hits: Sequence[bool] | np.ndarray) -> tuple[float, Interval]:
    """The share of seeds that do it, with its 95% Wilson interval."""
    n_hits = int(np.sum(hits))
    n_seeds = len(hits)
    bounds = stats.binomtest(n_hits, n_seeds).proportion_ci(0.95, method="wilson")
    return n_hits / n_seeds, (float(bounds.low), float(bounds.high))


def mean_interval(values: Sequence[float] | np.ndarray) -> tuple[float, Interval]:
    """The mean over seeds with its 95% bootstrap interval.

    Its ends are percentiles of 9,999 resamples, always the same ones.
    """
    values = np.asarray(values, float)
    mean = float(values.mean())
    if np.ptp(values) == 0:  # nothing to resample; SciPy would warn of a degenerate distribution
        return mean, (mean, mean)
    result = stats.bootstrap(
        (values,),
        np.mean,
        method="percentile",
        rng=np.random.default_rng(0),
        batch=200 if len(values) > 1000 else None,  # all resamples at once would be gigabytes
    )
    bounds = result.confidence_interval
    return mean, (float(bounds.low), float(bounds.high))


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """The exponent b of the power law y = c x^b that fits best in logarithms."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def share_verdict(hits: Sequence[bool] | np.ndarray) -> tuple[Verdict, float, Interval]:
    """Reproduced when at least 90% of seeds do it, refuted when at most 10% do, partly in between.

    Undecided when there are so few seeds that the interval holds both.
    """
    share, interval = share_interval(hits)
    low, high = interval
    if low <= FEW and high >= MOST:
        return "undecided", share, interval
    if share >= MOST:
        return "reproduced", share, interval
    if share <= FEW:
        return "refuted", share, interval
    return "partly", share, interval


def parts_verdict(holds: Iterable[bool]) -> Verdict:
    """Reproduced when every part of a claim holds, partly when some do, refuted when none does."""
    parts = list(holds)
    if all(parts):
        return "reproduced"
    return "partly" if any(parts) else "refuted"
