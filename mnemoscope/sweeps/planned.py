"""What a sweep is going to train: its cells as Specs, and the programs that train them.

    spec, axes, event -> cells, each with a Spec of its own -> programs, by shape

Everything that cannot be is refused here, before anything trains: an axis that is no field, a cell
that is no Spec, an event that nothing reads. Cells of one program differ in numbers alone; their
seeds are rows of one seed axis.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax

from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import different_seeds
from mnemoscope.execution.local import ACCELERATOR_BLOCK, contiguous_blocks
from mnemoscope.sweeps.coarse_first import coarse_first
from mnemoscope.sweeps.event import Event, parse_event, reading, require_event
from mnemoscope.sweeps.grid import Place
from mnemoscope.sweeps.swept_axes import At, as_axes, points, require_axes, with_values
from mnemoscope.training.first_look import require_answers, require_trainable
from mnemoscope.training.loop import side_by_side_key
from mnemoscope.training.spec import Spec

CELLS_AT_ONCE = 256  # each has a lock while it trains, and a process may hold so many files open
ROWS_ON_CPU = 64  # of a program: more make it no faster, and the next cells are seen later


class PlannedCell(NamedTuple):
    """A point of the axes and what is trained there."""

    place: Place
    """For each axis, which of its values."""
    at: At
    """By axis, its value."""
    spec: Spec
    """What is trained."""

    @property
    def name(self) -> str:
        """Where it stands, in words."""
        return ", ".join(f"{axis}={value}" for axis, value in self.at.items())


class Piece(NamedTuple):
    """Consecutive seeds of a cell."""

    cell: PlannedCell
    """What is trained."""
    seeds: tuple[int, ...]
    """Consecutive."""


class Chunk(NamedTuple):
    """What trains together, through one program."""

    pieces: tuple[Piece, ...]
    """Of cells that differ in numbers alone."""
    n_rows: int
    """Of the program: as many seeds as there are, or some more."""


@dataclass(frozen=True)
class Plan:
    """A sweep before it is trained."""

    spec: Spec
    """What is swept."""
    axes: Mapping[str, tuple[Any, ...]]
    """By name, in order."""
    event: Event
    """What a seed reaches or does not."""
    seeds: tuple[int, ...]
    """Of every cell."""
    cells: Mapping[Place, PlannedCell]
    """All of them, the coarsest first."""

    @property
    def spec_of_first(self) -> Spec:
        """What is trained in the first cell."""
        return next(iter(self.cells.values())).spec

    @cached_property
    def programs(self) -> dict[object, list[PlannedCell]]:
        """The cells of each program."""
        found: dict[object, list[PlannedCell]] = {}
        for cell in self.cells.values():
            found.setdefault(side_by_side_key(cell.spec), []).append(cell)
        return found

    @cached_property
    def program_of(self) -> dict[Place, object]:
        """By cell, which program trains it."""
        return {cell.place: key for key, cells in self.programs.items() for cell in cells}

    def rows(self, key: object) -> int:
        """How many seeds of how many cells a program trains together.

        Its cells are shared out evenly, so that few rows are trained for nobody.

        Args:
            key: of the program.
        """
        most = ROWS_ON_CPU if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK
        n_seeds = len(self.seeds)
        if n_seeds >= most:
            return most
        n_cells = len(self.programs[key])
        most_cells = min(most // n_seeds, CELLS_AT_ONCE)
        n_chunks = -(-n_cells // most_cells)  # rounded up, as below
        return -(-n_cells // n_chunks) * n_seeds

    def chunks(self, wanted: Iterable[tuple[PlannedCell, Iterable[int]]]) -> Iterator[Chunk]:
        """What is wanted as what trains together, in the order in which it is complete.

        Args:
            wanted: cells with seeds; the first is wanted most.
        """
        waiting: dict[object, list[Piece]] = {}
        for cell, seeds in wanted:
            key = self.program_of[cell.place]
            n_rows = self.rows(key)
            for block in contiguous_blocks(sorted(seeds), n_rows):
                pieces = waiting.setdefault(key, [])
                if n_seeds_of(pieces) + len(block) > n_rows:
                    yield _chunk(pieces, n_rows)
                    pieces.clear()
                pieces.append(Piece(cell, tuple(block)))
        for key, pieces in waiting.items():
            if pieces:
                yield _chunk(pieces, self.rows(key))


def n_seeds_of(pieces: Iterable[Piece]) -> int:
    """How many seeds some pieces have."""
    return sum(len(piece.seeds) for piece in pieces)


def _chunk(pieces: Iterable[Piece], n_rows: int) -> Chunk:
    chosen = tuple(pieces)
    return Chunk(chosen, fitting_rows(n_seeds_of(chosen), n_rows))


def fitting_rows(n_seeds: int, n_rows: int) -> int:
    """The rows of a program for fewer seeds than usual: the usual number, its half or its quarter.

    So little is filled up, and there are few programs to compile.

    Args:
        n_seeds: how many there are.
        n_rows: of the usual program.
    """
    sizes = [-(-n_rows // part) for part in (4, 2, 1)]  # rounded up
    return next(size for size in sizes if size >= n_seeds)


# ---- made, or refused


def make_plan(
    spec: Spec,
    over: Mapping[str, Iterable[Any]],
    seeds: Any,
    event: str,
    evals: int | None = None,
    tell: Callable[[int, int], None] | None = None,
) -> Plan:
    """The plan of a sweep; a UserError says what cannot be.

    Args:
        spec: what is swept.
        over: by axis, its values.
        seeds: of every cell: how many, or which.
        event: what a seed reaches or does not: `accuracy>=.99`.
        evals: at how many steps the metrics are read.
        tell: hears how many cells are looked at, and how many there are.
    """
    axes = as_axes(over)
    require_axes(spec, axes)
    wanted = different_seeds(seeds)
    if evals is not None and evals < 1:
        raise UserError(f"evals must be a number of evaluations from 1 up, got {evals}")
    happening = parse_event(event)
    read = reading(spec, happening, evals)
    cells = _make_cells(read, axes)
    _require_different(cells)
    _require_all(cells, happening, tell)
    by_place = {cell.place: cell for cell in cells}
    shape = [len(values) for values in axes.values()]
    ordered = {place: by_place[place] for place in coarse_first(shape)}
    return Plan(spec, axes, happening, wanted, ordered)


def _make_cells(spec: Spec, axes: Mapping[str, tuple[Any, ...]]) -> list[PlannedCell]:
    """Every point with its Spec; raises for the first that has none, and says how many have not."""
    refused: list[str] = []
    cells: list[PlannedCell] = []
    for at in points(axes):
        place = tuple(axes[axis].index(value) for axis, value in at.items())
        try:
            cells.append(PlannedCell(place, at, with_values(spec, at)))
        except UserError as error:
            named = ", ".join(f"{axis}={value}" for axis, value in at.items())
            refused.append(f"{named}: {error}")
    if refused:
        n_cells = len(refused) + len(cells)
        raise UserError(f"{len(refused)} of {n_cells} cells cannot be trained; {refused[0]}")
    return cells


def _require_different(cells: Iterable[PlannedCell]) -> None:
    """Raise where two cells are one Spec."""
    found: dict[str, PlannedCell] = {}
    for cell in cells:
        other = found.setdefault(cell.spec.digest(), cell)
        if other is not cell:
            raise UserError(
                f"the cells {other.name} and {cell.name} are one Spec; allowed: different ones"
            )


def _require_all(
    cells: list[PlannedCell], event: Event, tell: Callable[[int, int], None] | None
) -> None:
    """Raise where a task or a model is none, or where nothing reads the event."""
    looked_at: set[object] = set()
    for number, cell in enumerate(cells):
        spec = cell.spec
        kind = (spec.task, spec.model, spec.metrics, spec.task.code(), spec.model.code())
        if kind not in looked_at:
            looked_at.add(kind)
            try:
                require_trainable(spec.task)
                require_answers(spec.model, spec.task)
                require_event(spec, event)
            except UserError as error:
                raise UserError(f"cell {cell.name}: {error}") from None
        if tell:
            tell(number + 1, len(cells))
