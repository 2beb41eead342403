"""The ledger: every claim of a study with what was measured and the verdict.

    entry = what the claim says + what `rule` and `sentence` make of its record

An entry holds nothing that could not be derived again from the claim and its record;
`mnemoscope.verdicts.verify` does that.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, model_validator

from mnemoscope.core import notebook
from mnemoscope.core.strict import Strict
from mnemoscope.core.theme import Verdict
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.intervals import Estimate
from mnemoscope.verdicts.record import Plan, Provenance, Record, TrainedCondition
from mnemoscope.verdicts.rule import Judgment, judge
from mnemoscope.verdicts.sentence import short_number, write_sentence
from mnemoscope.verdicts.zones import ZONES, ZoneName

DIGITS = 8


class PartEntry(Strict):
    """One part of a criterion in one reading, as it was measured."""

    name: str
    """The part."""
    reading: str
    """The reading of the paper."""
    role: str
    """What it does for the verdict."""
    value: float | None
    """The number; None where nothing was measured."""
    interval: tuple[float, float] | None
    """Its 95% interval; None if the units say nothing of where it lies."""
    units: int
    """On how many units it rests."""
    state: tuple[ZoneName, ...]
    """The zones in which it may be; none for what stands beside."""
    why_open: str = ""
    """Why there is no interval."""

    def number(self) -> str:
        """The value with its interval, short, or why there is none.

        What stands beside a verdict decides nothing, however many units there are.
        """
        number = number_in_words(self.value, self.interval)
        says_why = self.why_open and (self.role != "beside" or self.value is None)
        return f"{number} ({self.why_open})" if says_why else number

    def state_in_words(self) -> str:
        """Where it is: in one zone, or between several; empty for what stands beside."""
        return " or ".join(self.state)


class Entry(Strict):
    """One line of the ledger: the claim and what was measured."""

    id: str
    """A letter for the study and a number."""
    statement: str
    """What the paper says, in one sentence."""
    published: str
    """The number or figure that the paper gives, "-" if none."""
    criterion: str
    """Which measurement makes which verdict."""
    ours: bool = False
    """Whether nobody claimed it but us."""
    verdict: Verdict
    """What the claim came to."""
    firm: bool | None
    """Whether the verdict is the same at 99.9%; None where it was not asked, as by 0.1."""
    value: float | None
    """The number of the first part that the verdict rests on; None where nothing was measured."""
    interval: tuple[float, float] | None
    """Its 95% interval."""
    unit: str
    """What was measured: a seed, a draw, a sentence."""
    units: int
    """How many of them the value rests on; 0 where it is exact."""
    failed: int
    """Seeds that diverged, summed over conditions."""
    sentence: str
    """What was measured, in words."""
    parts: tuple[PartEntry, ...] = ()
    """Every part in every reading; none in ledgers of 0.1."""
    plan: Plan = Plan()
    """How the number of units was chosen."""
    conditions: dict[str, TrainedCondition] = Field(default_factory=dict)
    """What was trained for it, by name."""
    provenance: Provenance | None = None
    """When, where and with what it was measured; the ledger says it for those of 0.1."""
    criterion_hash: str = ""
    """Of the criterion by which it was judged; another one than in `provenance` if that changed
    after it was measured."""

    def number(self) -> str:
        """The measured value with its interval, short."""
        return number_in_words(self.value, self.interval)

    def verdict_in_words(self) -> str:
        """The verdict, and whether it is firm."""
        return f"{self.verdict}, firm" if self.firm else self.verdict

    def units_in_words(self) -> str:
        """On how many units the value rests: "248 seeds", "exact"."""
        if not self.units:
            return "-" if self.value is None else "exact"
        text = f"{self.units:,} {self.unit}{'s' if self.units != 1 else ''}"
        return f"{text}, {self.failed} diverged" if self.failed else text

    def _repr_html_(self) -> str:
        rows = [
            ("verdict", notebook.format_verdict(self.verdict, self.verdict_in_words())),
            ("measured", self.number()),
            ("in words", self.sentence),
            ("the paper", self.published),
            ("criterion", self.criterion),
            (f"{self.unit}s", self.units or "exact"),
        ]
        return notebook.format_table(f"{self.id} {self.statement}", ("", ""), rows)


class Ledger(Strict):
    """A study's findings at one scale."""

    format: Literal[1, 2] = 2
    """1 is 0.1's: its verdicts were decided by judges, and cannot be derived again."""
    study: str
    """Its name."""
    scale: Literal["quick", "full"]
    """How long models were trained."""
    command: str
    """What the user typed last."""
    hardware: str
    """Of the machine that wrote the ledger, in words."""
    versions: dict[str, str]
    """Of Python and the packages that count, by name."""
    finished: str
    """When it was written: UTC, as ISO 8601 writes it."""
    claims: tuple[Entry, ...]
    """Those judged so far, in the study's order."""

    stored_names: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_0_1(cls, data: Any) -> Any:
        """A ledger of 0.1 has no format, and other names in its entries."""
        if not isinstance(data, dict):
            return data
        fields = cast(dict[str, Any], data)
        entries = fields.get("claims")
        if "format" in fields or not isinstance(entries, list) or not entries:
            return fields
        claims = [_entry_of_0_1(entry) for entry in cast(list[Any], entries)]
        return {**fields, "format": 1, "claims": claims}

    def _repr_html_(self) -> str:
        rows = [
            (
                entry.id,
                entry.statement,
                notebook.format_verdict(entry.verdict, entry.verdict_in_words()),
                entry.number(),
                entry.published,
                entry.sentence,
            )
            for entry in self.claims
        ]
        head = ("", "claim", "verdict", "measured [95%]", "the paper", "in words")
        title = f"{self.study} ({self.scale}), {self.hardware}, {self.finished}"
        return notebook.format_table(title, head, rows)


_NAMES_OF_0_1 = {"source_figure": "published", "seeds": "units", "failed_seeds": "failed"}


def _entry_of_0_1(entry: Any) -> Any:
    """An entry of 0.1 by the names of now."""
    if not isinstance(entry, dict):
        return entry
    fields = cast(dict[str, Any], entry)
    renamed = {_NAMES_OF_0_1.get(name, name): value for name, value in fields.items()}
    return {"firm": None, "unit": "seed", **renamed}


def number_in_words(value: float | None, interval: tuple[float, float] | None) -> str:
    """A value with its interval, short.

    Args:
        value: None where nothing was measured.
        interval: None where there is none.
    """
    if value is None:
        return "not measured"
    if interval is None:
        return short_number(value)
    low, high = map(short_number, interval)
    return short_number(value) if low == high else f"{short_number(value)} [{low}, {high}]"


# ---- from a record to an entry


def make_entry(claim: Claim, record: Record) -> Entry:
    """The line of a ledger that follows from a claim and what was measured for it.

    Args:
        claim: says the criterion.
        record: what was measured.
    """
    judgment = judge(claim, record)
    headline = _headline(judgment)
    return Entry(
        id=claim.id,
        statement=claim.statement,
        published=claim.published,
        criterion=claim.criterion,
        ours=claim.ours,
        verdict=judgment.verdict,
        firm=judgment.firm,
        value=_rounded(headline.value),
        interval=_rounded_interval(headline),
        unit=claim.unit,
        units=headline.units,
        failed=sum(condition.failed for condition in record.conditions.values()),
        sentence=write_sentence(claim, judgment, record.note),
        parts=_part_entries(judgment),
        plan=record.plan,
        conditions=record.conditions,
        provenance=record.provenance,
        criterion_hash=claim.criterion_hash(),
    )


def _headline(judgment: Judgment) -> Estimate:
    """What is known of the first part that the verdict rests on, in the first reading."""
    for result in judgment.results:
        if result.part.role == "required":
            return result.estimate
    return Estimate(None, None, 0)


def _part_entries(judgment: Judgment) -> tuple[PartEntry, ...]:
    return tuple(
        PartEntry(
            name=result.part.name,
            reading=result.reading,
            role=result.part.role,
            value=_rounded(result.estimate.value),
            interval=_rounded_interval(result.estimate),
            units=result.estimate.units,
            state=tuple(zone for zone in ZONES if zone in result.state),
            why_open=result.estimate.why_open,
        )
        for result in judgment.results
    )


def _rounded(number: float | None) -> float | None:
    """Digits that every make of CPU agrees on."""
    return None if number is None else float(f"{number:.{DIGITS}g}")


def _rounded_interval(found: Estimate) -> tuple[float, float] | None:
    if found.interval is None:
        return None
    low, high = found.interval
    return float(f"{low:.{DIGITS}g}"), float(f"{high:.{DIGITS}g}")
