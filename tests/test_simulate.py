"""The rule on claims whose truth is planted: at most one verdict in twenty is wrong."""

import numpy as np
import pytest
from scipy import stats

from mnemoscope.verdicts.simulate import UNITS, plant_claims, simulate, true_verdict

TRIALS = 80
# more wrong verdicts than this come with probability 1e-4 where one in twenty is wrong
MOST_WRONG = int(stats.binom.ppf(1 - 1e-4, TRIALS, 0.05))
AT_A_BORDER = ("share 0.9", "mean, normal 1.01", "mean, gamma 2.01")


def planted(name):
    return next(each for each in plant_claims() if each.name == name)


def errors(each, looking):
    return simulate(each, looking, TRIALS, UNITS[looking], np.random.default_rng(1))


def test_the_truth_lies_on_both_sides_of_every_border():
    truths = {each.name: true_verdict(each) for each in plant_claims()}
    assert truths["share 0.9"] == "reproduced"
    assert truths["share 0.899"] == "partly"
    assert truths["share 0.1"] == "refuted"
    assert truths["share 0.12"] == "partly"
    assert truths["mean, normal 1.0"] == "reproduced"
    assert truths["mean, normal 1.01"] == "partly"
    assert truths["mean, normal 2.01"] == "refuted"
    kinds = {each.part.kind for each in plant_claims()}
    assert kinds == {"share", "share difference", "mean", "mean difference", "median"}
    for kind in kinds:
        of_kind = {true_verdict(each) for each in plant_claims() if each.part.kind == kind}
        assert of_kind == {"reproduced", "partly", "refuted"}


@pytest.mark.parametrize("each", plant_claims(), ids=lambda each: each.name)
def test_at_most_one_verdict_in_twenty_is_wrong(each):
    assert errors(each, "once").wrong <= MOST_WRONG


@pytest.mark.parametrize("name", AT_A_BORDER)
def test_looking_again_and_again_costs_nothing(name):
    assert errors(planted(name), "until decided").wrong <= MOST_WRONG


def test_usual_intervals_do_not_stand_being_looked_at_again_and_again():
    """At the borders, where it is hardest: about one verdict in eight is wrong."""
    naive = sum(errors(planted(name), "naively").wrong for name in AT_A_BORDER)
    made_for_it = sum(errors(planted(name), "until decided").wrong for name in AT_A_BORDER)
    trials = TRIALS * len(AT_A_BORDER)
    assert stats.binom.sf(naive - 1, trials, 0.05) < 1e-4
    assert made_for_it < naive / 2


def test_most_claims_that_are_clear_are_decided():
    for name in ("share 0.5", "share 1.0", "mean, normal 0.0", "mean difference 4.0"):
        assert errors(planted(name), "once").undecided <= TRIALS // 10
