"""The file that has the evidence of a ledger: the records of a study's claims.

    STUDY.evidence.json      {"format": 2, "claims": {"C1": record, ...}}

0.1 wrote only what figures show, `{"C1": {"divided": [..], ..}}`, from which no verdict follows.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from mnemoscope.core.errors import UserError, parsed, short
from mnemoscope.verdicts.record import Record, Series

FORMAT = 2


def write_evidence(records: Mapping[str, Record]) -> str:
    """The text of an evidence file.

    Args:
        records: by claim.
    """
    claims = {name: record.model_dump(mode="json") for name, record in records.items()}
    # one claim a line: a change of one is one line of a diff
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(each)}" for name, each in claims.items())
    return f'{{"format": {FORMAT}, "claims": {{\n{lines}\n}}}}\n'


def read_evidence(text: str, where: str) -> dict[str, Record]:
    """The records of an evidence file, by claim; none of a file of 0.1.

    Args:
        text: what the file holds.
        where: its name, for messages.
    """
    found = parsed(text, where)
    if "format" not in found:
        return {}
    return {name: Record.model_validate(each) for name, each in _claims(found, where).items()}


def read_series(text: str, where: str) -> dict[str, Series]:
    """What figures show of every unit, by claim and name, of files of 0.1 too.

    Args:
        text: what the file holds.
        where: its name, for messages.
    """
    found = parsed(text, where)
    if "format" not in found:
        found = {
            "format": FORMAT,
            "claims": {name: {"by_seed": each} for name, each in found.items()},
        }
    claims = _claims(found, where)
    return {name: Series.model_validate(_drawn_of(each, where)) for name, each in claims.items()}


def _drawn_of(record: Any, where: str) -> dict[str, Any]:
    """The part of a record that figures show."""
    if not isinstance(record, dict):
        raise UserError(f"{where} holds no record of a claim, but {short(record)}")
    return {"by_seed": cast(dict[str, Any], record).get("by_seed", {})}


def _claims(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    if found["format"] != FORMAT or not isinstance(found.get("claims"), dict):
        raise UserError(
            f"{where} has format {found['format']!r}, which this version cannot read; "
            f"allowed: {FORMAT}"
        )
    return cast(dict[str, Any], found["claims"])
