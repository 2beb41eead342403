"""Trained memories: bisection against exhaustive search, training against plain loops, cells of the grid against NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemoscope import cli
from mnemoscope.config import UserError
from mnemoscope.studies.memories.capacity import Memory, capacity, stores
from mnemoscope.studies.memories.optimised import Cell, errors, optimise, start
from mnemoscope.studies.search import largest
from mnemoscope.theory.memory import zipf


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 50))
def test_bisection_finds_what_exhaustive_search_finds(thresholds, guess):
    """With any threshold for each seed, from none to all, and from any guess."""
    limits, asked = np.array(thresholds), []

    def ask(n):
        asked.append(n.copy())
        assert ((n >= 1) & (n <= 50)).all()
        return n <= limits

    assert largest(ask, len(limits), guess, 50).tolist() == thresholds
    assert len(asked) <= 14  # doubling and halving, not counting up
    close = largest(lambda n: n <= limits, len(limits), guess, 50, resolution=0.2)
    assert ((close <= limits) & (limits <= close + np.maximum(1, 0.2 * close))).all()


def test_a_guess_outside_is_refused():
    with pytest.raises(UserError, match="the guess must lie between 1 and 9, got 12"):
        largest(lambda n: n < 3, 2, 12, 9)


def test_the_capacity_found_is_the_edge():
    memory = Memory(d=6, steps=400)
    found = capacity(memory, 4, guess=6, room=24, resolution=0.0)
    ask = jax.jit(jax.vmap(partial(stores, memory, 24)))
    assert ask(jnp.arange(4), jnp.array(found)).all()
    assert not ask(jnp.arange(4), jnp.array(found) + 1).any()
    assert (found >= 3).all()


@pytest.mark.parametrize("memory", [
    Memory(d=5, steps=60), Memory(d=5, steps=60, classes=3),
    Memory(kind="two-layer", d=4, m=6, steps=200, lr=0.03), Memory(kind="two-layer", d=4, m=6, steps=200, lr=0.03, classes=2),
])  # fmt: skip
def test_training_with_room_to_spare_is_training_without(memory):
    """The same pairs, trained by a plain loop on arrays that hold just them."""
    room, seed = 20, 3
    e, u = (
        x / jnp.linalg.norm(x, axis=1, keepdims=True)
        for x in (jax.random.normal(key, (n, memory.d))
                  for key, n in zip(jax.random.split(jax.random.key(seed), 4), (room, memory.classes or room), strict=False))
    )  # fmt: skip
    _, _, for_w, for_v = jax.random.split(jax.random.key(seed), 4)
    quick = jax.jit(lambda n: stores(memory, room, jnp.array(seed), n))
    answers = {}
    for n in (3, 8, 16):
        m = memory.classes or n
        inputs, outputs, answer = e[:n], u[:m], jnp.arange(n) % m
        params = {"W": jnp.zeros((memory.d, memory.d))}
        if memory.kind == "two-layer":
            params = {"W": jax.random.normal(for_w, (memory.m, memory.d)) * memory.d**-0.5, "b": jnp.zeros(memory.m),
                      "V": jax.random.normal(for_v, (memory.d, memory.m)) * memory.m**-0.5}  # fmt: skip

        def told(p, inputs=inputs, outputs=outputs):
            if memory.kind == "linear":
                return inputs @ p["W"].T @ outputs.T
            return jax.nn.relu(inputs @ p["W"].T + p["b"][None]) @ p["V"].T @ outputs.T

        def loss(p, told=told, answer=answer):
            return optax.losses.softmax_cross_entropy_with_integer_labels(told(p), answer).mean()

        optimiser = optax.adam(memory.lr)
        inner, best, slope, look = optimiser.init(params), 0.0, jax.jit(jax.grad(loss)), jax.jit(told)
        for _ in range(memory.steps + 1):
            best = max(best, float((look(params).argmax(axis=1) == answer).mean()))
            updates, inner = optimiser.update(slope(params), inner)
            params = optax.apply_updates(params, updates)
        answers[n] = best >= memory.level
        assert bool(quick(jnp.array(n))) == answers[n], n
    assert answers[3], "three pairs fit anything here"


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_cell_is_the_loop_it_says(optimiser):
    """In NumPy, float64, with the gradient as a sum of outer products."""
    with jax.enable_x64(True):
        cell = Cell(d=6, lr=2.0, batch=4, samples=40, optimiser=optimiser, n_inputs=12, n_outputs=3)
        params, draws = start(cell, 5)
        e, u, w = (np.asarray(params[name]) for name in "EUW")
        for batch in np.asarray(draws):
            gradient = np.zeros_like(w)
            for x in batch:
                logits = u @ w @ e[x]
                said = np.exp(logits - logits.max())
                gradient += np.outer((said / said.sum()) @ u - u[x % 3], e[x]) / len(batch)
            w = w - (2.0 * gradient if optimiser == "sgd" else 2.0 / 6 * gradient / (np.abs(gradient) + 1e-8))
        wrong = (e @ w.T @ u.T).argmax(axis=1) != np.arange(12) % 3
        expected = zipf(12, 2.0)[wrong].sum()
        assert 0 < expected < 1
        assert float(optimise(cell, 5)) == pytest.approx(expected, rel=1e-9)


def test_the_stream_is_drawn_from_zipf():
    _, draws = start(Cell(samples=64_000, n_inputs=5), 0)
    shares = np.bincount(np.asarray(draws).ravel(), minlength=5) / draws.size
    np.testing.assert_allclose(shares, zipf(5, 2.0), atol=0.01)


def test_options_of_a_cell_change_it():
    base = Cell(d=8, samples=640)
    found = {name: errors(base.model_copy(update=change)) for name, change in {
        "base": {}, "norm": {"norm": True}, "learned": {"learned": True}, "adam": {"optimiser": "adam"}, "rate": {"lr": 10.0},
    }.items()}  # fmt: skip
    assert all(each.shape == (10,) and ((each >= 0) & (each <= 1)).all() for each in found.values())
    assert all((found[name] != found["base"]).any() for name in found if name != "base")


def test_the_grid_answers_and_refuses(capsys):
    cli.memories("grid", d=8, samples=640, seeds=3)
    out = capsys.readouterr().out
    assert out.startswith("error 0.")
    assert "mean and 95% interval over seeds 42 to 44" in out
    with pytest.raises(UserError, match="Cell: samples=100 is no multiple of batch=64"):
        cli.memories("grid", samples=100)
    with pytest.raises(UserError, match="Cell: d: Input should be greater than or equal to 1, got 0"):
        cli.memories("grid", d=0)
    with pytest.raises(UserError, match="--seeds must be at least 1, got 0"):
        cli.memories("grid", seeds=0)
