"""How a grid of up to three axes lies on paper: columns, rows, and a panel for each value more.

Axes of numbers have their lowest value on the left and at the bottom, as axes have; others keep
their order, the first row at the top, as tables have.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.scale import is_numeric

if TYPE_CHECKING:
    from mnemoscope.sweeps.grid import Grid


MOST = 3
"""Axes of more than one value that have room on paper."""


class Laid(NamedTuple):
    """One axis on paper."""

    axis: str
    """Its name; empty where the grid has no such axis."""
    values: tuple[Any, ...]
    """In the order of the paper."""
    is_numeric: bool
    """Whether they are numbers, which have a lowest."""


class Plane(NamedTuple):
    """A grid laid out."""

    columns: Laid
    """From left to right."""
    rows: Laid
    """From top to bottom."""
    panels: Laid
    """One beside the other."""
    cells: tuple[tuple[tuple[Cell | None, ...], ...], ...]
    """By panel, row and column; None where nothing was trained."""


def has_room(grid: "Grid") -> bool:
    """Whether a grid can be drawn as a map.

    Args:
        grid: that is to be drawn.
    """
    return sum(len(values) > 1 for values in grid.axes.values()) <= MOST


def lay_out(grid: "Grid") -> Plane:
    """The last axis of a grid as columns, the one before it as rows, the first of three as panels.

    Args:
        grid: with at most three axes that have more than one value.
    """
    long = [axis for axis, values in grid.axes.items() if len(values) > 1]
    if not has_room(grid):
        raise UserError(
            f"a grid is drawn on at most three axes, this one has {', '.join(long)}; cut(grid, "
            f"{{{long[0]!r}: {grid.axes[long[0]][0]!r}}}) keeps one value of one of them"
        )
    # axes of one value are drawn only where there are no others
    short = [axis for axis in grid.axes if axis not in long]
    wanted = {*[*long, *short][: max(2, len(long))]}
    chosen = [axis for axis in reversed(tuple(grid.axes)) if axis in wanted]
    laid = [_laid(grid, chosen[i], i == 1) if i < len(chosen) else _NONE for i in range(3)]
    columns, rows, panels = laid
    fixed = {axis: grid.axes[axis][0] for axis in grid.axes if axis not in chosen}
    cells = tuple(
        tuple(
            tuple(
                grid.cell({**fixed, **_named(columns, c), **_named(rows, r), **_named(panels, p)})
                for c in range(len(columns.values))
            )
            for r in range(len(rows.values))
        )
        for p in range(len(panels.values))
    )
    return Plane(columns, rows, panels, cells)


_NONE = Laid("", (None,), False)


def _named(laid: Laid, i: int) -> dict[str, Any]:
    """The value that an axis has at a place, by the axis."""
    return {laid.axis: laid.values[i]} if laid.axis else {}


def _laid(grid: "Grid", axis: str, from_below: bool) -> Laid:
    """An axis in the order of the paper."""
    values = grid.axes[axis]
    if not is_numeric(values):
        return Laid(axis, values, False)
    order = np.argsort([float(value) for value in values])
    ordered = tuple(values[i] for i in order)
    return Laid(axis, ordered[::-1] if from_below else ordered, True)


def label(value: Any) -> str:
    """A value as an axis names it: short, numbers to three digits.

    Args:
        value: of an axis.
    """
    if isinstance(value, float | np.floating):
        text = f"{float(value):.3g}"
        return text.replace("e-0", "e-").replace("e+0", "e")
    text = str(value)
    return text if len(text) <= 14 else f"{text[:13]}…"
