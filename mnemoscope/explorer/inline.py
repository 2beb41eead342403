"""The explorer of a run, from Python: inside a notebook, or as a page that a browser opens."""

import os
import sys
import webbrowser
from collections.abc import Sequence
from html import escape
from pathlib import Path

from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import GRAY
from mnemoscope.core.working import Told, in_notebook, show_progress
from mnemoscope.explorer import build_page
from mnemoscope.explorer.explorer_run import describe_run
from mnemoscope.explorer.pack import pack_run
from mnemoscope.store import Store, open_store
from mnemoscope.training.run import Run

HEIGHT = 900  # pixels of the frame in a notebook
FILE = Path("explorer.html")


class ExplorerPage:
    """One page with everything in it; a notebook shows it in a frame.

    Args:
        html: the page.
        path: where it was written; None: nowhere.
        height: of the frame, in pixels.
    """

    def __init__(self, html: str, path: Path | None, height: int = HEIGHT):
        self.html = html
        self.path = path
        self.height = height

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page."""
        where = Path(path).absolute()
        try:
            where.write_text(self.html, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write the page {str(where)!r} ({error.strerror})") from error
        self.path = where
        return where

    def __repr__(self) -> str:
        where = f" at {self.path}" if self.path else "; .save(FILE) writes it"
        return f"<Explorer of {len(self.html) / 1e6:.1f} MB{where}>"

    def _repr_html_(self) -> str:
        style = f"width: 100%; box-sizing: border-box; border: 1px solid {GRAY}"
        return (
            f'<iframe title="explorer" height="{self.height}" style="{style}" '
            f'srcdoc="{escape(self.html)}"></iframe>'
        )


def explore(
    run: Run,
    path: str | os.PathLike[str] | None = None,
    *,
    seeds: Sequence[int] = (),
    open_browser: bool | None = None,
    store: Store | str | os.PathLike[str] | None = None,
    height: int = HEIGHT,
    progress: Told | bool | None = None,
) -> ExplorerPage:
    """The trained models of a run in the browser: in a notebook inline, elsewhere as a page.

    Args:
        run: what is explored.
        path: the file to write; None: explorer.html, or none in a notebook.
        seeds: which go along with their whole training; the others with its end. None given means
            the first two that finished.
        open_browser: whether the page is opened; None: where Python has a terminal.
        store: where skills that were measured before are found, and kept.
        height: of the frame in a notebook, in pixels.
        progress: whether a bar is shown; None: in a terminal and in a notebook.
    """
    described = describe_run(run, run.spec.task.kind_name(), tuple(seeds))
    with show_progress("packing the explorer", progress):
        packed = pack_run(described, None if store is None else open_store(store))
    page = ExplorerPage(build_page([packed]), None, height)
    if path is None and in_notebook():
        return page
    where = page.save(FILE if path is None else path)
    wanted = sys.stdout.isatty() if open_browser is None else open_browser
    if not (wanted and webbrowser.open(where.as_uri())):
        print(f"Written: {where}")
    return page
