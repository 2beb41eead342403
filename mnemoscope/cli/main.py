"""The command line: it parses, calls, and turns every expected failure into one line.

Exit codes: 0 done, 1 `compare` found other verdicts, `verify` one that does not follow, or
`check-study` something out of order, 2 something asked for cannot be done, 130 interrupted.
Finished work is kept in every case.

Commands import what they need when they are called: `mnemoscope --help` does not wait for JAX.
"""

import errno
import io
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from textwrap import wrap
from typing import Any

import tyro

from mnemoscope.cli.checking import check_study
from mnemoscope.cli.console import as_typed, typed_command
from mnemoscope.cli.exchange import export, import_
from mnemoscope.cli.ledgers import compare, figure, ledger, show, verify
from mnemoscope.cli.new import new
from mnemoscope.cli.options import named_plugins, with_plugins
from mnemoscope.cli.profiling import profile
from mnemoscope.cli.stored_runs import check, merge, runs
from mnemoscope.cli.studies import list_, run
from mnemoscope.cli.sweep import sweep
from mnemoscope.cli.visualize import explore, site
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.legacy import OPTION_NAMES
from mnemoscope.core.plugins import load_chosen, load_installed
from mnemoscope.studies.discover import STUDIES, claim_ids, load_commands

# without those that studies bring: `main` loads these when one of them is asked for
COMMANDS: dict[str, Callable[..., None]] = {
    "list": list_,
    "run": run,
    "sweep": sweep,
    "ledger": ledger,
    "show": show,
    "compare": compare,
    "verify": verify,
    "runs": runs,
    "site": site,
    "explore": explore,
    "figure": figure,
    "profile": profile,
    "check": check,
    "merge": merge,
    "export": export,
    "import": import_,
    "new": new,
    "check-study": check_study,
}
DESCRIPTION = """\
Grow memory in tiny transformers, look inside while it forms, and put what
papers say about it to the test."""
FIRST_STEPS = """\
Start with:
  mnemoscope list               what is claimed
  mnemoscope run {study:<14} train and judge (a few minutes on two cores)
  mnemoscope ledger             what was found
  mnemoscope show {claim:<13} one claim
  mnemoscope runs               what is stored, by name
  mnemoscope site --open        all of it as pages, with the explorer
  mnemoscope walk               every number of a forward pass
  mnemoscope profile {study:<10} where the time of a training step goes"""


def main() -> None:
    """Parse the command line and run it."""
    _open_streams()
    _print_notices()
    try:
        _run()
        sys.stdout.flush()
    except SystemExit:
        _flush_at_the_end()
        raise
    except KeyboardInterrupt:
        # `SECONDS_BETWEEN` in store/checkpoints.py
        _say(
            "interrupted; finished runs are stored, and one under way as it was last saved (every "
            "30 seconds, or less often if saving is slow): the same command goes on from there",
            before="\n",
        )
        sys.exit(130)
    except UserError as error:
        _say(str(error))
        sys.exit(2)
    except BrokenPipeError:  # whoever read has seen enough
        _close_output()
        sys.exit(0)
    except OSError as error:
        if not _is_of_output(error):
            raise
        _close_output()
        _say(f"the output cannot be written ({error.strerror}); what was finished is stored")
        sys.exit(2)


def _run() -> None:
    """The command that was asked for; its help in lines that fit the screen."""
    _refuse_old_options(sys.argv[1:])
    if not {"-h", "--help"} & set(sys.argv[1:]):
        _call()
        return
    page = _Page()
    try:
        with redirect_stdout(page):
            _call()
    finally:
        print(page.in_lines(shutil.get_terminal_size().columns), end="")


class _Page(io.StringIO):
    """What the parser prints, which breaks no lines outside of its boxes."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """That of the standard output: it says whether boxes can be drawn."""
        return getattr(sys.__stdout__, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Whether it may have colors."""
        return sys.__stdout__ is not None and sys.__stdout__.isatty()

    def in_lines(self, width: int) -> str:
        """The page with its long lines broken.

        Args:
            width: columns of the screen.
        """
        lines: list[str] = []
        for line in self.getvalue().splitlines():
            if len(line) <= width or any(border in line for border in "│╭╰"):
                lines.append(line)
                continue
            # the names of all commands are one word
            text = re.sub(r",(?=[\w-]+[,}])", ", ", line)
            lines += wrap(text, width, subsequent_indent="  " * (text != line))
        return "\n".join([*lines, ""])


def _call() -> None:
    """Parse the command line and do what it says."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    is_ours = first in COMMANDS
    commands = COMMANDS if is_ours else _commands_with(first)
    tyro.extras.subcommand_cli_from_dict(
        {name: each if each is new else with_plugins(each) for name, each in commands.items()},
        prog=typed_command(),
        description=DESCRIPTION if is_ours else f"{DESCRIPTION}\n\n{_first_steps()}",
    )


# ---- what is written, and where it cannot be


def _open_streams() -> None:
    """Streams that are there and take any text."""
    # a shell may have closed them (>&-); the first file that is opened would then take their place
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (as long as we run)
            setattr(sys, name, nowhere)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a name that the terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")


def _say(line: str, before: str = "") -> None:
    """A line on the error stream, if that can be written."""
    with suppress(OSError):
        print(f"{before}mnemoscope: {as_typed(line)}", file=sys.stderr, flush=True)


def _is_of_output(error: OSError) -> bool:
    """Whether an error is that of a stream which cannot be written; those of files have a name."""
    return error.filename is None and error.errno in (errno.ENOSPC, errno.EIO, errno.EBADF)


def _close_output() -> None:
    """Let nothing more be written: Python would say at its end that it cannot."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


def _flush_at_the_end() -> None:
    """Write what is left of a command that ends by itself, or let it go."""
    try:
        sys.stdout.flush()
    except OSError:
        _close_output()


def _commands_with(name: str) -> dict[str, Callable[..., None]]:
    """Every command; where none has this name, those of plugins too."""
    found = all_commands()
    if not name or name.startswith("-") or name in found:
        return found
    load_chosen(named_plugins(sys.argv[1:]))
    if name not in all_commands():
        load_installed()
    return all_commands()


def all_commands() -> dict[str, Callable[..., None]]:
    """Every command; one that a study brings has the study's name."""
    return COMMANDS | load_commands()


def _first_steps() -> str:
    """What to begin with, on the first study and its first claim."""
    study = next(iter(STUDIES))
    claim = claim_ids(study)[0]
    return as_typed(FIRST_STEPS.format(study=study, claim=claim))


def _refuse_old_options(arguments: list[str]) -> None:
    """Raise where an argument is an option that now has another name."""
    for argument in arguments:
        option = argument.split("=")[0]
        if option in OPTION_NAMES:
            raise UserError(f"unknown option {option} (did you mean {OPTION_NAMES[option]}?)")


def _print_notices() -> None:
    """From here on a notice is one line on the error stream; other warnings stay as they are."""
    usual = warnings.showwarning

    def show_warning(message: Warning | str, category: type[Warning], *rest: Any) -> None:
        if issubclass(category, Notice):
            _say(str(message))
        else:
            usual(message, category, *rest)

    warnings.showwarning = show_warning
