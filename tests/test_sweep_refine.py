"""Which cells come next: a boundary for a quarter of the seeds."""

import math
from dataclasses import replace

import numpy as np
import pytest
import sweep_worlds as worlds

from mnemoscope.sweeps.boundary_curve import boundary_curve
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.refine import FEW, next_cells

SEEDS = tuple(range(32))
WIDTHS = tuple(float(x) for x in np.geomspace(4, 256, 25))
SIZES = (2, 4, 6, 8, 12, 16, 24, 32)


def bends(size):
    """A boundary that falls and levels off, unlike a power law."""
    return 12 + 500 / size**1.5


def refined(full, budget, key=0):
    """What is trained of a full grid within a budget, and the rounds that it took."""
    trained = {}
    rounds = []
    while True:
        wanted = next_cells(worlds.part_of(full, trained), SEEDS, budget, key)
        if not wanted:
            return worlds.part_of(full, trained), rounds
        rounds.append(wanted)
        for place, seeds in wanted:
            trained[place] = (*trained.get(place, ()), *seeds)


def compare(boundary, noise, shared, draws, seed):
    """Rows of grids that are refined for a quarter of the seeds: in how many the boundary lies in
    the full grid's interval, the full grid's in the refined one, and the truth in the refined one;
    in how many the refined interval has two ends; and the share of the seeds that was trained.
    """
    found = {"rows": 0, "within": 0, "full within": 0, "true": 0, "settled": 0, "seeds": 0.0}
    for i in range(draws):
        rng = np.random.default_rng([seed, i])
        full = worlds.planted_boundary(rng, noise, shared, 32, WIDTHS, SIZES, boundary)
        budget = count(full) // 4
        part, _ = refined(full, budget)
        assert count(part) <= budget
        found["seeds"] += count(part) / count(full) / draws
        whole = boundary_curve(full, "width", "size")
        less = boundary_curve(part, "width", "size")
        assert less.values == SIZES
        for j, size in enumerate(SIZES):
            (of_all,) = whole.boundaries[j].crossings
            (of_part,) = less.boundaries[j].crossings
            low, high = whole.brackets()[j]
            found["rows"] += 1
            found["within"] += low <= of_part.value <= high
            low, high = less.brackets()[j]
            found["full within"] += low <= of_all.value <= high
            found["true"] += low <= boundary(size) <= high
            found["settled"] += less.boundaries[j].finding == "crosses"
    return found


def count(grid):
    """Seeds in all cells."""
    return sum(len(cell.seeds) for cell in grid.cells)


@pytest.mark.parametrize("boundary", [worlds.true_boundary, bends])
def test_a_quarter_of_the_seeds_finds_the_boundary(boundary):
    found = compare(boundary, noise=0.25, shared=False, draws=3, seed=0)
    assert found["within"] == found["full within"] == found["rows"] == 24
    assert found["true"] >= 22
    assert found["settled"] >= 20


def test_where_seeds_agree_it_takes_less():
    full = worlds.planted_boundary(np.random.default_rng(0), 0.0, True, 32, WIDTHS, SIZES)
    part, rounds = refined(full, budget=None)
    assert count(part) < count(full) / 5
    # coarse cells come first, with a few seeds; what comes next follows from cells and key alone
    assert {len(seeds) for _, seeds in rounds[0]} == {FEW}
    assert rounds == refined(full, budget=None)[1]
    places = [[place for place, _ in refined(full, None, key)[1][0]] for key in (0, 1)]
    assert places[0] != places[1]
    assert sorted(places[0]) == sorted(places[1])
    # both neighbors of the boundary have all seeds, in every row
    for each in boundary_curve(part, "width", "size").boundaries:
        (one,) = each.crossings
        assert math.isclose(one.high / one.low, WIDTHS[1] / WIDTHS[0])


def test_cells_get_all_seeds_until_one_is_sure_on_each_side():
    rng = np.random.default_rng(0)
    full = worlds.planted_boundary(rng, 0.4, False, 32, WIDTHS, SIZES)
    part, _ = refined(full, budget=None)
    assert count(part) < count(full) / 2
    whole = boundary_curve(full, "width", "size")
    less = boundary_curve(part, "width", "size")
    for of_all, of_part in zip(whole.brackets(), less.brackets(), strict=True):
        assert of_part[0] <= of_all[0]
        assert of_all[1] <= of_part[1]
        # where the full grid has an end inside, so has the refined one
        assert np.isfinite(of_part).tolist() == np.isfinite(of_all).tolist()


def test_names_are_not_cut_in_half_and_values_may_stand_in_any_order():
    rng = np.random.default_rng(0)
    shuffled = tuple(float(x) for x in rng.permutation(WIDTHS))
    full = worlds.planted_boundary(rng, 0.0, True, 32, shuffled, SIZES)
    named = Grid(
        {"width": shuffled, "kind": tuple(map(str, SIZES))},
        tuple(
            replace(c, at={"width": c.at["width"], "kind": str(c.at["size"])}) for c in full.cells
        ),
    )
    part, _ = refined(named, None)
    assert {cell.at["kind"] for cell in part.cells} == set(map(str, SIZES))
    assert count(part) < count(named) / 4
    for kind, each in zip(SIZES, boundary_curve(part, "width", "kind").boundaries, strict=True):
        (one,) = each.crossings
        assert one.low <= worlds.true_boundary(kind) <= one.high


def test_where_nothing_crosses_the_end_gets_all_seeds():
    full = worlds.planted_boundary(
        np.random.default_rng(0), 0.1, True, 32, WIDTHS, (2, 4), lambda size: 9999.0
    )
    part, _ = refined(full, None)
    for each in boundary_curve(part, "width", "size").boundaries:
        assert each.finding == "below"
    assert count(part) < count(full) / 4
