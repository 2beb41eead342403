"""Claims, findings and the ledger.

What is claimed, how it would be settled, and what was measured.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from mnemoscope.core import notebook
from mnemoscope.core.axes import Float
from mnemoscope.core.errors import UserError, in_one_line, short, unknown
from mnemoscope.core.legacy import series_name
from mnemoscope.core.strict import Strict
from mnemoscope.core.theme import Verdict
from mnemoscope.studies.folder import read_toml
from mnemoscope.studies.scales import Scale
from mnemoscope.training.spec import Spec

if TYPE_CHECKING:
    from mnemoscope.studies.evidence import Evidence
    from mnemoscope.tasks import Corpus

SeriesName = Annotated[str, AfterValidator(series_name)]  # ledgers of 0.1 have other names


class Claim(Strict):
    """Something a paper says, with the criterion that settles it, stated before the run."""

    id: str  # a letter for the study and a number
    statement: str  # what the paper says, in one sentence
    source_figure: str  # the number or figure that the paper gives, "-" if none
    criterion: str  # which measurement makes which verdict


class Measured(Strict):
    """What was measured for a claim, and the verdict on it."""

    verdict: Verdict
    value: float | None  # the number that the verdict is about; None where nothing was measured
    interval: tuple[float, float] | None  # the value's 95% interval
    seeds: int  # trained, or drawn where nothing is trained; 0 where nothing has a seed
    failed_seeds: int  # diverged, summed over conditions
    sentence: str  # what was measured, in words


def _four_digits(values: np.ndarray) -> tuple[float, ...]:
    return tuple(float(f"{x:.4g}") for x in values)


class Curve(Strict):
    """Something followed through training, summed up over seeds."""

    steps: tuple[float, ...]  # along which it is followed: optimizer steps, or widths of a ladder
    mean: tuple[float, ...]  # over seeds
    low: tuple[float, ...]  # nineteen seeds in twenty lie between this
    high: tuple[float, ...]  # and this

    @model_validator(mode="after")
    def _check(self) -> "Curve":
        if {len(self.mean), len(self.low), len(self.high)} != {len(self.steps)}:
            raise ValueError(
                f"mean, low and high must have {len(self.steps)} values, one for each step"
            )
        return self

    @classmethod
    def over_seeds(cls, steps: np.ndarray, values: Float[np.ndarray, "seed step"]) -> "Curve":
        """The curve of what was read off every seed, four digits of it."""
        low, high = np.quantile(values, [0.025, 0.975], axis=0)
        return cls(
            steps=_four_digits(steps),
            mean=_four_digits(values.mean(axis=0)),
            low=_four_digits(low),
            high=_four_digits(high),
        )


class AttentionMap(Strict):
    """What one head attends to in one sequence."""

    tokens: tuple[str, ...]  # the sequence
    # a row for each asking token, a column for each token that it may see
    weights: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> "AttentionMap":
        if [len(row) for row in self.weights] != [len(self.tokens)] * len(self.tokens):
            raise ValueError(f"weights must be {len(self.tokens)} rows of {len(self.tokens)}")
        return self


def _cell(value: np.floating) -> float | None:
    """A number of a grid with four digits; None if it is not finite."""
    if not np.isfinite(value):
        return None
    return float(f"{value:.4g}") + 0.0  # plus zero: a negative zero is none


class Grid(Strict):
    """Something measured for every pair of a row and a column."""

    rows: tuple[str, ...]  # their names
    columns: tuple[str, ...]  # their names
    values: tuple[tuple[float | None, ...], ...]  # by row; None where it was not measured
    # points of lines that run through the grid, by the line's name, in the grid's own units:
    # the middle of column c and row r is (c, r), counted from 0
    lines: dict[str, tuple[tuple[float, float], ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> "Grid":
        if [len(row) for row in self.values] != [len(self.columns)] * len(self.rows):
            raise ValueError(f"values must be {len(self.rows)} rows of {len(self.columns)}")
        return self

    @classmethod
    def of(
        cls,
        rows: Iterable[object],
        columns: Iterable[object],
        values: Float[np.ndarray, "row column"],
    ) -> "Grid":
        """The grid of an array, four digits of it; what is not finite was not measured.

        Args:
            rows: their names.
            columns: their names.
            values: what was measured.
        """
        return cls(
            rows=tuple(map(str, rows)),
            columns=tuple(map(str, columns)),
            values=tuple(tuple(map(_cell, row)) for row in values),
        )


class Series(Strict):
    """Every seed's outcome, by the name of what was read off it."""

    by_seed: dict[SeriesName, tuple[float, ...]] = Field(default_factory=dict)


class Plots(Strict):
    """What there is to draw of a claim besides its seeds."""

    curves: dict[SeriesName, Curve] = Field(default_factory=dict)  # through training, by name
    maps: dict[str, AttentionMap] = Field(default_factory=dict)  # attention maps, by name
    grids: dict[SeriesName, Grid] = Field(default_factory=dict)  # by name


class Finding(Series, Measured):
    """What is kept of a judgment: `by_seed` has every seed's outcome.

    The ledger proper leaves it and the plots out.
    """

    plots: Plots = Plots()  # what there is to draw


class Outcome(NamedTuple):
    """What a judge concludes."""

    verdict: Verdict
    value: float  # the number that the verdict is about
    interval: tuple[float, float]  # the value's 95% interval
    sentence: str  # what was measured, in words
    by_seed: Mapping[str, np.ndarray] = MappingProxyType({})  # what was read off each seed, by name
    plots: Plots = Plots()  # what there is to draw

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class InconclusiveError(Exception):
    """Raised by a judge that has nothing to measure at this scale.

    Its message is the sentence of the ledger.
    """


def _short(number: float) -> str:
    """Four digits, or a whole number with commas where it is large."""
    return f"{number:.4g}" if abs(number) < 1e4 else f"{number:,.0f}"


class Entry(Measured, Claim):
    """One line of the ledger: the claim and what was measured.

    Fields come in the order claim, measured.
    """

    def number(self) -> str:
        """The measured value with its interval, short."""
        if self.value is None or self.interval is None:
            return "not measured"
        value, low, high = map(_short, (self.value, *self.interval))
        return value if low == high else f"{value} [{low}, {high}]"

    def _repr_html_(self) -> str:
        rows = [
            ("verdict", notebook.format_verdict(self.verdict)),
            ("measured", self.number()),
            ("in words", self.sentence),
            ("the paper", self.source_figure),
            ("criterion", self.criterion),
            ("seeds", self.seeds or "exact"),
        ]
        return notebook.format_table(f"{self.id} {self.statement}", ("", ""), rows)


class Ledger(Strict):
    """A study's findings at one scale, with what they were measured on."""

    study: str  # its name
    scale: Scale
    command: str  # what the user typed
    hardware: str  # of the machine that wrote the ledger, in words
    versions: dict[str, str]  # of Python and the packages that count, by name
    finished: str  # when: UTC, as ISO 8601 writes it
    claims: tuple[Entry, ...]  # those judged so far, in the study's order

    def _repr_html_(self) -> str:
        rows = [
            (
                entry.id,
                entry.statement,
                notebook.format_verdict(entry.verdict),
                entry.number(),
                entry.source_figure,
                entry.sentence,
            )
            for entry in self.claims
        ]
        head = ("", "claim", "verdict", "measured [95%]", "the paper", "in words")
        title = f"{self.study} ({self.scale}), {self.hardware}, {self.finished}"
        return notebook.format_table(title, head, rows)


@dataclass(frozen=True)
class Condition:
    """A Spec that a study trains, over seeds 0 .. seeds - 1."""

    spec: Spec  # what is trained
    seeds: int  # how many


@dataclass(frozen=True)
class ClaimTest:
    """A claim, the conditions it needs, and the function that judges it from them."""

    claim: Claim  # what is tested
    # names or patterns of conditions; a pattern may match nothing at a scale without such ones
    needs: tuple[str, ...]
    judge: Callable[["Evidence"], Outcome]  # applies the claim's criterion

    __test__ = False  # not a pytest class

    def pick_conditions(self, known: Iterable[str]) -> tuple[str, ...]:
        """The conditions that this test needs, out of those that a scale has."""
        known = tuple(known)
        for need in self.needs:
            if "*" not in need and need not in known:
                raise ValueError(unknown(f"condition needed by {self.claim.id}", need, known))
        return tuple(name for name in known if self._needs(name))

    def _needs(self, name: str) -> bool:
        return any(fnmatchcase(name, need) for need in self.needs)


@dataclass(frozen=True, repr=False)
class Study:
    """One paper put to the test."""

    name: str  # as the command line has it
    title: str  # a question
    paper: str  # its title and authors
    conditions: Callable[[Scale], dict[str, Condition]]  # what is trained at a scale, by name
    tests: tuple[ClaimTest, ...]  # one for each claim
    # the folder that has the files of this study (`mnemoscope.studies.library`), as Python names it
    package: str | None = None
    explore: tuple[str, ...] = ()  # conditions whose quick runs the site's explorer carries
    # the same conditions on a text of the user's
    on_text: Callable[[Scale, "Corpus"], dict[str, Condition]] | None = None
    # the same study of a language model of the user's
    on_model: Callable[[Path], "Study"] | None = None
    # what its findings rest on besides conditions and code: a fingerprint; nothing by default
    fingerprint: Callable[[], str] = str

    def __repr__(self) -> str:
        return f"<Study {self.name}: {short(self.title)}, {len(self.tests)} claims>"

    def pick(self, ids: tuple[str, ...] = ()) -> tuple[ClaimTest, ...]:
        """The tests of these claims, in the study's order; none given means all."""
        known = {test.claim.id: test for test in self.tests}
        for name in ids:
            if name not in known:
                raise UserError(unknown(f"claim of study {self.name!r}", name, known))
        return tuple(test for test in self.tests if not ids or test.claim.id in ids)


def load_claims(package: str | None) -> dict[str, Claim]:
    """The claims of a study by id, from the `claims.toml` in its folder.

    Args:
        package: the study's folder as Python names it; `__package__` inside the study.
    """
    by_id = read_toml(package or "", "claims.toml")
    return {name: Claim(id=name, **fields) for name, fields in by_id.items()}
