"""Join what another store holds: a study can be measured on several machines, in several sittings.

Runs and findings that are missing here are taken over, each checked as it is read. Of a claim that
both measured, what was measured last counts; ledgers are then derived again.
"""

from pathlib import Path
from typing import NamedTuple

from mnemoscope.core.errors import UserError
from mnemoscope.store import Store
from mnemoscope.studies.discover import all_claims
from mnemoscope.studies.ledger_files import read_plots, read_records, study_of, write_ledger
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.scales import SCALES, Scale
from mnemoscope.verdicts.record import Record


class Merged(NamedTuple):
    """What was taken over."""

    runs: int
    findings: int
    claims: tuple[str, ...]
    """Whose measurement is now the other store's, as "STUDY C1 (full)"."""


def merge_store(store: Store, other: Store, command: str) -> Merged:
    """Take over what another store has and this one has not.

    Args:
        store: takes over; it keeps what it has.
        other: is only read.
        command: what the user typed, for the ledgers.
    """
    if store.folder.resolve() == other.folder.resolve():
        raise UserError(f"{str(other.folder)!r} is this store itself; give another one")
    n_runs = _merge_runs(store, other)
    n_findings = _merge_findings(store, other)
    claims: list[str] = []
    for scale in SCALES:
        for path in sorted((other.folder / "ledger" / scale).glob("*.evidence.json")):
            study = study_of(path.name.removesuffix(".evidence.json"))
            taken = _merge_ledger(store, path.parent, study, scale, command)
            claims += [f"{study} {claim} ({scale})" for claim in taken]
    return Merged(n_runs, n_findings, tuple(claims))


def _merge_runs(store: Store, other: Store) -> int:
    """Take over the runs that are missing; how many."""
    known = {row.id for row in store.rows()}
    missing = [row for row in other.rows() if row.id not in known]
    for row in missing:
        store.save(other.load(row), row.seconds, row.machine)
    return len(missing)


def _merge_findings(store: Store, other: Store) -> int:
    """Take over the findings that are missing; how many."""
    taken = 0
    for key in other.finding_keys():
        body = other.finding(key)
        if body is not None and store.finding(key) is None:
            store.keep_finding(key, body)
            taken += 1
    return taken


def _merge_ledger(
    store: Store, folder: Path, study: str, scale: Scale, command: str
) -> tuple[str, ...]:
    """Take over what was measured later than here; of which claims."""
    claims = all_claims().get(study.split("@")[0])
    if claims is None:
        return ()
    mine = read_records(store.folder / "ledger" / scale, study)
    theirs = read_records(folder, study)
    taken = {
        name: record
        for name, record in theirs.items()
        if name in claims and (name not in mine or _later(record, mine[name]))
    }
    if taken:
        drawn = read_plots(folder, study)
        plots = {name: drawn.get(name, Plots()) for name in taken}
        write_ledger(store, study, scale, command, claims, taken, plots)
    return tuple(taken)


def _later(one: Record, other: Record) -> bool:
    """Whether one was measured after another; dates are written so that their text sorts."""
    return one.provenance.date > other.provenance.date
