"""Power laws of a grid: of a boundary, of the median time to the event, of a metric's median.

Each says what is known at every size; what follows for the power is `law`'s.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.sweeps.boundary_curve import boundary_curve, only_axes
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.law import Law, make_law
from mnemoscope.sweeps.scale import is_numeric
from mnemoscope.sweeps.shares import USUAL
from mnemoscope.sweeps.survival import cell_survival, median_ranks

Bracket = tuple[float, float]


def boundary_law(
    grid: Grid, axis: str, along: str, at: Mapping[str, Any] | None = None, level: float = USUAL
) -> Law:
    """How the boundary along one axis grows with another: "it grows as K to the power a".

    A seed's own boundary at a size lies between two neighboring values of the axis. Where the share
    climbs over many values, the mean of the seeds' own powers says more than the interval of all
    boundaries: each of these needs cells that are surely on one side.

    Args:
        grid: whose cells are read.
        axis: along which the share crosses one half.
        along: the size.
        at: a value for each further axis; an axis with one value needs none.
        level: of the interval.
    """
    sizes = _sizes(grid, along)
    if axis in grid.axes and is_numeric(grid.axes[axis]) and min(grid.axes[axis]) <= 0:
        raise UserError(f"a power law needs a boundary among numbers above 0; {axis} has others")
    curve = boundary_curve(grid, axis, along, at, 1 - (1 - level) / len(sizes))
    by_size = dict(zip(map(float, curve.values), curve.brackets(), strict=True))
    plane = only_axes(grid, (axis, along), at)
    by_seed: dict[float, dict[int, Bracket]] = {}
    for size in by_size:
        row = sorted((c for c in plane.cells if c.at[along] == size), key=lambda c: c.at[axis])
        by_seed[size] = {
            seed: _own_bracket(
                [
                    (float(c.at[axis]), bool(c.reached[c.seeds.index(seed)]))
                    for c in row
                    if seed in c.seeds
                ],
                rises=curve.direction == "rising",
            )
            for seed in sorted({seed for c in row for seed in c.seeds})
        }
    return make_law(f"boundary of {axis}", along, by_size, by_seed, level)


def time_law(
    grid: Grid, along: str, at: Mapping[str, Any] | None = None, level: float = USUAL
) -> Law:
    """How the median time to the event grows with a size.

    Args:
        grid: whose cells are read.
        along: the size.
        at: a value for each further axis; an axis with one value needs none.
        level: of the interval.
    """
    sizes = _sizes(grid, along)
    row = only_axes(grid, (along,), at)
    by_size: dict[float, Bracket] = {}
    by_seed: dict[float, dict[int, Bracket]] = {}
    for cell in row.cells:
        size = float(cell.at[along])
        median = cell_survival(cell, 1 - (1 - level) / len(sizes)).median
        by_size[size] = (median.low or 0.0, math.inf if median.high is None else median.high)
        by_seed[size] = {
            seed: (float(time), float(time) if did else math.inf)
            for seed, time, did in zip(cell.seeds, cell.times, cell.reached, strict=True)
        }
    return make_law("median time", along, by_size, by_seed, level)


def metric_law(
    grid: Grid,
    metric: str,
    along: str,
    at: Mapping[str, Any] | None = None,
    level: float = USUAL,
) -> Law:
    """How the median of a metric at the end of training grows with a size.

    Of a seed that diverged nothing is known: it may lie anywhere above 0.

    Args:
        grid: whose cells are read.
        metric: its name; one number above 0 for each seed.
        along: the size.
        at: a value for each further axis; an axis with one value needs none.
        level: of the interval.
    """
    sizes = _sizes(grid, along)
    row = only_axes(grid, (along,), at)
    by_size: dict[float, Bracket] = {}
    by_seed: dict[float, dict[int, Bracket]] = {}
    for cell in row.cells:
        if metric not in cell.metrics:
            raise UserError(unknown("metric", metric, cell.metrics))
        values = np.asarray(cell.metrics[metric], float)
        if values.ndim != 1 or (values[np.isfinite(values)] <= 0).any():
            raise UserError(f"a power law needs one number above 0 for each seed of {metric}")
        known = np.isfinite(values)
        # a seed without a number counts as low for one end and as high for the other
        least = np.sort(np.where(known, values, 0.0))
        most = np.sort(np.where(known, values, math.inf))
        first, last = median_ranks(len(values), 1 - (1 - level) / len(sizes))
        low = 0.0 if first is None else float(least[first])
        high = math.inf if last is None else float(most[last])
        by_size[float(cell.at[along])] = (low, high)
        ends = zip(np.where(known, values, 0.0), np.where(known, values, math.inf), strict=True)
        by_seed[float(cell.at[along])] = dict(zip(cell.seeds, ends, strict=True))
    return make_law(f"median {metric}", along, by_size, by_seed, level)


def _sizes(grid: Grid, along: str) -> tuple[Any, ...]:
    """The sizes of a law, checked."""
    if along not in grid.axes:
        raise UserError(unknown("axis", along, grid.axes))
    sizes = grid.axes[along]
    if not is_numeric(sizes) or min(sizes) <= 0:
        raise UserError(f"a power law needs an axis of numbers above 0; {along} has {short(sizes)}")
    if len(sizes) < 3:
        raise UserError(f"a power law needs at least 3 sizes of {along}, got {len(sizes)}")
    return sizes


def _own_bracket(flags: Sequence[tuple[float, bool]], rises: bool) -> Bracket:
    """Between which values of an axis one seed begins (or ceases) to reach.

    As many values lie below as there are at which it has not begun (not yet ceased): what Spearman
    and Karber count. Of a seed that goes over once and for all it is the very place; for one that
    does both by turns the values that are out of order balance each other.

    Args:
        flags: the values in their order, and whether the seed reached there.
        rises: whether seeds reach from some value on, or up to some value.
    """
    below = sum(did != rises for _, did in flags)
    low = flags[below - 1][0] if below else -math.inf
    high = flags[below][0] if below < len(flags) else math.inf
    return low, high
