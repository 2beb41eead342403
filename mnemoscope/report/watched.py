"""A study run from Python, as `mnemoscope run` does it: with its progress shown."""

from pathlib import Path
from typing import TYPE_CHECKING

from mnemoscope.core.errors import UserError
from mnemoscope.core.plugins import load_chosen
from mnemoscope.store import Store
from mnemoscope.studies import runner
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.runner import Watcher
from mnemoscope.studies.scales import Scale
from mnemoscope.studies.study import Study
from mnemoscope.verdicts.ledger import Ledger

if TYPE_CHECKING:
    from rich.console import Console


def run_study(
    study: Study | str | Path,
    scale: Scale = "quick",
    *,
    store: Store | Path | str = "mnemoscope-store",
    seeds: int | None = None,
    claims: str | tuple[str, ...] = (),
    until_decided: int | None = None,
    watcher: Watcher | None = None,
) -> Ledger:
    """Train what a study lacks, measure its claims, judge them and write the ledger.

    What is finished is kept in the store and never repeated.

    Args:
        study: a study; the name of one; or the folder or file that has one.
        scale: which of its conditions are trained.
        store: where runs, findings and ledgers are kept: a store, or its folder.
        seeds: how many seeds of each condition; the study's own numbers if None.
        claims: the ids of the claims to judge; all if none are given.
        until_decided: double the seeds of what is undecided, up to so many.
        watcher: is told what happens; without one a bar shows it, in a terminal and in a notebook.
    """
    load_chosen()
    chosen = study if isinstance(study, Study) else find_study(_as_asked(study))
    if not chosen.name or not chosen.tests:
        raise UserError(
            f"a study needs a name and claims, got {chosen!r}; allowed: "
            "ms.Study(name=.., title=.., conditions=.., claims=..), or a folder with both"
        )
    opened = store if isinstance(store, Store) else Store(store)
    ids = (claims,) if isinstance(claims, str) else claims
    command = f"ms.run_study({chosen.name!r}, {scale!r})"
    if watcher is not None:
        return runner.run_study(
            chosen,
            scale,
            opened,
            command,
            seeds=seeds,
            claims=ids,
            until_decided=until_decided,
            watcher=watcher,
        )
    from mnemoscope.report.study_progress import Live

    with Live(_console(), f"{chosen.name} ({scale})") as live:
        return run_study(
            chosen,
            scale,
            store=opened,
            seeds=seeds,
            claims=ids,
            until_decided=until_decided,
            watcher=live,
        )


def _as_asked(study: str | Path) -> str:
    """A path as a command line has it: one that is no name."""
    if isinstance(study, str):
        return study
    return str(study) if study.is_absolute() else f"./{study}"


def _console() -> "Console":
    from rich.console import Console

    return Console(stderr=True)
