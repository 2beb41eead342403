"""The commands `explore` and `site`: models and results, to be looked at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console, open_in_browser, write_text
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, mention_unloaded, open_store_there
from mnemoscope.core.errors import UserError

if TYPE_CHECKING:
    from mnemoscope.explorer import ExplorerRun
    from mnemoscope.store import Store


def explore(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    seeds: str = "",
    out: Path = Path("explorer.html"),
    open_: Annotated[bool, tyro.conf.arg(name="open")] = True,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Build the explorer, one offline page, for stored runs, and open it.

    Args:
        runs: Stored runs, by their names (walk/abc) or how their ids start ('mnemoscope runs' lists
            them). Nothing: the studies' quick runs.
        seeds: Which seeds go along with their whole training, separated by commas: 0,3,17; the
            others with its end. Nothing: the first two that finished.
        out: The file to write.
        open_: Open it in the browser.
    """
    from mnemoscope.core.working import Working
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.explorer import build_page, pack_run

    try:
        picked = tuple(int(part) for part in seeds.split(",") if part.strip())
    except ValueError:
        raise UserError(f"--seeds takes whole numbers separated by commas, got {seeds!r}") from None
    opened = open_store_there(store)
    use_all_devices(cache=compile_cache_dir())
    found = _choose_runs(opened, runs, picked)
    if not found:
        raise UserError(
            f"no runs to explore in {str(store)!r}; make some with 'mnemoscope run all'"
        )
    with Working(make_console(stderr=True), "packing") as working:
        parts = []
        for each in found:
            working.doing(f"measuring {each.name}")
            parts.append(pack_run(each, opened))
    write_text(out, build_page(parts))
    if open_:
        open_in_browser(out)


def _choose_runs(
    store: "Store", runs: tuple[str, ...], seeds: tuple[int, ...]
) -> "list[ExplorerRun]":
    """What the explorer shows: these runs, or else those that studies feature."""
    from mnemoscope.explorer import describe_run

    if not runs:
        return _featured(store)
    from mnemoscope.studies.run_names import find_run, read_run_names

    names = read_run_names(store)
    rows = [find_run(store, asked) for asked in runs]
    return [describe_run(store.load(row), names.name_of(row) or row.id, seeds) for row in rows]


def _featured(store: "Store") -> "list[ExplorerRun]":
    """The runs that studies feature, as far as they are stored."""
    from mnemoscope.explorer.featured import describe_featured, featured_runs
    from mnemoscope.studies.discover import STUDIES

    return describe_featured({n: featured_runs(study, store) for n, study in STUDIES.items()})


def site(
    out: Path = Path("mnemoscope-site"),
    open_: Annotated[bool, tyro.conf.arg(name="open")] = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Write the site: the ledger, a page for each study, the walk and the explorer, to be opened
    from the disk.

    Nothing is trained: the pages show the ledgers and runs that there are, yours and the published
    ones.

    Args:
        out: The folder to write into.
        open_: Open it in the browser.
    """
    from mnemoscope.core.working import Working
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.report.site import write_site
    from mnemoscope.store import Store

    # published results need no store; one that was named must be there
    opened = Store(store) if store == DEFAULT_STORE else open_store_there(store)
    mention_unloaded(store)
    use_all_devices(cache=compile_cache_dir())
    with Working(make_console(stderr=True), "the overview") as working:
        written = write_site(out, opened, working.doing)
    index = out / "index.html"
    size = sum(path.stat().st_size for path in written)
    print(f"Written: {index} and {len(written) - 1} more pages, {size / 1e6:.1f} MB")
    if open_:
        open_in_browser(index)
