"""B5-B8 on planted curves: in which order memories form, and what each needs."""

import numpy as np
import pytest
from birth_planted import (
    EARLY,
    EARLY_AMONG_ALL,
    NEVER,
    N,
    entry,
    flat,
    memories,
    mixed,
    ramp,
    states,
    value_of,
)

from mnemoscope.probes.threshold_steps import above_chance, first_fall, first_reach
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    LONG,
    NO_FIRST,
    NO_OUTPUT,
    NO_SECOND,
    ONLY_OUTPUT,
    SHORT,
)

HELD = (NO_OUTPUT, ONLY_OUTPUT, NO_FIRST, NO_SECOND)


def test_levels():
    steps = np.array([0, 10, 20, 30, 40])
    curves = np.array(
        [
            [0, 0.6, 0.1, 0.4, 0.8],
            [1, 1, 1, 1, 1],
            [0, 0.1, 0.2, 0.3, 0.4],
            [0, 0.25, 0.75, 0.75, 0.75],
        ]
    )
    # the first is lucky at 10 only, and comes to stay between 30 and 40;
    # the last crosses half-way between 10 and 20
    np.testing.assert_allclose(
        first_reach(steps, curves, 0.5), [30 + 10 * 0.1 / 0.4, 0, np.inf, 15]
    )
    np.testing.assert_allclose(first_fall(steps, -curves, -0.5), first_reach(steps, curves, 0.5))
    np.testing.assert_allclose(first_reach(steps, curves[2:3], np.array([0.05])), [5])
    assert above_chance(np.array([0.2, 0.4, 0.6, 1.0], np.float32), 5).tolist() == [0, 0.25, 0.5, 1]


# B5 ----------------------------------------------------------------------------------------------

IN_ORDER = memories(20, 40, 60)
FIRST_OUTPUT = memories(20, 60, 40)
BACKWARDS = memories(40, 20, 60)


@pytest.mark.parametrize(
    ("in_order", "first_output", "verdict"),
    [
        (N, 0, "reproduced"),
        (0, N, "partly"),
        (20, 20, "partly"),
        (0, 0, "refuted"),
        (N - 2, 0, "undecided"),  # 38 of 40: from 83% on
    ],
)
def test_the_order_of_memories(in_order, first_output, verdict):
    rest = N - in_order - first_output
    groups = [(in_order, IN_ORDER), (first_output, FIRST_OUTPUT), (rest, BACKWARDS)]
    found = entry("B5", {ALL: mixed(*groups)})
    assert found.verdict == verdict
    assert found.value == in_order / N
    assert found.units == N


def test_seeds_that_know_triggers_by_luck_show_no_order():
    """Three of five keys are found in one of 17 models before any training."""
    lucky = IN_ORDER | {"second keys": flat(0.6)}
    found = entry("B5", {ALL: mixed((36, IN_ORDER), (4, lucky))})
    assert (found.verdict, found.value, found.units) == ("reproduced", 1, 36)
    two_of_five = IN_ORDER | {"second keys": np.maximum(IN_ORDER["second keys"], 0.4)}
    assert entry("B5", {ALL: two_of_five}).units == N


def test_the_order_must_be_the_same_in_both_readings():
    other = f"{ALL}/other"
    assert entry("B5", {ALL: IN_ORDER, other: IN_ORDER}).verdict == "reproduced"
    assert entry("B5", {ALL: IN_ORDER, other: BACKWARDS}).verdict == "partly"
    assert entry("B5", {ALL: BACKWARDS, other: BACKWARDS}).verdict == "refuted"


def test_the_order_is_read_by_the_authors_probe_and_ours_stands_beside():
    ours_early = IN_ORDER | {EARLY_AMONG_ALL: ramp(10, 1 / 256)}
    found = entry("B5", {ALL: ours_early})
    assert found.verdict == "reproduced"
    assert value_of(found, f"half formed: {EARLY}") == pytest.approx(60)
    assert value_of(found, f"half formed: {EARLY_AMONG_ALL}") == pytest.approx(10)


def test_what_is_never_formed_comes_last_and_has_no_median():
    never = memories(20, 40, NEVER)
    found = entry("B5", {ALL: never})
    assert found.verdict == "reproduced", "the two others came before it"
    assert value_of(found, f"half formed: {EARLY}") is None
    assert "40 of 40 have no finite value" in found.sentence


# B6 ----------------------------------------------------------------------------------------------

GOOD = {
    ALL: memories(20, 40, 60),
    NO_OUTPUT: memories(50, 60, 70),
    ONLY_OUTPUT: memories(10, NEVER, NEVER),
    NO_FIRST: memories(10, 15, NEVER),
    NO_SECOND: memories(10, NEVER, 60),
}


def test_freezing_has_three_statements_in_five_parts():
    found = entry("B6", GOOD)
    assert found.verdict == "reproduced"
    assert set(states(found).values()) == {"holds"}
    assert len(states(found)) == 5


@pytest.mark.parametrize(
    ("change", "part", "state"),
    [
        # between 20 and 30 half of what rises from 15 to 35 is there: 30 is step 75% of the way
        ({NO_OUTPUT: memories(50, 30, 70)}, "second keys without the output", "partly"),
        ({NO_OUTPUT: memories(50, 10, 70)}, "second keys without the output", "fails"),
        ({NO_OUTPUT: memories(50, 60, 30)}, "first keys without the output", "partly"),
        ({NO_OUTPUT: memories(50, 60, 10)}, "first keys without the output", "fails"),
        ({ONLY_OUTPUT: memories(90, NEVER, NEVER)}, "output alone forms", "fails"),
        # formed by 3/4 and no more: above means above
        ({ONLY_OUTPUT: memories(25, NEVER, NEVER)}, "output alone forms", "fails"),
        (
            {ONLY_OUTPUT: memories(10, NEVER, NEVER) | {"accuracy": ramp(10)}},
            "output alone is not enough",
            "fails",
        ),
        ({NO_SECOND: memories(10, NEVER, 5)}, "second keys are easier", "fails"),
    ],
)
def test_each_part_of_freezing_is_told_apart(change, part, state):
    found = entry("B6", GOOD | change)
    assert found.verdict == "partly"
    wrong = {name: each for name, each in states(found).items() if each != "holds"}
    assert wrong == {part: state}


@pytest.mark.parametrize("part", ["output alone forms", "output alone is not enough"])
def test_half_of_the_seeds_make_a_share_partly(part):
    alone = memories(10, NEVER, NEVER)
    bad = {
        "output alone forms": memories(90, NEVER, NEVER),
        "output alone is not enough": alone | {"accuracy": ramp(10)},
    }
    found = entry("B6", GOOD | {ONLY_OUTPUT: mixed((20, alone), (20, bad[part]))})
    assert (found.verdict, states(found)[part]) == ("partly", "partly")


def test_freezing_may_be_refuted():
    bad = {
        NO_OUTPUT: memories(50, 10, 10),
        ONLY_OUTPUT: memories(90, NEVER, NEVER) | {"accuracy": ramp(10)},
        NO_FIRST: memories(10, 60, NEVER),
        NO_SECOND: memories(10, NEVER, 5),
    }
    found = entry("B6", GOOD | bad)
    assert found.verdict == "refuted"
    assert set(states(found).values()) == {"fails"}


def test_keys_that_come_by_luck_are_counted_against_chance():
    """Of five keys as many as chance gives, which puts some seeds above a quarter."""
    rng = np.random.default_rng(0)
    recalls = rng.binomial(5, 0.2, N) / 5
    assert (recalls >= 0.6).any()
    by_luck = mixed((N, GOOD[NO_OUTPUT])) | {"second keys": np.tile(recalls[:, None], (1, 101))}
    found = entry("B6", GOOD | {NO_OUTPUT: by_luck})
    assert found.verdict == "reproduced"
    assert abs(found.value) < 0.1


def test_freezing_is_judged_in_both_readings():
    others = {f"{name}/other": GOOD[name] for name in HELD}
    found = entry("B6", GOOD | others)
    assert found.verdict == "reproduced"
    assert len(states(found, "other")) == 5
    worse = others | {f"{NO_SECOND}/other": memories(10, NEVER, 5)}
    found = entry("B6", GOOD | worse)
    assert found.verdict == "partly"
    assert states(found, "other")["second keys are easier"] == "fails"


def test_seeds_are_compared_with_themselves_where_some_diverged():
    """Two seeds diverged in one condition of two: 38 are compared."""
    found = entry("B6", GOOD, diverged={NO_FIRST: 2})
    assert found.failed == 2
    (part,) = (each for each in found.parts if each.name == "second keys are easier")
    assert (part.units, part.value) == (N - 2, 1)


# B7 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("late", "n_late", "verdict"),
    [
        (90, N, "reproduced"),
        (62, N, "refuted"),
        (90, 20, "partly"),
        (90, N - 2, "undecided"),
    ],
)
def test_early_positions(late, n_late, verdict):
    one = memories(20, 40, 60, late)
    found = entry("B7", {ALL: mixed((n_late, one), (N - n_late, memories(20, 40, 60, 62)))})
    assert found.verdict == verdict


def test_early_positions_are_those_of_the_authors_probe():
    """By ours, early keys are formed only when late ones are."""
    ours_late = memories(20, 40, 60, 90) | {EARLY_AMONG_ALL: ramp(90, 1 / 256)}
    found = entry("B7", {ALL: ours_late})
    assert found.verdict == "reproduced"
    assert value_of(found, "early before late, among all") == 0
    never = entry("B7", {ALL: memories(20, 40, NEVER)})
    assert never.verdict == "refuted", "who never gets there has not done it"


def test_early_positions_at_quick_and_in_both_readings():
    early = memories(20, 40, 60, 90)
    late = memories(20, 40, 60, 62)
    for curves, full, quick in (
        (early, "reproduced", "reproduced"),
        (late, "refuted", "undecided"),
    ):
        assert entry("B7", {ALL: curves}).verdict == full
        assert entry("B7", {ALL: curves}, scale="quick").verdict == quick
    assert entry("B7", {ALL: early, f"{ALL}/other": late}).verdict == "partly"


# B8 ----------------------------------------------------------------------------------------------


def stages(together, short, long):
    return {
        name: {"accuracy": ramp(at)}
        for name, at in zip((ALL, SHORT, LONG), (together, short, long), strict=True)
    }


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ((50, 60, 80), "reproduced"),
        ((50, 40, 80), "refuted"),
        ((50, 80, 40), "refuted"),
        ((50, NEVER, NEVER), "reproduced"),
        ((NEVER, 60, 80), "undecided"),  # the control: together gets there
    ],
)
def test_stages(times, verdict):
    assert entry("B8", stages(*times)).verdict == verdict


def test_stages_partly_and_in_both_readings():
    fast = {"accuracy": ramp(50)}
    slow = {"accuracy": ramp(70)}
    half = stages(50, 60, 80) | {ALL: mixed((20, fast), (20, slow))}
    found = entry("B8", half)
    assert (found.verdict, found.value) == ("partly", 0.5)
    assert value_of(found, "steps, short stages") == pytest.approx(68)
    others = {f"{name}/other": each for name, each in stages(70, 60, 80).items()}
    assert entry("B8", stages(50, 60, 80) | others).verdict == "partly"
