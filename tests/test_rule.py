"""The rule: every zone of a part, every role, readings, and what nothing can be decided from."""

import ast
import itertools
from pathlib import Path

import numpy as np
import pytest
from criteria import MEAN, SHARE, claim_of, hits, record_of, trained

import mnemoscope
from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import VERDICTS
from mnemoscope.verdicts.claim import Part
from mnemoscope.verdicts.ledger import make_entry
from mnemoscope.verdicts.rule import judge, verdicts_of

STATES = [
    frozenset(some)
    for n in (1, 2, 3)
    for some in itertools.combinations(("holds", "partly", "fails"), n)
]


def verdict_of(claim, parts, **fields):
    return judge(claim, record_of(parts, **fields)).verdict


@pytest.mark.parametrize(
    ("n_hits", "of", "verdict", "firm"),
    [
        (35, 35, "reproduced", False),
        (34, 34, "undecided", False),
        (98, 98, "reproduced", True),
        (52, 53, "reproduced", False),
        (51, 52, "undecided", False),
        (20, 40, "partly", False),
        (49, 98, "partly", True),
        (17, 34, "undecided", False),
        (36, 40, "undecided", False),  # from 77% to 96%
        (0, 35, "refuted", False),
        (0, 98, "refuted", True),
        (1, 52, "undecided", False),
        (7, 7, "undecided", False),
        (8, 8, "undecided", False),
    ],
)
def test_a_share_is_decided_by_its_interval(n_hits, of, verdict, firm):
    found = judge(claim_of(SHARE), record_of({"share": hits(n_hits, of)}))
    assert (found.verdict, found.firm) == (verdict, firm)


@pytest.mark.parametrize(
    ("mean", "half", "verdict"),
    [
        (0.0, 0.5, "reproduced"),
        (0.0, 1.5, "undecided"),
        (1.5, 0.3, "partly"),
        (-1.5, 0.3, "partly"),
        (3.0, 0.5, "refuted"),
        (-3.0, 0.5, "refuted"),
        (1.0, 0.3, "undecided"),
        (2.0, 0.3, "undecided"),
    ],
)
def test_a_mean_is_decided_by_its_interval(mean, half, verdict):
    """16 units, half above and half below by s: the interval is mean +- 2.131 s' / 4."""
    spread = half * 4 / 2.131
    values = mean + spread * np.sqrt(15 / 16) * np.repeat([-1, 1], 8)
    assert verdict_of(claim_of(MEAN), {"mean": values}) == verdict


@pytest.mark.parametrize("states", [*itertools.product(STATES, repeat=2)])
def test_a_verdict_is_what_every_choice_leads_to(states):
    """By listing all choices of one zone from each state."""
    expected = set()
    for choice in itertools.product(*states):
        if set(choice) == {"holds"}:
            expected.add("reproduced")
        elif set(choice) == {"fails"}:
            expected.add("refuted")
        else:
            expected.add("partly")
    assert verdicts_of(list(states)) == expected


def two(kind_of_second="required"):
    return claim_of(SHARE, {**SHARE, "name": "second", "role": kind_of_second})


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (40, 40, "reproduced"),
        (40, 0, "partly"),
        (0, 40, "partly"),
        (0, 0, "refuted"),
        (40, 36, "undecided"),
        (0, 36, "partly"),  # whether the second holds or holds partly, it is a mix
        (20, 40, "partly"),
    ],
)
def test_two_parts(first, second, verdict):
    parts = {"share": hits(first, 40), "second": hits(second, 40)}
    assert verdict_of(two(), parts) == verdict


@pytest.mark.parametrize(
    ("control", "verdict"), [(40, "reproduced"), (36, "undecided"), (0, "undecided")]
)
def test_a_control_must_hold(control, verdict):
    parts = {"share": hits(40, 40), "second": hits(control, 40)}
    assert verdict_of(two("control"), parts) == verdict


def test_what_stands_beside_decides_nothing():
    claim = claim_of(SHARE, {"name": "b", "kind": "mean", "measures": "m", "role": "beside"})
    assert verdict_of(claim, {"share": hits(40, 40), "b": [1.0]}) == "reproduced"
    assert verdict_of(claim, {"share": hits(40, 40)}) == "reproduced"


@pytest.mark.parametrize(
    ("plain", "post", "verdict"),
    [
        (40, 40, "reproduced"),
        (0, 0, "refuted"),
        (40, 0, "partly"),
        (40, 36, "undecided"),
        (20, 20, "partly"),
    ],
)
def test_all_readings_must_agree(plain, post, verdict):
    claim = claim_of(SHARE, readings=("plain", "post"))
    parts = {"share": {"plain": hits(plain, 40), "post": hits(post, 40)}}
    assert verdict_of(claim, parts) == verdict


@pytest.mark.parametrize(
    ("admitted", "post", "verdict"),
    [
        (40, 0, "partly"),
        (0, 0, "reproduced"),  # the reading does not count
        (36, 0, "undecided"),  # it counts or not
        (36, 40, "reproduced"),  # which makes no difference here
    ],
)
def test_a_reading_counts_if_it_is_admitted(admitted, post, verdict):
    claim = claim_of(SHARE, {**SHARE, "name": "a", "role": "admits"}, readings=("plain", "post"))
    parts = {
        "share": {"plain": hits(40, 40), "post": hits(post, 40)},
        "a": {"post": hits(admitted, 40)},
    }
    assert verdict_of(claim, parts) == verdict


def test_the_sentence_says_which_reading_does_not_count():
    claim = claim_of(SHARE, {**SHARE, "name": "a", "role": "admits"}, readings=("plain", "post"))
    parts = {
        "share": {"plain": hits(40, 40), "post": hits(0, 40)},
        "a": {"post": hits(0, 40)},
    }
    sentence = make_entry(claim, record_of(parts)).sentence
    assert "Other readings: post 0% [0%, 8.76%] (does not count)." in sentence


def test_a_short_training_does_not_come_to_every_verdict():
    claim = claim_of(SHARE, decided_at_quick=("refuted",))
    for n_hits, short, verdict in (
        (40, True, "undecided"),
        (40, False, "reproduced"),
        (0, True, "refuted"),
    ):
        parts = {"share": hits(n_hits, 40)}
        assert verdict_of(claim, parts, short_training=short) == verdict


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"why_not": "Nothing repeats."}, "Nothing repeats."),
        ({"conditions": trained(50, failed=6)}, "6 of 50 seeds of a diverged"),
    ],
)
def test_nothing_is_decided_where_nothing_could_be_measured(fields, why):
    record = record_of({"share": hits(40, 40)}, **fields)
    found = judge(claim_of(SHARE), record)
    assert (found.verdict, found.firm) == ("undecided", False)
    assert found.why_not.startswith(why)
    assert make_entry(claim_of(SHARE), record).sentence.startswith(why)
    assert verdict_of(claim_of(SHARE), {"share": hits(40, 40)}, conditions=trained(50, 5)) == (
        "reproduced"
    )


def test_a_part_that_was_not_measured_decides_nothing():
    assert verdict_of(two(), {"share": hits(40, 40)}) == "undecided"


def test_units_that_a_part_is_not_about_are_left_out():
    values = np.ma.masked_array(hits(40, 100), mask=np.arange(100) >= 40)
    entry = make_entry(claim_of(SHARE), record_of({"share": values}))
    assert (entry.verdict, entry.units) == ("reproduced", 40)


def test_what_was_never_reached_never_becomes_a_number():
    values = np.where(np.arange(40) < 39, 0.5, np.inf)
    found = judge(claim_of(MEAN), record_of({"mean": values}))
    assert found.verdict == "undecided"
    assert found.results[0].estimate.why_open == "1 of 40 have no finite value"


def test_the_sentence_names_what_holds_and_what_fails():
    claim = claim_of(
        {**SHARE, "says": "{value} of {units} seeds do it"},
        {**SHARE, "name": "second"},
        readings=("plain", "post"),
    )
    parts = {"share": {"plain": hits(40, 40), "post": hits(0, 40)}, "second": hits(20, 40)}
    assert make_entry(claim, record_of(parts)).sentence == (
        "100% [91.2%, 100%] of 40 seeds do it (holds). Other readings: post 0% [0%, 8.76%] "
        "(fails). Share of seeds that do it: 50% [35.2%, 64.8%] (holds partly)."
    )


def test_what_stands_beside_does_not_say_what_would_decide():
    beside = {**SHARE, "name": "second", "role": "beside", "says": "{value} do it too"}
    claim = claim_of({**SHARE, "says": "{value} do it"}, beside)
    entry = make_entry(claim, record_of({"share": hits(8, 8), "second": hits(7, 8)}))
    assert entry.sentence == ("100% (8 of 8 do; 35 would decide) do it. 87.5% (8 units) do it too.")
    assert [part.number() for part in entry.parts] == ["1 (8 of 8 do; 35 would decide)", "0.875"]
    nothing = make_entry(claim, record_of({"share": hits(8, 8), "second": [np.inf] * 8}))
    assert "nothing (8 of 8 have no finite value) do it too" in nothing.sentence
    assert "8 of 8 have no finite value" in nothing.parts[1].number()


def test_zero_has_no_sign():
    median = {**MEAN, "name": "median", "kind": "median"}
    entry = make_entry(claim_of(median), record_of({"median": np.full(40, -0.0)}))
    assert "0 [0, 0]" in entry.sentence
    assert "-0" not in entry.parts[0].number()


# ---- criteria


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({**SHARE, "holds": "[0.9, 1]"}, "part 'share': zones must cover everything from 0 to 1"),
        ({**SHARE, "role": "beside", "holds": "[0, 1]"}, "beside decides nothing"),
        ({**SHARE, "kind": "sum"}, "kind"),
        ({**SHARE, "bounds": (0, 1)}, "only a mean has bounds"),
        ({**SHARE, "name": "step {each}"}, "for_each"),
        ({**SHARE, "zone": "x"}, "unknown key of Part"),
        ({**MEAN, "partly": ""}, "zones leave a gap"),
    ],
)
def test_bad_criteria_are_one_clear_line(fields, message):
    with pytest.raises(UserError, match=message):
        Part(**fields)


@pytest.mark.parametrize(
    ("parts", "fields", "message"),
    [
        ((SHARE, SHARE), {}, "more than one part is called 'share'"),
        (({**SHARE, "role": "control"},), {}, "no part is required"),
        ((SHARE,), {"readings": ("post",)}, "every claim has the reading 'plain'"),
        ((SHARE,), {"stated": "yesterday"}, "a day is written as 2026-11-19, got .yesterday."),
    ],
)
def test_bad_claims_are_one_clear_line(parts, fields, message):
    with pytest.raises(UserError, match=message):
        claim_of(*parts, **fields)


def test_a_part_can_stand_for_several():
    part = {**SHARE, "name": "step {each}", "measures": "at {each}", "for_each": ("1", "2")}
    claim = claim_of(part)
    assert [each.name for each in claim.parts] == ["step 1", "step 2"]
    assert [each.measures for each in claim.parts] == ["at 1", "at 2"]


def test_the_hash_of_a_criterion_follows_what_decides():
    same = [
        claim_of(SHARE, statement="In other words."),
        claim_of({**SHARE, "says": "{value} of seeds do it", "percent": True}),
        claim_of(SHARE, {**SHARE, "name": "second", "role": "beside"}),
    ]
    others = [
        claim_of({**SHARE, "holds": "[0.8, 1]", "partly": "(0.1, 0.8)", "fails": "[0, 0.1]"}),
        claim_of(SHARE, readings=("plain", "post")),
        claim_of(SHARE, decided_at_quick=("refuted",)),
        claim_of({**SHARE, "role": "control"}, MEAN),
    ]
    mine = claim_of(SHARE).criterion_hash()
    assert {each.criterion_hash() for each in same} == {mine}
    assert len({mine, *(each.criterion_hash() for each in others)}) == 5


# ---- one place


def test_no_verdict_is_decided_anywhere_else():
    """Outside of the rule, no code of the package writes a verdict down but to name its color, to
    say which ones a short training may come to, or to ask whether a claim is undecided."""
    home = Path(mnemoscope.__file__).parent
    allowed = {
        "core/theme.py": set(VERDICTS),
        "core/legacy.py": set(),
        "verdicts/rule.py": set(VERDICTS),
        "verdicts/claim.py": {"reproduced", "partly", "refuted"},
    }
    found = {}
    for file in sorted(home.rglob("*.py")):
        name = file.relative_to(home).as_posix()
        words = {
            node.value
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Constant) and node.value in VERDICTS
        }
        extra = words - allowed.get(name, {"undecided"})
        # a part may hold "partly": that is a zone
        extra -= {"partly"} if name.startswith("verdicts/") else set()
        if extra:
            found[name] = sorted(extra)
    assert found == {}
