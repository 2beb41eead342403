"""Population gradients: exact sums against every sequence listed,
against finite differences and against a large sample.
"""

from functools import partial
from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.models import Transformer, forward
from mnemoscope.probes.weight_memories import first_keys, output_memory, second_keys
from mnemoscope.tasks import Bigrams, Corpus
from mnemoscope.theory.gradients import (
    FIRST_KEYS,
    OUTPUT,
    SECOND_KEYS,
    output_gradient,
    sampled_gradient,
    theorem_model,
    theorem_task,
    three_steps,
)

UNEVEN = Corpus(
    name="uneven",
    characters="abc",
    counts=((0, 1, 3), (0, 2, 1), (1, 0, 1), (1, 1, 2), (2, 0, 1), (2, 1, 1), (2, 2, 1)),
)
TINY = Bigrams(corpus=UNEVEN, n_triggers=1, triggers="random", length=5)


def every_sequence(task):
    """All sequences of length + 1 with a trigger and an output, and their probabilities."""
    text, n = task.text, task.d_vocab
    prior = np.full((n, n), 1 / n) if task.outputs == "uniform" else text.bigrams
    for q, o in product(range(n), repeat=2):
        for row in product(range(n), repeat=task.length + 1):
            p = text.unigrams[q] * prior[q, o] * text.unigrams[row[0]]
            for a, b in pairwise(row):
                p *= float(b == o) if a == q else text.bigrams[a, b]
            if p > 0:
                yield q, np.array(row), p


def population_loss(task, config, params):
    """The exact loss by listing: sum p w loss / sum p w, float64."""
    found = list(every_sequence(task))
    rows, p = np.array([row for _, row, _ in found]), np.array([p for *_, p in found])
    is_q = rows[:, :-1] == np.array([q for q, *_ in found])[:, None]
    weights = p[:, None] * (is_q & (np.cumsum(is_q, axis=1) >= 2))
    logits = jax.vmap(lambda row: forward(config, params, row)[0])(rows[:, :-1])
    losses = (
        jax.nn.logsumexp(logits, axis=-1)
        - jnp.take_along_axis(logits, rows[:, 1:, None], axis=-1)[..., 0]
    )
    return (losses * weights).sum() / weights.sum()


@pytest.mark.parametrize("outputs", ["uniform", "bigram"])
def test_the_exact_gradient_is_that_of_the_listed_population(outputs):
    task = TINY.model_copy(update={"outputs": outputs})
    exact = output_gradient(task)
    with jax.enable_x64(True):
        config, params = theorem_model(task)
        params = {
            name: jnp.asarray(np.asarray(value), np.float64) for name, value in params.items()
        }

        @jax.jit
        def at(w):
            return population_loss(task, config, params | {OUTPUT: w[None]})

        zero = params[OUTPUT][0]
        np.testing.assert_allclose(jax.jit(jax.grad(at))(zero), exact, atol=1e-12)
        rng, n = np.random.default_rng(0), task.d_vocab
        for i, j in [
            (0, -1),
            (n, -2),
            (n + task.length, -n),
            *rng.integers(0, zero.shape[0], (3, 2)),
        ]:
            step = jnp.zeros_like(zero).at[i, j].set(1e-5)
            slope = (at(zero + step) - at(zero - step)) / 2e-5
            assert float(slope) == pytest.approx(exact[i, j], abs=1e-9)
    assert np.abs(exact).max() > 0.01


def test_a_large_sample_agrees_within_its_error_bars():
    task = theorem_task(5, 8)
    config, params = theorem_model(task)
    exact = output_gradient(task)
    keys = jax.random.split(jax.random.key(1), 24)
    one = partial(sampled_gradient, task, config, params, OUTPUT, 40, 32)
    found = jax.jit(jax.vmap(lambda key: one(key=key)))(keys)
    mean, error = np.asarray(found.mean), np.asarray(found.error)
    where = error.min(axis=0) > 0
    off = (mean - exact[None])[:, where] / error[:, where]
    assert 0.8 < np.sqrt(np.mean(off**2)) < 1.25  # one standard error on average, as it should be
    assert np.abs(off.mean(axis=0)).max() < 5 / np.sqrt(24), "no entry is off to one side"
    np.testing.assert_allclose(mean.mean(axis=0)[~where], exact[~where], atol=1e-7)


@pytest.mark.parametrize("name", [OUTPUT, SECOND_KEYS, FIRST_KEYS])
def test_sampled_gradients_are_slopes_of_the_sampled_loss(name):
    """Finite differences along a random direction, on the same sequences, away from the start."""
    with jax.enable_x64(True):
        task = theorem_task(4, 6)
        config, params = theorem_model(task)
        rng = np.random.default_rng(2)
        params = {
            k: jnp.asarray(np.asarray(v) + 0.3 * rng.normal(size=v.shape), np.float64)
            for k, v in params.items()
        }
        key = jax.random.key(4)
        found = jax.jit(lambda key: sampled_gradient(task, config, params, name, 2, 8, key=key))(
            key
        )
        keys = jnp.concatenate([jax.random.split(one, 8) for one in jax.random.split(key, 2)])
        drawn = jax.jit(jax.vmap(lambda key: task.sample((), key=key)))(keys)

        @jax.jit
        def at(w):
            logits = jax.vmap(lambda row: forward(config, params | {name: w[None]}, row)[0])(
                drawn.tokens
            )
            own = jnp.take_along_axis(logits, drawn.targets[..., None], axis=-1)[..., 0]
            return (
                (jax.nn.logsumexp(logits, axis=-1) - own) * drawn.weights
            ).sum() / drawn.weights.sum()

        way = jnp.asarray(rng.normal(size=params[name][0].shape))
        slope = (at(params[name][0] + 1e-5 * way) - at(params[name][0] - 1e-5 * way)) / 2e-5
        assert float((found.mean * way).sum()) == pytest.approx(float(slope), rel=1e-5)


def test_three_steps_write_three_memories():
    task = theorem_task(6, 10)
    config, params = theorem_model(task)
    start = Transformer(config, params)
    assert float(output_memory(start)) == pytest.approx(1 / 6)  # all zero: the first of equals
    write = jax.jit(lambda key: three_steps(task, config, params, batches=100, batch=128, key=key))
    steps = write(jax.random.key(0))
    model = Transformer(config, steps.params)
    assert [float(f(model)) for f in (output_memory, second_keys)] == [1.0, 1.0]
    assert float(first_keys(model)) >= 0.75
    assert all(0 < float(e) < 0.5 for e in steps.errors.values())
    for name in params:
        assert np.array_equal(steps.params[name], params[name]) != (
            name in (OUTPUT, SECOND_KEYS, FIRST_KEYS)
        ), name


def test_exact_gradients_say_what_they_know():
    with pytest.raises(UserError, match="one random trigger"):
        output_gradient(Bigrams(length=8))
