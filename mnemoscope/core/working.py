"""How far a piece of work is that takes longer than a moment, where somebody is there to look.

    terminal     a line with a bar, which goes when the work is done
    notebook     the same below the cell
    elsewhere    nothing, unless asked: then a line of text at every tenth

Nothing is shown of what is done within two seconds.
"""

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from mnemoscope.core.theme import SEED

MOMENT = 2.0  # seconds
BETWEEN = 0.2  # seconds between two pictures of a notebook's bar
TENTHS = 10  # lines that text has of a piece of work

Told = Callable[[int, int], None]  # steps done, steps in all


class Working:
    """One line on a piece of work: what is being done and, of a training, how long still.

    The line goes when the work is done.
    """

    def __init__(self, console: Console, doing: str):
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.line = self.progress.add_task(doing, total=None)

    def __enter__(self) -> "Working":
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def doing(self, what: str) -> None:
        """Say what is being done now; how long it takes nobody knows yet."""
        self.progress.reset(self.line, description=what, total=None)

    def trained(self, done: int, total: int) -> None:
        """So many optimizer steps of a training are done."""
        self.progress.update(self.line, completed=done, total=total)


@contextmanager
def show_progress(doing: str, progress: Told | bool | None = None) -> Generator[Told | None]:
    """Somebody who is told how far a piece of work is: the caller's own, a bar, or nobody.

    Args:
        doing: what is being done, in words.
        progress: a function of steps done and steps in all; True and False show a bar, or none;
            None shows one in a terminal and in a notebook.
    """
    if callable(progress):
        yield progress
        return
    line = _choose_line(doing, progress)
    if line is None:
        yield None
        return
    later = _Later(line)
    try:
        yield later.tell
    finally:
        later.end()


@runtime_checkable
class _Line(Protocol):
    """A place where progress is shown."""

    def begin(self) -> None: ...
    def tell(self, done: int, total: int) -> None: ...
    def end(self) -> None: ...


def _choose_line(doing: str, wanted: bool | None) -> _Line | None:
    """Where progress is shown; None where it is not."""
    if wanted is False:
        return None
    if in_notebook():
        return NotebookLine(doing)
    console = Console(stderr=True)
    if console.is_terminal:
        return _TerminalLine(doing, console)
    return _TextLine(doing) if wanted else None


def in_notebook() -> bool:
    """Whether what is shown is shown in a notebook."""
    ipython = sys.modules.get("IPython")
    shell: Any = ipython.get_ipython() if ipython else None
    return hasattr(shell, "kernel")


class _Later:
    """Shows a line once the work has taken longer than a moment, from a thread of its own."""

    def __init__(self, line: _Line):
        self.line = line
        self.lock = threading.Lock()
        self.shown = False
        self.over = False
        self.last: tuple[int, int] | None = None
        self.timer = threading.Timer(MOMENT, self._begin)
        self.timer.daemon = True
        self.timer.start()

    def _begin(self) -> None:
        with self.lock:
            if self.over:
                return
            self.shown = True
            self.line.begin()
            if self.last:
                self.line.tell(*self.last)

    def tell(self, done: int, total: int) -> None:
        """So many steps of so many are done."""
        with self.lock:
            self.last = (done, total)
            if self.shown:
                self.line.tell(done, total)

    def end(self) -> None:
        """The work is done, well or not."""
        self.timer.cancel()
        with self.lock:
            self.over = True
            if self.shown:
                self.line.end()


class _TerminalLine:
    """A bar that goes when the work is done."""

    def __init__(self, doing: str, console: Console):
        self.working = Working(console, doing)
        self.tell = self.working.trained

    def begin(self) -> None:
        self.working.__enter__()

    def end(self) -> None:
        self.working.__exit__()


class NotebookLine:
    """A bar below the cell; the browser draws it."""

    def __init__(self, doing: str):
        from IPython.display import display  # pyright: ignore

        self.doing = doing
        self.began = time.monotonic()
        self.next = 0.0
        # made by the cell itself: a thread that comes later has no cell
        show: Any = display
        self.handle: Any = show(_as_output("", ""), raw=True, display_id=True)

    def begin(self) -> None:
        """Show the bar, of which nobody knows yet how long it is."""
        self._show("<progress></progress>")

    def tell(self, done: int, total: int) -> None:
        """Move the bar, though not more often than can be seen."""
        now = time.monotonic()
        if now < self.next:
            return
        self.next = now + BETWEEN
        share = done / max(total, 1)
        left = (now - self.began) * (1 - share) / share if share else 0
        bar = f'<progress max="1" value="{share:.4f}" style="accent-color: {SEED}"></progress>'
        self._show(f"{bar} {share:.0%}, {left:,.0f} s left")

    def end(self) -> None:
        """Take the bar away."""
        self.handle.update(_as_output("", ""), raw=True)

    def _show(self, bar: str) -> None:
        html = f"<span>{escape(self.doing)} {bar}</span>"
        self.handle.update(_as_output(self.doing, html), raw=True)


def _as_output(text: str, html: str) -> dict[str, str]:
    """What a notebook shows, and what it shows where there is no HTML."""
    return {"text/plain": text, "text/html": html}


class _TextLine:
    """Lines of text, for a log that was asked for."""

    def __init__(self, doing: str):
        self.doing = doing
        self.told = 0

    def begin(self) -> None:
        print(self.doing, file=sys.stderr)

    def tell(self, done: int, total: int) -> None:
        tenth = done * TENTHS // max(total, 1)
        if tenth > self.told:
            self.told = tenth
            print(f"{self.doing}: {tenth * 100 // TENTHS}%", file=sys.stderr)

    def end(self) -> None:
        pass
