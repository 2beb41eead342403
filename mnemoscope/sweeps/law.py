"""A power law: what grows as a power of a size, and how well the seeds know the power.

    y = c K^b,      log y_j between l_j and h_j at size K_j

    largest power    min over K_i < K_j of (h_j - l_i) / (log K_j - log K_i)
    smallest power   max over K_i < K_j of (l_j - h_i) / (log K_j - log K_i)

y is a boundary, or the median of a time or of a metric. Each of m sizes brings an interval at the
level 1 - (1 - level) / m, so all of them hold at once; the powers of all lines that pass through
all of them are exactly those above. If there are none, no power law holds over these sizes, and
that is a result. What was not reached has no upper end, and a boundary beyond the grid has only one
end: such a size bounds the power from one side and never becomes a number.

`by_seed` is what a claim is judged by: each seed's own power by least squares, at its least and at
its greatest where the seed's own number is known only to lie between two. The mean of both over the
seeds has Student's interval, as every mean of units (`mnemoscope.verdicts`).
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.shares import USUAL

Sizes = Float[np.ndarray, "size"]


class SeedPowers(NamedTuple):
    """Each seed's own power, for a claim: parts of a `Measurement`."""

    seeds: tuple[int, ...]
    """Those that were trained at every size."""
    least: Float[np.ndarray, "seed"]
    """The smallest power that each seed allows; minus infinity where it bounds none."""
    greatest: Float[np.ndarray, "seed"]
    """The largest; the same as the smallest where the seed's numbers are known at all sizes."""

    def mean_interval(self, level: float = USUAL) -> tuple[float, float] | None:
        """Where the mean of the seeds' own powers lies: from the lower end of Student's interval of
        the smallest to the upper end of that of the largest. None where a seed's power has an open
        end, or with fewer seeds than a verdict needs.

        Args:
            level: of the interval.
        """
        from mnemoscope.verdicts.intervals import MIN_UNITS, student

        ends = np.concatenate([self.least, self.greatest])
        if len(self.seeds) < MIN_UNITS or not np.isfinite(ends).all():
            return None
        low, _ = student(self.least.tolist(), level)
        _, high = student(self.greatest.tolist(), level)
        return low, high


class Law(NamedTuple):
    """A power law and the range that it was fitted on."""

    quantity: str
    """What grows: `boundary of model.d_model`, `median time`."""
    axis: str
    """With what it grows."""
    power: float | None
    """The middle of the interval; None where the interval has an open end, or no power fits."""
    interval: tuple[float, float] | None
    """The powers that fit; an end that is not known is infinite. None: no power fits."""
    level: float
    """Of the interval."""
    sizes: tuple[float, ...]
    """At which it was measured, lowest first."""
    brackets: tuple[tuple[float, float], ...]
    """At each size: between which numbers the quantity lies, all of them at once."""
    by_seed: SeedPowers
    """Each seed's own power."""

    @property
    def fitted_on(self) -> str:
        """The range that the law was fitted on, in words; it says nothing outside."""
        known = [end for bracket in self.brackets for end in bracket if 0 < end < math.inf]
        beyond = sum(low <= 0 or high == math.inf for low, high in self.brackets)
        text = (
            f"{len(self.sizes)} sizes, {self.axis} = {self.sizes[0]:g} to {self.sizes[-1]:g} "
            f"({self.sizes[-1] / self.sizes[0]:.3g}-fold)"
        )
        if known:
            text += f", {self.quantity} {min(known):.3g} to {max(known):.3g}"
        return text + (f"; at {beyond} of them one end is not known" if beyond else "")

    def __str__(self) -> str:
        if self.interval is None:
            found = "no power law fits"
        elif self.power is not None:
            found = f"{self.power:.2f} [{self.interval[0]:.2f}, {self.interval[1]:.2f}]"
        elif self.interval == (-math.inf, math.inf):
            found = "unknown"
        else:
            low, high = self.interval
            found = f"at least {low:.2f}" if math.isinf(high) else f"at most {high:.2f}"
        own = self.by_seed.mean_interval(self.level)
        if own is not None:
            found += f"; seeds' own, on average {own[0]:.2f} to {own[1]:.2f}"
        return f"power of {self.quantity} in {self.axis}: {found} ({self.fitted_on})"


def fit_brackets(sizes: Sizes, low: Sizes, high: Sizes) -> tuple[float, float] | None:
    """The powers of all laws y = c K^b that lie between two numbers at every size.

    Args:
        sizes: at least two, lowest first.
        low: at each size, the least that y can be; 0 or less where nothing is known.
        high: at each size, the most; infinite where nothing is known.
    """
    logs = np.log(sizes)
    with np.errstate(divide="ignore"):
        lowest = np.log(np.maximum(low, 0.0))
        highest = np.log(np.maximum(high, 0.0))
    smallest = -math.inf
    largest = math.inf
    for i in range(len(logs)):
        for j in range(i + 1, len(logs)):
            apart = logs[j] - logs[i]
            largest = min(largest, float(highest[j] - lowest[i]) / apart)
            smallest = max(smallest, float(lowest[j] - highest[i]) / apart)
    fits = smallest <= largest and bool((lowest <= highest).all())
    return (float(smallest), float(largest)) if fits else None


def own_powers(
    sizes: Sizes, low: Float[np.ndarray, "seed size"], high: Float[np.ndarray, "seed size"]
) -> tuple[Float[np.ndarray, "seed"], Float[np.ndarray, "seed"]]:
    """Each seed's least and greatest power by least squares in logarithms.

    The power is sum_j w_j log y_j with w_j = (k_j - mean k) / sum (k - mean k)^2, k = log K; it is
    least where each y_j with w_j > 0 is as small and each with w_j < 0 as large as it can be.

    Args:
        sizes: at least two, lowest first.
        low: the least that each seed's y can be.
        high: the most; the same where it is known.
    """
    logs = np.log(sizes)
    weights = (logs - logs.mean()) / ((logs - logs.mean()) ** 2).sum()
    weights = np.where(np.abs(weights) < 1e-12, 0.0, weights)
    with np.errstate(divide="ignore"):
        lowest = np.log(np.maximum(low, 0.0))
        highest = np.log(np.maximum(high, 0.0))

    def summed(rising: np.ndarray, falling: np.ndarray) -> Float[np.ndarray, "seed"]:
        chosen = np.where(weights > 0, rising, falling)
        # what has no weight bounds nothing, however far away it is
        return np.where(weights == 0, 0.0, weights * np.where(weights == 0, 0.0, chosen)).sum(
            axis=1
        )

    return summed(lowest, highest), summed(highest, lowest)


def make_law(
    quantity: str,
    along: str,
    by_size: Mapping[float, tuple[float, float]],
    by_seed: Mapping[float, Mapping[int, tuple[float, float]]],
    level: float,
) -> Law:
    """The law through what is known at each size.

    Args:
        quantity: what grows, in words.
        along: the axis of the sizes.
        by_size: between which numbers the quantity lies at each size, all at once at the level.
        by_seed: by size and seed, between which numbers the seed's own quantity lies.
        level: of all sizes together.
    """
    sizes = np.array(sorted(by_size), float)
    if len(sizes) < 3:
        raise UserError(f"a power law needs cells at 3 sizes of {along}, got {len(sizes)}")
    brackets = tuple(by_size[size] for size in sorted(by_size))
    low, high = np.array(brackets, float).T
    interval = fit_brackets(sizes, low, high)
    power = None
    if interval is not None and all(map(math.isfinite, interval)):
        power = (interval[0] + interval[1]) / 2
    everywhere = set.intersection(*(set(seeds) for seeds in by_seed.values()))
    seeds = tuple(sorted(everywhere))
    ends = np.array(
        [[by_seed[size][seed] for size in sorted(by_size)] for seed in seeds], float
    ).reshape(len(seeds), len(sizes), 2)
    least, greatest = own_powers(sizes, ends[:, :, 0], ends[:, :, 1])
    own = SeedPowers(seeds, least, greatest)
    return Law(quantity, along, power, interval, level, tuple(sizes.tolist()), brackets, own)
