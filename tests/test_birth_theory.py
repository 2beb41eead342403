"""B4, B13, B15, B19 and B20: what needs no training; and the probes by a second program."""

from inspect import signature

import birth_plain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from birth_planted import FULL, N, states, value_of
from compiled import init
from planted import entry_of, evidence_of

from mnemoscope.models import Transformer
from mnemoscope.probes import weight_memories
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.birth import ideas, lemmas, written
from mnemoscope.studies.library.birth.conditions import ALL, OUTPUT, build_conditions
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.gradients import (
    Sampled,
    Steps,
    output_gradient,
    sampled_gradient,
    three_steps,
)
from mnemoscope.theory.induction import induction_weights, simplified_model

STUDY = find_study("birth")

QUICK = build_conditions("quick")[ALL].spec


def of_draws(claim, seeds=N, scale="quick"):
    conditions = {ALL: Condition(QUICK, seeds)}
    return entry_of(STUDY, claim, evidence_of(conditions=conditions, scale=scale))


# the probes of B5-B7 -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_probes_by_a_second_program(seed):
    """Small vocabularies and few positions, so that random weights find some by luck."""
    config = simplified_model(12)
    params = init(config, 9, 16, key=jax.random.key(seed))
    plain = {name: np.asarray(value, np.float64) for name, value in params.items()}
    model = Transformer(config, params)
    triggers = (7, 2, 5)
    read = jax.jit(
        lambda model: {
            "output": weight_memories.output_memory(model),
            "triggers": weight_memories.second_keys(model, triggers),
            "all tokens": weight_memories.second_keys(model),
            "early, ours": weight_memories.first_keys(model, 1, 6),
            "late": weight_memories.first_keys(model, 6, None),
            "early": weight_memories.early_keys(model, 6),
        }
    )
    expected = {
        "output": birth_plain.output_memory(plain),
        "triggers": birth_plain.second_keys(plain, triggers),
        "all tokens": birth_plain.second_keys(plain, range(9)),
        "early, ours": birth_plain.first_keys(plain, range(1, 6), range(16)),
        "late": birth_plain.first_keys(plain, range(6, 16), range(16)),
        "early": birth_plain.first_keys(plain, range(1, 6), range(5)),
    }
    found = {name: float(value) for name, value in read(model).items()}
    assert found == pytest.approx(expected)


def test_early_keys_do_not_mind_keys_of_late_positions():
    """Every query finds the position before it, but likes the key of a late one even better."""
    config = simplified_model(16)
    params = dict(init(config, 3, 16, key=jax.random.key(0)))
    places = np.eye(16)
    shift = np.eye(16, k=-1)  # p_t W p_s is 1 where s is t - 1
    keys = shift.T.copy()
    keys[10] = 100.0  # position 10 has a key that every query likes best
    params |= {
        "pos_embed.W_pos": jnp.asarray(places, jnp.float32),
        "blocks.0.attn.W_K": jnp.asarray(keys, jnp.float32)[None],
    }
    model = Transformer(config, params)
    assert float(jax.jit(lambda m: weight_memories.first_keys(m, 1, 6))(model)) == 0
    assert float(jax.jit(lambda m: weight_memories.early_keys(m, 6))(model)) == 1


# B4 ----------------------------------------------------------------------------------------------


def answered_with(share):
    """A stand-in for what models answer: of a thousand questions a share is right, by width."""

    def answered(model, task, tokens, triggers):
        # draws differ a little, so that their mean has an interval
        right = jnp.arange(1000) < round(1000 * share[model.config.d_model])
        asked = jnp.arange(1000) < 1000 - model.params["offset"]
        return jnp.zeros(1000, int), asked, right & asked

    return answered


@pytest.mark.parametrize(
    ("at_256", "at_1024", "verdict"),
    [
        (0.4, 0.96, "partly"),
        (0.6, 0.98, "reproduced"),
        (0.6, 0.90, "partly"),
        (0.6, 0.40, "partly"),
        (0.4, 0.90, "partly"),
        (0.4, 0.40, "refuted"),
    ],
)
def test_weights_written_by_hand_are_judged_by_width(at_256, at_1024, verdict, monkeypatch):
    share = {128: 0.1, 256: at_256, 512: 0.7, 1024: at_1024}
    monkeypatch.setattr(written, "_answered", answered_with(share))
    monkeypatch.setattr(written, "init", lambda *_, key: {})

    def weights(config, params, triggers):
        return {"offset": jnp.zeros((), int)}

    monkeypatch.setattr(written, "induction_weights", weights)
    found = of_draws("B4")
    assert found.verdict == verdict
    assert found.value == pytest.approx(at_256)
    assert value_of(found, "d=128") == pytest.approx(0.1)


def test_weights_written_by_hand_answer(monkeypatch):
    """With real weights, at the paper's width alone."""
    monkeypatch.setattr(written, "WIDTHS", (256, 16))
    evidence = evidence_of(conditions={ALL: Condition(QUICK, 2)}, scale="quick")
    by_seed = written.measure_by_hand(evidence).by_seed
    assert (by_seed["d=256"] > 0.8).all()
    assert (by_seed["d=16"] < 0.2).all()


# B13 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strength", "verdict"),
    [
        (30.0, "reproduced"),
        (1e-3, "reproduced"),  # every memory is there, though too faint to answer anything
        (0.0, "refuted"),
    ],
)
def test_three_steps_are_judged_by_memories(strength, verdict, monkeypatch):
    """With weights written by hand in place of those that three steps write,
    and the exact gradient as if sampled.
    """

    def in_three_steps(*given, key):
        signature(three_steps).bind(*given, key=key)
        _, config, params, *_ = given
        return Steps(induction_weights(config, params, strength=strength), {})

    def as_if_sampled(*given, key):
        signature(sampled_gradient).bind(*given, key=key)
        assert given[3] == OUTPUT
        return Sampled(jnp.asarray(output_gradient(given[0]), float), jnp.zeros(()))

    monkeypatch.setitem(written.THEOREM, "quick", (4, 6, 2, 4))
    monkeypatch.setattr(written, "three_steps", in_three_steps)
    monkeypatch.setattr(written, "sampled_gradient", as_if_sampled)
    found = of_draws("B13")
    assert found.verdict == verdict
    for name in ("output memory", "second keys", "first keys"):
        assert strength == 0 or value_of(found, name) == 1
    assert value_of(found, "error of the first gradient") == pytest.approx(0, abs=1e-6)
    assert (value_of(found, "accuracy") > 0.9) == (strength == 30)


def test_half_of_the_samples_recovered_are_partly(monkeypatch):
    def rows(size, seeds):
        recalls = np.where(seeds[:, None] % 2 == 0, 0.9, [[0.9, 0.9, 0.89]])
        return np.concatenate([recalls, np.zeros((len(seeds), 2))], axis=1)

    monkeypatch.setattr(written, "_after_three_steps", rows)
    monkeypatch.setattr(written, "_gradient_error", lambda size, seed: 0.07)
    found = of_draws("B13")
    assert (found.verdict, found.value, found.units) == ("partly", 0.5, N)


# B15 ---------------------------------------------------------------------------------------------


def test_right_outputs_are_in_contexts_and_rise_most():
    """On the text itself, at quick's length."""
    found = of_draws("B15")
    assert states(found)["in the context"] == "holds"
    assert value_of(found, "in the context") == 1
    assert value_of(found, "right output rises most") > 0.9
    assert 0.1 < value_of(found, "other tokens") < 0.6


def test_what_is_in_the_context_is_counted_in_sequences_written_out():
    a, b, c, d = range(4)
    tokens = np.array(
        [
            [a, b, c, a, b, d, a, b],  # a is followed by b three times: two predictable, both right
            [a, b, c, a, d, c, d, c],  # and here it is not
        ]
    )
    assert ideas.share_in_context(tokens, np.array([[a], [a]])) == pytest.approx(2 / 3)


@pytest.mark.parametrize("answers", [True, False])
def test_which_token_rises_is_counted_in_sequences_written_out(answers):
    """The trigger 0 comes twice in each context; its output follows, or another token does."""
    n = 6
    outputs = np.repeat(np.arange(1, n), 30)
    follower = outputs if answers else np.roll(np.arange(1, n), 1)[outputs - 1]
    zero = np.zeros_like(outputs)
    tokens = np.stack([zero, follower, zero, follower, zero], axis=1)
    rises, others = ideas.compare_contexts(tokens, zero[:, None], outputs[:, None], n)
    assert rises.mask.tolist() == [True] + [False] * (n - 1)
    assert (rises.compressed() == answers).all()
    assert others[0] == 1, "the trigger stands in all of them"
    assert others[1] == pytest.approx(0 if answers else 30 / 120)


@pytest.mark.parametrize(
    ("in_context", "rise", "verdict"),
    [
        (1.0, 40, "reproduced"),
        (1.0, 20, "partly"),
        (1.0, 0, "partly"),
        (0.999, 40, "partly"),
        (0.999, 0, "refuted"),
    ],
)
def test_contexts_are_judged_by_both_parts(in_context, rise, verdict, monkeypatch):
    rises = (np.arange(N) < rise).astype(float)
    monkeypatch.setattr(ideas, "share_in_context", lambda *_: in_context)
    monkeypatch.setattr(ideas, "compare_contexts", lambda *_: (rises, rises))
    monkeypatch.setitem(ideas.CONTEXTS, "quick", 4)
    assert of_draws("B15").verdict == verdict


# B19 and B20 -------------------------------------------------------------------------------------


def test_gradients_of_the_lemmas_by_a_second_program():
    """Closed forms against differences of losses that are written out in loops."""
    drawn = lemmas.draw(3)
    few = drawn._replace(x=drawn.x[:2], y=drawn.y[:2])
    plain = few._asdict()
    shape = (lemmas.WIDTH, lemmas.WIDTH)
    # the closed forms divide by the number of sequences
    times = lemmas.SEQUENCES / 2
    second = birth_plain.slopes(lambda w: birth_plain.second_layer_loss(w, plain), shape)
    np.testing.assert_allclose(times * lemmas.second_layer_gradient(few), second, atol=1e-8)
    for linear in (True, False):
        first = birth_plain.slopes(
            lambda w, linear=linear: birth_plain.first_layer_loss(w, plain, linear), shape
        )
        found = times * lemmas.first_layer_gradient(few, linear)
        np.testing.assert_allclose(found, first, atol=1e-8)
        assert np.abs(first).max() > 1e-4


def test_lemmas_hold_and_a_wrong_one_does_not(monkeypatch):
    found = of_draws("B19")
    assert (found.verdict, found.units_in_words()) == ("reproduced", "exact")
    assert of_draws("B20").verdict == "reproduced"
    right = lemmas.second_layer_gradient
    monkeypatch.setattr(lemmas, "second_layer_gradient", lambda d: 1.001 * right(d))
    assert of_draws("B19").verdict == "refuted"
    right_first = lemmas.first_layer_gradient

    def uncentered(d, linear):
        return right_first(d, linear) * (1.001 if linear else 1)

    monkeypatch.setattr(lemmas, "first_layer_gradient", uncentered)
    assert of_draws("B20").verdict == "partly"
    monkeypatch.setattr(
        lemmas, "first_layer_gradient", lambda d, linear: 2 * right_first(d, linear)
    )
    assert of_draws("B20").verdict == "refuted"


def test_the_task_of_the_full_scale_is_the_paper_s():
    task = FULL[ALL].spec.task
    assert isinstance(task, Bigrams)
    assert (task.length, task.n_triggers, task.d_vocab) == (256, 5, 65)
