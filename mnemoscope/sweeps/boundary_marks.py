"""Where the boundary runs over the squares of a map, in squares from the upper left corner."""

import math
from typing import NamedTuple

from mnemoscope.sweeps.boundary_curve import boundary_curve, cut
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.laid_out import Plane
from mnemoscope.sweeps.scale import Scale, axis_scale
from mnemoscope.sweeps.shares import USUAL


class Mark(NamedTuple):
    """A band, or the line of the boundary itself, in one row or column of squares."""

    is_band: bool
    """Whether it is the interval; else it is the boundary."""
    left: float
    """In squares."""
    top: float
    """In squares."""
    right: float
    """In squares; of an upright line the same as `left`."""
    bottom: float
    """In squares; of a level line the same as `top`."""


def boundary_marks(
    grid: Grid, plane: Plane, axis: str, panel: int, level: float = USUAL
) -> list[Mark]:
    """The boundary in each row (or column) of one panel that has one, with its interval.

    Args:
        grid: whose cells are read.
        plane: how it is laid out.
        axis: along which the share crosses one half: that of the columns or of the rows.
        panel: which of the panels.
        level: of the intervals.
    """
    goes_right = axis == plane.columns.axis
    across = plane.columns if goes_right else plane.rows
    other = plane.rows if goes_right else plane.columns
    fixed = {name: values[0] for name, values in grid.axes.items() if len(values) == 1}
    if plane.panels.axis:
        fixed[plane.panels.axis] = plane.panels.values[panel]
    for kept in (across.axis, other.axis):
        fixed.pop(kept, None)
    part = cut(grid, fixed)
    if not part.cells or not other.axis:
        return []
    curve = boundary_curve(part, across.axis, other.axis, level=level)
    scale = axis_scale(across.axis, across.values)
    marks: list[Mark] = []
    for value, found, bracket in zip(curve.values, curve.boundaries, curve.brackets(), strict=True):
        if found.finding in ("above", "below"):
            continue
        bands = [bracket]
        if len(found.crossings) > 1:
            bands = [
                (
                    -math.inf if one.low is None else one.low,
                    math.inf if one.high is None else one.high,
                )
                for one in found.crossings
            ]
        lines = [(one.value, one.value) for one in found.crossings if one.value is not None]
        at = other.values.index(value)
        for is_band, ends in [*((True, ends) for ends in bands), *((False, x) for x in lines)]:
            begin, end = sorted(_along(x, scale, not goes_right) for x in ends)
            sides = (begin, at, end, at + 1) if goes_right else (at, begin, at + 1, end)
            marks.append(Mark(is_band, *map(float, sides)))
    return marks


def _along(x: float, scale: Scale, from_below: bool) -> float:
    """Where a number of an axis stands, in squares from its first edge on the paper."""
    n = len(scale.values)
    if x < scale.values[0]:
        at = 0.0
    elif x > scale.values[-1]:
        at = float(n)
    elif n == 1:
        at = 0.5
    else:
        i = min(int((scale.values <= x).sum()) - 1, n - 2)
        here = math.log(x) if scale.is_log else x
        first = float(scale.positions[i])
        at = i + 0.5 + (here - first) / (float(scale.positions[i + 1]) - first)
    return n - at if from_below else at
