"""What was measured for a claim: every number that its verdict rests on.

    record = by part, by reading: the values of all units + where and how they were measured

A record is what a judge's measurement becomes in the evidence file. It holds enough to derive the
verdict, the value, the interval and the sentence again, without training and without JAX.
"""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, PlainSerializer

from mnemoscope.core.legacy import series_name
from mnemoscope.core.strict import Strict

SeriesName = Annotated[str, AfterValidator(series_name)]  # ledgers of 0.1 have other names
NOT_FINITE = ("inf", "-inf", "nan")
DIGITS = 8


def _from_text(value: Any) -> Any:
    """A number, or one of the words that JSON has instead of numbers that are not finite."""
    return float(value) if value in NOT_FINITE else value


def _to_text(value: float | None) -> float | str | None:
    """What JSON can hold: a number that is not finite is a word."""
    if value is None or np.isfinite(value):
        return value
    return str(float(value))


Value = Annotated[
    float | None,
    BeforeValidator(_from_text),
    PlainSerializer(_to_text, when_used="json"),
]
"""Of one unit; None if the part is not about this unit."""


class UnitValues(Strict):
    """What was read off every unit, for one part in one reading."""

    # a time after the end of training is infinite, and must be told from a number
    model_config: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=True)
    omit_if_default: ClassVar[frozenset[str]] = frozenset({"others"})

    values: tuple[Value, ...]
    """By unit."""
    others: tuple[Value, ...] = ()
    """By unit of the second group, where two groups are compared."""

    def used(self) -> tuple[list[float], list[float]]:
        """The values of the units that the part is about, of both groups."""
        return _known(self.values), _known(self.others)


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _eight_digits(values: Any) -> tuple[float | None, ...]:
    """Values as a record keeps them: what is masked is about other units."""
    array = np.ma.atleast_1d(np.ma.asarray(values, float))
    if array.ndim != 1:
        raise ValueError(f"a part has one value for each unit, got an array of {array.shape}")
    mask = np.ma.getmaskarray(array)
    rounded = [float(f"{x:.{DIGITS}g}") for x in cast(list[float], array.data.tolist())]
    return tuple(None if hidden else x for x, hidden in zip(rounded, mask, strict=True))


def unit_values(values: Any, others: Any = ()) -> UnitValues:
    """The values of units, eight digits of each.

    Args:
        values: one for each unit; masked where the part is not about the unit (`numpy.ma`).
        others: of the second group.
    """
    second = () if len(others) == 0 else _eight_digits(others)
    return UnitValues(values=_eight_digits(values), others=second)


class TrainedCondition(Strict):
    """What was trained for a claim under one name."""

    spec: str
    """The digest of its Spec."""
    seeds: int
    """How many were trained."""
    first_seed: int = 0
    """The first one."""
    failed: int = 0
    """How many of them diverged."""


class Plan(Strict):
    """How the number of units was chosen."""

    kind: Literal["fixed", "until decided"] = "fixed"
    """Before the run, or by looking after every block whether the claim is decided."""
    looks: int = 1
    """How many times it was looked at."""


class Provenance(Strict):
    """When, where and with what a claim was measured."""

    date: str
    """UTC, as ISO 8601 writes it."""
    command: str
    """What the user typed."""
    hardware: str
    """In words."""
    versions: dict[str, str]
    """Of Python and the packages that count, by name."""
    code: str
    """The fingerprint of the code that measured."""
    criterion: str
    """The hash of the criterion as it was then."""
    commit: str = ""
    """Of the repository, where it is known."""


class Series(Strict):
    """What figures show of every unit."""

    model_config: ClassVar[ConfigDict] = ConfigDict(allow_inf_nan=True)

    by_seed: dict[SeriesName, tuple[Value, ...]] = Field(default_factory=dict)
    """By name."""


class Record(Series):
    """All that is kept of the measurement of one claim."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"short_training", "why_not", "note", "by_seed"}
    )

    parts: dict[str, dict[str, UnitValues]]
    """By part and reading."""
    conditions: dict[str, TrainedCondition] = Field(default_factory=dict)
    """What was trained for it, by name; empty where nothing was."""
    plan: Plan = Plan()
    """How many units there are, and why."""
    short_training: bool = False
    """Whether models were trained for less than the paper's: not every verdict is open to them."""
    why_not: str = ""
    """Why nothing could be measured, if nothing could."""
    note: str = ""
    """What else must be known: which other program or device trained, which seeds diverged."""
    provenance: Provenance
    """When, where and with what."""
