r"""Intervals that stay valid when one looks again after every block of units.

Looked at often enough, a usual 95% interval misses the truth at some look far more than once in
twenty. These do not:

    share          all p with  B(k + 1, n - k + 1) / (p^k (1 - p)^(n - k)) < 1 / alpha
                   the mixture of likelihood ratios over a uniform prior; by Ville's inequality the
                   true p is outside at any look with probability at most alpha
    bounded mean   the empirical Bernstein confidence sequence with predictable weights
                   (Waudby-Smith and Ramdas; Howard, Ramdas, McAuliffe and Sekhon)
    others         an interval at a quarter of the error, for at most four looks
"""

import math
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from scipy.optimize import brentq
from scipy.special import betaln

from mnemoscope.verdicts.claim import Part
from mnemoscope.verdicts.intervals import MIN_UNITS, Estimate, estimate

MAX_LOOKS = 4
"""How often a claim is looked at whose intervals have no sequence of their own."""


def estimate_while_looking(
    part: Part, values: Sequence[float], others: Sequence[float], level: float
) -> Estimate:
    """A part's number with an interval that holds at every look at once.

    Args:
        part: says what the number is.
        values: one for each unit, in the order in which units were added.
        others: of the second group, for a difference.
        level: at which all looks together hold.
    """
    stricter = 1 - (1 - level) / MAX_LOOKS
    found = estimate(part.kind, values, others, stricter)
    if found.interval is None or part.kind == "exact":
        return found
    if part.kind == "share":
        return found._replace(interval=share_sequence(sum(values), len(values), level))
    if part.kind == "mean" and part.bounds:
        return found._replace(interval=mean_sequence(values, part.bounds, level))
    return found


def has_sequence(part: Part) -> bool:
    """Whether a part may be looked at any number of times."""
    return part.kind == "share" or (part.kind == "mean" and part.bounds is not None)


def share_sequence(hits: float, n: int, level: float) -> tuple[float, float]:
    """The confidence sequence of a share after n units.

    Args:
        hits: how many units do it.
        n: how many units there are.
        level: at which all looks together hold.
    """
    threshold = math.log(1 / (1 - level))
    mixture = float(betaln(hits + 1, n - hits + 1))

    def excess(p: float) -> float:
        likelihood = hits * math.log(p) if hits else 0.0
        if n > hits:
            likelihood += (n - hits) * math.log1p(-p)
        return mixture - likelihood - threshold

    share = hits / n
    edge = 1e-12
    low = 0.0 if hits == 0 else _root(excess, edge, min(share, 1 - edge))
    high = 1.0 if hits == n else _root(excess, max(share, edge), 1 - edge)
    return low, high


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function is zero between two numbers at which it has different signs."""
    return cast(float, brentq(function, low, high))


def mean_sequence(
    values: Sequence[float], bounds: tuple[float, float], level: float
) -> tuple[float, float]:
    """The confidence sequence of the mean of bounded values: what all looks so far leave of it.

    With x scaled to [0, 1], mu and sigma^2 the running mean and variance before each value:

        lambda_t = min(sqrt(2 log(2 / alpha) / (sigma_{t-1}^2 t log(1 + t))), 1 / 2)
        mean = sum lambda x / sum lambda +- (log(2 / alpha) + sum v psi(lambda)) / sum lambda
        v_t = 4 (x_t - mu_{t-1})^2,   psi(lambda) = (-log(1 - lambda) - lambda) / 4

    Args:
        values: in the order in which units were added.
        bounds: between which every value must lie.
        level: at which all looks together hold.
    """
    low, high = bounds
    x = (np.asarray(values, float) - low) / (high - low)
    if x.min() < 0 or x.max() > 1:
        raise ValueError(f"a value lies outside its bounds {bounds}")
    t = np.arange(1, len(x) + 1)
    log_error = math.log(2 / (1 - level))
    # half a unit at 1/2 stands for what is not known yet
    mean = (0.5 + np.cumsum(x)) / (t + 1)
    variance = (0.25 + np.cumsum((x - mean) ** 2)) / (t + 1)
    mean_before = np.concatenate([[0.5], mean[:-1]])
    variance_before = np.concatenate([[0.25], variance[:-1]])
    weight = np.minimum(np.sqrt(2 * log_error / (variance_before * t * np.log1p(t))), 0.5)
    spread = np.cumsum(4 * (x - mean_before) ** 2 * (-np.log1p(-weight) - weight) / 4)
    total = np.cumsum(weight)
    center = np.cumsum(weight * x) / total
    half = (log_error + spread) / total
    # every look holds at once, so the truth is in all of them
    lowest = max(0.0, float((center - half)[MIN_UNITS - 1 :].max()))
    highest = min(1.0, float((center + half)[MIN_UNITS - 1 :].min()))
    if lowest > highest:  # happens with probability at most 1 - level
        lowest, highest = highest, lowest
    return low + lowest * (high - low), low + highest * (high - low)
