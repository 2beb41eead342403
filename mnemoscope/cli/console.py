"""How commands reach the user: the console, files that were asked for, the browser."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def make_console(stderr: bool = False) -> "Console":
    """A console on the standard output, or on the error stream for what is not the answer."""
    from rich.console import Console

    # a log file has no width of its own; 160 columns keep a sentence together
    return Console(stderr=stderr, width=None if sys.stdout.isatty() else 160)


def write_text(path: Path, text: str) -> None:
    """Write the file that `--out` named, and say so."""
    from mnemoscope.report.requested_files import writing

    with writing(path):
        path.write_text(text, encoding="utf-8")
    print(f"Written: {path}")


def open_in_browser(path: Path) -> None:
    """Open a page from the disk; without a browser, say where it is."""
    import webbrowser

    if not webbrowser.open(path.resolve().as_uri()):
        print(f"No browser was found; open {path.resolve()} in one.")
