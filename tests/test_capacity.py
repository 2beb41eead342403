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
from mnemoscope.studies.memories.capacity import Memory, answered, capacity, stores, written_capacity
from mnemoscope.studies.memories.optimised import Cell, errors, errors_by_rate, optimise, start
from mnemoscope.studies.search import largest
from mnemoscope.theory.memory import on_the_sphere, zipf


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


def test_all_pairs_right_is_what_exhaustive_search_finds():
    """Every N is taught; at N of 100 and more, 99% would be fewer than all."""
    memory, room = Memory(d=5, steps=300, level=1.0), 20
    every = np.arange(1, room + 1)
    ask = jax.jit(jax.vmap(jax.vmap(partial(stores, memory, room), (None, 0)), (0, None)))
    yes = np.asarray(ask(jnp.arange(3), jnp.array(every)))
    expected = [row.tolist().index(False) for row in yes]
    assert all(not row[n:].any() for row, n in zip(yes, expected, strict=True)), (
        "a size that fits follows one that does not"
    )
    assert capacity(memory, 3, guess=4, room=room, resolution=0.0).tolist() == expected


def test_a_memory_that_fills_its_room_gets_more():
    memory = Memory(d=6, steps=400)
    assert capacity(memory, 4, 2, 3, 0.0).tolist() == capacity(memory, 4, 12, 24, 0.0).tolist()


def test_a_written_sum_is_whole_up_to_what_exhaustive_search_finds():
    d, room = 12, 40
    for seed, found in enumerate(written_capacity(d, 4, room)):
        keys = jax.random.split(jax.random.key(seed), 4)
        e, u = (np.asarray(on_the_sphere(room, d, key=key), float) for key in keys[:2])
        whole = []
        for n in range(1, room + 1):
            w = sum(np.outer(u[x], e[x]) for x in range(n))
            whole.append(all(np.argmax(u[:n] @ w @ e[x]) == x for x in range(n)))
        assert found == whole.index(False)
        assert 1 < found < room - 1
    assert (written_capacity(d, 4, 2) == 2).all(), "no further than there is room"


def test_an_answer_that_is_not_alone_at_the_top_is_wrong():
    scores = jnp.array([[1.0, 0.0, -1.0], [2.0, 2.0, 0.0], [0.0, -jnp.inf, 3.0], [-jnp.inf, 5.0, -jnp.inf]])
    assert answered(scores, jnp.array([0, 1, 2, 1])).tolist() == [True, False, True, True]
    assert answered(scores, jnp.array([1, 2, 0, 0])).tolist() == [False] * 4


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


@pytest.mark.parametrize("change", [{}, {"batch": 16}, {"optimiser": "adam"}, {"norm": True}])
def test_errors_by_rate_are_those_of_each_training(change):
    """Plain SGD follows its scores and never makes W; one training at a time does."""
    cell, rates, seeds = Cell(d=20, samples=1280).model_copy(update=change), (0.1, 1.0, 10.0), (3, 4)
    found = errors_by_rate(cell, rates, seeds)
    train = jax.jit(partial(optimise, cell))
    expected = [[float(train(seed, rate)) for seed in seeds] for rate in rates]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert len(np.unique(found)) == 6


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
    with pytest.raises(UserError, match="--seeds must be 1 to 1,000,000, got 0"):
        cli.memories("grid", seeds=0)
