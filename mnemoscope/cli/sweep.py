"""The command `sweep`: a Spec varied along axes, many seeds in every cell."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, check_seeds
from mnemoscope.core.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from mnemoscope.sweeps.sweep_result import Sweep

FEW_CELLS = 24  # of which each has a line

Over = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        metavar="AXIS=VALUES",
        help="An axis: a field of the Spec and its values, model.d_model=8,16,32 or "
        "task.n_symbols=3..6 or optimizer.lr=1e-4..1e-2x8 (8 values, each the same multiple of the "
        "one before). Once for each axis; the last runs to the right in the map.",
    ),
]


def sweep(
    spec: Annotated[str, tyro.conf.Positional],
    /,
    over: Over = (),
    seeds: int = 16,
    event: str = "accuracy>=.99",
    evals: int | None = None,
    refine: bool = False,
    budget: int | None = None,
    dry_run: bool = False,
    cluster: str | None = None,
    out: Path | None = None,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Train a Spec at every point of some axes, with many seeds in each cell.

    For example, with spec.toml

        steps = 500
        [task]
        kind = "cycle"
        [model]
        d_model = 8
        n_heads = 1

    which widths and rates learn to count in nine tenths of the seeds?

        mnemoscope sweep spec.toml --over model.d_model=4,8,16 --over optimizer.lr=1e-4..1e-1x7

    It says first how many cells and programs that is, and about how long it takes; --dry-run says
    only that. Cells appear in a map as they come, the coarsest first. Each is kept in the store as
    a run of its own, for `mnemoscope explore` and `runs`; a sweep that was cut off goes on where
    it stopped, and one with more seeds or values trains only what is new.

    Args:
        spec: A file in TOML or JSON (spec.toml), or an object in a Python file: a Spec or a task
            (my_tasks.py@CopyBack). A task of your own in spec.toml: --plugin my_tasks.py.
        seeds: Of every cell.
        event: What a seed reaches or does not: a metric that is read while it trains, a comparison
            and a number. accuracy and loss are known of every task, metrics of the Spec by their
            names.
        evals: At how many evenly spaced steps the metrics are read (as the Spec says, or 32).
        refine: Spend all seeds on the cells where the share crosses one half, few on the others.
        budget: With --refine: no more seeds than this in all cells together.
        dry_run: Say what would be trained, how long it takes and how much disk it needs; train
            nothing.
        cluster: The address of a Dask scheduler whose workers train, such as
            tcp://scheduler:8786 (docs/cluster.md).
        out: An empty folder, or a new one: the map as SVG, and tables of cells and seeds as CSV.
    """
    check_seeds(seeds)
    if budget is not None and not refine:
        raise UserError("--budget goes with --refine")
    if out is not None and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise UserError(f"--out {str(out)!r} has files already; allowed: a new folder")

    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.sweeps.spec_file import read_spec
    from mnemoscope.sweeps.swept_axes import parse_over

    axes = dict(map(parse_over, over))
    if len(axes) < len(over):
        raise UserError("--over names one axis twice; allowed: each once")
    use_all_devices(cache=compile_cache_dir())

    from mnemoscope.core.working import show_progress
    from mnemoscope.store import Store
    from mnemoscope.sweeps.announce import describe_plan
    from mnemoscope.sweeps.engine import run_plan
    from mnemoscope.sweeps.from_python import choose_by, cluster_trainer, how_to_go_on
    from mnemoscope.sweeps.planned import make_plan
    from mnemoscope.sweeps.sweep_progress import watch_sweep

    swept = read_spec(spec)
    with show_progress("looking at the cells") as tell:
        plan = make_plan(swept, axes, seeds, event, evals, tell)
    choose = choose_by(plan, budget or refine)
    elsewhere = cluster_trainer(cluster) if cluster is not None else None
    opened = Store(store)
    with show_progress("timing a program") as tell:
        said = describe_plan(plan, opened, tell, cluster is None, at_most=refine)
    print("\n".join(said), flush=True)
    if dry_run:
        return
    console = make_console()
    with watch_sweep(plan, None if console.is_terminal else True, console) as watcher:
        try:
            found = run_plan(plan, opened, watcher, choose, elsewhere)
        except KeyboardInterrupt:
            print(f"\nmnemoscope: {how_to_go_on(opened)}", file=sys.stderr)
            sys.exit(130)
    _show(console, found)
    if out is not None:
        _write(found, out)


def _show(console: "Console", found: "Sweep") -> None:
    """The map and, of few cells, a line for each."""
    from rich.text import Text

    from mnemoscope.sweeps.heat_map import heat_map
    from mnemoscope.sweeps.shares import cell_share

    console.print(Text(f"\n% of seeds with {found.event}"))
    console.print(heat_map(found, console.width))
    if len(found.cells) <= FEW_CELLS:
        console.print(_table(found))
    lost = sum(int(cell.diverged.sum()) for cell in found.cells)
    n_seeds = sum(len(cell.seeds) for cell in found.cells)
    if lost:
        console.print(f"{lost} of {n_seeds} seeds diverged; they count as not reached.")
    n_open = sum(cell_share(cell).is_open for cell in found.cells)
    if n_open:
        console.print(
            f"{n_open} of {len(found.cells)} cells may lie on either side of one half: more "
            "--seeds tell.",
            highlight=False,
        )


def _write(found: "Sweep", folder: Path) -> None:
    """The map, the tables and the page, in the folder that `--out` named."""
    from mnemoscope.exchange.sweep_tables import write_grid
    from mnemoscope.report.sweep_page import write_sweep_page
    from mnemoscope.sweeps.laid_out import has_room

    write_grid(found, folder)
    print(f"Written: tables of cells and seeds in {folder}")
    if not has_room(found):
        print("A map has room for three axes, and this sweep has more: no map was written.")
        return
    print(f"Written: {found.plot().save(folder / 'map.svg')}")
    # each cell says what opens its models
    page = write_sweep_page(found, folder, explorers=0)
    print(f"Written: {page}, to be opened in a browser")


def _table(found: "Sweep") -> "Table":
    """A row for each cell: the share with its interval, and the median time with its own."""
    from rich.table import Table

    from mnemoscope.sweeps.heat_map import short_value
    from mnemoscope.sweeps.shares import cell_share
    from mnemoscope.sweeps.survival import cell_survival

    names = [axis.rpartition(".")[2] for axis in found.axes]
    if len(set(names)) < len(names):
        names = list(found.axes)
    table = Table(*names, "reached", "share", "median step", "run", box=None)
    for cell in found.cells:
        share = cell_share(cell)
        table.add_row(
            *(short_value(value) for value in cell.at.values()),
            f"{share.reached}/{share.seeds}",
            f"{share.value:.2f} [{share.low:.2f}, {share.high:.2f}]",
            str(cell_survival(cell).median).replace("more than ", ">"),
            found.spec(cell.at).digest()[:8],
        )
    return table
