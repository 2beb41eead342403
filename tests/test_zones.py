"""Zones of the line: read from text, checked for gaps and overlaps, met by intervals."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemoscope.verdicts.zones import check_zones, parse_zone

SHARES = {"holds": "[0.9, 1]", "partly": "(0.1, 0.9)", "fails": "[0, 0.1]"}


def parsed(zones):
    return {name: parse_zone(text) for name, text in zones.items()}


@pytest.mark.parametrize(
    ("zone", "low", "high", "meets"),
    [
        ("[0.9, 1]", 0.8, 0.9, True),
        ("(0.9, 1]", 0.8, 0.9, False),
        ("[0.9, 1]", 0.8, 0.8999, False),
        ("(0.1, 0.9)", 0.1, 0.1, False),
        ("(0.1, 0.9)", 0.0, 1.0, True),
        ("(0.1, 0.9)", 0.9, 1.0, False),
        ("(-inf, -1) or (1, inf)", -1.0, 1.0, False),
        ("(-inf, -1) or (1, inf)", -1.0, 1.5, True),
        ("[2, 2]", 2.0, 2.0, True),
    ],
)
def test_which_intervals_meet_a_zone(zone, low, high, meets):
    assert parse_zone(zone).meets(low, high) == meets


@pytest.mark.parametrize(
    "text",
    ["", "0.9", "[0.9]", "[1, 0.9]", "(1, 1)", "[0.9, 1] and [2, 3]", "[-inf, 0]", "[a, b]"],
)
def test_what_is_no_zone_is_refused(text):
    with pytest.raises(ValueError, match=r"zone|interval|infinite"):
        parse_zone(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partly": "(0.1, 0.9]"}, r"overlap: partly \(0.1, 0.9\] and holds \[0.9, 1\]"),
        ({"partly": "(0.1, 0.95)"}, "overlap"),
        ({"partly": "(0.1, 0.8)"}, "gap between partly"),
        ({"fails": "[0, 0.1)"}, r"gap between fails \[0, 0.1\) and partly \(0.1, 0.9\)"),
        ({"fails": "(0, 0.1]"}, "cover everything from 0 to 1"),
        ({"holds": "[0.9, 1)"}, "cover everything from 0 to 1"),
        ({"holds": "[0.9, 2]"}, "cover everything from 0 to 1"),
    ],
)
def test_overlaps_and_gaps_are_refused(change, message):
    check_zones(parsed(SHARES), 0.0, 1.0)
    with pytest.raises(ValueError, match=message):
        check_zones(parsed(SHARES | change), 0.0, 1.0)


def test_no_zones_are_refused():
    with pytest.raises(ValueError, match="needs zones"):
        check_zones({}, 0.0, 1.0)


@given(x=st.floats(-3, 3), zone=st.sampled_from(["holds", "partly", "fails"]))
def test_every_number_is_in_one_zone(x, zone):
    zones = parsed(
        {
            "holds": "[-1, 1]",
            "partly": "[-2, -1) or (1, 2]",
            "fails": "(-inf, -2) or (2, inf)",
        }
    )
    check_zones(zones, -math.inf, math.inf)
    inside = {"holds": abs(x) <= 1, "partly": 1 < abs(x) <= 2, "fails": abs(x) > 2}
    assert zones[zone].meets(x, x) == inside[zone]


@pytest.mark.parametrize(
    ("zone", "words"),
    [
        ("[0.9, 1]", "at least 0.9"),
        ("[0, 0.1]", "at most 0.1"),
        ("(0.1, 0.9)", "between 0.1 and 0.9"),
        ("[0.3, 0.4] or (0.5, 1]", "0.3 to 0.4 or more than 0.5"),
        ("[0.5, 0.5]", "0.5"),
    ],
)
def test_zones_in_words(zone, words):
    assert parse_zone(zone).in_words(0.0, 1.0) == words
