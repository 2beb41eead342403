"""What there is to draw of a claim besides its seeds: curves, attention maps, grids."""

from collections.abc import Iterable

import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Float
from mnemoscope.core.strict import Strict
from mnemoscope.verdicts.record import SeriesName


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


class Plots(Strict):
    """What there is to draw of a claim besides its seeds."""

    curves: dict[SeriesName, Curve] = Field(default_factory=dict)  # through training, by name
    maps: dict[str, AttentionMap] = Field(default_factory=dict)  # attention maps, by name
    grids: dict[SeriesName, Grid] = Field(default_factory=dict)  # by name
