"""The loss a few sequences at a time: the same as the plain pass, whatever is read,
frozen or left out.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from asking import Asking
from hypothesis import example, given
from hypothesis import strategies as st
from tries import tries

from mnemoscope.models import ModelConfig, forward, parameter_shapes
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.rewrites import score_tables, token_rows
from mnemoscope.models.rewrites.choose import REWRITES
from mnemoscope.tasks import Bigrams, Example
from mnemoscope.theory.induction import simplified_model
from mnemoscope.training import loss

D_VOCAB, LENGTH, BATCH = 7, 16, 6

shapes = st.fixed_dictionaries(
    {
        "d_model": st.sampled_from([3, 8]),
        "n_layers": st.integers(1, 3),
        "d_mlp": st.sampled_from([0, 5]),
        "bias": st.booleans(),
        "act": st.sampled_from(sorted(ACTIVATIONS)),
        "tied": st.booleans(),
        "unembed_bias": st.booleans(),
        "mlp_layers": st.sampled_from([None, (), (0,)]),
    }
)


def in_chunks(name, n_sequences=2):
    """A rewrite that takes so few sequences at a time that several chunks are added up, and some of
    them read few positions.
    """
    (rewrite,) = (each for each in REWRITES if each.name == name)
    return dataclasses.replace(rewrite, tokens_at_once=n_sequences * LENGTH)


SCORE_TABLES = in_chunks("score tables")


def drawn(config, seed, share):
    """Parameters away from their start, and a batch of which a share is read;
    the first sequence reads nothing, the last all.
    """
    rng = np.random.default_rng(seed)
    sizes = parameter_shapes(config, D_VOCAB, LENGTH)
    params = {name: 0.5 * rng.normal(size=size) for name, size in sizes.items()}
    tokens, targets = rng.integers(0, D_VOCAB, (2, BATCH, LENGTH))
    weights = rng.uniform(0.5, 1, (BATCH, LENGTH)) * (rng.uniform(size=(BATCH, LENGTH)) < share)
    weights[0], weights[-1] = 0.0, 1.0
    return params, (tokens, targets, weights)


class Sparse(Asking):
    """Most sequences are said to read few positions."""

    few: bool = True

    @property
    def sparse_loss(self):
        return self.few


def both(config, params, example, still, few, dtype, rewrite=SCORE_TABLES, read=()):
    """Loss and gradient by chunks and by the plain pass."""
    with jax.enable_x64(dtype is np.float64):
        params = {name: jnp.asarray(value, dtype) for name, value in params.items()}
        batch = Example(jnp.array(example[0]), jnp.array(example[1]), jnp.array(example[2], dtype))
        held = {name: value for name, value in params.items() if name in still}
        free = {name: value for name, value in params.items() if name not in still}
        task = Sparse(length=LENGTH, few=few, read=read)

        @jax.jit
        def routes(p):
            plain = jax.value_and_grad(
                lambda p: loss.batch_loss(task, config, held | p, batch, rewrite=None)
            )
            return loss._in_chunks(task, config, p, held, batch, rewrite), plain(p)

        return [
            (float(x), np.concatenate([np.ravel(gradient[n]) for n in free]))
            for x, gradient in routes(free)
        ]


THREE = {"d_model": 8, "n_layers": 3, "d_mlp": 5, "bias": True, "act": "gelu", "tied": False}
ONE = {"d_model": 3, "n_layers": 1, "d_mlp": 0, "bias": False, "act": "linear", "tied": True}


@tries(1)
@example(THREE, 1, 0.3, True, False)
@example(THREE | {"n_layers": 2, "bias": False, "act": "linear", "tied": True}, 2, 0.9, False, True)
@example(ONE, 3, 0.1, True, True)
@given(shapes, st.integers(0, 99), st.floats(0, 1), st.booleans(), st.booleans())
def test_chunks_have_the_same_loss_and_gradient(shape, seed, share, few, freeze):
    on = shape.get("mlp_layers") if shape["d_mlp"] else None
    config = ModelConfig(n_heads=1, **(shape | {"mlp_layers": on}))
    assert score_tables.SUPPORT.why_not(config) is None
    params, example = drawn(config, seed, share)
    still = {"pos_embed.W_pos", "blocks.0.attn.W_V"} if freeze else set()
    quick, exact = both(config, params, example, still, few, np.float64)
    for what in (0, 1):  # the loss, the gradient
        assert np.linalg.norm(quick[what] - exact[what]) <= 1e-12 * np.linalg.norm(exact[what])


@pytest.mark.parametrize("shape", [THREE, pytest.param(ONE, marks=pytest.mark.long)])
def test_chunks_in_float32_round_no_worse_than_the_plain_pass(shape):
    config = ModelConfig(n_heads=1, **shape)
    params, example = drawn(config, 1, 0.3)
    _, exact = both(config, params, example, set(), True, np.float64)
    quick, plain = both(config, params, example, set(), True, np.float32)
    for what in (0, 1):
        size, off = np.linalg.norm(exact[what]), np.linalg.norm(plain[what] - exact[what])
        assert np.linalg.norm(quick[what] - exact[what]) <= max(1e-6 * size, 4 * off)


def test_chunks_at_the_edge_of_few():
    """Sequences in the order of what they read: a chunk of all, one of a position more than few,
    and one of just so many.
    """
    config = ModelConfig(n_heads=1, **ONE)
    params, (tokens, targets, _) = drawn(config, 0, 1)
    few = int(loss.FEW * LENGTH)
    weights = np.zeros((BATCH, LENGTH))
    for row, n in zip(weights, (few, 0, few + 1, LENGTH, few, LENGTH), strict=True):
        row[np.random.default_rng(n).permutation(LENGTH)[:n]] = np.linspace(0.5, 1, n)
    quick, exact = both(config, params, (tokens, targets, weights), set(), True, np.float64)
    for what in (0, 1):
        assert np.linalg.norm(quick[what] - exact[what]) <= 1e-12 * np.linalg.norm(exact[what])


def test_the_comparison_can_fail():
    config = ModelConfig(d_model=8, n_heads=1, d_mlp=0, bias=False)
    params, example = drawn(config, 0, 0.5)
    (_, gradient), _ = both(config, params, example, set(), True, np.float64)
    moved = {**params, "embed.W_E": params["embed.W_E"] + 1e-6}
    _, (_, true) = both(config, moved, example, set(), True, np.float64)
    assert np.linalg.norm(gradient - true) > 1e-12 * np.linalg.norm(true)


@pytest.mark.parametrize("plain", [True, False])
def test_a_batch_in_which_nothing_is_asked_has_no_loss(plain):
    config = simplified_model(8)
    params, (tokens, targets, weights) = drawn(config, 0, 0.5)
    params = {name: jnp.asarray(value, float) for name, value in params.items()}
    batch = Example(jnp.array(tokens), jnp.array(targets), jnp.zeros(weights.shape))
    task = Asking(read=(0, 3))

    def route(p):
        if plain:
            return jax.value_and_grad(
                lambda p: loss.batch_loss(task, config, p, batch, rewrite=None)
            )(p)
        return loss._in_chunks(Sparse(length=LENGTH), config, p, {}, batch, SCORE_TABLES)

    value, gradient = jax.jit(route)(params)
    assert float(value) == 0
    assert not any(np.any(g) for g in gradient.values())


@pytest.mark.parametrize("read_logits", [score_tables.read_logits, token_rows.read_logits])
def test_any_rows_may_be_read(read_logits):
    config = ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=5)
    params, (tokens, _, _) = drawn(config, 3, 1)
    params = {name: jnp.asarray(value, float) for name, value in params.items()}
    rows = np.random.default_rng(0).integers(0, LENGTH, (BATCH, 4))
    found = jax.jit(partial(read_logits, config))(params, jnp.array(tokens), jnp.array(rows))
    plain = jax.jit(lambda row: forward(config, params, row)[0])
    for b in range(BATCH):
        np.testing.assert_allclose(
            found[b], np.asarray(plain(jnp.array(tokens[b])))[rows[b]], rtol=2e-4, atol=2e-5
        )


def test_which_models_go_in_chunks(monkeypatch):
    """Long sequences: chunks, by score tables for one head and no norm. What tables cover: the
    loss as a whole.
    """
    used = []
    monkeypatch.setattr(
        loss, "_in_chunks", lambda *given: used.append(given[5].name) or (jnp.zeros(()), {})
    )
    monkeypatch.setattr(loss, "batch_loss", lambda *_, **__: used.append("whole") or jnp.zeros(()))
    for task, config in (
        (Bigrams(length=16), simplified_model(8)),
        (Bigrams(length=16), ModelConfig(d_model=8, n_heads=2)),
        (Bigrams(length=16), ModelConfig(d_model=8, n_heads=1, norm="pre")),
        (Bigrams(length=4), simplified_model(8)),  # 4 x 65 pairs: tables pay
    ):
        params = {
            name: jnp.zeros(size)
            for name, size in parameter_shapes(config, 65, task.length).items()
        }
        batch = Example(*jnp.zeros((2, 4, task.length), int), jnp.ones((4, task.length)))
        loss.loss_and_gradient(task, config, params, {}, batch)
    assert used == ["score tables", "token rows", "token rows", "whole"]
