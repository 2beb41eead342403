"""What a person sees while anything works that takes longer than a moment; a study has more to say
(`mnemoscope.report.study_progress`).
"""

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)


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
