"""What a person sees while a sweep runs: how far it is, and the cells as they come.

terminal     a bar, and below it the map, which goes when the sweep is done
notebook     a bar below the cell
elsewhere    nothing, unless asked: then a line for every cell
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from mnemoscope.core.working import Told, in_notebook, show_progress
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.engine import SweepWatcher
from mnemoscope.sweeps.grid import Grid, Place
from mnemoscope.sweeps.heat_map import heat_map
from mnemoscope.sweeps.planned import Plan
from mnemoscope.sweeps.survival import cell_survival

OTHER_LINES = 6  # of a terminal, that are not the map's
PER_SECOND = 2  # pictures


@contextmanager
def watch_sweep(
    plan: Plan, progress: Told | bool | None, console: Console | None = None
) -> Generator[SweepWatcher]:
    """Somebody who is told how far a sweep is.

    Args:
        plan: of the sweep.
        progress: a function of steps done and steps in all; True and False show it, or nothing;
            None shows it in a terminal and in a notebook.
        console: where a terminal is; the error stream unless one is given.
    """
    console = console or Console(stderr=True)
    if callable(progress) or progress is False or in_notebook():
        with show_progress(_title(plan), progress) as tell:
            yield _Teller(tell)
    elif console.is_terminal:
        with LiveMap(plan, console) as live:
            yield live
    else:
        yield _Lines(plan) if progress else _Teller(None)


def says_something(progress: Told | bool | None) -> bool:
    """Whether text about a sweep is shown, as `watch_sweep` shows its cells.

    Args:
        progress: as `watch_sweep` takes it.
    """
    if callable(progress) or progress is False or in_notebook():
        return False
    return bool(progress) or Console(stderr=True).is_terminal


class _Teller:
    """Tells a function of steps done and steps in all."""

    def __init__(self, tell: Told | None):
        self.tell = tell

    def trained(self, done: int, total: int) -> None:
        """So many steps are done."""
        if self.tell:
            self.tell(done, total)

    def cell_done(self, cell: Cell) -> None:
        """A cell has seeds."""


class _Lines:
    """A line for every cell, for a log."""

    def __init__(self, plan: Plan):
        self.n_cells = len(plan.cells)
        self.seen: set[Any] = set()

    def trained(self, done: int, total: int) -> None:
        """So many steps are done."""

    def cell_done(self, cell: Cell) -> None:
        """A cell has seeds: say so."""
        self.seen.add(cell.name)
        print(f"{len(self.seen)} of {self.n_cells}: {describe_cell(cell)}", file=sys.stderr)


def describe_cell(cell: Cell) -> str:
    """A cell in a line: how many reached, and when half of them had."""
    lost = f", {cell.diverged.sum()} diverged" if cell.diverged.any() else ""
    median = cell_survival(cell).median
    return (
        f"{cell.name}: {cell.reached.sum()} of {len(cell.seeds)} reached{lost}, "
        f"median step {median}"
    )


class LiveMap:
    """A bar, and the map below it."""

    def __init__(self, plan: Plan, console: Console):
        self.plan = plan
        self.console = console
        self.cells: dict[Place, Cell] = {}
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
        )
        self.task = self.progress.add_task(self._said(), total=None)
        self.live = Live(
            get_renderable=self._drawn,
            console=console,
            refresh_per_second=PER_SECOND,
            transient=True,
        )

    def __enter__(self) -> "LiveMap":
        self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.live.stop()

    def trained(self, done: int, total: int) -> None:
        """So many steps are done: move the bar."""
        self.progress.update(self.task, completed=done, total=total)

    def cell_done(self, cell: Cell) -> None:
        """A cell has seeds: draw it."""
        place = tuple(values.index(cell.at[axis]) for axis, values in self.plan.axes.items())
        self.cells[place] = cell
        self.progress.update(self.task, description=self._said())

    def _said(self) -> str:
        return f"{len(self.cells)} of {len(self.plan.cells)} cells"

    def _drawn(self) -> Group:
        """The screen as it is now; drawn by another thread."""
        grid = Grid(self.plan.axes, tuple(self.cells.copy().values()), str(self.plan.event))
        lines = self.console.size.height - OTHER_LINES
        drawn = heat_map(grid, self.console.size.width, max(lines, 1))
        return Group(f"[dim]% of seeds with {self.plan.event}[/dim]", drawn, self.progress)


def _title(plan: Plan) -> str:
    return f"sweeping {len(plan.cells)} cells"
