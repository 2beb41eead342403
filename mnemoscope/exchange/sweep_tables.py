"""A sweep as tables for CSV and Parquet, and as an xarray dataset.

    cells    a row for each cell: the share with its interval, the median time with its own
    seeds    a row for each cell and seed: whether and when it reached, and its metrics

A time that is not known is no number: the column is NaN, and `followed` says what it exceeds.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from mnemoscope.core.errors import UserError
from mnemoscope.exchange.run_tables import Tables, write_csv, write_parquet
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.shares import USUAL, cell_share
from mnemoscope.sweeps.survival import cell_survival

if TYPE_CHECKING:
    import xarray  # pyright: ignore[reportMissingImports]

FORMATS = {"csv": write_csv, "parquet": write_parquet}


def tabulate_grid(grid: Grid, level: float = USUAL) -> Tables:
    """A grid as two tables, `cells` and `seeds`.

    Args:
        grid: at least one cell has seeds.
        level: of the intervals.
    """
    if not grid.cells:
        raise UserError("no cell of the grid has seeds, so there is no table")
    rows = [_cell_row(cell, level) for cell in grid.cells]
    cells = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    per_seed = [_seed_columns(cell) for cell in grid.cells]
    seeds = {name: np.concatenate([columns[name] for columns in per_seed]) for name in per_seed[0]}
    return {"cells": {**_places(grid, 1), **cells}, "seeds": {**_places(grid, 0), **seeds}}


def write_grid(
    grid: Grid, folder: str | os.PathLike[str], to: str = "csv", force: bool = False
) -> Path:
    """Write a grid's two tables into a folder.

    Args:
        grid: at least one cell has seeds.
        folder: where `cells` and `seeds` are written.
        to: csv or parquet.
        force: write into a folder that has files.
    """
    if to not in FORMATS:
        raise UserError(f"a grid is written as csv or parquet, got {to!r}")
    about = {
        "event": grid.event,
        "axes": {axis: [str(value) for value in values] for axis, values in grid.axes.items()},
        "level": USUAL,
    }
    FORMATS[to](tabulate_grid(grid), about, Path(folder), force)
    return Path(folder)


def grid_dataset(grid: Grid) -> "xarray.Dataset":
    """A grid as an xarray dataset: `reached`, `time`, `diverged` and metrics on axes and seed.

    What was not trained is NaN; so is the time of a seed that has not reached, and `followed` says
    to which step it was looked at.

    Args:
        grid: whose cells are taken.
    """
    try:
        import xarray  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "a dataset needs xarray: pip install 'mnemoscope[xarray]'; CSV needs nothing"
        ) from None
    seeds = sorted({seed for cell in grid.cells for seed in cell.seeds})
    at_seed = {seed: i for i, seed in enumerate(seeds)}
    dims = (*grid.axes, "seed")
    arrays: dict[str, np.ndarray] = {}
    for cell in grid.cells:
        place = grid.place(cell.at)
        which = [at_seed[seed] for seed in cell.seeds]
        for name, values in _numbers(cell).items():
            shape = (*grid.shape, len(seeds), *values.shape[1:])
            arrays.setdefault(name, np.full(shape, np.nan))[(*place, which)] = values
    variables: dict[str, Any] = {}
    for name, array in arrays.items():
        more = [f"{name} {i}" for i in range(array.ndim - len(dims))]
        variables[name] = ((*dims, *more), array)
    coordinates = {**{axis: list(values) for axis, values in grid.axes.items()}, "seed": seeds}
    return xarray.Dataset(variables, coordinates, attrs={"event": grid.event})


def _places(grid: Grid, rows: int) -> dict[str, Shaped[np.ndarray, "row"]]:
    """By axis, its value in every row; so many rows for each cell, or one for each seed if 0."""
    times = [rows or len(cell.seeds) for cell in grid.cells]
    return {
        axis: np.repeat(np.array([_plain(cell.at[axis]) for cell in grid.cells]), times)
        for axis in grid.axes
    }


def _plain(value: Any) -> bool | int | float | str:
    """A value as a table can hold it."""
    return value if isinstance(value, bool | int | float) else str(value)


def _cell_row(cell: Cell, level: float) -> dict[str, Any]:
    """One cell in numbers."""
    share = cell_share(cell, level)
    median = cell_survival(cell, level).median
    return {
        "seeds": share.seeds,
        "reached": share.reached,
        "diverged": share.diverged,
        "share": share.value,
        "share low": share.low,
        "share high": share.high,
        "median time": np.nan if median.value is None else median.value,
        "median time low": np.nan if median.low is None else median.low,
        "median time high": np.nan if median.high is None else median.high,
        "followed": median.followed,
    }


def _numbers(cell: Cell) -> dict[str, Shaped[np.ndarray, "seed ..."]]:
    """What is known of each seed of a cell."""
    return {
        "reached": cell.reached.astype(float),
        "diverged": cell.diverged.astype(float),
        "time": np.where(cell.reached, cell.times, np.nan),
        "followed": np.asarray(cell.times, float),
        **{name: np.asarray(values, float) for name, values in cell.metrics.items()},
    }


def _seed_columns(cell: Cell) -> dict[str, Shaped[np.ndarray, "seed"]]:
    """A column for each number of a seed; what is no single number has one for each entry."""
    columns: dict[str, np.ndarray] = {"seed": np.array(cell.seeds)}
    for name, values in _numbers(cell).items():
        for index in np.ndindex(values.shape[1:]):
            column = f"{name}[{','.join(map(str, index))}]" if index else name
            columns[column] = values[:, *index]
    for name in ("reached", "diverged"):
        columns[name] = columns[name].astype(bool)
    return columns
