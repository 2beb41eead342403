"""The runs that a study features: its chosen quick runs, as far as they are stored."""

from collections.abc import Mapping

from mnemoscope.execution.local import load_or_train
from mnemoscope.explorer.explorer_run import ExplorerRun, describe_run
from mnemoscope.store import Store
from mnemoscope.studies.study import Study
from mnemoscope.training.run import Run


def featured_runs(study: Study, store: Store) -> dict[str, Run]:
    """The study's featured runs by condition; nothing is trained.

    Args:
        study: Whose runs they are.
        store: Where they are looked for.
    """
    conditions = study.list_conditions("quick") if study.explore else {}
    found: dict[str, Run] = {}
    for name in study.explore:
        condition = conditions[name]
        seeds = range(condition.seeds)
        _, missing = store.blocks(condition.spec, seeds)
        if missing:
            continue
        run = load_or_train(store, condition.spec, seeds)  # all seeds are stored
        if run.finished.any():
            found[name] = run
    return found


def describe_featured(featured: Mapping[str, Mapping[str, Run]]) -> list[ExplorerRun]:
    """The same runs as the explorer shows them.

    Args:
        featured: Runs by study and condition.
    """
    return [
        describe_run(run, f"{study}: {condition}")
        for study, runs in featured.items()
        for condition, run in runs.items()
    ]
