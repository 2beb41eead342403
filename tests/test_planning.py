"""How many more units would decide, and whether two measurements agree."""

import numpy as np
import pytest
from criteria import MEAN, SHARE, claim_of, hits, record_of

from mnemoscope.verdicts.claim import Part
from mnemoscope.verdicts.planning import (
    agree,
    compare_records,
    describe_what_would_decide,
    units_to_decide,
)
from mnemoscope.verdicts.record import unit_values

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("n_hits", "of", "needed"),
    [
        (8, 8, 35),  # the least that shows nine in ten
        (0, 8, 35),
        (36, 40, None),  # nine in ten exactly: at the border whatever the number
        (4, 8, 35),
    ],
)
def test_units_that_would_decide_a_share(n_hits, of, needed):
    assert units_to_decide(claim_of(SHARE), record_of({"share": hits(n_hits, of)})) == needed


def test_units_that_would_decide_a_mean():
    """t s / sqrt(n) <= .5 for s = 2 at n = 64 or so."""
    values = 0.5 + 2 * np.repeat([-1.0, 1.0], 8) * np.sqrt(15 / 16)
    claim = claim_of(MEAN)
    record = record_of({"mean": values})
    needed = units_to_decide(claim, record)
    assert 58 <= needed <= 70
    assert describe_what_would_decide(claim, record) == (
        f"About {needed} seeds like these 16 would decide it."
    )


def test_what_is_decided_needs_no_more():
    record = record_of({"share": hits(40, 40)})
    assert units_to_decide(claim_of(SHARE), record) is None
    assert describe_what_would_decide(claim_of(SHARE), record) == ""


def test_no_number_of_units_decides_what_was_never_reached():
    record = record_of({"mean": [1.0, np.inf] * 8})
    said = describe_what_would_decide(claim_of(MEAN), record)
    assert said == "No number of such units would decide it."


@pytest.mark.parametrize(
    ("kind", "one", "other", "answer"),
    [
        ("share", hits(8, 8), hits(128, 128), True),
        ("share", hits(4, 8), hits(128, 128), False),
        ("share", hits(30, 40), hits(100, 128), True),
        ("mean", RNG.normal(0, 1, 16), RNG.normal(0, 1, 40), True),
        ("mean", RNG.normal(0, 1, 16), RNG.normal(3, 1, 40), False),
        ("mean", [1.0], [1.0], None),
        ("mean", [1.0, np.inf], [1.0, 2.0], None),
        ("median", RNG.normal(0, 1, 16), RNG.normal(0, 1, 40), True),
        ("median", RNG.normal(0, 1, 16), RNG.normal(3, 1, 40), False),
        ("exact", [1.0], [1.0 + 1e-9], True),
        ("exact", [1.0], [1.1], False),
        ("share difference", (hits(8, 8), hits(0, 8)), (hits(64, 64), hits(0, 64)), True),
        ("share difference", (hits(8, 8), hits(0, 8)), (hits(64, 64), hits(64, 64)), False),
    ],
)
def test_two_measurements_agree_or_not(kind, one, other, answer):
    part = Part(name="x", kind=kind, measures="it", role="beside")
    values = [unit_values(*x) if isinstance(x, tuple) else unit_values(x) for x in (one, other)]
    assert agree(part, *values) is answer


def test_two_measurements_that_are_the_same_differ_one_time_in_a_hundred():
    part = Part(name="x", kind="mean", measures="it", role="beside")
    rng = np.random.default_rng(1)
    differ = sum(
        not agree(part, unit_values(rng.normal(size=8)), unit_values(rng.normal(size=40)))
        for _ in range(600)
    )
    assert differ <= 18  # 6 are expected; more than 18 come with probability 2e-5


def test_records_agree_if_every_part_that_decides_does():
    claim = claim_of(SHARE, MEAN)
    values = RNG.normal(0, 1, 16)
    one = record_of({"share": hits(8, 8), "mean": values})
    assert compare_records(claim, one, record_of({"share": hits(40, 40), "mean": values})) is True
    assert compare_records(claim, one, record_of({"share": hits(0, 40), "mean": values})) is False
    assert compare_records(claim, one, record_of({})) is None
