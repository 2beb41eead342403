"""The study of the walk: its published numbers, and every judge on planted models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import entry_of, evidence_of, planted, rows_of, silent

from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.walk import judges, published
from mnemoscope.studies.library.walk.conditions import (
    ABC,
    ALONE,
    MLP,
    POST,
    PRE,
    build_conditions,
)
from mnemoscope.studies.scales import SCALES
from mnemoscope.tasks import Cycle

STUDY = find_study("walk")


def test_the_published_statements_are_worked_out():
    """The third direction is not read as C:
    its logits are .5150 + 1.75 * 1.2707 for A and .3778 - 1.75 * .6578 for C.
    """
    assert [s.holds for s in published.inputs()] == [True] * 6
    assert [s.holds for s in published.readings()] == [True, True, False]
    a, c = 0.5150 + 1.75 * 1.2707, 0.3778 - 1.75 * 0.6578
    assert a > c
    assert f"A {a:.2f}t" in published.readings()[2].follows
    # with the other sign it would be C's: 0.3778 + 1.75 * 0.6578 against -1.71 and -3.28
    assert (published.W_U @ np.array([-1.0, -1.75])).argmax() == 2


def test_the_cycle_knows_its_answers():
    task = Cycle()
    np.testing.assert_array_equal(task.sequences(), [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]])
    np.testing.assert_array_equal(task.posterior(jnp.array([0, 2])), [[0, 1, 0], [1, 0, 0]])
    example = jax.vmap(lambda key: task.sample((), key=key))(
        jax.random.split(jax.random.key(0), 200)
    )
    assert {tuple(row) for row in np.asarray(example.tokens).tolist()} == {
        (0, 1, 2),
        (1, 2, 0),
        (2, 0, 1),
    }
    np.testing.assert_array_equal(example.targets, (example.tokens + 1) % 3)
    assert task.token_names == ("A", "B", "C")
    assert task.loss_floor() == 0


# judges on planted models ------------------------------------------------------------------------

OTHERS = (MLP, POST, PRE)


def on_a_circle(spec, length):
    """Three tokens on a circle, each read out as the next one; attention adds nothing.

    The right logit is `length` and the others length cos(120 degrees) = -length / 2.
    """
    params, turns = silent(spec), 2 * np.pi / 3 * np.arange(3)
    places = np.stack([np.cos(turns), np.sin(turns)], axis=1)
    params["embed.W_E"][:] = places
    params["unembed.W_U"][:] = length * np.roll(places, 1, axis=0).T
    return params


def loss_on_a_circle(length):
    return np.log1p(2 * np.exp(-1.5 * length))


def learned(scale, lengths):
    """Evidence whose seeds stand on circles so large, and whose other readings say nothing."""
    conditions = build_conditions(scale)
    models = [on_a_circle(conditions[ABC].spec, length) for length in lengths]
    runs = {ABC: planted(conditions[ABC].spec, len(models), params=models)}
    runs |= {
        name: planted(conditions[name].spec, 8, params=silent(conditions[name].spec))
        for name in OTHERS
    }
    return evidence_of(runs, scale)


LARGE = 7.0  # sure enough for W1
SMALL = 6.0  # right but not sure enough
NONE = 0.0  # no answer at all


@pytest.fixture(scope="module")
def cycles():
    """What `cycle` reads in every condition: in the large, the small and the silent circle,
    and in silent other readings.
    """
    evidence = learned("full", [LARGE, SMALL, NONE])
    return {name: evidence.measure(name, judges.cycle) for name in (ABC, *OTHERS)}


def test_losses_of_planted_circles_are_what_they_should_be(cycles):
    assert loss_on_a_circle(LARGE) < 0.7 * judges.REACHED
    assert loss_on_a_circle(SMALL) > 1.3 * judges.REACHED
    found = cycles[ABC]
    expected = [loss_on_a_circle(length) for length in (LARGE, SMALL, NONE)]
    np.testing.assert_allclose(found["loss"], expected, rtol=0.01)
    assert expected[2] == np.log(3)
    # a silent model says A, which is right for one token in three
    np.testing.assert_allclose(found["accuracy"], [1, 1, 1 / 3])
    for name in OTHERS:
        np.testing.assert_allclose(cycles[name]["loss"], np.log(3), rtol=1e-5)


@pytest.mark.parametrize(
    ("large", "mlp", "full", "quick"),
    [
        (40, 40, "reproduced", "reproduced"),
        (38, 40, "undecided", "undecided"),  # 38 of 40: from 83% on
        (20, 20, "partly", "undecided"),
        (0, 0, "refuted", "undecided"),
        (40, 0, "partly", "undecided"),  # the two readings contradict each other
    ],
)
def test_learning_the_cycle_is_judged_by_its_loss(large, mlp, full, quick, cycles):
    """W1: right answers are not enough, and a norm has no say."""
    for rest in (1, 2):
        measured = {
            (name, judges.cycle): rows_of(cycles[ABC], [0] * n + [rest] * (40 - n))
            for name, n in ((ABC, large), (MLP, mlp))
        }
        for name in (POST, PRE):
            measured[name, judges.cycle] = rows_of(cycles[name], range(8))
        for scale, verdict in zip(SCALES, (quick, full), strict=True):
            entry = learned_entry("W1", scale, measured)
            assert entry.verdict == verdict
            assert entry.value == large / 40
            assert entry.units == 40
            assert "With a norm after each part the median is 1.099" in entry.sentence


def learned_entry(claim, scale, measured):
    """What a claim comes to where all that was trained is planted."""
    conditions = build_conditions(scale)
    runs = {name: planted(each.spec, 40) for name, each in conditions.items()}
    return entry_of(STUDY, claim, evidence_of(runs, scale, measured=measured))


@pytest.mark.parametrize(
    ("plain", "mlp", "mlp_reaches", "verdict"),
    [
        (40, 40, 40, "reproduced"),
        (40, 0, 40, "partly"),
        (40, 0, 0, "reproduced"),  # a reading that misses the published loss does not count
        (40, 0, 4, "undecided"),  # 4 of 40: it may count or not
        (0, 0, 40, "refuted"),
    ],
)
def test_answers_are_judged_in_the_readings_that_reach_the_loss(
    plain, mlp, mlp_reaches, verdict, cycles
):
    """W2."""
    measured = {(ABC, judges.every_prompt): np.full(40, 0.5)}
    for name, right, reaches in ((ABC, plain, 40), (MLP, mlp, mlp_reaches), (POST, 0, 0)):
        found = rows_of(cycles[ABC], [0] * 40)
        found["accuracy"] = np.where(np.arange(40) < right, 1.0, 1 / 3)
        found["loss"] = np.where(np.arange(40) < reaches, 1e-5, 1.0)
        measured[name, judges.cycle] = found
    measured[PRE, judges.cycle] = measured[POST, judges.cycle]
    entry = learned_entry("W2", "full", measured)
    assert entry.verdict == verdict
    assert entry.value == plain / 40


def looks_back(spec):
    """Knows every successor, but is right only while it looks at the first position.

    Directions of the stream: three tokens, a mark of the first position, and a preference for A.
    Every position prefers A more than it knows its successor; what stands at the first position
    takes the preference away.
    """
    params = silent(spec)
    tokens, mark, prefers = np.arange(3), 3, 4
    params["embed.W_E"][tokens, tokens] = 1
    params["pos_embed.W_pos"][:, prefers] = 1
    params["pos_embed.W_pos"][0, mark] = 1
    params["blocks.0.attn.b_Q"][0, 0] = 400.0
    params["blocks.0.attn.W_K"][0, mark, 0] = 1
    params["blocks.0.attn.W_V"][0, mark, 0] = 1
    params["blocks.0.attn.W_O"][0, 0, prefers] = -1
    params["unembed.W_U"][tokens, (tokens + 1) % 3] = 10
    params["unembed.W_U"][prefers, 0] = 20
    return params


def looks_at_itself(spec):
    """The same without the preference: the last token is all it needs."""
    params = looks_back(spec)
    params["unembed.W_U"][4] = 0
    return params


@pytest.fixture(scope="module")
def five_dimensions():
    """What `cycle` reads in three models of five dimensions,
    in which each thing has a direction of its own.
    """
    spec = build_conditions("full")[ABC].spec
    spec = spec.model_copy(update={"model": spec.model.model_copy(update={"d_model": 5})})
    models = [looks_at_itself(spec), looks_back(spec), silent(spec)]
    return evidence_of({ABC: planted(spec, 3, params=models)}).measure(ABC, judges.cycle)


def test_the_planted_models_need_what_they_should(five_dimensions):
    np.testing.assert_allclose(five_dimensions["accuracy"], [1, 1, 1 / 3])
    # one token is followed by A, and the first of three positions looks at itself anyway:
    # 1/3 + 2/3 * 1/3
    np.testing.assert_allclose(
        five_dimensions["accuracy last token"], [1, 1 / 3 + 2 / 3 * 1 / 3, 1 / 3], rtol=1e-6
    )
    np.testing.assert_allclose(
        five_dimensions["accuracy no attention"], [1, 1 / 3, 1 / 3], rtol=1e-6
    )


@pytest.mark.parametrize(
    ("itself", "back", "mute", "without", "verdict"),
    [
        (40, 0, 0, 40, "reproduced"),
        (40, 0, 20, 40, "reproduced"),  # who does not answer the cycle is not asked what he needs
        (20, 20, 0, 40, "partly"),
        (40, 0, 0, 0, "partly"),
        (0, 40, 0, 0, "refuted"),
        (7, 0, 33, 40, "undecided"),  # seven units settle nothing
    ],
)
def test_three_facts_are_judged_by_what_is_left_without_attention(
    itself, back, mute, without, verdict, five_dimensions
):
    """W5: in trained models by those who answer, and in models trained without attention."""
    rows = [0] * itself + [1] * back + [2] * mute
    found = rows_of(five_dimensions, rows)
    answers = np.where(np.arange(40) < without, 1.0, 1 / 3)
    measured = {
        (ABC, judges.cycle): found,
        (MLP, judges.cycle): found,
        (ALONE, judges.answers_without_attention): answers,
    }
    entry = learned_entry("W5", "full", measured)
    assert entry.verdict == verdict
    assert entry.units == itself + back
    assert entry.value == itself / (itself + back)


def test_what_is_exact_is_judged_by_its_number():
    evidence = evidence_of({}, conditions={})
    entries = {name: entry_of(STUDY, name, evidence) for name in ("W3", "W4", "W6", "W7")}
    verdicts = {name: entry.verdict for name, entry in entries.items()}
    assert verdicts == {"W3": "reproduced", "W4": "partly", "W6": "partly", "W7": "reproduced"}
    assert entries["W4"].sentence == "Of 3 directions 2 are read as the paper says."
    # the first direction's logits are .5150 + 2.5 * 1.2707, -1.1767 + 2.5 * 1.2045 and
    # .3778 - 2.5 * .6578; their distance from log-probabilities is the log of the sum of exponents
    logits = np.array([3.69175, 1.83455, -1.2667])
    themselves = next(part for part in entries["W6"].parts if part.name == "themselves")
    assert themselves.value == pytest.approx(np.log(np.exp(logits).sum()), rel=1e-6)
