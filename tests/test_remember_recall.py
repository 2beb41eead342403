"""The permutation study with repeats: which sizes learn to recall, what they answer, what their
loss shows, and what limits them. Planted numbers in every zone.
"""

import numpy as np
import pytest
from planted import planted, rows_of
from remember_evidence import (
    STEPS,
    N,
    card,
    cards,
    column,
    conditions,
    entry,
    first,
    in_every_reading,
    part_of,
    rates,
)

from mnemoscope.probes.skills import report_card
from mnemoscope.studies.library.remember.conditions import (
    ANY,
    PLAIN,
    SMALL,
    SMALL_LONG,
    SMALL_TWO,
    TWO,
    WIDE,
    WIDER,
    WIDER_TWO,
)
from mnemoscope.studies.library.remember.mastery import elimination_rate
from mnemoscope.studies.library.remember.recall import asked_again
from mnemoscope.studies.library.remember.sizes import TRAININGS

# when x1 is asked again --------------------------------------------------------------------------


def asked(name, scale="full", **found):
    """What models answer when x1 is asked again, alike in every reading."""
    said = dict.fromkeys(("p(shown)", "p(unused)", "says shown", "says unused"), 0.0)
    said |= {what.replace("_", " "): value for what, value in found.items() if "says" in what}
    said |= {f"p({what[2:]})": value for what, value in found.items() if what.startswith("p_")}
    read = {what: np.array(np.broadcast_to(value, N), float) for what, value in said.items()}
    return {(each, asked_again): read for each in in_every_reading(name, scale)}


@pytest.mark.parametrize(
    ("says", "full", "quick"),
    [
        (0.99, "reproduced", "undecided"),  # longer training may still teach recall
        (first(38, 1, 0.98), "undecided", "undecided"),
        (first(20, 1, 0.98), "partly", "partly"),
        (0.98, "refuted", "refuted"),
    ],
)
def test_a_small_model_answers_the_unused_value(says, full, quick):
    """R6: trained with repeats."""
    found = entry("R6", asked(SMALL, says_unused=says, p_unused=0.7, p_shown=0.2))
    assert found.verdict == full
    assert part_of(found, "P(unused)").value == pytest.approx(0.7)
    assert part_of(found, "P(y1)").value == pytest.approx(0.2)
    measured = asked(SMALL, "quick", says_unused=says)
    assert entry("R6", measured, "quick").verdict == quick


def test_readings_of_the_small_models_answer_may_contradict_each_other():
    measured = asked(SMALL, says_unused=1.0)
    other = asked(SMALL, says_unused=0.0)
    fast = f"{SMALL}/lr3e-3"
    measured[fast, asked_again] = other[fast, asked_again]
    assert entry("R6", measured).verdict == "partly"


@pytest.mark.parametrize(
    ("shown", "unused", "verdict", "quick"),
    [
        (0.99, 0.01, "reproduced", "reproduced"),
        (0.98, 0.01, "partly", "undecided"),
        (0.99, 0.02, "partly", "undecided"),
        (0.98, 0.02, "refuted", "undecided"),
        (first(20, 0.99, 0.98), 0.01, "partly", "undecided"),
        (0.99, first(20, 0.01, 0.02), "partly", "undecided"),
        (first(38, 0.99, 0.98), 0.01, "undecided", "undecided"),
    ],
)
def test_recall_overrides_elimination(shown, unused, verdict, quick):
    """R25."""
    for scale, expected in (("full", verdict), ("quick", quick)):
        measured = asked(TWO, scale, p_shown=shown, p_unused=unused)
        measured |= cards(card(), TWO, scale=scale)
        assert entry("R25", measured, scale).verdict == expected


def test_a_reading_that_learns_nothing_has_no_say_in_what_overrides_what():
    measured = asked(TWO, p_shown=1.0) | cards(card(), TWO)
    post = f"{TWO}/post"
    measured[post, asked_again] = asked(TWO, p_unused=1.0)[post, asked_again]
    assert entry("R25", measured).verdict == "partly"
    measured[post, report_card] = card(recall=0.0)
    assert entry("R25", measured).verdict == "reproduced"


def losses(new, again):
    """A report card with these losses, the same at every step."""
    return card(loss=new, repeat_loss=np.array([again, 9, 9, 9])[:, None])


@pytest.mark.parametrize(
    ("new", "again", "verdict"),
    [
        (0.009, 0.04, "reproduced"),
        (-0.009, -0.04, "reproduced"),  # whichever is lower
        (0.009, 0.06, "partly"),
        (-0.02, 0.04, "partly"),
        (0.061, 0.231, "refuted"),
        (-0.061, -0.231, "refuted"),
    ],
)
def test_what_the_loss_shows(new, again, verdict):
    """R7: losses of the model that cannot recall and of the one that can."""
    measured = cards(losses(1 + new, 1 + again), SMALL) | cards(losses(1, 1), TWO)
    found = entry("R7", measured)
    assert found.verdict == verdict
    assert found.value == pytest.approx(again)
    assert part_of(found, "small, as trained").value == pytest.approx(
        0.3 * (1 + again) + 0.7 * (1 + new)
    )
    at_quick = {key: value for key, value in measured.items() if key[0] in (SMALL, TWO)}
    assert entry("R7", at_quick, "quick").verdict == "undecided"


def test_losses_are_compared_seed_by_seed():
    """Seeds that are alike in both differ by nothing, though they differ much from each other."""
    spread = np.linspace(0, 5, N)[:, None]
    one = card(loss=1 + spread, repeat_loss=1 + spread[:, :, None])
    assert entry("R7", cards(one, SMALL, TWO)).verdict == "reproduced"
    # a seed that diverged in one of the two is left out of both
    runs = {SMALL: planted(conditions("full")[SMALL].spec, N, finite_steps={3: 7})}
    of_rest = rows_of(one, [i for i in range(N) if i != 3])
    measured = cards(one, SMALL, TWO) | {(SMALL, report_card): of_rest}
    found = entry("R7", measured, changed_runs=runs)
    assert found.verdict == "reproduced"
    assert found.units == N - 1


# which sizes learn -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recall", "full", "quick"),
    [
        (0.1, "reproduced", "undecided"),  # at most 10% is a failure
        (0.101, "refuted", "refuted"),
        (column(38, 0, 1), "undecided", "undecided"),
        (column(20, 0, 1), "partly", "partly"),
        ([0, 1, 1, 1], "reproduced", "undecided"),  # of the first pair
    ],
)
def test_a_small_model(recall, full, quick):
    """R8."""
    assert entry("R8", cards(card(recall=recall), SMALL)).verdict == full
    at_quick = cards(card(recall=recall), SMALL, scale="quick")
    assert entry("R8", at_quick, "quick").verdict == quick


def test_a_small_model_read_in_other_ways():
    measured = cards(card(recall=0.0), SMALL)
    fast = f"{SMALL}/lr3e-3"
    found = entry("R8", measured | {(fast, report_card): card(recall=1.0)})
    assert found.verdict == "partly"
    assert "post 100% [91.2%, 100%] (holds), lr3e-3 0% [0%, 8.76%] (fails)" in found.sentence


@pytest.mark.parametrize(
    ("recall", "full"),
    [
        (0.06, "reproduced"),
        (0.94, "reproduced"),
        (0.04, "refuted"),
        (0.96, "refuted"),
        (column(20, 0.0, 1.0), "reproduced"),  # all or nothing is half on average
        (column(4, 0.5, 1.0), "undecided"),  # an interval on both sides of .95
        (column(4, 0.5, 0.0), "undecided"),  # and of .05
    ],
)
def test_a_wide_model(recall, full):
    """R9."""
    assert entry("R9", cards(card(recall=recall), WIDE)).verdict == full
    at_quick = cards(card(recall=recall), WIDE, scale="quick")
    assert entry("R9", at_quick, "quick").verdict == "undecided"


def test_a_wide_model_read_in_another_way():
    for one, other in ((0.5, 1.0), (1.0, 0.5)):
        measured = cards(card(recall=one), WIDE)
        measured[f"{WIDE}/post", report_card] = card(recall=other)
        assert entry("R9", measured).verdict == "partly"


@pytest.mark.parametrize(
    ("found", "full", "quick"),
    [
        (card(), "reproduced", "reproduced"),
        (card(recall=column(38, 1, 0.999)), "undecided", "undecided"),
        (card(recall=column(20, 1, 0.999)), "partly", "undecided"),
        (card(accuracy=column(20, 1, 0.999)), "partly", "undecided"),  # both, without a mistake
        (card(recall=column(20, 1, 0), accuracy=1 - column(20, 1, 0)), "refuted", "undecided"),
        (card(recall=[1, 0, 0, 0], accuracy=[0, 0, 0, 0, 1]), "reproduced", "reproduced"),
    ],
)
def test_two_heads_learn_both(found, full, quick):
    """R10."""
    assert entry("R10", cards(found, TWO)).verdict == full
    assert entry("R10", cards(found, TWO, scale="quick"), "quick").verdict == quick


def test_two_heads_read_in_another_way():
    for one, other in ((1.0, 0.5), (0.5, 1.0)):
        measured = cards(card(recall=one), TWO)
        measured[f"{TWO}/lr3e-3", report_card] = card(recall=other)
        assert entry("R10", measured).verdict == "partly"


@pytest.mark.parametrize(
    ("wide", "two", "wider", "verdict"),
    [
        (0, 40, 0, "reproduced"),
        (10, 40, 12, "reproduced"),
        (0, 16, 0, "undecided"),  # the head adds .4 [.23, .55]
        (0, 40, 40, "partly"),  # as much as the width
        (40, 40, 40, "refuted"),  # one head is enough
        (0, 0, 0, "refuted"),  # no leap
        (40, 0, 40, "refuted"),
    ],
)
def test_a_second_head_or_more_width(wide, two, wider, verdict):
    """R16."""
    grid = {WIDE: wide, TWO: two, WIDER: wider, SMALL: 0, SMALL_TWO: 0, WIDER_TWO: 0}
    measured = {}
    for name, many in grid.items():
        measured |= cards(card(recall=column(many, 0.99, 0.98)), name)
    found = entry("R16", measured)
    if two:
        assert found.verdict == verdict
    else:  # a reading in which two heads learn nothing does not count
        assert found.verdict == "refuted"
    assert found.value == pytest.approx((two - wide) / N)
    assert part_of(found, "head instead of width").value == pytest.approx((two - wider) / N)
    assert part_of(found, "learn, d16h2").value == 0
    at_quick = {key: value for key, value in measured.items() if key[0] in conditions("quick")}
    assert entry("R16", at_quick, "quick").verdict == "undecided"


def test_what_a_head_adds_may_be_in_between():
    """.43 of 400 seeds: between a quarter and a half."""
    seeds = 400

    def learn(many):
        return card(seeds, recall=np.where(np.arange(seeds) < many, 1.0, 0.0)[:, None])

    grid = {WIDE: 0, TWO: 172, WIDER: 0, SMALL: 0, SMALL_TWO: 0, WIDER_TWO: 0}
    measured = {}
    for name, many in grid.items():
        measured |= cards(learn(many), name)
    changed = {name: planted(conditions("full")[name].spec, seeds) for name, _ in measured}
    assert entry("R16", measured, changed_runs=changed).verdict == "partly"


@pytest.mark.parametrize(
    ("first_pair", "others", "verdict"),
    [
        (1.0, 0.91, "reproduced"),
        (1.0, 0.09, "refuted"),
        (1.0, 0.5, "partly"),
        (1.0, 0.9, "reproduced"),
        (0.49, 0.0, "undecided"),  # who has not learned the first pair says nothing
        (0.51, 0.0, "refuted"),
    ],
)
def test_other_pairs(first_pair, others, verdict):
    """R19."""
    for scale in ("quick", "full"):
        found = card(recall=[first_pair, others, others, others])
        measured = cards(found, TWO, scale=scale) | {(ANY, report_card): card()}
        for name in in_every_reading(TWO, scale)[1:]:
            measured[name, report_card] = found | card(recall=[1, others, others, others])
        entered = entry("R19", measured, scale)
        assert entered.verdict == verdict
        assert entered.value == pytest.approx(others)
        assert entered.ours


# what limits them --------------------------------------------------------------------------------


def ladder(works, scale="full"):
    """Rates of elimination of the seeds at each width: which seeds eliminate there."""
    measured = {}
    for name in conditions(scale):
        if name.startswith("plain/d") and "h1" in name:
            d = conditions(scale)[name].spec.model.d_model
            measured[name, elimination_rate] = np.where(works(d), 0.99, 0.98)
    return measured


@pytest.mark.parametrize(
    ("smallest", "value", "full", "quick"),
    [
        (np.full(N, 16), 16, "reproduced", "undecided"),
        (np.where(np.arange(N) < 20, 16, 24), 20, "reproduced", "undecided"),
        (np.full(N, 8), 8, "refuted", "refuted"),
        (np.full(N, 12), 12, "refuted", "refuted"),
        (np.full(N, 32), 32, "refuted", "undecided"),  # quick's ladder ends before
        (np.where(np.arange(N) < 20, 12, 16), 14, "undecided", "undecided"),
        (np.where(np.arange(N) < 39, 16, 99), None, "undecided", "undecided"),  # beyond it
    ],
)
def test_dimensions(smallest, value, full, quick):
    """R18: by seed, the smallest width out of those at which it was trained."""
    assert PLAIN in conditions("quick")
    found = entry("R18", ladder(lambda d: d >= smallest))
    assert found.verdict == full
    assert found.value == value
    assert entry("R18", ladder(lambda d: d >= smallest, "quick"), "quick").verdict == quick


def capacity(able):
    """Report cards of every training of d=16: which seeds master both skills."""
    failing = card(recall=0.98)
    measured = {(name, report_card): failing for name in TRAININGS.values()}
    measured |= {(f"{name}/post", report_card): failing for name in (SMALL, SMALL_TWO)}
    for name in able:
        measured[name, report_card] = card(recall=column(able[name], 0.99, 0.98))
    return measured


@pytest.mark.parametrize(
    ("able", "verdict"),
    [
        ({}, "reproduced"),
        ({SMALL_LONG: 40}, "partly"),  # with a norm still none does
        ({SMALL_LONG: 40, f"{SMALL_TWO}/post": 40}, "refuted"),
        ({SMALL_LONG: 20, f"{SMALL}/lr3e-3": 20}, "partly"),  # the same seeds
        ({f"{SMALL}/post": 2}, "undecided"),
    ],
)
def test_capacity(able, verdict):
    """R26: one training that is enough is enough."""
    found = entry("R26", capacity(able))
    assert found.verdict == verdict
    plain = [many for name, many in able.items() if not name.endswith("/post")]
    assert found.value == pytest.approx(1 - max(plain, default=0) / N)
    assert part_of(found, "five times the steps").value == able.get(SMALL_LONG, 0) / N


def test_every_step_of_the_study_has_its_place():
    assert conditions("full")[PLAIN].spec.task.n_symbols == STEPS
    assert rates(1.0, PLAIN).keys() == {
        (name, elimination_rate) for name in in_every_reading(PLAIN)
    }
