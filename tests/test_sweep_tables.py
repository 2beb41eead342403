"""A sweep as tables: numbers in full, and none where a time is not known."""

import csv
import json

import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.exchange.sweep_tables import grid_dataset, tabulate_grid, write_grid
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid


def cell(width, kind, reached, metrics):
    reached = np.array(reached, bool)
    times = np.where(reached, 10.0 * np.arange(1, len(reached) + 1), 500.0)
    lost = np.zeros(len(reached), bool)
    lost[-1] = not reached[-1]
    return Cell(
        {"width": width, "kind": kind}, tuple(range(len(reached))), times, reached, lost, metrics
    )


@pytest.fixture(scope="module")
def grid():
    cells = (
        cell(8, "a", [1, 1, 0], {"loss": np.array([1.0, 2, np.nan]), "by position": np.eye(3)}),
        cell(16, "b", [1, 1], {"loss": np.array([0.1, 0.2]), "by position": np.ones((2, 3))}),
    )
    return Grid({"width": (8, 16), "kind": ("a", "b")}, cells, "accuracy >= 0.9")


def test_tables_have_a_row_a_cell_and_a_row_a_seed(grid):
    tables = tabulate_grid(grid)
    cells = tables["cells"]
    assert cells["width"].tolist() == [8, 16]
    assert cells["kind"].tolist() == ["a", "b"]
    assert cells["share"].tolist() == [2 / 3, 1]
    assert cells["diverged"].tolist() == [1, 0]
    assert cells["median time"].tolist() == [20, 10]
    assert np.isnan(cells["median time high"]).all()
    seeds = tables["seeds"]
    assert seeds["seed"].tolist() == [0, 1, 2, 0, 1]
    assert seeds["kind"].tolist() == ["a", "a", "a", "b", "b"]
    # the time of a seed that did not reach is no number; how long it was followed is one
    np.testing.assert_array_equal(seeds["time"], [10, 20, np.nan, 10, 20])
    assert seeds["followed"].tolist() == [10, 20, 500, 10, 20]
    assert seeds["by position[1]"].tolist() == [0, 1, 0, 1, 1]
    assert {len(column) for column in seeds.values()} == {5}
    with pytest.raises(UserError, match="no cell of the grid has seeds"):
        tabulate_grid(Grid({"width": (1,)}, ()))


def test_tables_are_read_back_as_they_were(grid, tmp_path):
    from pyarrow import parquet

    tables = tabulate_grid(grid)
    write_grid(grid, tmp_path / "csv")
    rows = list(csv.DictReader((tmp_path / "csv" / "seeds.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in rows][3:] == [0.1, 0.2]
    assert json.loads((tmp_path / "csv" / "about.json").read_text())["event"] == "accuracy >= 0.9"
    write_grid(grid, tmp_path / "parquet", "parquet")
    read = parquet.read_table(tmp_path / "parquet" / "cells.parquet").to_pydict()
    assert read["share low"] == tables["cells"]["share low"].tolist()
    with pytest.raises(UserError, match="csv or parquet, got 'xlsx'"):
        write_grid(grid, tmp_path, "xlsx")


def test_a_dataset_has_the_axes_and_the_seeds(grid):
    pytest.importorskip("xarray")
    found = grid_dataset(grid)
    assert dict(found.sizes) == {"width": 2, "kind": 2, "seed": 3, "by position 0": 3}
    at = found.sel(width=8, kind="a")
    assert at["reached"].values.tolist() == [1, 1, 0]
    np.testing.assert_array_equal(at["time"], [10, 20, np.nan])
    assert float(found["loss"].sel(width=16, kind="b", seed=1)) == 0.2
    # nothing was trained there
    assert np.isnan(found["reached"].sel(width=8, kind="b")).all()
    assert np.isnan(found["reached"].sel(width=16, kind="b", seed=2))
