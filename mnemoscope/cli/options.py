"""What several commands are asked in the same words."""

import difflib
import inspect
import os
import warnings
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from mnemoscope.cli.console import as_typed
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.limits import MAX_SEEDS
from mnemoscope.studies.scales import ABOUT, Scale

if TYPE_CHECKING:
    from mnemoscope.store import Store

StoreDir = Annotated[
    Path,
    tyro.conf.arg(name="store", metavar="DIR", help="Folder of finished runs and ledgers."),
]
TrainedScale = Annotated[
    Scale,
    tyro.conf.arg(help=" ".join(f"{scale}: {about.budget}." for scale, about in ABOUT.items())),
]
Plugins = Annotated[
    tuple[str, ...],
    tyro.conf.UseAppendAction,
    tyro.conf.arg(
        name="plugin",
        metavar="X",
        help="Load this first: a file or a folder, a module, or an installed package that brings "
        "tasks, metrics or studies. May be given more than once; MNEMOSCOPE_PLUGINS names more.",
    ),
]
DEFAULT_STORE = Path(os.environ.get("MNEMOSCOPE_STORE", "mnemoscope-store"))


def open_store_there(folder: Path) -> "Store":
    """The store in a folder, for a command that writes nothing new into it: a misspelled name makes
    no folder.

    Args:
        folder: as `--store` says it.
    """
    if not folder.exists():
        stores = [str(path.parent) for path in folder.parent.glob("*/index.sqlite3")]
        near = difflib.get_close_matches(str(folder), stores, n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise UserError(
            f"there is no store at {str(folder)!r}{hint}; 'mnemoscope run STUDY' makes one, and "
            "--store or MNEMOSCOPE_STORE names another"
        )
    from mnemoscope.store import Store

    return Store(folder)


def check_seeds(seeds: int) -> None:
    """Refuse a number of seeds that nobody can train."""
    if not 1 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds must be 1 to {MAX_SEEDS:,}, got {seeds}")


def with_plugins(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the option `--plugin`, whose plugins are loaded before it begins.

    Args:
        command: what does the work.
    """
    signature = inspect.signature(command)

    @wraps(command)
    def load_and_run(*args: Any, plugin: tuple[str, ...] = (), **options: Any) -> None:
        from mnemoscope.core.plugins import load_chosen

        load_chosen(plugin)
        command(*args, **options)

    option = inspect.Parameter(
        "plugin", inspect.Parameter.KEYWORD_ONLY, default=(), annotation=Plugins
    )
    parameters = [*signature.parameters.values(), option]
    load_and_run.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    del load_and_run.__wrapped__  # tyro would read the parameters of what is inside
    load_and_run.__doc__ = as_typed(in_paragraphs(command.__doc__ or ""))
    load_and_run.__annotations__ = {**command.__annotations__, "plugin": Plugins}
    return load_and_run


def in_paragraphs(doc: str) -> str:
    """A docstring in which what is said of an argument stands in one line, as the parser breaks it
    anew.

    Args:
        doc: of a command, its arguments last.
    """
    before, args, after = inspect.cleandoc(doc).partition("\nArgs:\n")
    lines: list[str] = []
    for line in after.splitlines():
        if line.startswith(" " * 8) and lines:
            lines[-1] = f"{lines[-1]} {line.strip()}"
        else:
            lines.append(line)
    return before + args + "\n".join(lines)


def named_plugins(arguments: Sequence[str]) -> list[str]:
    """The plugins that a command line names, before it is parsed: one may bring the command.

    Args:
        arguments: of the command line.
    """
    found: list[str] = []
    for i, argument in enumerate(arguments):
        if argument.startswith("--plugin="):
            found.append(argument.partition("=")[2])
        elif argument == "--plugin":
            found += arguments[i + 1 : i + 2]
    return found


def mention_unloaded(store: Path) -> None:
    """Say of which studies a store has ledgers that nothing shows, for want of the study.

    Args:
        store: the user's folder.
    """
    from mnemoscope.studies.discover import STUDIES
    from mnemoscope.studies.ledger_files import judged_studies

    names = [name for name in judged_studies(store) if name not in STUDIES]
    if names:
        said = f"the store has ledgers of {', '.join(names)}, which nothing here defines"
        warnings.warn(f"{said}; to be shown: --plugin FOLDER", Notice, stacklevel=2)
