"""Where, along an axis, the share of seeds that reach the event crosses one half.

    value      on the straight line between the shares on both sides, made monotone
    interval   from the last value that is surely on one side to the first surely on the other

No curve is fitted, because a share may jump between two values of the axis or climb over ten, and
an interval that rests on a curve is wrong wherever the curve is: a logistic one is too sure of the
place of a jump. And no seeds are resampled: seeds that all agree would be certain of more than the
grid can show. Instead, starting from one end,

    the boundary lies beyond x_i   if, were it not, one of the next two values at or beyond x_i
                                   with enough seeds would be as it is with probability at most
                                   (1 - level) / 4                             (binomial, exact)

and the first x_i for which this fails ends the interval; the same from the other end. Each half
errs with probability at most (1 - level) / 2, however many values the axis has and even if the same
seeds stand in all cells, because the first wrong step is one test alone. At 95% a cell speaks from
7 seeds on. An interval is never narrower than the distance of two values: a finer grid is what
narrows it.

The share may also cross twice, as it does along learning rates. Then every crossing is told that is
seen where all cells together are judged at the level. No crossing at all is a result too.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.scale import Scale, axis_scale
from mnemoscope.sweeps.shares import HALF, USUAL

Direction = Literal["rising", "falling"]
Finding = Literal["crosses", "not monotone", "above", "below", "open"]
Counts = Int[np.ndarray, "value"]


class Crossing(NamedTuple):
    """One place at which the share goes through one half."""

    value: float | None
    """Where, between two values of the axis; None where the shares do not say."""
    low: float | None
    """Lower end of the interval; None where it lies below the axis."""
    high: float | None
    """Upper end of the interval; None where it lies above the axis."""
    direction: Direction
    """Whether the share rises or falls there, as the axis goes up."""

    def __str__(self) -> str:
        value = "?" if self.value is None else f"{self.value:.3g}"
        low = "below the axis" if self.low is None else f"{self.low:.3g}"
        high = "above the axis" if self.high is None else f"{self.high:.3g}"
        return f"{value} [{low}, {high}]"


class Boundary(NamedTuple):
    """Where the share of seeds crosses one half along one axis."""

    axis: str
    """Along which it was looked for."""
    finding: Finding
    """What was found: one crossing with both ends inside the grid; several; none, as all cells are
    surely above or below one half; or that the seeds do not say."""
    crossings: tuple[Crossing, ...]
    """Lowest first; none where nothing crosses inside the grid."""
    span: tuple[float, float]
    """The lowest and the highest value of the axis with seeds."""
    is_log: bool
    """Whether the axis is geometric, so that the crossing was placed by logarithms."""
    level: float
    """Of the intervals."""

    @property
    def is_monotone(self) -> bool:
        """Whether nothing speaks against a share that only rises or only falls."""
        return self.finding != "not monotone"

    def bracket(self, direction: Direction) -> tuple[float, float]:
        """Between which numbers the boundary lies; an end that is not known is infinite.

        Args:
            direction: of the share, which a row without a crossing does not tell by itself.
        """
        if self.finding == "not monotone":
            return -math.inf, math.inf
        if self.finding in ("above", "below"):
            is_beyond = (self.finding == "below") == (direction == "rising")
            return (self.span[1], math.inf) if is_beyond else (-math.inf, self.span[0])
        (one,) = self.crossings
        low = -math.inf if one.low is None else one.low
        high = math.inf if one.high is None else one.high
        return low, high

    def __str__(self) -> str:
        low, high = (f"{end:.3g}" for end in self.span)
        if self.finding in ("above", "below"):
            side = "more" if self.finding == "above" else "less"
            return (
                f"no crossing from {self.axis} = {low} to {high}: "
                f"{side} than half of the seeds reach everywhere"
            )
        if self.finding == "open":
            (one,) = self.crossings
            return f"{self.axis} = {one}: more seeds or a wider axis would say where"
        found = " and ".join(f"{each} ({each.direction})" for each in self.crossings)
        return f"{self.axis} = {found}"


def find_boundary(
    axis: str,
    values: Sequence[float | int],
    reached: Counts | Sequence[int],
    seeds: Counts | Sequence[int],
    level: float = USUAL,
    direction: Direction | None = None,
) -> Boundary:
    """Where the share of seeds crosses one half along an axis.

    Args:
        axis: its name.
        values: along it, in any order.
        reached: how many seeds reached the event, at each value.
        seeds: how many seeds there are, at each value; 0 where nothing was trained.
        level: of the intervals.
        direction: whether the share rises or falls; None: as is likelier.
    """
    hits = np.asarray(reached, int)
    n = np.asarray(seeds, int)
    if not len(values) == len(hits) == len(n):
        raise UserError(
            f"{axis}: {len(values)} values, {len(hits)} numbers of seeds that reached and "
            f"{len(n)} numbers of seeds; allowed: as many of each"
        )
    if (hits < 0).any() or (hits > n).any():
        raise UserError(f"{axis}: of a cell's seeds 0 to all reach, got {hits.max()} of {n.max()}")
    if not n.any():
        raise UserError(f"{axis}: no cell along it has seeds")
    known = [value for value, count in zip(values, n, strict=True) if count]
    scale = axis_scale(axis, known)
    hits = hits[n > 0][scale.order]
    n = n[n > 0][scale.order]
    span = (float(scale.values[0]), float(scale.values[-1]))
    crossings = _sure_crossings(scale, hits, n, level)
    if len(crossings) > 1:
        return Boundary(axis, "not monotone", tuple(crossings), span, scale.is_log, level)
    if direction is None:
        direction = "rising" if leans_to_rise(hits, n) >= 0 else "falling"
    one = _one_crossing(scale, hits, n, level, direction)
    finding: Finding = "open"
    if one.low is not None and one.high is not None:
        finding = "crosses"
    elif one.low == span[1]:
        finding = "below" if direction == "rising" else "above"
    elif one.high == span[0]:
        finding = "above" if direction == "rising" else "below"
    found = () if finding in ("above", "below") else (one,)
    return Boundary(axis, finding, found, span, scale.is_log, level)


def leans_to_rise(hits: Counts, n: Counts) -> float:
    """How much likelier the seeds are under shares that never fall than under ones that never rise:
    the logarithm of the ratio.
    """
    rising = _log_likelihood(_monotone(hits, n), hits, n)
    falling = _log_likelihood(1 - _monotone(n - hits, n), hits, n)
    return rising - falling


def _one_crossing(
    scale: Scale, hits: Counts, n: Counts, level: float, direction: Direction
) -> Crossing:
    """The crossing of a share that only rises, or only falls."""
    # of a falling share those seeds rise that do not reach
    counted = hits if direction == "rising" else n - hits
    error = (1 - level) / 4
    n_below = _surely_below(counted, n, error)
    n_above = _surely_below((n - counted)[::-1], n[::-1], error)
    low = float(scale.values[n_below - 1]) if n_below else None
    high = float(scale.values[len(n) - n_above]) if n_above else None
    value = _halfway(scale, _monotone(counted, n))
    if value is not None:  # shares that surely are not monotone could have moved it out
        value = min(
            max(value, -math.inf if low is None else low), math.inf if high is None else high
        )
    return Crossing(value, low, high, direction)


def _surely_below(hits: Counts, n: Counts, error: float) -> int:
    """How many values from the first on are surely below one half, if the share only rises.

    Args:
        hits: of the seeds, at each value.
        n: how many seeds there are.
        error: of a single test; each value has two.
    """
    speaks = [i for i in range(len(n)) if 0.5 ** int(n[i]) <= error]
    sure = 0
    for i in range(len(n)):
        beyond = [j for j in speaks if j >= i][:2]
        if not any(hits[j] <= most_hits_below(int(n[j]), error) for j in beyond):
            break
        sure = i + 1
    return sure


@lru_cache(maxsize=4096)
def most_hits_below(n: int, error: float) -> int:
    """Up to how many hits of n a share is surely below one half; -1: n is too few.

    Args:
        n: how many seeds there are.
        error: the probability that a share of one half has so few hits.
    """
    from scipy.special import bdtr

    chances = bdtr(np.arange(n + 1), n, HALF)
    return int((chances <= error).sum()) - 1


def _sure_crossings(scale: Scale, hits: Counts, n: Counts, level: float) -> list[Crossing]:
    """Crossings between cells that are surely on one side, all of them judged at once."""
    error = (1 - level) / 2 / len(n)
    seen = list(zip(hits.tolist(), n.tolist(), strict=True))
    surely_below = np.array([k <= most_hits_below(m, error) for k, m in seen])
    surely_above = np.array([m - k <= most_hits_below(m, error) for k, m in seen])
    found: list[Crossing] = []
    last: int | None = None
    for i in np.flatnonzero(surely_below | surely_above):
        if last is not None and surely_below[last] != surely_below[i]:
            rises = bool(surely_below[last])
            between = slice(last, int(i) + 1)
            counted = hits[between] if rises else (n - hits)[between]
            value = _halfway(scale, _monotone(counted, n[between]), offset=last)
            ends = (float(scale.values[last]), float(scale.values[i]))
            found.append(Crossing(value, *ends, "rising" if rises else "falling"))
        last = int(i)
    return found


def _monotone(hits: Counts, n: Counts) -> Float[np.ndarray, "value"]:
    """The likeliest shares that never fall: neighbors that do are taken together."""
    blocks: list[tuple[float, float, int]] = []
    for k, m in zip(hits.tolist(), n.tolist(), strict=True):
        blocks.append((k, m, 1))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            last = blocks.pop()
            before = blocks.pop()
            blocks.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    return np.concatenate([np.full(width, k / m) for k, m, width in blocks])


def _log_likelihood(shares: Float[np.ndarray, "value"], hits: Counts, n: Counts) -> float:
    """The logarithm of the probability of what was seen."""
    from scipy.special import xlogy

    return float((xlogy(hits, shares) + xlogy(n - hits, 1 - shares)).sum())


def _halfway(scale: Scale, shares: Float[np.ndarray, "value"], offset: int = 0) -> float | None:
    """Where shares that never fall pass one half; None where they do not.

    Args:
        scale: of the axis.
        shares: at some of its values, one after another.
        offset: which value is the first of them.
    """
    if shares[0] > HALF or shares[-1] < HALF:
        return None
    values = scale.values[offset : offset + len(shares)]
    # where several are exactly one half, in the middle of them
    first = int((shares >= HALF).argmax())
    last = len(shares) - 1 - int((shares[::-1] <= HALF).argmax())
    if shares[first] == HALF:
        return scale.between(float(values[first]), float(values[last]), 0.5)
    before = first - 1
    part = (HALF - shares[before]) / (shares[first] - shares[before])
    return scale.between(float(values[before]), float(values[first]), float(part))
