"""Derive every verdict of a ledger again, from its claims and its evidence.

    ledger.claims[i]  ==  make_entry(claim, record)      for every claim; a line for each difference

No model is trained and no judge is asked. What a ledger of 0.1 says cannot be derived: its judges
decided, and its evidence lacks numbers on which they did.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from mnemoscope.core.errors import UserError, short
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.evidence_file import read_evidence
from mnemoscope.verdicts.ledger import Entry, Ledger, PartEntry, make_entry
from mnemoscope.verdicts.record import Record

# what may differ between makes of CPU and versions of SciPy: the last digits of eight
TOLERANCE = 1e-6


class Difference(NamedTuple):
    """Something in a ledger that does not follow from its evidence."""

    claim: str
    what: str
    """Which field of the entry, or what is missing."""
    ledger: str
    """What the ledger says."""
    derived: str
    """What follows."""

    def __str__(self) -> str:
        return f"{self.claim}: {self.what} is {self.ledger}, but {self.derived} follows"


class Checked(NamedTuple):
    """What came of checking one ledger."""

    ledger: Ledger
    differences: tuple[Difference, ...]
    underivable: tuple[str, ...]
    """Claims of which nothing can be derived: 0.1 judged them."""


def verify_ledger(
    ledger: Ledger, records: Mapping[str, Record], claims: Mapping[str, Claim]
) -> Checked:
    """Derive every entry of a ledger again.

    Args:
        ledger: what was written.
        records: its evidence, by claim.
        claims: the criteria as they are now.
    """
    if ledger.format == 1:
        return Checked(ledger, (), tuple(entry.id for entry in ledger.claims))
    found: list[Difference] = []
    for entry in ledger.claims:
        if entry.id not in claims:
            found.append(Difference(entry.id, "the claim", "judged", "no such claim"))
        elif entry.id not in records:
            found.append(Difference(entry.id, "its evidence", "missing", "nothing"))
        else:
            found.extend(_differences(entry, make_entry(claims[entry.id], records[entry.id])))
    judged = {entry.id for entry in ledger.claims}
    for name in records:
        if name not in judged:
            found.append(Difference(name, "its entry", "missing", "one"))
    return Checked(ledger, tuple(found), ())


def _differences(entry: Entry, derived: Entry) -> Iterator[Difference]:
    """The fields in which two entries of one claim differ."""
    for name in Entry.model_fields:
        one = getattr(entry, name)
        other = getattr(derived, name)
        if not is_close(one, other):
            yield Difference(entry.id, name, short(one), short(other))


def is_close(one: object, other: object) -> bool:
    """Whether two fields are the same but for the last digits of numbers.

    Args:
        one: of an entry.
        other: of another one.
    """
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    if isinstance(one, tuple) and isinstance(other, tuple):
        same_length = len(one) == len(other)
        return same_length and all(map(is_close, one, other))
    if isinstance(one, PartEntry) and isinstance(other, PartEntry):
        fields = PartEntry.model_fields
        return all(is_close(getattr(one, name), getattr(other, name)) for name in fields)
    return one == other


def verify_folder(folder: Path, claims_of: Mapping[str, Mapping[str, Claim]]) -> list[Checked]:
    """Check every ledger of a folder.

    Args:
        folder: has STUDY.json and STUDY.evidence.json, perhaps in folders inside it.
        claims_of: the criteria of each study, by its name and the claim's id.
    """
    ledgers = sorted(path for path in folder.rglob("*.json") if path.name.count(".") == 1)
    if not ledgers:
        raise UserError(
            f"there is no ledger in {str(folder)!r}: a folder with STUDY.json is needed"
        )
    return [_verify_file(path, claims_of) for path in ledgers]


def _verify_file(path: Path, claims_of: Mapping[str, Mapping[str, Claim]]) -> Checked:
    """Check one ledger with what lies beside it."""
    beside = path.with_suffix(".evidence.json")
    try:
        ledger = Ledger.model_validate_json(path.read_text(encoding="utf-8"))
        records = {}
        if ledger.format > 1:
            records = read_evidence(beside.read_text(encoding="utf-8"), str(beside))
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be verified: {error}") from None
    except UserError as error:
        raise UserError(f"{str(path)!r} cannot be verified: {error}") from None
    study = ledger.study.split("@")[0]
    if study not in claims_of:
        raise UserError(
            f"{str(path)!r} is of the study {short(ledger.study)}, which is not known here; "
            f"allowed: {', '.join(claims_of)}"
        )
    return verify_ledger(ledger, records, claims_of[study])
