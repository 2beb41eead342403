"""A sweep as one calls it from Python: `sweep`, with or without a store.

grid = sweep(spec, {"model.d_model": [8, 16, 32], "optimizer.lr": geomspace(1e-4, 1e-2, 8)})
grid.cell({"model.d_model": 8, "optimizer.lr": 1e-2}).reached
grid.run({"model.d_model": 8, "optimizer.lr": 1e-2}).explore()
"""

import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.working import Told, show_progress
from mnemoscope.execution.cluster import Cluster
from mnemoscope.execution.sent_plugins import pack_plugins
from mnemoscope.store import Store, open_store
from mnemoscope.sweeps.announce import describe_plan
from mnemoscope.sweeps.engine import Choose, TrainElsewhere, run_plan
from mnemoscope.sweeps.planned import Plan, make_plan
from mnemoscope.sweeps.refine import next_cells
from mnemoscope.sweeps.sweep_progress import says_something, watch_sweep
from mnemoscope.sweeps.sweep_result import Sweep
from mnemoscope.training.spec import Spec

USUAL_EVENT = "accuracy>=.99"


def sweep(
    spec: Spec,
    over: Mapping[str, Iterable[Any]],
    seeds: int | Sequence[int] = 16,
    *,
    event: str = USUAL_EVENT,
    evals: int | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    refine: bool | int = False,
    cluster: str | None = None,
    progress: Told | bool | None = None,
) -> Sweep:
    """Train a Spec at every point of some axes, with many seeds in each cell.

    What differs in numbers alone trains side by side in one program, each seed as `fit` trains it,
    to the bit on a CPU. The coarsest cells come first.

    Args:
        spec: what is swept.
        over: by axis, its values: `{"model.d_model": [8, 16], "task.n_symbols": range(3, 7)}`.
        seeds: of every cell: how many, 16 for 0 to 15, or which.
        event: what a seed reaches or does not: a metric that is read while it trains, a comparison
            and a number. `accuracy` and `loss` are known of every task; any metric of the Spec is
            known by its name.
        evals: at how many evenly spaced steps the metrics are read; None: as the Spec says
            (`n_evals`), or 32.
        store: a store, or its folder: seeds that it holds are not trained again, and new ones are
            kept there, each cell under its own Spec. None: runs are kept in memory.
        refine: whether all seeds are spent on the cells where the share crosses one half, and few
            on the others; a number is the most that all cells together may have.
        cluster: the address of a Dask scheduler whose workers train; needs a store.
        progress: hears how many steps are done, and how many there are in all; True and False show
            the map, or nothing; None shows it in a terminal, and a bar in a notebook.
    """
    opened = None if store is None else open_store(store)
    elsewhere = cluster_trainer(cluster) if cluster is not None else None
    looking = progress if isinstance(progress, bool) else None
    with show_progress("looking at the cells", looking) as tell:
        plan = make_plan(spec, over, seeds, event, evals, tell)
    if says_something(progress):
        for line in describe_plan(plan, opened, is_estimated=cluster is None):
            print(line, file=sys.stderr)
    with watch_sweep(plan, progress) as watcher:
        try:
            return run_plan(plan, opened, watcher, choose_by(plan, refine), elsewhere)
        except KeyboardInterrupt:
            warnings.warn(how_to_go_on(opened), Notice, stacklevel=2)
            raise


def choose_by(plan: Plan, refine: bool | int) -> Choose | None:
    """What says which seeds of which cells are trained next; None where all of them are.

    Args:
        plan: of the sweep.
        refine: whether seeds go where the boundary is; a number is the most of all cells together.
    """
    if refine is False:
        return None
    budget = None if refine is True else refine
    if budget is not None and budget < 1:
        raise UserError(f"refine must be True, False or a number of seeds from 1 up, got {refine}")
    return partial(next_cells, seeds=plan.seeds, budget=budget)


def cluster_trainer(address: str) -> TrainElsewhere:
    """What trains on the workers of a Dask cluster.

    Args:
        address: of its scheduler.
    """
    return Cluster(address, sent=pack_plugins()).train


def how_to_go_on(store: Store | None) -> str:
    """What is kept of a sweep that was interrupted, and how to go on.

    Args:
        store: where it is kept, if it is.
    """
    if store is None:
        return "interrupted; without a store nothing of the sweep is kept: store=FOLDER keeps it"
    return (
        f"interrupted; finished cells are in {str(store.folder)!r}, and those under way as they "
        "were last saved: the same sweep goes on from there"
    )
