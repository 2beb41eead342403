"""Numbers of several seeds, which print as a table and calculate as an array."""

from collections.abc import Sequence
from html import escape
from typing import Any, Literal

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from mnemoscope.core import notebook
from mnemoscope.core.axes import Float
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.working import Told

FEW = 8  # rows that a table shows at either end

By = Literal["seed", "position"]
Progress = Told | bool | None


class BySeed(NDArrayOperatorsMixin):
    """A number for each seed, or one for each seed and position; calculates as its array does.

    Args:
        name: what it is.
        seeds: along its first axis.
        values: NaN where a seed diverged, or where nothing is asked.
        over: what it was read on, in words.
    """

    def __init__(
        self, name: str, seeds: Sequence[int], values: Float[np.ndarray, "seed *pos"], over: str
    ):
        self.name = name
        self.seeds = tuple(seeds)
        self.values = values
        self.over = over

    def mean(self) -> float | Float[np.ndarray, "pos"]:
        """The mean over the seeds that did not diverge: a number, or one for each position."""
        mean = self._over_seeds(np.mean)
        return float(mean) if mean.ndim == 0 else mean

    def of(self, seed: int) -> float | Float[np.ndarray, "pos"]:
        """One seed's."""
        if seed not in self.seeds:
            raise UserError(unknown("seed", seed, self.seeds))
        found = self.values[self.seeds.index(seed)]
        return float(found) if found.ndim == 0 else found

    def _over_seeds(self, reduce: Any) -> Float[np.ndarray, "*pos"]:
        """Over the seeds that did not diverge."""
        whole = self.values.reshape(len(self.seeds), -1)
        good = ~np.isnan(whole).all(axis=1)
        if not good.any():
            return np.full(self.values.shape[1:], np.nan)
        return np.asarray(reduce(self.values[good], axis=0))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.values, dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [x.values if isinstance(x, BySeed) else x for x in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __getitem__(self, index: Any) -> Any:
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        head, rows = self._table()
        lines = [self._title(), *(" ".join(f"{cell:>9}" for cell in row) for row in [head, *rows])]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head, rows = self._table()
        # a caption would be as narrow as the table
        return f"<b>{escape(self._title())}</b>{notebook.format_table('', head, rows)}"

    def _title(self) -> str:
        n_seeds = len(self.seeds)
        if self.values.ndim == 2:
            return f"{self.name} by position, {n_seeds} seeds, on {self.over}"
        mean = f"mean {self.mean():.4g}, " if n_seeds > 1 else ""
        return f"{self.name}: {mean}{n_seeds} seeds, on {self.over}"

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """What is shown, cut where it would fill the screen."""
        if self.values.ndim == 2:
            head = ("position", "mean", "lowest", "highest")
            stats = [self._over_seeds(each) for each in (np.mean, np.min, np.max)]
            rows = [(str(pos), *map(_short, each)) for pos, each in enumerate(zip(*stats))]  # noqa: B905
            rows = [row for row in rows if row[1] != "-"]
        else:
            head = ("seed", self.name)
            rows = [(str(s), _short(x)) for s, x in zip(self.seeds, self.values, strict=True)]
        if len(rows) > 2 * FEW + 1:
            rows = [*rows[:FEW], ("..",) * len(head), *rows[-FEW:]]
        return head, rows


def _short(x: float) -> str:
    return "-" if np.isnan(x) else f"{x:.4g}"
