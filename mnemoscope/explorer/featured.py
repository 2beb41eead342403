"""What the explorer of all studies shows: the models that travel with them, and the user's own runs
of the conditions that they feature."""

from collections.abc import Mapping
from typing import Any

from mnemoscope.execution.local import load_or_train
from mnemoscope.explorer.explorer_run import ExplorerRun, describe_run
from mnemoscope.explorer.pack import pack_run
from mnemoscope.explorer.shipped import pack_shipped
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
    """The same runs as the explorer shows them, named so that one sees whose they are.

    Args:
        featured: Runs by study and condition.
    """
    return [
        describe_run(run, f"{study}: {condition} (yours)")
        for study, runs in featured.items()
        for condition, run in runs.items()
    ]


def pack_all(
    studies: Mapping[str, Study], featured: Mapping[str, Mapping[str, Run]], store: Store
) -> dict[str, list[dict[str, Any]]]:
    """What the page carries of each study, by its name: what came with it, then the user's own.

    Args:
        studies: Whose models they are, by name.
        featured: The user's runs by study and condition.
        store: Where skills that were measured before are remembered.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, study in studies.items():
        own = describe_featured({name: featured.get(name, {})})
        found[name] = [*pack_shipped(study), *(pack_run(run, store) for run in own)]
    return {name: packed for name, packed in found.items() if packed}
