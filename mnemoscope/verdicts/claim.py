"""A claim: what a paper says, and the criterion that settles it, as data.

A criterion has parts. Each part says what is measured of every unit (a seed, a draw, a sentence),
how the units are summed up, and in which zones of the line the part holds, holds partly, or fails.
`mnemoscope.verdicts.rule` turns them into a verdict; nobody else does.

In `claims.toml`:

    [readings]
    plain = "no norm, rate 1e-3"
    post = "a norm after each sum"

    [C1]
    statement = "Trained with repeats, d=16 with one head does not learn recall."
    published = "0.01%"
    stated = "2026-11-19"
    readings = ["plain", "post"]
    measure = "recall.measure_small_model"
    needs = ["repeat/d16h1", "repeat/d16h1/*"]

    [[C1.parts]]
    name = "fails"
    kind = "share"
    measures = "share of seeds that recall at most 10% of held-out repeats"
    says = "{value} of seeds recall at most 10% of held-out repeats"
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, field_validator, model_validator

from mnemoscope.core.errors import UserError, short
from mnemoscope.core.strict import Strict
from mnemoscope.core.theme import Verdict
from mnemoscope.verdicts.intervals import RANGES, Kind
from mnemoscope.verdicts.zones import ZONES, Zone, ZoneName, check_zones, parse_zone

Role = Literal["required", "control", "admits", "beside"]
PLAIN = "plain"
"""The reading that every claim is measured in."""

# a claim that units do something: nearly all do, hardly any do, or neither
SHARE_ZONES: Mapping[ZoneName, str] = {
    "holds": "[0.9, 1]",
    "partly": "(0.1, 0.9)",
    "fails": "[0, 0.1]",
}


def _date(text: str) -> str:
    """A day, as ISO 8601 writes it."""
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"a day is written as 2026-11-19, got {short(text)}") from None
    return text


Day = Annotated[str, AfterValidator(_date)]


class Revision(Strict):
    """A change of a criterion after something that it judges had been seen."""

    date: Day
    """When it was changed."""
    seen: str
    """What had been seen by then."""
    why: str
    """Why it was changed."""


class Part(Strict):
    """One number that a claim's verdict rests on, or that is shown beside it."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"role", "says", "holds", "partly", "fails", "bounds", "percent", "for_each"}
    )

    name: str
    """What it is called in the evidence; `{each}` stands for one of `for_each`."""
    kind: Kind
    """How the units are summed up."""
    measures: str
    """What the number is, as a noun: "share of seeds that recall at most 10% of repeats"."""
    role: Role = "required"
    """`required` decides; a `control` must hold, or nothing is decided; one that `admits` says
    whether a reading counts at all; what is `beside` is shown and decides nothing."""
    says: str = ""
    """The sentence with {value} in it; empty for "`measures`: {value}"."""
    holds: str = ""
    """Where it holds; without any zone, a share holds from .9 on and fails up to .1."""
    partly: str = ""
    """Where it holds partly; it may have no such zone."""
    fails: str = ""
    """Where it fails."""
    bounds: tuple[float, float] | None = None
    """Between which values of a unit must lie, where that is known: the mean of such values can be
    followed while units are added."""
    percent: bool = False
    """Whether a number that is no share is written in percent."""
    for_each: tuple[str, ...] = ()
    """The part stands for one part for each of these."""

    @field_validator("name", "measures")
    @classmethod
    def _check_text(cls, text: str) -> str:
        if not text.strip():
            raise ValueError("must not be empty")
        return text

    @model_validator(mode="after")
    def _check_criterion(self) -> "Part":
        try:
            self._check()
        except ValueError as error:
            raise ValueError(f"part {self.name!r}: {error}") from None
        return self

    def _check(self) -> None:
        stated = bool(self.holds or self.partly or self.fails)
        if self.role == "beside":
            if stated:
                raise ValueError("what stands beside decides nothing and has no zones")
        else:
            check_zones(self.zones(), *RANGES[self.kind])
        if self.bounds and self.kind != "mean":
            raise ValueError(f"only a mean has bounds, this is a {self.kind}")
        if self.bounds and self.bounds[0] >= self.bounds[1]:
            raise ValueError(f"bounds must be a lower and a higher number, got {self.bounds}")
        names_one = "{each}" in self.name
        if names_one != bool(self.for_each):
            raise ValueError("a part with for_each has {each} in its name, and no other part does")

    def zones(self) -> dict[ZoneName, Zone]:
        """Its zones by name, without those that it does not have."""
        texts: dict[ZoneName, str] = {name: getattr(self, name) for name in ZONES}
        if not any(texts.values()) and self.kind == "share":
            texts = dict(SHARE_ZONES)
        return {name: parse_zone(text) for name, text in texts.items() if text}

    def in_words(self) -> str:
        """The part of a criterion, as a person reads it."""
        if self.role == "beside":
            return f"Beside it: {self.measures}."
        said = {"required": "", "control": "Control: ", "admits": "A reading counts if it meets: "}
        verbs = {"holds": "holds if", "partly": "partly if", "fails": "fails if"}
        zones = ", ".join(
            f"{verbs[name]} {zone.in_words(*RANGES[self.kind])}"
            for name, zone in self.zones().items()
        )
        text = f"{said[self.role]}{self.measures}: {zones}."
        return text[0].upper() + text[1:]

    def split(self) -> "tuple[Part, ...]":
        """The parts that it stands for: itself, or one for each of `for_each`."""
        if not self.for_each:
            return (self,)
        texts = {"name": self.name, "measures": self.measures, "says": self.says}

        def of(each: str) -> Part:
            filled = {field: text.replace("{each}", each) for field, text in texts.items()}
            return self.model_copy(update={**filled, "for_each": ()})

        return tuple(of(each) for each in self.for_each)


class Claim(Strict):
    """Something a paper says, with the criterion that settles it, stated before the run."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"readings", "needs", "ours", "revised", "decided_at_quick", "not_comparable"}
    )

    id: str
    """A letter for the study and a number."""
    statement: str
    """What the paper says, in one sentence."""
    published: str
    """The number or figure that the paper gives, "-" if none."""
    stated: Day
    """When the criterion was stated."""
    unit: str = "seed"
    """What values are measured of: a seed, a draw, a sentence."""
    readings: tuple[str, ...] = (PLAIN,)
    """The readings of the paper in which it is measured, out of those that its study names."""
    parts: tuple[Part, ...]
    """What the verdict rests on."""
    measure: str
    """The function that measures it, as "file.function" of the study's folder."""
    needs: tuple[str, ...] = ()
    """Names or patterns of the conditions that must be trained for it."""
    ours: bool = False
    """Whether nobody claimed it but us."""
    revised: tuple[Revision, ...] = ()
    """Changes of the criterion after something had been seen, oldest first."""
    decided_at_quick: tuple[Verdict, ...] = ("reproduced", "partly", "refuted")
    """The verdicts that a short training can come to; any other is undecided there."""
    not_comparable: str = ""
    """Why what quick measures is no estimate of the published value, if it is none."""

    @field_validator("parts")
    @classmethod
    def _split(cls, parts: tuple[Part, ...]) -> tuple[Part, ...]:
        return tuple(each for part in parts for each in part.split())

    @model_validator(mode="after")
    def _check(self) -> "Claim":
        names = [part.name for part in self.parts]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{self.id}: more than one part is called {twice[0]!r}")
        if not any(part.role == "required" for part in self.parts):
            raise ValueError(f"{self.id}: no part is required, so nothing would be decided")
        if PLAIN not in self.readings:
            raise ValueError(f"{self.id}: every claim has the reading {PLAIN!r}")
        return self

    @property
    def criterion(self) -> str:
        """The criterion as a person reads it."""
        return " ".join(part.in_words() for part in self.parts)

    def criterion_hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of all that decides the verdict.

        How a sentence puts a number, and what stands beside, decides nothing.
        """
        fields = cast(dict[str, Any], json.loads(self.canonical_json()))
        deciding = {name: fields.get(name) for name in ("unit", "readings", "decided_at_quick")}
        deciding["parts"] = [
            {name: value for name, value in part.items() if name not in ("says", "percent")}
            for part in fields["parts"]
            if part.get("role") != "beside"
        ]
        text = json.dumps(deciding, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of_role(self, role: Role) -> Iterator[Part]:
        """Its parts of one role, in their order."""
        return (part for part in self.parts if part.role == role)


def read_claims(tables: Mapping[str, Any], study: str) -> dict[str, Claim]:
    """The claims of a `claims.toml`, by id.

    Args:
        tables: what the file holds.
        study: whose it is, for messages.
    """
    readings = dict(tables.get("readings", {PLAIN: ""}))
    claims: dict[str, Claim] = {}
    for name, fields in tables.items():
        if name == "readings":
            continue
        try:
            claim = Claim(id=name, **fields)
        except (UserError, TypeError) as error:
            raise UserError(f"claims.toml of {study}, {name}: {error}") from None
        missing = [reading for reading in claim.readings if reading not in readings]
        if missing:
            raise UserError(
                f"claims.toml of {study}, {name}: unknown reading {missing[0]!r}; "
                f"allowed: {', '.join(readings)}"
            )
        claims[name] = claim
    return claims
