"""Boundaries of a grid: one along an axis, or one at each value of a second axis, as a curve.

Both take what they need from the grid's cells; how one boundary is found is `boundary`'s.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.sweeps.boundary import Boundary, Direction, find_boundary, leans_to_rise
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.scale import axis_scale
from mnemoscope.sweeps.shares import USUAL


class BoundaryCurve(NamedTuple):
    """Where along one axis the share crosses one half, at each value of another."""

    axis: str
    """Along which the boundary was looked for."""
    along: str
    """The other axis."""
    values: tuple[Any, ...]
    """Of the other axis, in its order; those that have seeds."""
    boundaries: tuple[Boundary, ...]
    """At each of the values."""
    direction: Direction
    """Whether the share rises or falls along the first axis, in all rows together."""

    def brackets(self) -> tuple[tuple[float, float], ...]:
        """At each of the values: between which numbers the boundary lies."""
        return tuple(each.bracket(self.direction) for each in self.boundaries)

    def __str__(self) -> str:
        rows = zip(self.values, self.boundaries, strict=True)
        return "\n".join(f"{self.along} = {value}: {each}" for value, each in rows)


def cut(grid: Grid, at: Mapping[str, Any]) -> Grid:
    """The part of a grid with these values on these axes, without the axes.

    Args:
        grid: of which a part is wanted.
        at: by axis, the one value that is kept.
    """
    for axis, value in at.items():
        if axis not in grid.axes:
            raise UserError(unknown("axis", axis, grid.axes))
        if value not in grid.axes[axis]:
            raise UserError(unknown(f"value of {axis}", value, grid.axes[axis]))
    left = {axis: values for axis, values in grid.axes.items() if axis not in at}
    cells = tuple(
        replace(cell, at={axis: cell.at[axis] for axis in left})
        for cell in grid.cells
        if all(cell.at[axis] == value for axis, value in at.items())
    )
    return Grid(left, cells, grid.event)


def boundary_of(
    grid: Grid, axis: str, at: Mapping[str, Any] | None = None, level: float = USUAL
) -> Boundary:
    """Where the share crosses one half along an axis of a grid.

    Args:
        grid: whose cells are read.
        axis: along which the boundary is looked for.
        at: a value for each other axis; an axis with one value needs none.
        level: of the interval.
    """
    row = only_axes(grid, (axis,), at)
    return find_boundary(axis, row.axes[axis], *_counts(row.axes[axis], axis, row.cells), level)


def boundary_curve(
    grid: Grid, axis: str, along: str, at: Mapping[str, Any] | None = None, level: float = USUAL
) -> BoundaryCurve:
    """Where the share crosses one half along one axis, at each value of another.

    Args:
        grid: whose cells are read.
        axis: along which the boundary is looked for.
        along: the other axis.
        at: a value for each further axis; an axis with one value needs none.
        level: of each interval by itself.
    """
    if axis == along:
        raise UserError(f"a boundary along {axis} needs another axis to be drawn along")
    plane = only_axes(grid, (axis, along), at)
    by_value: dict[Any, list[Cell]] = {value: [] for value in plane.axes[along]}
    for cell in plane.cells:
        by_value[cell.at[along]].append(cell)
    counts = {
        value: _counts(plane.axes[axis], axis, cells) for value, cells in by_value.items() if cells
    }
    order = axis_scale(axis, plane.axes[axis]).order
    # each row alone may be too flat to say; all of them together have one direction
    leaning = 0.0
    for hits, n in counts.values():
        known = order[n[order] > 0]
        leaning += leans_to_rise(hits[known], n[known])
    direction: Direction = "rising" if leaning >= 0 else "falling"
    found = tuple(
        find_boundary(axis, plane.axes[axis], hits, n, level, direction)
        for hits, n in counts.values()
    )
    return BoundaryCurve(axis, along, tuple(counts), found, direction)


def only_axes(grid: Grid, wanted: tuple[str, ...], at: Mapping[str, Any] | None) -> Grid:
    """The grid on the wanted axes alone.

    Args:
        grid: of which a part is wanted.
        wanted: the axes that are kept.
        at: a value for each other axis; an axis with one value needs none.
    """
    chosen = dict(at or {})
    for axis in wanted:
        if axis not in grid.axes:
            raise UserError(unknown("axis", axis, grid.axes))
        if axis in chosen:
            raise UserError(f"{axis} is looked along, so it has no one value; got {chosen[axis]}")
    for axis, values in grid.axes.items():
        if axis in wanted or axis in chosen:
            continue
        if len(values) > 1:
            raise UserError(
                f"a boundary along {' and '.join(wanted)} needs one value of {axis}: at="
                f"{{{axis!r}: {values[0]!r}}}; allowed: {', '.join(map(str, values))}"
            )
        chosen[axis] = next(iter(values))
    found = cut(grid, chosen)
    if not found.cells:
        where = ", ".join(f"{axis}={value}" for axis, value in chosen.items())
        raise UserError(f"no cell with {where or 'these axes'} has seeds")
    return found


def _counts(
    values: Sequence[Any], axis: str, cells: Sequence[Cell]
) -> tuple[Int[np.ndarray, "value"], Int[np.ndarray, "value"]]:
    """At each value of an axis: how many seeds reached, and how many there are."""
    place = {value: i for i, value in enumerate(values)}
    hits = np.zeros(len(values), int)
    n = np.zeros(len(values), int)
    for cell in cells:
        i = place[cell.at[axis]]
        hits[i] = cell.reached.sum()
        n[i] = len(cell.seeds)
    return hits, n
