"""The commands `explore` and `site`: models and results, to be looked at."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnemoscope.cli.console import make_console, open_in_browser, write_text
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir, mention_unloaded, open_store_there
from mnemoscope.core.errors import UserError

if TYPE_CHECKING:
    from mnemoscope.store import Store


def explore(
    runs: Annotated[tuple[str, ...], tyro.conf.Positional] = (),
    /,
    seeds: str = "",
    out: Path = Path("explorer.html"),
    open_: Annotated[bool, tyro.conf.arg(name="open")] = True,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Build the explorer, one offline page, for stored runs or for all studies, and open it.

    Args:
        runs: Stored runs, by their names (walk/abc) or how their ids start ('mnemoscope runs' lists
            them). Nothing: the models that came with the studies, and your own quick runs of what
            they feature.
        seeds: Which seeds go along with their whole training, separated by commas: 0,3,17; the
            others with its end. Nothing: the first two that finished.
        out: The file to write.
        open_: Open it in the browser.
    """
    from mnemoscope.core.working import Working
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.explorer import build_page
    from mnemoscope.store import Store

    try:
        picked = tuple(int(part) for part in seeds.split(",") if part.strip())
    except ValueError:
        raise UserError(f"--seeds takes whole numbers separated by commas, got {seeds!r}") from None
    # what came with the studies needs no store; one that was named must be there
    needs_store = runs or store != DEFAULT_STORE
    opened = open_store_there(store) if needs_store else Store(store)
    use_all_devices(cache=compile_cache_dir())
    with Working(make_console(stderr=True), "packing") as working:
        if runs:
            parts = _pack_chosen(opened, runs, picked, working.doing)
        else:
            working.doing("the models of all studies")
            parts = _pack_studies(opened)
    write_text(out, build_page(parts))
    if open_:
        open_in_browser(out)


def _pack_chosen(
    store: "Store", runs: tuple[str, ...], seeds: tuple[int, ...], tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    """These runs, as the page carries them."""
    from mnemoscope.explorer import describe_run, pack_run
    from mnemoscope.studies.run_names import find_run, read_run_names

    names = read_run_names(store)
    rows = [find_run(store, run) for run in runs]
    parts: list[dict[str, Any]] = []
    for row in rows:
        name = names.name_of(row) or row.id
        tell(f"measuring {name}")
        parts.append(pack_run(describe_run(store.load(row), name, seeds), store))
    return parts


def _pack_studies(store: "Store") -> list[dict[str, Any]]:
    """The models that came with the studies, and the user's own runs of what they feature."""
    from mnemoscope.explorer.featured import featured_runs, pack_all
    from mnemoscope.studies.discover import STUDIES

    featured = {name: featured_runs(study, store) for name, study in STUDIES.items()}
    found = pack_all(STUDIES, featured, store)
    return [packed for of_study in found.values() for packed in of_study]


def site(
    out: Path = Path("mnemoscope-site"),
    open_: Annotated[bool, tyro.conf.arg(name="open")] = False,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Write the site: the ledger, a page for each study, the walk and the explorer, to be opened
    from the disk.

    Nothing is trained: the pages show the ledgers, runs and models that there are, yours and those
    that came with the studies.

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
