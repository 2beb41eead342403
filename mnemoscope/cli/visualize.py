"""The commands `walk`, `explore` and `site`: models and results, to be read and looked at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console, open_in_browser, write_text
from mnemoscope.cli.options import DEFAULT_STORE, StoreDir
from mnemoscope.core.errors import UserError, unknown

if TYPE_CHECKING:
    from mnemoscope.explorer import ExplorerRun
    from mnemoscope.store import Store

MAX_DIGITS = 12


def walk(
    prompt: str | None = None,
    run: str = "",
    seed: int | None = None,
    snapshot: int = -1,
    format: str = "text",
    out: Path | None = None,
    digits: int = 4,
    store: StoreDir = DEFAULT_STORE,
) -> None:
    """Follow one prompt through a model, number by number; without --run, the two-dimensional ABC
    model.

    Args:
        prompt: The tokens, such as CAB; with spaces between them where a token is longer than one
            character.
        run: A stored run of any study, by its id or how it starts ('mnemoscope runs' lists them).
        seed: Which of the run's seeds. Nothing: its first.
        snapshot: Which stored moment of the training, counted from 0; -1 is the end.
        format: text for the terminal, md, html (one page), latex (compiles as it is), pdf (needs a
            TeX engine).
        out: The file to write; without it text, md and latex are printed, and html and pdf go to
            walk.html and walk.pdf.
        digits: Digits after the point.
    """
    if not 0 <= digits <= MAX_DIGITS:
        raise UserError(f"--digits must be 0 to {MAX_DIGITS}, got {digits}")
    from mnemoscope.report.walk import FORMATS

    if format not in (*FORMATS, "pdf"):
        raise UserError(unknown("format", format, (*FORMATS, "pdf")))
    from mnemoscope.store import Store
    from mnemoscope.studies.library.walk.chosen import chosen, title, walked

    with make_console(stderr=True).status("looking for the model") as status:

        def tell(done: int, total: int) -> None:
            status.update(f"training the ABC model: {done / total:.0%}")

        model = chosen(Store(store), run, seed, snapshot, tell)
        found = walked(model, prompt)
    render = FORMATS["latex" if format == "pdf" else format]
    document = render(found, title(model, found), digits)
    _write_walk(document, format, out)


def _write_walk(document: str, format: str, out: Path | None) -> None:
    """Print a walk, or write it to a file: that of `--out`, or walk.html and walk.pdf."""
    if out is None and format in ("html", "pdf"):
        out = Path(f"walk.{format}")
    if out is None:
        print(document)
    elif format == "pdf":
        from mnemoscope.report.walk import write_pdf

        write_pdf(document, out)
        print(f"Written: {out}")
    else:
        write_text(out, document)


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
        runs: Ids of stored runs, or how they start ('mnemoscope runs' lists them). Nothing: the
            studies' quick runs.
        seeds: Which seeds go along with their whole training, separated by commas: 0,3,17; the
            others with its end. Nothing: the first two that finished.
        out: The file to write.
        open_: Open it in the browser.
    """
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.explorer import build_page, pack_run
    from mnemoscope.store import Store

    try:
        picked = tuple(int(part) for part in seeds.split(",") if part.strip())
    except ValueError:
        raise UserError(f"--seeds takes whole numbers separated by commas, got {seeds!r}") from None
    opened = Store(store)
    use_all_devices(cache=compile_cache_dir())
    found = _pieces(opened, runs, picked)
    if not found:
        raise UserError(
            f"no runs to explore in {str(store)!r}; make some with 'mnemoscope run remember'"
        )
    with make_console(stderr=True).status("packing") as status:
        parts = []
        for piece in found:
            status.update(f"measuring {piece.name}")
            parts.append(pack_run(piece, opened))
    write_text(out, build_page(parts))
    if open_:
        open_in_browser(out)


def _pieces(store: "Store", runs: tuple[str, ...], seeds: tuple[int, ...]) -> "list[ExplorerRun]":
    """What the explorer shows: these runs, or the studies' quick ones."""
    from mnemoscope.report.site import piece_of, pieces

    if not runs:
        return pieces(store)
    rows = map(store.find, runs)
    return [piece_of(store.load(row), row.id, seeds) for row in rows]


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
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
    from mnemoscope.report.site import write_site
    from mnemoscope.store import Store

    opened = Store(store)
    use_all_devices(cache=compile_cache_dir())
    with make_console(stderr=True).status("the overview") as status:
        written = write_site(out, opened, status.update)
    index = out / "index.html"
    size = sum(path.stat().st_size for path in written)
    print(f"Written: {index} and {len(written) - 1} more pages, {size / 1e6:.1f} MB")
    if open_:
        open_in_browser(index)
