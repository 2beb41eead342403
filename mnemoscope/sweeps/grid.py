"""The cells of a sweep on its axes, whatever made them: a training, a table, a closed formula.

    axes    by name, in order: the values along it, in order
    cells   those that have seeds, in any order; not every point of the axes needs one

Nothing here needs JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.sweeps.cell import Cell

if TYPE_CHECKING:
    from mnemoscope.core.notebook import Safe
    from mnemoscope.sweeps.draw import SweepMap

Place = tuple[int, ...]  # for each axis, which of its values


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """Cells on axes."""

    axes: Mapping[str, tuple[Any, ...]]
    """By name, in order: the values along it."""

    cells: tuple[Cell, ...]
    """Those that have seeds; each place once."""

    event: str = ""
    """What a seed reaches or does not, in words: `accuracy >= 0.99`."""

    def __post_init__(self) -> None:
        for axis, values in self.axes.items():
            if not values or any(value in values[:i] for i, value in enumerate(values)):
                raise UserError(f"axis {axis} must have different values, got {short(values)}")
        if len(self._by_place) != len(self.cells):
            raise UserError("two cells of a grid have one place on its axes; allowed: one")

    @property
    def shape(self) -> Place:
        """How many values each axis has."""
        return tuple(len(values) for values in self.axes.values())

    def place(self, at: Mapping[str, Any]) -> Place:
        """Where a point stands: for each axis, which of its values it has.

        Args:
            at: by axis, a value of that axis.
        """
        for axis in at:
            if axis not in self.axes:
                raise UserError(unknown("axis", axis, self.axes))
        places: list[int] = []
        for axis, values in self.axes.items():
            if axis not in at:
                raise UserError(f"a cell is named by a value on every axis; {axis} is missing")
            if at[axis] not in values:
                raise UserError(unknown(f"value of {axis}", at[axis], values))
            places.append(values.index(at[axis]))
        return tuple(places)

    def cell(self, at: Mapping[str, Any]) -> Cell | None:
        """The cell of a point; None where nothing was trained.

        Args:
            at: by axis, a value of that axis.
        """
        return self._by_place.get(self.place(at))

    def cell_at(self, place: Place) -> Cell | None:
        """The cell of a place; None where nothing was trained.

        Args:
            place: for each axis, which of its values.
        """
        return self._by_place.get(place)

    @cached_property
    def _by_place(self) -> dict[Place, Cell]:
        return {self.place(cell.at): cell for cell in self.cells}

    def __repr__(self) -> str:
        size = " x ".join(f"{len(values)} {axis}" for axis, values in self.axes.items())
        seeds = sum(len(cell.seeds) for cell in self.cells)
        return f"<Grid of {size}: {len(self.cells)} cells, {seeds} seeds>"

    def plot(self, boundary: str | None = None) -> "SweepMap":
        """The shares as a map: `str` is an SVG, `.save('map.svg')` writes it, a notebook shows it.

        Args:
            boundary: the axis along which the boundary is drawn over the map; None: none is.
        """
        # drawn by what reads grids
        from mnemoscope.sweeps.draw import SweepMap

        return SweepMap(self, boundary)

    def _repr_html_(self) -> "Safe | None":
        """The map, in a notebook; of a grid with too many axes for paper only what `repr` says."""
        from mnemoscope.sweeps.laid_out import has_room

        return self.plot()._repr_html_() if self.cells and has_room(self) else None
