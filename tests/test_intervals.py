"""Intervals over units: by SciPy, by hand, and where there is none."""

import math

import numpy as np
import pytest
from scipy import stats

from mnemoscope.verdicts.intervals import (
    FIRM,
    USUAL,
    estimate,
    newcombe,
    units_for_certainty,
    wilson,
)

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(("hits", "n"), [(0.0, 8), (8.0, 8), (3.0, 10), (35.0, 35), (127.0, 128)])
@pytest.mark.parametrize("level", [USUAL, FIRM])
def test_shares_have_wilsons_interval(hits, n, level):
    expected = stats.binomtest(int(hits), n).proportion_ci(level, method="wilson")
    np.testing.assert_allclose(wilson(hits, n, level), (expected.low, expected.high), atol=1e-12)


def test_thirty_five_of_thirty_five_is_the_least_that_shows_nine_in_ten():
    """n / (n + z^2) is at least .9 from n = 9 z^2 on: 9 * 1.96^2 = 34.6, 9 * 3.29^2 = 97.4."""
    assert units_for_certainty(USUAL) == math.ceil(9 * 1.959964**2) == 35
    assert units_for_certainty(FIRM) == math.ceil(9 * 3.290527**2) == 98
    assert wilson(35.0, 35, USUAL)[0] >= 0.9 > wilson(34.0, 34, USUAL)[0]
    assert wilson(52.0, 53, USUAL)[0] >= 0.9 > wilson(51.0, 52, USUAL)[0]
    assert wilson(67.0, 69, USUAL)[0] >= 0.9 > wilson(66.0, 68, USUAL)[0]
    assert wilson(98.0, 98, FIRM)[0] >= 0.9 > wilson(97.0, 97, FIRM)[0]


def test_differences_of_shares_have_newcombes_interval():
    """The example of Newcombe 1998, table II, method 10: 56/70 - 48/80 is .0524 to .3339."""
    np.testing.assert_allclose(newcombe(56.0, 70, 48.0, 80, USUAL), (0.0524, 0.3339), atol=5e-5)
    np.testing.assert_allclose(newcombe(10.0, 10, 0.0, 10, USUAL), (0.6075, 1.0), atol=5e-5)


def test_means_have_students_interval():
    values = RNG.normal(2, 3, 16)
    found = estimate("mean", values.tolist())
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    np.testing.assert_allclose(found.interval, (expected.low, expected.high))
    assert found.value == pytest.approx(values.mean())
    assert found.units == 16


def test_differences_of_means_have_welchs_interval():
    values = RNG.normal(2, 3, 16)
    others = RNG.normal(1, 1, 40)
    found = estimate("mean difference", values.tolist(), others.tolist())
    expected = stats.ttest_ind(values, others, equal_var=False).confidence_interval(0.95)
    np.testing.assert_allclose(found.interval, (expected.low, expected.high))
    assert found.units == 16 + 40


def test_medians_lie_between_order_statistics():
    """Of 16 values the 4th and the 13th: fewer than 4 heads in 16 come with probability .0106,
    fewer than 5 with .0384."""
    values = RNG.permutation(np.arange(16.0)).tolist()
    assert estimate("median", values).interval == (3.0, 12.0)
    assert stats.binom.cdf(3, 16, 0.5) < 0.025 < stats.binom.cdf(4, 16, 0.5)
    # of 8 the lowest and the highest: (1/2)^8 = .0039 each
    assert estimate("median", np.arange(8.0).tolist()).interval == (0.0, 7.0)
    assert estimate("median", np.arange(8.0).tolist(), level=FIRM).interval is None


def test_what_is_exact_is_its_own_interval():
    assert estimate("exact", [2.5]).interval == (2.5, 2.5)
    assert estimate("exact", [2.5]).units == 0
    assert estimate("exact", [math.inf]).interval is None
    with pytest.raises(ValueError, match="one value"):
        estimate("exact", [1.0, 2.0])


@pytest.mark.parametrize(
    ("kind", "values", "others", "why"),
    [
        ("share", [], (), "nothing was measured"),
        ("share", [1.0] * 7, (), "7 units; 8 are needed"),
        ("share", [1.0] * 8, (), "8 of 8 do; 35 would decide"),
        ("share", [1.0, 0.0] * 17, (), "17 of 34 do; 35 would decide"),
        ("mean", [1.0, math.inf] * 8, (), "8 of 16 have no finite value"),
        ("mean", [1.0, math.nan] * 8, (), "8 of 16 have no finite value"),
        ("mean", [1.0] * 34, (), "34 units agree; 35 would be needed"),
        ("median", [1.0] * 34, (), "34 units agree; 35 would be needed"),
        ("mean difference", [1.0] * 34, range(9), "34 units agree; 35 would be needed"),
        ("share difference", [1.0] * 34, [0.0] * 7, "7 units; 8 are needed"),
    ],
)
def test_where_there_is_no_interval(kind, values, others, why):
    found = estimate(kind, values, [float(x) for x in others])
    assert found.interval is None
    assert found.why_open == why


def test_values_that_all_agree_are_certain_from_thirty_five_on():
    assert estimate("mean", [1.0] * 35).interval == (1.0, 1.0)
    assert estimate("mean", [1.0] * 35, level=FIRM).interval is None
    assert estimate("mean", [1.0] * 98, level=FIRM).interval == (1.0, 1.0)
