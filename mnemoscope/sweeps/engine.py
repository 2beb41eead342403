"""Train what a sweep lacks, chunk after chunk, and hand on its cells as they come.

    plan -> chunks, the coarsest cells first -> trained side by side -> stored cell by cell -> grid

While one chunk trains, the programs of the next are compiled in threads. Every cell is stored under
its own Spec: `fit`, `explore` and `runs` find it, and a sweep that is repeated reads it. A chunk
that was cut off goes on where it was saved last.
"""

import hashlib
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import jax

from mnemoscope.core.devices import available_cores
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.core.seeds import OUT_OF_MEMORY
from mnemoscope.execution.local import contiguous_blocks, make_checkpointer, seeds_that_fit
from mnemoscope.execution.machine import hardware
from mnemoscope.store import Store
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid, Place
from mnemoscope.sweeps.planned import (
    Chunk,
    Piece,
    Plan,
    PlannedCell,
    fitting_rows,
    n_seeds_of,
)
from mnemoscope.sweeps.sweep_result import Sweep, cell_of, join_cells, load_seeds
from mnemoscope.training.compilation import metrics_program, programs
from mnemoscope.training.loop import Progress, fit_side_by_side
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

COMPILERS = 4  # threads: a program's compilation keeps one core busy, and then some memory

# of the cells so far, which seeds of which cells next; nothing more: the sweep is done
Choose = Callable[[Grid], Sequence[tuple[Place, Sequence[int]]]]
# trains somewhere else: gets the store to fill, and each cell's Spec and seeds by name
TrainElsewhere = Callable[[Store, Mapping[str, tuple[Spec, Sequence[int]]]], None]


@runtime_checkable
class SweepWatcher(Protocol):
    """What a sweep tells whoever watches it."""

    def trained(self, done: int, total: int) -> None:
        """Optimizer steps done of what is lacking, summed over seeds."""
        ...

    def cell_done(self, cell: Cell) -> None:
        """A cell has seeds that it had not before: those that it has now."""
        ...


@dataclass(frozen=True)
class _Job:
    """A sweep under way."""

    plan: Plan
    store: Store | None
    watcher: SweepWatcher | None
    train_elsewhere: TrainElsewhere | None
    cells: dict[Place, Cell] = field(default_factory=dict[Place, Cell])
    runs: dict[Place, list[Run]] = field(default_factory=dict[Place, list[Run]])

    def grid(self) -> Grid:
        """The cells so far, in the order of the axes."""
        ordered = tuple(self.cells[place] for place in sorted(self.cells))
        return Grid(self.plan.axes, ordered, str(self.plan.event))

    def keep(self, cell: PlannedCell, found: Cell) -> None:
        """Take seeds of a cell into the grid."""
        before = self.cells.get(cell.place)
        joined = join_cells([before, found]) if before else found
        self.cells[cell.place] = joined
        if self.watcher:
            self.watcher.cell_done(joined)


def run_plan(
    plan: Plan,
    store: Store | None,
    watcher: SweepWatcher | None = None,
    choose: Choose | None = None,
    train_elsewhere: TrainElsewhere | None = None,
) -> Sweep:
    """Train what is lacking of a sweep, and read the rest.

    Args:
        plan: what is trained.
        store: where finished cells are, and where new ones go; None: nothing is kept.
        watcher: is told what happens.
        choose: says which seeds of which cells are trained next; None: all of every cell, once.
        train_elsewhere: fills the store first, as a cluster does.
    """
    if train_elsewhere and store is None:
        raise UserError("a cluster trains into a store; name one: store=FOLDER")
    job = _Job(plan, store, watcher, train_elsewhere)
    if choose is None:
        _run_round(job, [(cell, plan.seeds) for cell in plan.cells.values()])
    else:
        while chosen := choose(job.grid()):
            _run_round(job, [(plan.cells[place], tuple(seeds)) for place, seeds in chosen])
    return Sweep(
        plan.axes,
        job.grid().cells,
        str(plan.event),
        specs={cell.place: cell.spec for cell in plan.cells.values()},
        store=store,
        runs=job.runs,
    )


def lacking(
    plan: Plan, store: Store | None, wanted: Iterable[tuple[PlannedCell, Sequence[int]]]
) -> list[tuple[PlannedCell, list[int]]]:
    """Of cells and seeds those that a store does not have.

    Args:
        plan: has the cells.
        store: where finished seeds are; None has none.
        wanted: cells with seeds.
    """
    if store is None:
        return [(cell, list(seeds)) for cell, seeds in wanted]
    program = trained_by().program()
    found: list[tuple[PlannedCell, list[int]]] = []
    for cell, seeds in wanted:
        _, missing = store.blocks(cell.spec, seeds, program)
        if missing:
            found.append((cell, missing))
    return found


def _run_round(job: _Job, wanted: Sequence[tuple[PlannedCell, Sequence[int]]]) -> None:
    """Train what is lacking of some cells; read those that are there already first."""
    if job.train_elsewhere and job.store:
        job.train_elsewhere(job.store, {cell.name: (cell.spec, seeds) for cell, seeds in wanted})
    missing = {cell.place: seeds for cell, seeds in lacking(job.plan, job.store, wanted)}
    for cell, seeds in wanted:
        there = sorted(set(seeds) - set(missing.get(cell.place, ())))
        if there and job.store:
            job.keep(cell, _load_cell(job, cell, there))
    # chunks are those of the whole, so that a sweep that was cut off finds the one under way again
    chunks = [
        chunk
        for chunk in job.plan.chunks(wanted)
        if any(set(piece.seeds) & set(missing.get(piece.cell.place, ())) for piece in chunk.pieces)
    ]
    total = sum(len(missing[place]) * job.plan.cells[place].spec.steps for place in missing)
    behind = 0
    compiler = ThreadPoolExecutor(min(available_cores(), COMPILERS), "mnemoscope-compile")
    try:
        for chunk in chunks:
            compiler.submit(_try_to_compile, chunk.pieces[0].cell.spec, chunk.n_rows)
        for chunk in chunks:
            left = [
                Piece(piece.cell, tuple(sorted(seeds)))
                for piece in chunk.pieces
                if (seeds := set(piece.seeds) & set(missing.get(piece.cell.place, ())))
            ]
            n_steps = n_seeds_of(left) * left[0].cell.spec.steps
            _train_chunk(job, chunk, left, _telling(job, behind, n_steps, total))
            behind += n_steps
            if job.watcher:
                job.watcher.trained(behind, total)
    finally:
        # a compilation cut off by the end of the process takes the process down too
        compiler.shutdown(wait=True, cancel_futures=True)


def _load_cell(job: _Job, cell: PlannedCell, seeds: Sequence[int]) -> Cell:
    """What became of stored seeds of a cell."""
    assert job.store is not None
    return cell_of(cell.at, load_seeds(job.store, cell.spec, seeds), job.plan.event)


def _telling(job: _Job, behind: int, n_steps: int, total: int) -> Progress | None:
    """Who is told how far a chunk is, as a part of the whole."""
    watcher = job.watcher
    if watcher is None:
        return None
    return lambda done, of: watcher.trained(behind + n_steps * done // of, total)


def _try_to_compile(spec: Spec, n_rows: int) -> None:
    # whoever needs the program compiles it again and says what is wrong
    with suppress(Exception):
        programs(spec, n_rows)
        metrics_program(spec, n_rows)


# ---- a chunk


def _train_chunk(
    job: _Job, chunk: Chunk, pieces: Sequence[Piece], progress: Progress | None
) -> None:
    """Train the pieces of a chunk that are lacking, store them, and take them into the grid."""
    with ExitStack() as locks:
        if job.store:
            # in one order: two sweeps that share cells never wait for each other in a circle
            for digest in sorted({piece.cell.spec.digest() for piece in pieces}):
                locks.enter_context(job.store.lock(digest, _say_waiting))
            pieces = _still_lacking(job, pieces)
        # blocks of consecutive seeds are what a store holds
        blocks = [
            Piece(piece.cell, tuple(block))
            for piece in pieces
            for block in contiguous_blocks(piece.seeds, chunk.n_rows)
        ]
        if blocks:
            _train_blocks(job, blocks, chunk, progress)


def _still_lacking(job: _Job, pieces: Sequence[Piece]) -> list[Piece]:
    """What nobody else has trained while we waited; the rest is read."""
    found: list[Piece] = []
    for piece in pieces:
        missing = lacking(job.plan, job.store, [(piece.cell, piece.seeds)])
        seeds = tuple(missing[0][1]) if missing else ()
        there = sorted(set(piece.seeds) - set(seeds))
        if there:
            job.keep(piece.cell, _load_cell(job, piece.cell, there))
        if seeds:
            found.append(Piece(piece.cell, seeds))
    return found


def _train_blocks(
    job: _Job, blocks: Sequence[Piece], chunk: Chunk, progress: Progress | None
) -> None:
    """Train blocks side by side; by halves, with a warning, where they do not fit the memory."""
    spec = blocks[0].cell.spec
    n_seeds = n_seeds_of(blocks)
    n_rows = fitting_rows(n_seeds, chunk.n_rows)
    if seeds_that_fit(spec, n_rows) < n_rows:
        _train_halves(job, blocks, chunk, progress)
        return
    saving = make_checkpointer(job.store, _chunk_name(chunk), _said(blocks)) if job.store else None
    began = time.monotonic()
    try:
        runs = fit_side_by_side(
            [(block.cell.spec, block.seeds) for block in blocks],
            n_rows=n_rows,
            progress=progress,
            checkpointer=saving,
        )
    except jax.errors.JaxRuntimeError as error:
        if OUT_OF_MEMORY not in str(error):
            raise
        _train_halves(job, blocks, chunk, progress, error)
        return
    seconds = (time.monotonic() - began) / n_seeds
    machine = hardware()
    for block, run in zip(blocks, runs, strict=True):
        if job.store:
            job.store.save(run, seconds * len(block.seeds), machine)
        else:
            job.runs.setdefault(block.cell.place, []).append(run)
        job.keep(block.cell, cell_of(block.cell.at, run, job.plan.event))
    if saving:
        saving.drop()


def _train_halves(
    job: _Job,
    blocks: Sequence[Piece],
    chunk: Chunk,
    progress: Progress | None,
    error: Exception | None = None,
) -> None:
    """Train what does not fit the memory in two parts, one after the other."""
    n_seeds = n_seeds_of(blocks)
    if n_seeds == 1:
        raise UserError(f"one seed of this Spec does not fit the memory of {hardware()}") from error
    message = (
        f"{n_seeds} seeds at once do not fit the device's memory; going on with {n_seeds // 2}"
    )
    warnings.warn(message, Notice, stacklevel=2)
    if len(blocks) == 1:
        cell, seeds = blocks[0]
        half = n_seeds // 2
        blocks = [Piece(cell, seeds[:half]), Piece(cell, seeds[half:])]
    middle = len(blocks) // 2
    for part in (blocks[:middle], blocks[middle:]):
        smaller = Chunk(tuple(part), n_seeds_of(part))
        _train_blocks(job, part, smaller, progress)


def _chunk_name(chunk: Chunk) -> str:
    """Under which name a chunk under way is saved: that of all its pieces, whatever is stored."""
    digest = hashlib.sha256(_said(chunk.pieces).encode()).hexdigest()[:16]
    return f"together/{digest}.{trained_by().program()[:8]}"


def _said(pieces: Iterable[Piece]) -> str:
    """Specs and seeds, in order."""
    return " ".join(f"{piece.cell.spec.digest()}:{piece.seeds}" for piece in pieces)


def _say_waiting() -> None:
    warnings.warn("another process is training this already; waiting for it", Notice, stacklevel=2)
