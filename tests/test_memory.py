"""Associative memories: formulas against automatic derivatives, brute force and hand-made cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tries import tries

from mnemoscope.theory import associative_memory, one_step


def drawn(n, m, d, seed):
    """Inputs, outputs, answers and probabilities, in float64."""
    rng = np.random.default_rng(seed)
    p = rng.uniform(0.1, 1, n)
    e, u, f = rng.normal(size=(n, d)), rng.normal(size=(m, d)), rng.integers(0, m, n)
    return jnp.array(e), jnp.array(u), jnp.array(f), jnp.array(p / p.sum())


@tries(8)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(1, 7), st.integers(0, 99))
def test_the_gradient_is_the_sum_of_outer_products(n, m, d, seed):
    with jax.enable_x64(True):
        e, u, f, p = drawn(n, m, d, seed)
        w = jnp.array(np.random.default_rng(seed + 1).normal(size=(d, d)))

        @jax.jit
        def both(*given):
            return one_step.population_gradient(*given), jax.grad(one_step.cross_entropy)(*given)

        formula, true = both(w, e, u, f, p)
        e, u, w, f = (np.asarray(x) for x in (e, u, w, f))
        np.testing.assert_allclose(
            formula, true, rtol=1e-12, atol=1e-12 * float(jnp.abs(true).max() + 1)
        )
        by_hand = np.zeros((d, d))
        for x in range(n):
            logits = np.array([u[y] @ w @ e[x] for y in range(m)])
            said = np.exp(logits - logits.max())
            said /= said.sum()
            by_hand += float(p[x]) * np.outer(said @ u - u[f[x]], e[x])
        np.testing.assert_allclose(formula, by_hand, rtol=1e-10, atol=1e-12)


def test_orthonormal_embeddings_recall_everything_with_any_weights():
    n = 5
    e, u, f = jnp.eye(n), jnp.eye(n)[::-1], jnp.array([3, 1, 4, 0, 2])
    for weights in (jnp.ones(n), jnp.array([1.0, 0.5, 0.1, 0.01, 0.001])):
        w = associative_memory.write_pairs(e, u, f, weights)
        np.testing.assert_allclose(
            associative_memory.scores(w, e, u), jnp.eye(n)[f] * weights[:, None]
        )
        assert associative_memory.check_recall(w, e, u, f).all()
    w = associative_memory.write_pairs(e, u, f, jnp.array([1.0, 1.0, 1.0, -1.0, 1.0]))
    assert associative_memory.check_recall(w, e, u, f).tolist() == [True, True, True, False, True]


def test_error_is_the_mass_of_wrong_answers():
    p = associative_memory.zipf(4, 2.0)
    whole = 1 + 1 / 4 + 1 / 9 + 1 / 16
    np.testing.assert_allclose(p, np.array([1, 1 / 4, 1 / 9, 1 / 16]) / whole)
    right = jnp.array([True, False, True, False])
    assert float(associative_memory.error_mass(right, jnp.array(p))) == pytest.approx(
        (1 / 4 + 1 / 16) / whole
    )
    # by brute force: draw inputs and count
    draws = np.random.default_rng(0).choice(4, 200_000, p=p)
    assert (~np.asarray(right))[draws].mean() == pytest.approx((1 / 4 + 1 / 16) / whole, abs=0.003)


@pytest.mark.parametrize("distractors", [0, 1, 2])
def test_one_step_from_zero_writes_what_the_formula_says(distractors):
    """Against the average of gradients over every way to choose the distractors."""
    with jax.enable_x64(True):
        n, m, d = 4, 3, 5
        e, u, f, p = drawn(n, m, d, 7)
        total = jnp.zeros((d, d))
        for noise in np.ndindex(*(n,) * distractors):
            chance = np.prod([float(p[z]) for z in noise])
            shown = e + sum((e[z] for z in noise), start=jnp.zeros(d))[None]
            total = total - chance * one_step.population_gradient(jnp.zeros((d, d)), shown, u, f, p)
        np.testing.assert_allclose(
            one_step.step_from_zero(e, u, f, p, distractors), total, rtol=1e-12, atol=1e-14
        )


def test_more_dimensions_recall_more():
    """At the edge: 256 random pairs fit 256 dimensions, and hardly 16."""
    f = jnp.arange(256)
    for d, low, high in ((256, 0.99, 1.0), (16, 0.0, 0.5)):
        keys = jax.random.split(jax.random.key(0))
        e, u = (associative_memory.random_unit_vectors(256, d, key=key) for key in keys)
        np.testing.assert_allclose(jnp.linalg.norm(e, axis=1), 1, rtol=1e-5)
        right = float(
            associative_memory.check_recall(
                associative_memory.write_pairs(e, u, f, jnp.ones(256)), e, u, f
            ).mean()
        )
        assert low <= right <= high
