"""How commands reach the user: the console, files that were asked for, the browser, and the command
as it was typed.
"""

import os
import re
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LOG = 160  # columns of what no terminal shows: they keep a sentence together


def make_console(stderr: bool = False) -> "Console":
    """A console on the standard output, or on the error stream for what is not the answer."""
    from rich.console import Console

    class Quiet(Console):
        """A console whose reader may leave: `mnemoscope ledger | head`."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Quiet(stderr=stderr, width=_width())


def _width() -> int | None:
    """Columns; None where Rich finds out by itself: in a terminal, and where COLUMNS says it."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return None
    # what is read page by page, or cut by `head`, is shown in the terminal that has the errors
    if sys.stderr is not None and sys.stderr.isatty():
        return os.get_terminal_size(sys.stderr.fileno()).columns or LOG
    return LOG


@cache
def typed_command() -> str:
    """What must be typed to run this command: its name if it is on the PATH, else the way that was
    taken to it."""
    asked = Path(sys.argv[0])
    if asked.name == "__main__.py":
        return "python -m mnemoscope"
    if asked.name != "mnemoscope":
        return "mnemoscope"  # called from Python
    on_path = shutil.which("mnemoscope")
    if on_path and Path(on_path).resolve() == asked.resolve():
        return "mnemoscope"
    return str(asked)


def as_typed(text: str) -> str:
    """A text in which the command stands as it must be typed.

    Args:
        text: in which it is called mnemoscope, before one of its commands.
    """
    typed = typed_command()
    if typed == "mnemoscope":
        return text
    # not in a path, in the name of a package or in a sentence about the program
    return re.sub(r"(?<![\w./\\-])mnemoscope(?= +[a-z-]+(\W|$))", lambda _: typed, text)


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
