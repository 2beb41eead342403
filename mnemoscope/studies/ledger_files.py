"""Ledgers as files: where they are, and how they are written and read.

    ledger/SCALE/STUDY.json              the ledger
    ledger/SCALE/STUDY.evidence.json     every number that its verdicts rest on
    ledger/SCALE/STUDY.pictures.json     curves, attention maps and grids, where there are any

The same files, without the folder `ledger`, come with Mnemoscope. In the name of a file the study
`package/study` of an installed package is `package~study`.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from mnemoscope.core.errors import UserError, parsed, short
from mnemoscope.core.legacy import PLOTS_FILE
from mnemoscope.execution.machine import hardware, versions
from mnemoscope.store import Store, integrity_error
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.published import published_folder
from mnemoscope.studies.scales import SCALES, Scale
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.evidence_file import read_evidence, read_series, write_evidence
from mnemoscope.verdicts.ledger import Ledger, make_entry
from mnemoscope.verdicts.record import Record, Series

T = TypeVar("T")
SLASH = "~"  # stands for the slash of a study's name, which a file's name cannot have


def file_stem(study: str) -> str:
    """What the names of a study's files begin with.

    Args:
        study: its name.
    """
    return study.replace("/", SLASH)


def study_of(stem: str) -> str:
    """The study whose files' names begin with this.

    Args:
        stem: as `file_stem` gives it.
    """
    return stem.replace(SLASH, "/")


def ledger_name(study: str, scale: Scale, part: str = "") -> str:
    """The name of a file in a store.

    Args:
        study: the study's name.
        scale: of the ledger.
        part: what lies beside it; the ledger itself if empty.
    """
    return f"ledger/{scale}/{file_stem(study)}{f'.{part}' if part else ''}.json"


# ---- writing, into a store


def write_ledger(
    store: Store,
    study: str,
    scale: Scale,
    command: str,
    claims: Mapping[str, Claim],
    records: Mapping[str, Record],
    plots: Mapping[str, Plots],
) -> Ledger:
    """Write a study's ledger and what lies beside it, unless nothing in them is new.

    Claims that were judged before and are not judged now keep their evidence.

    Args:
        store: where it is written.
        study: its name.
        scale: at which it was run.
        command: what the user typed.
        claims: of the study, by id, in its order.
        records: what was measured now, by claim.
        plots: what there is to draw of these.
    """
    with store.lock(f"ledger/{scale}/{study}"):
        previous = _read_previous(store, study, scale)
        known = {**_stored_records(store, study, scale), **records}
        ledger = make_ledger(study, scale, command, claims, known)
        texts = {
            "evidence": write_evidence({name: known[name] for name in claims if name in known})
        }
        drawn = _stored_plots(store, study, scale, previous) | {
            name: each.model_dump(mode="json") for name, each in plots.items() if each != Plots()
        }
        if drawn:
            texts[PLOTS_FILE] = json.dumps(drawn) + "\n"
        files = {ledger_name(study, scale, part): text for part, text in texts.items()}
        changed = {name: text for name, text in files.items() if store.read_text(name) != text}
        if previous is not None and not changed and previous.claims == ledger.claims:
            return previous
        # the ledger comes last: a run that is cut off before it is not taken for finished
        for name, text in changed.items():
            store.write_text(name, text)
        store.write_text(ledger_name(study, scale), ledger.model_dump_json(indent=1) + "\n")
    return ledger


def make_ledger(
    study: str,
    scale: Scale,
    command: str,
    claims: Mapping[str, Claim],
    records: Mapping[str, Record],
) -> Ledger:
    """The ledger that follows from what was measured, on this machine and now.

    Args:
        study: its name.
        scale: at which it was run.
        command: what the user typed.
        claims: of the study, by id, in its order.
        records: what was measured, by claim.
    """
    return Ledger(
        study=study,
        scale=scale,
        command=command,
        hardware=hardware(),
        versions=versions(),
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        claims=tuple(
            make_entry(claim, records[name]) for name, claim in claims.items() if name in records
        ),
    )


def _read_previous(store: Store, study: str, scale: Scale) -> Ledger | None:
    """The ledger that an earlier run wrote; one of 0.1 is put aside, since its verdicts do not
    follow from its evidence."""
    name = ledger_name(study, scale)
    text = store.read_text(name)
    if text is None:
        return None
    ledger = Ledger.model_validate_json(text)
    if ledger.format > 1:
        return ledger
    for part in ("", "evidence", PLOTS_FILE):
        old = store.read_text(ledger_name(study, scale, part))
        if old is not None:
            store.write_text(ledger_name(f"{study}.0.1", scale, part), old)
    return None


def _stored_records(store: Store, study: str, scale: Scale) -> dict[str, Record]:
    """What earlier runs measured, by claim."""
    text = store.read_text(ledger_name(study, scale, "evidence"))
    return {} if text is None else read_evidence(text, f"the evidence of {study}")


def _stored_plots(
    store: Store, study: str, scale: Scale, previous: Ledger | None
) -> dict[str, Any]:
    """What earlier runs left to draw, by claim."""
    text = store.read_text(ledger_name(study, scale, PLOTS_FILE))
    if text is None or previous is None:
        return {}
    return parsed(text, f"the {PLOTS_FILE} of {study}")


# ---- reading, from a store or from the published results


def find_folder(store: Path, study: str, scale: Scale) -> Path | None:
    """Where a study's ledger is, if there is one; the user's own come first.

    Args:
        store: the user's folder.
        study: its name.
        scale: at which it was run.
    """
    places = (store / "ledger" / scale, published_folder() / scale)
    return next((place for place in places if (place / f"{file_stem(study)}.json").is_file()), None)


def judged_studies(store: Path) -> tuple[str, ...]:
    """The studies of which a store has a ledger, at any scale.

    Args:
        store: the user's folder.
    """
    files = (store / "ledger").glob("*/*.json")
    names = {study_of(file.stem) for file in files if file.name.count(".") == 1}
    return tuple(sorted(name.split("@")[0] for name in names))


def read_ledger(folder: Path | None, study: str, scale: Scale) -> Ledger | None:
    """A study's ledger out of a folder; None if it is nowhere.

    Args:
        folder: where its file is, as `find_folder` says.
        study: its name.
        scale: at which it was run.
    """
    if folder is None:
        return None
    path = folder / f"{file_stem(study)}.json"
    found = _read(path, Ledger.model_validate_json)
    if (found.study, found.scale) != (study, scale):
        raise UserError(f"{str(path)!r} is the {found.scale} ledger of {short(found.study)}")
    return found


def read_ledgers(store: Path, study: str) -> dict[Scale, Ledger]:
    """The ledgers of a study that there are, by scale.

    Args:
        store: the user's folder.
        study: its name.
    """
    found: dict[Scale, Ledger] = {}
    for scale in SCALES:
        ledger = read_ledger(find_folder(store, study, scale), study, scale)
        if ledger is not None:
            found[scale] = ledger
    return found


def read_records(folder: Path | None, study: str) -> dict[str, Record]:
    """What was measured for each claim, out of a folder; nothing of 0.1's.

    Args:
        folder: where the ledger's file is.
        study: its name.
    """
    path = _beside(folder, study, "evidence")
    return {} if path is None else _read(path, lambda text: read_evidence(text, "it"))


def read_all_series(folder: Path | None, study: str) -> dict[str, Series]:
    """What figures show of every unit, by claim, out of a folder.

    Args:
        folder: where the ledger's file is.
        study: its name.
    """
    path = _beside(folder, study, "evidence")
    return {} if path is None else _read(path, lambda text: read_series(text, "it"))


def read_plots(folder: Path | None, study: str) -> dict[str, Plots]:
    """Curves, attention maps and grids by claim, for the claims that have any.

    Args:
        folder: where the ledger's file is.
        study: its name.
    """
    path = _beside(folder, study, PLOTS_FILE)

    def by_claim(text: str) -> dict[str, Plots]:
        return {name: Plots.model_validate(each) for name, each in parsed(text, "it").items()}

    return {} if path is None else _read(path, by_claim)


def _beside(folder: Path | None, study: str, part: str) -> Path | None:
    """A file beside the ledger, if there is one."""
    path = folder and folder / f"{file_stem(study)}.{part}.json"
    return path if path and path.is_file() else None


def _read(path: Path, read: Callable[[str], T]) -> T:
    """What a file says, or one line with its name. In a store it must be what was written there."""
    try:
        _check(path)
        return read(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{str(path)!r} cannot be read: {error}; "
            "move it away, and 'mnemoscope run' makes it again"
        ) from None


def _check(path: Path) -> None:
    """Where a ledger's file lies in a store, refuse one that is not what was written there."""
    scale = path.absolute().parent
    ledgers = scale.parent
    if ledgers.name == "ledger":
        why = integrity_error(ledgers.parent, f"ledger/{scale.name}/{path.name}")
        if why:
            raise ValueError(why)
