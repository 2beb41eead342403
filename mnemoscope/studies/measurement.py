"""What a study's function for a claim returns: numbers, and nothing about a verdict.

    Measurement(parts={"fails": array by unit})
    Measurement(parts={"fails": {"plain": by unit, "post": by unit}})          in several readings
    Measurement(parts={"gap": Groups(by unit, by unit of the other group)})    a difference

A unit that a part is not about is masked (`numpy.ma`): a claim about models that master a skill
leaves out those that do not. What is infinite was not reached; it never becomes a number.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.errors import UserError, in_one_line, short, unknown
from mnemoscope.studies.plot_data import Plots
from mnemoscope.verdicts.claim import PLAIN, Claim
from mnemoscope.verdicts.record import UnitValues, unit_values


class Groups(NamedTuple):
    """Two groups of units that a part compares: the mean of `values` less that of `others`."""

    values: Any
    """By unit of the first group."""
    others: Any
    """By unit of the group that is subtracted."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Measurement(NamedTuple):
    """What was measured for a claim."""

    parts: Mapping[str, Any]
    """By part: an array with an entry for each unit, `Groups` of two, or these by reading."""
    by_seed: Mapping[str, np.ndarray] = MappingProxyType({})
    """What figures show of each unit, by name."""
    plots: Plots = Plots()
    """What else there is to draw."""
    note: str = ""
    """What else must be known of it, as a sentence: which language model was asked."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class InconclusiveError(Exception):
    """Raised where nothing can be measured at this scale.

    Its message is the sentence of the ledger.
    """


def among(chosen: Any, values: Any) -> np.ma.MaskedArray[Any, Any]:
    """Values of the chosen units; the others are masked.

    Args:
        chosen: whether the part is about each unit.
        values: by unit.
    """
    return np.ma.masked_array(np.asarray(values, float), mask=~np.asarray(chosen, bool))


def require_measurement(claim: Claim, found: object) -> None:
    """Raise unless a claim's function returned a `Measurement`.

    Args:
        claim: names the function.
        found: what it returned.
    """
    if not isinstance(found, Measurement):
        raise UserError(
            f"{claim.id}: {claim.measure!r} must return an ms.Measurement, got {short(found)}"
        )


def record_parts(claim: Claim, measurement: Measurement) -> dict[str, dict[str, UnitValues]]:
    """The parts of a measurement as a record keeps them, checked against what the claim says.

    Args:
        claim: says the parts and the readings.
        measurement: what its function returned.
    """
    kinds = {part.name: part.kind for part in claim.parts}
    found: dict[str, dict[str, UnitValues]] = {}
    for name, values in measurement.parts.items():
        if name not in kinds:
            raise UserError(unknown(f"part of {claim.id}", name, kinds))
        by_reading = values if isinstance(values, Mapping) else {PLAIN: values}
        for reading in by_reading:
            if reading not in claim.readings:
                raise UserError(unknown(f"reading of {claim.id}", reading, claim.readings))
        found[name] = {
            reading: _unit_values(claim, name, "difference" in kinds[name], each)
            for reading, each in by_reading.items()
        }
    return found


def _unit_values(claim: Claim, name: str, compares: bool, values: Any) -> UnitValues:
    """One part in one reading."""
    if isinstance(values, Groups) != compares:
        wanted = "ms.Groups(values, others)" if compares else "one array by unit"
        raise UserError(f"{claim.id}, part {name!r}: {wanted} is needed, got {short(values)}")
    try:
        return unit_values(*values) if isinstance(values, Groups) else unit_values(values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{claim.id}, part {name!r}: {error}") from None
