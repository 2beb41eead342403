"""What a sweep gives back: its grid, and from every cell the way to its Spec and its models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, short
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.core.working import Told, show_progress
from mnemoscope.execution.local import select
from mnemoscope.store import Store
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.event import Event, first_seen
from mnemoscope.sweeps.grid import Grid, Place
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Grid):
    """A grid whose cells were trained: each has a Spec, and its runs are at hand."""

    specs: Mapping[Place, Spec] = field(default_factory=dict[Place, Spec], kw_only=True)
    """What is trained at each place of the axes."""

    store: Store | None = field(default=None, kw_only=True)
    """Where the runs are kept; None where they are kept in memory alone."""

    runs: Mapping[Place, Sequence[Run]] = field(
        default_factory=dict[Place, Sequence[Run]], kw_only=True
    )
    """The runs of each cell, where there is no store."""

    def spec(self, at: Mapping[str, Any]) -> Spec:
        """What is trained at a point: `ms.fit` of it gives the same runs.

        Args:
            at: by axis, a value of that axis.
        """
        return self.specs[self.place(at)]

    def run(self, at: Mapping[str, Any]) -> Run:
        """The models of a cell, to look into: `sweep.run({"model.d_model": 8}).explore()`.

        Args:
            at: by axis, a value of that axis.
        """
        cell = self.cell(at)
        if cell is None:
            raise UserError(f"nothing was trained at {short(dict(at))}")
        place = self.place(at)
        if self.store is None:
            return select(self.runs[place], cell.seeds)
        return load_seeds(self.store, self.specs[place], cell.seeds)

    def share(
        self,
        test: Callable[[Run], Any],
        name: str = "",
        progress: Told | bool | None = None,
    ) -> Grid:
        """The grid with another event: whatever a function says of the seeds of a run.

        Its times are all the last step, for nobody knows when it came.

        Args:
            test: of a run, yes or no of each seed: `lambda run: run.accuracy() > .95`.
            name: the event in words.
            progress: whether a bar is shown; None: in a terminal and in a notebook.
        """
        cells: list[Cell] = []
        with show_progress(f"reading {len(self.cells)} cells", progress) as tell:
            for number, cell in enumerate(self.cells):
                said = np.asarray(test(self.run(cell.at)))
                if said.dtype != bool or said.shape != (len(cell.seeds),):
                    raise UserError(
                        "share needs yes or no of each seed, such as "
                        f"lambda run: run.accuracy() > .95, got {short(said)}"
                    )
                last_step = np.full(len(cell.seeds), float(self.specs[self.place(cell.at)].steps))
                reached = said & ~cell.diverged
                cells.append(
                    Cell(cell.at, cell.seeds, last_step, reached, cell.diverged, cell.metrics)
                )
                if tell:
                    tell(number + 1, len(self.cells))
        return Grid(self.axes, tuple(cells), name or "what was asked of each run")

    def __repr__(self) -> str:
        return f"{super().__repr__().replace('<Grid', '<Sweep', 1)[:-1]}, {self.event}>"


# ---- from runs to cells


def load_seeds(store: Store, spec: Spec, seeds: Sequence[int]) -> Run:
    """Stored seeds of a Spec; all of them are there.

    Args:
        store: where they are.
        spec: what was trained.
        seeds: which ones.
    """
    rows, missing = store.blocks(spec, seeds, trained_by().program())
    if missing:
        raise UserError(
            f"seeds {short(missing)} of Spec {spec.digest()} are no longer in {store!r}; "
            "sweep again to train them"
        )
    return select([store.load(row) for row in rows], tuple(seeds))


def cell_of(at: Mapping[str, Any], run: Run, event: Event) -> Cell:
    """What became of the seeds of a run.

    Args:
        at: where it stands on the axes.
        run: read the event's metric while it trained.
        event: what is waited for.
    """
    times, reached = first_seen(run, event)
    metrics = {name: _without(~run.finished, x[:, -1]) for name, x in run.metrics.items()}
    metrics["training loss"] = _without(~run.finished, run.losses[:, -1])
    return Cell(
        at=dict(at),
        seeds=run.seeds,
        times=times,
        reached=reached,
        diverged=~run.finished,
        metrics=metrics,
    )


def _without(diverged: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Numbers of seeds, and none of those that diverged."""
    found = values.astype(float)
    found[diverged] = np.nan
    return found


def join_cells(parts: Sequence[Cell]) -> Cell:
    """One cell of several that have different seeds, in the order of the seeds.

    Args:
        parts: of one point of the axes.
    """
    seeds = np.concatenate([part.seeds for part in parts])
    order = np.argsort(seeds, kind="stable")

    def joined(read: Callable[[Cell], Any]) -> Any:
        return np.concatenate([read(part) for part in parts])[order]

    return Cell(
        at=parts[0].at,
        seeds=tuple(seeds[order].tolist()),
        times=joined(lambda part: part.times),
        reached=joined(lambda part: part.reached),
        diverged=joined(lambda part: part.diverged),
        metrics={
            name: joined(lambda part, name=name: part.metrics[name]) for name in parts[0].metrics
        },
    )
