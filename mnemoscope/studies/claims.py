"""Claims, findings and the ledger: what is claimed, how it would be settled, and what was measured."""

import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core import notebook
from mnemoscope.core.axes import Float
from mnemoscope.core.config import Strict
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.training.spec import Spec

if TYPE_CHECKING:
    from mnemoscope.studies.evidence import Evidence
    from mnemoscope.tasks import Corpus

Verdict = Literal["reproduced", "partly", "refuted", "undecided"]
Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")


class Claim(Strict):
    """Something a source says, with the criterion that settles it, stated before the run."""

    id: str
    statement: str
    source_figure: str
    criterion: str


class Measured(Strict):
    """What was measured for a claim, and the verdict on it."""

    verdict: Verdict
    value: float | None
    interval: tuple[float, float] | None
    seeds: int
    failed_seeds: int
    sentence: str


class Curve(Strict):
    """Something followed through training: the mean over seeds, and between which values nineteen seeds in twenty lie."""

    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @model_validator(mode="after")
    def _check(self) -> "Curve":
        if {len(self.mean), len(self.low), len(self.high)} != {len(self.steps)}:
            raise ValueError(f"mean, low and high must have {len(self.steps)} values, one for each step")
        return self

    @classmethod
    def over_seeds(cls, steps: np.ndarray, values: Float[np.ndarray, "seed step"]) -> "Curve":
        """The curve of what was read off every seed, four digits of it."""
        rows = steps, values.mean(axis=0), *np.quantile(values, [0.025, 0.975], axis=0)
        return cls(**{n: tuple(float(f"{x:.4g}") for x in row) for n, row in zip(cls.model_fields, rows, strict=True)})


class Map(Strict):
    """What one head attends to in one sequence: a row for each asking token, a column for each token that it may see."""

    tokens: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]

    @model_validator(mode="after")
    def _check(self) -> "Map":
        if [len(row) for row in self.weights] != [len(self.tokens)] * len(self.tokens):
            raise ValueError(f"weights must be {len(self.tokens)} rows of {len(self.tokens)}")
        return self


class Grid(Strict):
    """Something measured for every pair of a row and a column; None where it was not measured.

    `lines` run through it in its own units: the middle of column c and row r is (c, r), counted from 0.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    lines: dict[str, tuple[tuple[float, float], ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> "Grid":
        if [len(row) for row in self.values] != [len(self.columns)] * len(self.rows):
            raise ValueError(f"values must be {len(self.rows)} rows of {len(self.columns)}")
        return self

    @classmethod
    def of(cls, rows: Iterable[object], columns: Iterable[object], values: Float[np.ndarray, "row column"]) -> "Grid":
        """The grid of an array, four digits of it; what is not finite was not measured."""
        # plus zero: a negative zero is none
        kept = tuple(tuple(float(f"{x:.4g}") + 0.0 if np.isfinite(x) else None for x in row) for row in values)
        return cls(rows=tuple(map(str, rows)), columns=tuple(map(str, columns)), values=kept)


class Series(Strict):
    """Every seed's outcome, by the name of what was read off it."""

    by_seed: dict[str, tuple[float, ...]] = Field(default_factory=dict)


class Pictures(Strict):
    """What there is to draw of a claim besides its seeds."""

    curves: dict[str, Curve] = Field(default_factory=dict)
    maps: dict[str, Map] = Field(default_factory=dict)
    grids: dict[str, Grid] = Field(default_factory=dict)


class Finding(Series, Measured):
    """What is kept of a judgement: `by_seed` has every seed's outcome; the ledger proper leaves it and the pictures out."""

    pictures: Pictures = Pictures()


class Outcome(NamedTuple):
    """What a judge concludes; `by_seed` names whatever it read off each seed."""

    verdict: Verdict
    value: float
    interval: tuple[float, float]
    sentence: str
    by_seed: Mapping[str, np.ndarray] = MappingProxyType({})
    pictures: Pictures = Pictures()


class NotSettledError(Exception):
    """Raised by a judge that has nothing to measure at this scale; its message is the sentence of the ledger."""


class Entry(Measured, Claim):
    """One line of the ledger: the claim and what was measured (fields come in the order claim, measured)."""

    def number(self) -> str:
        """The measured value with its interval, short."""
        if self.value is None or self.interval is None:
            return "not measured"
        value, low, high = (f"{x:.4g}" if abs(x) < 1e4 else f"{x:,.0f}" for x in (self.value, *self.interval))
        return value if low == high else f"{value} [{low}, {high}]"

    def _repr_html_(self) -> str:
        rows = [("verdict", notebook.verdict(self.verdict)), ("measured", self.number()), ("in words", self.sentence),
                ("the source", self.source_figure), ("criterion", self.criterion), ("seeds", self.seeds or "exact")]  # fmt: skip
        return notebook.table(f"{self.id} {self.statement}", ("", ""), rows)


class Ledger(Strict):
    """A study's findings at one scale, with what they were measured on."""

    study: str
    scale: Scale
    command: str
    hardware: str
    versions: dict[str, str]
    finished: str
    claims: tuple[Entry, ...]

    def _repr_html_(self) -> str:
        rows = [
            (x.id, x.statement, notebook.verdict(x.verdict), x.number(), x.source_figure, x.sentence)
            for x in self.claims
        ]
        head = ("", "claim", "verdict", "measured [95%]", "the source", "in words")
        return notebook.table(f"{self.study} ({self.scale}), {self.hardware}, {self.finished}", head, rows)


@dataclass(frozen=True)
class Setting:
    """A Spec that a study trains, over seeds 0 .. seeds - 1."""

    spec: Spec
    seeds: int


@dataclass(frozen=True)
class Test:
    """A claim, the settings it needs, and the function that judges it from them."""

    claim: Claim
    needs: tuple[str, ...]  # names or patterns; a pattern may match nothing at a scale that has no such settings
    judge: Callable[["Evidence"], Outcome]

    __test__ = False  # not a pytest class

    def settings(self, known: Iterable[str]) -> tuple[str, ...]:
        """The settings that this test needs, out of those that a scale has."""
        known = tuple(known)
        for need in self.needs:
            if "*" not in need and need not in known:
                raise ValueError(unknown(f"setting needed by {self.claim.id}", need, known))
        return tuple(name for name in known if any(fnmatchcase(name, need) for need in self.needs))


@dataclass(frozen=True)
class Study:
    """One source put to the test."""

    name: str
    title: str
    source: str
    settings: Callable[[Scale], dict[str, Setting]]
    tests: tuple[Test, ...]
    explore: tuple[str, ...] = ()  # settings whose quick runs the site's explorer carries
    on_text: Callable[[Scale, "Corpus"], dict[str, Setting]] | None = None  # the same settings on a text of the user's
    on_model: Callable[[Path], "Study"] | None = None  # the same study of a language model of the user's
    rests_on: Callable[[], str] = (
        str  # what its findings rest on besides settings and code: a fingerprint; nothing by default
    )

    def pick(self, ids: tuple[str, ...] = ()) -> tuple[Test, ...]:
        """The tests of these claims, in the study's order; none given means all."""
        known = {test.claim.id: test for test in self.tests}
        for name in ids:
            if name not in known:
                raise UserError(unknown(f"claim of study {self.name!r}", name, known))
        return tuple(test for test in self.tests if not ids or test.claim.id in ids)


def load_claims(study: str) -> dict[str, Claim]:
    """The claims of a study by id, from the `claims.toml` in its folder."""
    text = resources.files(f"mnemoscope.studies.library.{study}").joinpath("claims.toml").read_text(encoding="utf-8")
    return {name: Claim(id=name, **fields) for name, fields in tomllib.loads(text).items()}
