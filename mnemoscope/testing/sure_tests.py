r"""Statistical tests that an honest task never fails by luck, whatever its distribution.

A bet that multiplies one's money by q(x) / p(x) at each independent x is fair if x is drawn from p,
for any q that was fixed before: the money is 1 on average, so that (Markov)

    P(money >= 1 / ERROR_RATE) <= ERROR_RATE

Sums of bounded numbers are tested by Maurer and Pontil's bound, which holds for every distribution:

    E d <= mean + sqrt(2 v ln(2 / ERROR_RATE) / n) + 7 R ln(2 / ERROR_RATE) / (3 (n - 1))

with the sample's variance v and the range R.
"""

import math
from collections.abc import Mapping

import numpy as np

from mnemoscope.core.axes import Float

ERROR_RATE = 1e-9


def best_bet(ratios: Mapping[str, Float[np.ndarray, "sequence"]]) -> tuple[str, float]:
    """The bet that won most, and log10 of what all of them made of 1 that was shared out evenly.

    Args:
        ratios: by bet, what it multiplies its money by at each sequence; 1 on average if the
            distribution is the one that is claimed.
    """
    with np.errstate(divide="ignore"):
        logs = {name: float(np.log10(ratio).sum()) for name, ratio in ratios.items()}
    best = max(logs, key=lambda name: logs[name])
    if logs[best] == -math.inf:
        return best, -math.inf
    shares = sum(10.0 ** (log - logs[best]) for log in logs.values())
    return best, logs[best] + math.log10(shares / len(logs))


def is_refuted(log10_money: float) -> bool:
    """Whether so much money was won that the distribution is not the one that is claimed."""
    return bool(log10_money >= -math.log10(ERROR_RATE))


def largest_mean(numbers: Float[np.ndarray, "sequence"], width: float) -> float:
    """What the mean of a distribution is not above, but for ERROR_RATE.

    Args:
        numbers: drawn from it, independently.
        width: from the least to the largest number that it has.
    """
    n = len(numbers)
    log = math.log(2 / ERROR_RATE)
    spread = math.sqrt(2 * float(np.var(numbers, ddof=1)) * log / n)
    return float(np.mean(numbers)) + spread + 7 * width * log / (3 * (n - 1))
