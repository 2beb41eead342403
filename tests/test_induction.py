"""Memories in weights: written down by hand they are all recalled,
drawn at random they are recalled by chance.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import batch_of, forward, init

from mnemoscope.core.errors import UserError
from mnemoscope.models import Init, ModelConfig, Transformer
from mnemoscope.probes.weight_memories import (
    bigram_memory,
    first_keys,
    head_scores,
    output_memory,
    second_keys,
)
from mnemoscope.tasks import Bigrams, tiny_shakespeare
from mnemoscope.theory.induction import TRAINED, induction_weights, outer_sum, simplified_model

TASK = Bigrams(length=48)


def random_model(d, seed=0, **other):
    config = simplified_model(d, **other)
    return Transformer(config, init(config, TASK.d_vocab, TASK.n_ctx, key=jax.random.key(seed)))


@partial(jax.jit, static_argnames=("triggers", "strength"))
def written(model, triggers=None, strength=30.0):
    """The model's weights with the three memories written in."""
    return induction_weights(model.config, model.params, triggers, strength)


@jax.jit
def answers(model, tokens):
    return jax.vmap(model)(tokens).argmax(axis=-1)


def accuracy(model, number=64):
    batch = jax.device_get(batch_of(TASK, (), number))
    right = np.asarray(answers(model, batch.tokens)) == batch.targets
    return float((right * batch.weights).sum() / batch.weights.sum())


def test_only_three_matrices_are_trained():
    config = simplified_model(16)
    free = set(init(config, 3, 3, key=jax.random.key(0))) - config.frozen_names()
    assert free == set(TRAINED)


def test_orthogonal_pairs_are_recalled_exactly():
    x, y = 2.0 * np.eye(4)[:3], 3.0 * np.eye(5)[[4, 0, 2]]
    w = np.asarray(outer_sum(jnp.asarray(x), jnp.asarray(y)))
    np.testing.assert_allclose(x @ w @ y.T, np.eye(3), atol=1e-6)


def test_hand_built_memories_are_recalled_and_random_ones_by_chance():
    start = random_model(256)

    @jax.jit
    def recalled(model):
        triggers = second_keys(model, TASK.fixed_triggers)
        return jnp.stack(
            [output_memory(model), triggers, first_keys(model), first_keys(model, 1, 16)]
        )

    built = Transformer(start.config, written(start, TASK.fixed_triggers))
    assert recalled(built).tolist() == pytest.approx([1, 1, 1, 1])
    everything = Transformer(start.config, written(start))
    assert float(jax.jit(second_keys)(everything)) > 0.95
    chance = np.mean([recalled(random_model(64, seed)) for seed in range(20)], axis=0)[:3]
    expected = np.array([1 / 65, 1 / 5, 1 / 48])
    sizes = 20 * np.array([65, 5, 47])
    assert (np.abs(chance - expected) < 4 * np.sqrt(expected / sizes)).all()


def test_the_hand_built_model_copies_from_the_context_and_fails_without_any_of_its_memories():
    start = random_model(256)
    built = written(start, TASK.fixed_triggers)
    whole = accuracy(Transformer(start.config, built))
    assert whole > 0.85
    assert accuracy(start) < 0.1
    for name in TRAINED:
        assert (
            accuracy(Transformer(start.config, {**built, name: start.params[name]})) < whole - 0.3
        ), name


def test_heads_are_scored_by_what_they_look_at():
    """Against plain loops over positions."""
    start = random_model(32)
    model = Transformer(start.config, written(start, strength=3.0))
    rows = np.random.default_rng(0).integers(0, 4, (3, 12))
    weights = np.zeros((3, 12))
    weights[:, 7:] = 1
    found = jax.jit(head_scores)(model, jnp.array(rows), jnp.array(weights))
    previous, induction, answer = [], [], []
    for row, weight in zip(rows, weights, strict=True):
        trace = forward(model.config, model.params, jnp.array(row))[1]
        first, second = (np.asarray(trace[f"blocks.{n}.attn.hook_pattern"])[0] for n in (0, 1))
        previous += [first[t, t - 1] for t in range(1, 12)]
        for t in np.flatnonzero(weight):
            after = [s for s in range(1, t + 1) if row[s - 1] == row[t]]
            induction.append(sum(second[t, s] for s in after))
            answer.append(sum(second[t, s] for s in range(12) if after and row[s] == row[after[0]]))
    assert float(found["previous"]) == pytest.approx(np.mean(previous), rel=1e-4)
    assert float(found["induction"]) == pytest.approx(np.mean(induction), rel=1e-4)
    assert float(found["to answer"]) == pytest.approx(np.mean(answer), rel=1e-4)


def test_a_feed_forward_layer_that_holds_the_bigrams_is_at_zero():
    """With embeddings and read-out the identity, W_F = log pi_b gives pi_b back;
    a flat one is ln N - entropy away.
    """
    bigrams = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    config = simplified_model(
        3, d_mlp=3, act="linear", mlp_layers=(1,), init=Init(identity=("*.attn.W_Q", "*.W_in"))
    )
    params = init(config, 3, 4, key=jax.random.key(0))
    params |= {
        "embed.W_E": np.eye(3),
        "unembed.W_U": np.eye(3),
        "blocks.1.mlp.W_out": np.log(bigrams),
    }
    assert float(bigram_memory(Transformer(config, params), bigrams)) == pytest.approx(0, abs=1e-6)
    flat = Transformer(config, {**params, "blocks.1.mlp.W_out": np.zeros((3, 3))})
    entropy = -(bigrams * np.log(bigrams)).sum(axis=1)
    assert float(bigram_memory(flat, bigrams)) == pytest.approx(
        np.log(3) - entropy.mean(), rel=1e-5
    )
    assert float(bigram_memory(flat, bigrams, leave_out=(0, 1))) == pytest.approx(0, abs=1e-6)
    assert np.isfinite(float(bigram_memory(random_model(16, d_mlp=8), tiny_shakespeare().bigrams)))


def test_models_that_have_no_such_memories_are_refused():
    config = ModelConfig(d_model=4, n_heads=1, d_mlp=0)
    model = Transformer(config, init(config, 3, 3, key=jax.random.key(0)))
    with pytest.raises(UserError, match="memories are read in two layers of one head, got 1 of 1"):
        output_memory(model)
    with pytest.raises(
        UserError, match="an induction head needs two layers of one head, got 1 of 1"
    ):
        induction_weights(config, model.params)
    with pytest.raises(UserError, match="no feed-forward layer"):
        bigram_memory(random_model(8), tiny_shakespeare().bigrams)
