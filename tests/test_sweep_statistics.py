"""Shares, survival, boundaries and laws of sweeps: against arithmetic, and on planted worlds."""

import math
from collections import Counter

import numpy as np
import pytest
import sweep_worlds as worlds
from scipy import stats

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.boundary import find_boundary
from mnemoscope.sweeps.boundary_curve import boundary_curve, boundary_of
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.grid_laws import boundary_law, metric_law, time_law
from mnemoscope.sweeps.law import fit_brackets, own_powers
from mnemoscope.sweeps.shares import share_of
from mnemoscope.sweeps.survival import cell_survival, survival

Z = stats.norm.ppf(0.975)


def cell(times, reached, diverged=None, metrics=None, **at):
    reached = np.array(reached, bool)
    lost = np.zeros(len(reached), bool) if diverged is None else np.array(diverged, bool)
    seeds = tuple(range(len(reached)))
    return Cell(at, seeds, np.array(times, float), reached, lost, metrics or {})


def test_a_diverged_seed_is_counted_and_has_not_reached():
    one = cell([10, 20, 50, 50], [1, 1, 0, 0], [0, 0, 0, 1], width=8)
    assert share_of(one.reached, 1)[3:] == (2, 4, 1)
    # it is followed to the end, wherever it was last looked at
    early = cell([10, 20, 50, 5], [1, 1, 0, 0], [0, 0, 0, 1], width=8)
    assert cell_survival(early).median == cell_survival(one).median
    assert cell_survival(early).values.tolist() == [1, 3 / 4, 2 / 4, 2 / 4]


def test_survival_by_hand():
    # followed for different times: at 1 one of 8, at 2 one of 7 (and one is lost from sight),
    # at 3 one of 5, at 5 one of 4 (again one lost), one lost at 7, at 8 the last
    found = survival(np.array([1, 2, 2, 3, 5, 5, 7, 8.0]), np.array([1, 1, 0, 1, 1, 0, 0, 1], bool))
    at_3 = (7 / 8) * (6 / 7) * (4 / 5)
    assert found.steps.tolist() == [0, 1, 2, 3, 5, 8]
    assert found.at_risk.tolist() == [8, 8, 7, 5, 4, 1]
    np.testing.assert_allclose(
        found.values, [1, 7 / 8, (7 / 8) * (6 / 7), at_3, at_3 * (3 / 4), 0], rtol=1e-12
    )
    # Greenwood: var log S = sum d / (n (n - d)); the band is S ^ exp(+- z sqrt(var) / log S)
    variance = 1 / (8 * 7) + 1 / (7 * 6) + 1 / (5 * 4)
    width = Z * math.sqrt(variance) / -math.log(at_3)
    assert math.isclose(found.low[3], at_3 ** math.exp(width), rel_tol=1e-9)
    assert math.isclose(found.high[3], at_3 ** math.exp(-width), rel_tol=1e-9)
    # the curve falls to one half at 5, its lower end already at 1, its upper end never
    assert found.median == (5, 1, None, 8, "log-log")
    assert str(found.median) == "5 [1, more than 8]"


def test_what_was_not_reached_never_becomes_a_number():
    times = np.array([*range(100, 1000, 100), *[5000] * 11], float)
    found = survival(times, times < 5000)
    assert found.method == "order statistics"
    assert found.median.value is None
    assert found.median.high is None
    # of 20 the 6th lowest is at 600: a coin has fewer than 6 heads with probability .0207
    assert sum(math.comb(20, k) for k in range(6)) / 2**20 < 0.025
    assert sum(math.comb(20, k) for k in range(7)) / 2**20 > 0.025
    assert str(found.median) == "more than 5,000 [600, more than 5,000]"
    assert str(survival(np.full(40, 5000.0), np.zeros(40, bool)).median) == "more than 5,000"
    # the band of a share that nobody left is no certainty
    assert found.low[0] == 20 / (20 + Z**2)


def test_survival_refuses_what_is_no_time():
    with pytest.raises(UserError, match="at least one seed"):
        survival(np.zeros(0), np.zeros(0, bool))
    with pytest.raises(UserError, match="times must be steps"):
        survival(np.array([math.inf, 3.0]), np.array([False, True]))


def test_boundary_by_hand():
    # 9 of 32 or fewer show a share below one half: P = .0100 <= .05 / 4, of 10 it is .0251
    assert sum(math.comb(32, k) for k in range(10)) / 2**32 < 0.0125
    found = find_boundary("d", [8, 16, 32, 64, 128], [0, 9, 10, 23, 32], [32] * 5)
    (one,) = found.crossings
    assert (found.finding, one.low, one.high, one.direction) == ("crosses", 16, 64, "rising")
    # between 10 and 23 of 32, by logarithms: 6 of 13 parts of the way from 32 to 64
    assert math.isclose(one.value, 32 * 2 ** (6 / 13))
    # the other way round it falls at the same place
    mirrored = find_boundary("d", [8, 16, 32, 64, 128], [32, 23, 22, 9, 0], [32] * 5).crossings[0]
    assert (mirrored.low, mirrored.high, mirrored.direction) == (16, 64, "falling")
    assert math.isclose(mirrored.value, one.value)
    # and on an axis that is not geometric it is placed by the numbers themselves
    even = find_boundary("n", [1, 2, 3, 4, 5], [0, 9, 10, 23, 32], [32] * 5).crossings[0]
    assert math.isclose(even.value, 3 + 6 / 13)


@pytest.mark.parametrize(
    ("reached", "n", "finding", "said"),
    [
        ([0, 0, 0, 0], 32, "below", "no crossing from d = 8 to 64: less than half of the seeds"),
        ([32, 32, 31, 32], 32, "above", "no crossing from d = 8 to 64: more than half"),
        ([0, 32, 32, 0], 32, "not monotone", "11.3 [8, 16] (rising) and 45.3 [32, 64] (falling)"),
        ([0, 0, 6, 6], 6, "open", "d = 22.6 [below the axis, above the axis]: more seeds"),
        ([0, 0, 2, 16], 32, "open", "d = 64 [32, above the axis]: more seeds"),
    ],
)
def test_what_is_said_where_nothing_crosses_once(reached, n, finding, said):
    found = find_boundary("d", [8, 16, 32, 64], reached, [n] * 4)
    assert found.finding == finding
    assert found.is_monotone == (finding != "not monotone")
    assert said in str(found)


def test_a_cell_with_few_seeds_is_passed_over():
    # 4 seeds cannot speak; the cells behind them do, and the axis has two of them
    found = find_boundary("d", [8, 16, 32, 64, 128], [1, 0, 0, 32, 4], [4, 32, 32, 32, 4])
    (one,) = found.crossings
    assert (one.low, one.high) == (32, 64)


def test_powers_by_hand():
    sizes = np.array([1.0, 10.0, 100.0])
    low = np.array([1.0, 10.0, 100.0])
    high = np.array([2.0, 20.0, 200.0])
    # from the highest at the first size to the lowest at the last, and the other way round
    assert np.allclose(fit_brackets(sizes, low, high), (np.log10(50) / 2, np.log10(200) / 2))
    # no upper end at the last size: the power has a lower end alone
    high[2] = math.inf
    smallest, largest = fit_brackets(sizes, low, high)
    assert math.isclose(smallest, np.log10(50) / 2)
    assert math.isclose(largest, np.log10(20))  # from the first to the second
    # a curve that bends has no power
    assert fit_brackets(sizes, low, np.array([1.1, 11.0, 10.0])) is None
    assert fit_brackets(sizes, np.array([1.0, 1.0, 100.0]), np.array([1.1, 1.1, 110.0])) is None
    # weights of least squares are -1/2, 0, 1/2 a decade: the middle size bounds nothing
    least, greatest = own_powers(
        sizes, np.array([[1.0, 0.0, 100.0]]), np.array([[10.0, math.inf, 1000.0]])
    )
    assert np.allclose([least[0], greatest[0]], [1 / 2, 3 / 2])


def test_laws_say_what_they_were_fitted_on():
    rng = np.random.default_rng(0)
    law = time_law(worlds.planted_times(rng, followed=900.0, seeds=64), "size")
    # at 16 and 32 the medians are 800 and 1345: their sizes bound the power from below
    assert law.brackets[-1][1] == math.inf
    assert law.interval[0] < worlds.POWER < law.interval[1]
    assert "5 sizes, size = 2 to 32 (16-fold)" in str(law)
    assert "at 2 of them one end is not known" in str(law)
    assert np.isinf(law.by_seed.greatest).any()
    assert np.isfinite(law.by_seed.least).all()
    grid = worlds.planted_boundary(rng, noise=0.3, shared=True)
    with pytest.raises(UserError, match="unknown axis 'widht'"):
        boundary_law(grid, "widht", "size")
    with pytest.raises(UserError, match="needs one value of size"):
        boundary_of(grid, "width")
    with pytest.raises(UserError, match="at least 3 sizes"):
        time_law(worlds.planted_times(rng, 900.0, sizes=(2, 4)), "size")


def test_a_metric_of_a_seed_that_diverged_is_not_left_out():
    values = [np.array([1.0, 2, 3, 4, 5, 6, 7, np.nan]) * size for size in (1.0, 2.0, 4.0)]
    lost = [0] * 7 + [1]
    cells = tuple(
        cell([9] * 8, [0] * 8, lost, {"loss": each}, size=size)
        for size, each in zip((1, 2, 4), values, strict=True)
    )
    law = metric_law(Grid({"size": (1, 2, 4)}, cells), "loss", "size", level=0.5)
    # at 1 - .5 / 3 the median of 8 lies from the 2nd to the 7th: a coin has no more than one head
    # with probability 9 / 256 < .5 / 6, no more than two with 37 / 256; the lost one counts as the
    # lowest of all for one end, and as the highest for the other
    assert 9 / 256 < 0.5 / 6 < 37 / 256
    assert law.brackets[0] == (1.0, 7.0)
    assert law.by_seed.least[-1] == -math.inf
    assert np.allclose(law.by_seed.least[:-1], 1.0)


def test_each_seed_has_a_boundary_and_a_power_of_its_own():
    widths = (1.0, 2.0, 4.0, 8.0, 16.0)
    # seed 0 begins between 1 and 2, 2 and 4, 4 and 8; seed 1 below 1 at first, and out of order:
    # at size 2 there are as many values without it as for seed 0
    flags = {
        1: [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1]],
        2: [[0, 0, 1, 1, 1], [0, 1, 0, 1, 1]],
        4: [[0, 0, 0, 1, 1], [0, 0, 0, 1, 1]],
    }
    cells = [
        cell([9, 9], [flags[size][seed][i] for seed in (0, 1)], width=width, size=size)
        for size in flags
        for i, width in enumerate(widths)
    ]
    law = boundary_law(Grid({"width": widths, "size": tuple(flags)}, tuple(cells)), "width", "size")
    # weights of least squares are -1/2, 0, 1/2 a doubling
    assert np.allclose(law.by_seed.least, [(2 - 1) / 2, (2 - 0) / 2])
    assert np.allclose(law.by_seed.greatest, [(3 - 0) / 2, math.inf])
    assert law.by_seed.mean_interval() is None
    assert law.power is None


def holds(interval, widest=math.inf):
    """Whether an interval has the planted power in it, and is no wider than that."""
    if interval is None:
        return False
    low, high = interval
    return low <= worlds.POWER <= high and high - low <= widest


def covered(draws, seed):
    """How often each interval holds its truth, by its name, in so many draws of each world.

    An interval of a power that says next to nothing does not count.
    """
    hits = Counter()
    for i in range(draws):
        rng = np.random.default_rng([seed, i])
        for noise, shared in ((0.0, True), (0.3, True), (0.6, False)):
            grid = worlds.planted_boundary(rng, noise, shared)
            name = f"{noise}{' shared' if shared else ''}"
            curve = boundary_curve(grid, "width", "size")
            size = worlds.SIZES[i % len(worlds.SIZES)]
            low, high = curve.brackets()[worlds.SIZES.index(size)]
            hits[f"boundary {name}"] += low <= worlds.true_boundary(size) <= high
            law = boundary_law(grid, "width", "size")
            # where seeds agree, it is a step of the widths at both ends of the sizes
            steps = 2 * (np.log(2) / 2) / np.log(16)
            hits[f"law {name}"] += holds(law.interval, 1.001 * steps if noise == 0 else 9)
            own = law.by_seed.mean_interval()
            # the luckiest of the gentlest world may lie beyond the widths, and say nothing
            hits[f"own {name}"] += holds(own, 0.45) or (own is None and noise > 0.5)
        for followed in (400.0, math.inf):
            grid = worlds.planted_times(rng, min(followed, 1e9))
            size = worlds.SIZES[i % len(worlds.SIZES)]
            median = cell_survival(grid.cell({"size": size})).median
            at_most = math.inf if median.high is None else median.high
            hits[f"median {followed}"] += median.low <= worlds.true_time(size) <= at_most
            law = time_law(grid, "size")
            hits[f"time law {followed}"] += holds(law.interval)
    return hits


def test_planted_worlds_are_recovered():
    """A right interval of 95% has fewer hits with probability under 10^-6, all of them together."""
    draws = 30
    fewest = int(stats.binom.ppf(1e-6 / 13, draws, 0.95))
    found = covered(draws, seed=1)
    assert len(found) == 13
    assert {name: n for name, n in found.items() if n < fewest} == {}


@pytest.mark.long
def test_planted_worlds_are_recovered_in_a_thousand_draws():
    found = covered(1000, seed=2)
    assert {name: n for name, n in found.items() if n < 950} == {}
