"""The study of the walk: its published numbers, and every judge on planted models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import SEEDS, evidence_of, planted, rows_of, silent

from mnemoscope.studies.library.walk import judges, published
from mnemoscope.studies.library.walk.conditions import ABC, MLP, POST, PRE, build_conditions
from mnemoscope.studies.scales import SCALES
from mnemoscope.tasks import Cycle


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
    ("large", "full", "quick"),
    [
        (10, "reproduced", "reproduced"),
        (9, "reproduced", "reproduced"),
        (8, "partly", "undecided"),
        (2, "partly", "undecided"),
        (1, "refuted", "undecided"),
    ],
)
def test_learning_the_cycle_is_judged_by_its_loss(large, full, quick, cycles):
    """W1: right answers are not enough, and other readings have no say."""
    for rest in (1, 2):
        rows = [0] * large + [rest] * (SEEDS - large)
        measured = {(ABC, judges.cycle): rows_of(cycles[ABC], rows)}
        for name in OTHERS:
            measured[name, judges.cycle] = rows_of(cycles[name], range(8))
        for scale, verdict in zip(SCALES, (quick, full), strict=True):
            outcome = judges.learns(
                evidence_of(scale=scale, measured=measured, conditions=build_conditions(scale))
            )
            assert outcome.verdict == verdict
            assert outcome.value == large / SEEDS
            assert "Other readings: mlp 0%, post 0%, pre 0%" in outcome.sentence


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
    ("itself", "back", "mute", "verdict"),
    [
        (10, 0, 0, "reproduced"),
        (9, 1, 0, "reproduced"),
        (8, 2, 0, "partly"),
        (1, 9, 0, "refuted"),
        (0, 10, 0, "refuted"),
        (8, 0, 2, "reproduced"),  # who does not answer the cycle is not asked what he needs
        (7, 1, 2, "partly"),
        (7, 0, 3, "undecided"),
    ],
)
def test_needing_the_last_token_alone_is_judged_among_those_who_answer(
    itself, back, mute, verdict, five_dimensions
):
    """W5."""
    found = rows_of(five_dimensions, [0] * itself + [1] * back + [2] * mute)
    evidence = evidence_of(
        measured={(ABC, judges.cycle): found}, conditions=build_conditions("full")
    )
    outcome = judges.facts(evidence)
    assert outcome.verdict == verdict
    if verdict == "undecided":
        assert outcome.sentence == "Only 7 seeds answer the whole cycle."
    else:
        assert outcome.value == itself / (itself + back)
