"""The command line: it parses, calls, and turns every expected failure into one line.

Exit codes: 0 done, 1 `compare` found other verdicts, `verify` one that does not follow, or
`check-study` something out of order, 2 something asked for cannot be done, 130 interrupted.
Finished work is kept in every case.

Commands import what they need when they are called: `mnemoscope --help` does not wait for JAX.
"""

import io
import sys
import warnings
from collections.abc import Callable
from typing import Any

import tyro

from mnemoscope.cli.checking import check_study
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
DESCRIPTION = (
    "Grow memory in tiny transformers, look inside while it forms, and put what papers say about "
    "it to the test."
)
FIRST_STEPS = """\
Start with:  mnemoscope list               what is claimed
             mnemoscope run {study:<14} train and judge (a few minutes on two cores)
             mnemoscope ledger             what was found
             mnemoscope show {claim:<13} one claim, seed by seed
             mnemoscope site --open        all of it as pages, with the explorer
             mnemoscope walk               every number of a forward pass
             mnemoscope profile {study:<10} where the time of a training step goes"""


def main() -> None:
    """Parse the command line and run it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a name that the terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    _print_notices()
    try:
        _refuse_old_options(sys.argv[1:])
        first = sys.argv[1] if len(sys.argv) > 1 else ""
        is_ours = first in COMMANDS
        commands = COMMANDS if is_ours else _commands_with(first)
        tyro.extras.subcommand_cli_from_dict(
            {name: each if each is new else with_plugins(each) for name, each in commands.items()},
            prog="mnemoscope",
            description=DESCRIPTION if is_ours else f"{DESCRIPTION}\n\n{_first_steps()}",
        )
    except KeyboardInterrupt:
        # `SECONDS_BETWEEN` in store/checkpoints.py
        print(
            "\nmnemoscope: interrupted; finished runs are stored, and one under way as it was last "
            "saved (every 30 seconds, or less often if saving is slow): the same command goes on "
            "from there",
            file=sys.stderr,
        )
        sys.exit(130)
    except UserError as error:
        print(f"mnemoscope: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)


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
    return FIRST_STEPS.format(study=study, claim=claim)


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
            print(f"mnemoscope: {message}", file=sys.stderr)
        else:
            usual(message, category, *rest)

    warnings.showwarning = show_warning
