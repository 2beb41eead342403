"""Trained memories: bisection against exhaustive search, training against plain loops,
cells of the grid against NumPy.
"""

from functools import partial

import grid_plain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.studies.bisection import largest
from mnemoscope.studies.library.memories import capacity as memories
from mnemoscope.studies.library.memories import optimized as memory_grid
from mnemoscope.studies.library.memories.capacity import (
    Memory,
    answered,
    capacity,
    stores,
    written_capacity,
)
from mnemoscope.studies.library.memories.command import command as grid_command
from mnemoscope.studies.library.memories.optimized import (
    Cell,
    errors,
    errors_by_rate,
    optimize,
    start,
)
from mnemoscope.theory.associative_memory import random_unit_vectors, zipf


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


def planted(monkeypatch, limits):
    """Memories that store so many pairs and not one more, whatever the room;
    returns the rooms that were tried.
    """
    rooms = []

    def limited(memory, room, seed, n):
        rooms.append(room)
        return n <= jnp.array(limits)[seed]

    monkeypatch.setattr(memories, "stores", limited)
    return rooms


@pytest.mark.parametrize("guess", [1, 4, 20])
def test_all_pairs_stored_is_what_exhaustive_search_finds(monkeypatch, guess):
    limits = [15, 0, 1, 19, 7]
    rooms = planted(monkeypatch, limits)
    every = [[n for n in range(1, 21) if n <= limit] for limit in limits]
    assert capacity(Memory(), range(5), guess, 20, resolution=0.0).tolist() == [
        max(stored, default=0) for stored in every
    ]
    assert set(rooms) == {20}


def test_a_memory_that_fills_its_room_gets_more(monkeypatch):
    rooms = planted(monkeypatch, [3, 2, 11])
    assert capacity(Memory(), range(3), 2, 3, resolution=0.0).tolist() == [3, 2, 11]
    assert sorted(set(rooms)) == [3, 6, 12]


@pytest.mark.parametrize("level", [0.99, 1.0])
def test_the_capacity_found_is_the_edge(monkeypatch, level):
    """Trained memories store what was found and not one more, says the program that bisection asked
    (another rounds otherwise).
    """
    memory, asked = Memory(d=6, steps=400, level=level), []
    monkeypatch.setattr(
        memories, "map_over_seeds", lambda f, n: asked.append(map_over_seeds(f, n)) or asked[-1]
    )
    found = capacity(memory, range(4), guess=6, room=24, resolution=0.0)
    (ask,) = asked
    assert ask((np.arange(4), found)).all()
    assert not ask((np.arange(4), found + 1)).any()
    assert (found >= 3).all()


def test_a_written_sum_is_whole_up_to_what_exhaustive_search_finds():
    d, room = 12, 40
    for seed, found in enumerate(written_capacity(d, range(4), room)):
        keys = jax.random.split(jax.random.key(seed), 4)
        e, u = (np.asarray(random_unit_vectors(room, d, key=key), float) for key in keys[:2])
        whole = []
        for n in range(1, room + 1):
            w = sum(np.outer(u[x], e[x]) for x in range(n))
            whole.append(all(np.argmax(u[:n] @ w @ e[x]) == x for x in range(n)))
        assert found == whole.index(False)
        assert 1 < found < room - 1
    assert (written_capacity(d, range(4), 2) == 2).all(), "no further than there is room"


def test_an_answer_that_is_not_alone_at_the_top_is_wrong():
    scores = jnp.array(
        [[1.0, 0.0, -1.0], [2.0, 2.0, 0.0], [0.0, -jnp.inf, 3.0], [-jnp.inf, 5.0, -jnp.inf]]
    )
    assert answered(scores, jnp.array([0, 1, 2, 1])).tolist() == [True, False, True, True]
    assert answered(scores, jnp.array([1, 2, 0, 0])).tolist() == [False] * 4


@pytest.mark.parametrize(
    "memory",
    [
        Memory(d=5, steps=60),
        Memory(d=5, steps=60, classes=3),
        Memory(kind="two-layer", d=4, m=6, steps=200, lr=0.03),
        Memory(kind="two-layer", d=4, m=6, steps=200, lr=0.03, classes=2),
    ],
)
def test_training_with_room_to_spare_is_training_without(memory):
    """The same pairs, trained by a plain loop on arrays that hold just them;
    in float64, for in float32 rounding decides.
    """
    with jax.enable_x64(True):
        room, keys = 20, jax.random.split(jax.random.key(3), 4)
        e, u = (
            x / jnp.linalg.norm(x, axis=1, keepdims=True)
            for x in (
                jax.random.normal(key, (n, memory.d))
                for key, n in zip(keys, (room, memory.classes or room), strict=False)
            )
        )
        quick = jax.jit(lambda n: stores(memory, room, jnp.array(3), n))
        answers = {
            n: best_share(memory, e[:n], u[: memory.classes or n], *keys[2:]) >= memory.level
            for n in (3, 8, 16)
        }
        assert {n: bool(quick(jnp.array(n))) for n in answers} == answers
    assert answers[3], "three pairs fit anything here"
    assert not answers[16], "and sixteen do not"


def best_share(memory, inputs, outputs, for_w, for_v):
    """The largest share of answers that were right, and alone at the top,
    before or after any step.
    """
    answer = jnp.arange(len(inputs)) % len(outputs)
    params = {"W": jnp.zeros((memory.d, memory.d))}
    if memory.kind == "two-layer":
        params = {
            "W": jax.random.normal(for_w, (memory.m, memory.d)) * memory.d**-0.5,
            "b": jnp.zeros(memory.m),
            "V": jax.random.normal(for_v, (memory.d, memory.m)) * memory.m**-0.5,
        }

    def told(p):
        if memory.kind == "linear":
            return inputs @ p["W"].T @ outputs.T
        return jax.nn.relu(inputs @ p["W"].T + p["b"][None]) @ p["V"].T @ outputs.T

    def loss(p):
        return optax.losses.softmax_cross_entropy_with_integer_labels(told(p), answer).mean()

    optimizer = optax.adam(memory.lr)

    @jax.jit
    def turn(p, inner):
        updates, inner = optimizer.update(jax.grad(loss)(p), inner)
        return told(p), optax.apply_updates(p, updates), inner

    inner, best = optimizer.init(params), 0.0
    for _ in range(memory.steps + 1):
        given, params, inner = turn(params, inner)
        beaten = np.asarray(given)[np.arange(len(answer)), answer, None] > np.asarray(given)
        best = max(best, (beaten.sum(axis=1) == len(outputs) - 1).mean())
    return best


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_cell_is_the_loop_it_says(optimizer):
    """In NumPy, float64, with the gradient as a sum of outer products."""
    with jax.enable_x64(True):
        cell = Cell(d=6, lr=2.0, batch=4, samples=40, optimizer=optimizer, n_inputs=12, n_outputs=3)
        params, draws = start(cell, 5)
        e, u, w = (np.asarray(params[name]) for name in "EUW")
        for batch in np.asarray(draws):
            gradient = np.zeros_like(w)
            for x in batch:
                logits = u @ w @ e[x]
                said = np.exp(logits - logits.max())
                gradient += np.outer((said / said.sum()) @ u - u[x % 3], e[x]) / len(batch)
            w = w - (
                2.0 * gradient
                if optimizer == "sgd"
                else 2.0 / 6 * gradient / (np.abs(gradient) + 1e-8)
            )
        wrong = (e @ w.T @ u.T).argmax(axis=1) != np.arange(12) % 3
        expected = zipf(12, 2.0)[wrong].sum()
        assert 0 < expected < 1
        assert float(optimize(cell, 5)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("norm", [False, True])
def test_a_cell_is_that_of_a_second_program(norm, optimizer):
    """`grid_plain` has no line of the package: gradients are written out by hand, also through the
    division of W e_x by its length."""
    cell = Cell(
        d=8, lr=20.0, batch=8, samples=320, optimizer=optimizer, norm=norm, n_inputs=20, n_outputs=3
    )
    with jax.enable_x64(True):
        train = jax.jit(partial(optimize, cell))
        found = [float(train(seed)) for seed in (5, 6, 7)]
        expected = []
        for seed in (5, 6, 7):
            params, draws = start(cell, seed)
            e, u, w = (np.asarray(params[name], float) for name in "EUW")
            trained = grid_plain.train(w, e, u, np.asarray(draws), cell.lr, norm, optimizer)
            expected.append(grid_plain.error(trained, e, u, norm))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len(set(expected)) == 3


def test_the_second_programs_gradient_is_a_derivative():
    """By differences, with and without the division."""
    rng = np.random.default_rng(0)
    e, u, w, way = (rng.normal(size=shape) for shape in ((6, 4), (3, 4), (4, 4), (4, 4)))
    answers = np.arange(6) % 3

    def loss(w, norm):
        scores = grid_plain.read_out(w, e, u, norm)[0]
        log_p = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return -log_p[np.arange(6), answers].mean()

    for norm in (False, True):
        slope = (loss(w + 1e-6 * way, norm) - loss(w - 1e-6 * way, norm)) / 2e-6
        gradient = grid_plain.gradient_of(w, e, u, answers, norm)
        assert (gradient * way).sum() == pytest.approx(slope, rel=1e-6)


def test_what_is_normalized_is_as_long_as_its_part_of_eps_says():
    """Divided by sqrt(sum of squares + 1e-6): no mean is taken out, and a vector of length .001
    keeps 1 / sqrt(2) of its length."""
    cell = Cell(d=4, norm=True, n_inputs=1, n_outputs=4)
    for length in (3.0, 1e-3):
        w = jnp.diag(jnp.array([length, 0.0, 0.0, 0.0]))
        params = {"E": jnp.eye(4)[:1], "U": jnp.eye(4), "W": w}
        found = memory_grid.scores(cell, params, jnp.array([0]))
        expected = length / np.sqrt(length**2 + 1e-6)
        np.testing.assert_allclose(found[0], [expected, 0, 0, 0], rtol=1e-5)


@pytest.mark.parametrize("change", [{}, {"batch": 16}, {"optimizer": "adam"}, {"norm": True}])
def test_errors_by_rate_are_those_of_each_training(change):
    """Plain SGD follows its scores and never makes W; one training at a time does.

    In float64: an answer is right or wrong.
    """
    cell, rates, seeds = (
        Cell(d=20, samples=1280).model_copy(update=change),
        (0.1, 1.0, 10.0),
        (3, 4),
    )
    with jax.enable_x64(True):
        found = errors_by_rate(cell, rates, seeds)
        train = jax.jit(partial(optimize, cell))
        expected = [[float(train(seed, rate)) for seed in seeds] for rate in rates]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len(np.unique(found)) == 6


def test_the_stream_is_drawn_from_zipf():
    _, draws = start(Cell(samples=64_000, n_inputs=5), 0)
    shares = np.bincount(np.asarray(draws).ravel(), minlength=5) / draws.size
    np.testing.assert_allclose(shares, zipf(5, 2.0), atol=0.01)


def test_options_of_a_cell_change_it():
    base = Cell(d=8, samples=640)
    found = {
        name: errors(base.model_copy(update=change))
        for name, change in {
            "base": {},
            "norm": {"norm": True},
            "learned": {"learned": True},
            "adam": {"optimizer": "adam"},
            "rate": {"lr": 10.0},
        }.items()
    }
    assert all(each.shape == (10,) and ((each >= 0) & (each <= 1)).all() for each in found.values())
    assert all((found[name] != found["base"]).any() for name in found if name != "base")


def test_the_grid_answers_and_refuses(capsys):
    grid_command("grid", d=8, samples=640, seeds=8)
    out = capsys.readouterr().out
    assert out.startswith("error 0.")
    assert "mean and 95% interval over seeds 42 to 49" in out
    grid_command("grid", d=8, samples=640, seeds=3)
    out = capsys.readouterr().out
    assert "mean over seeds 42 to 44; no interval: 3 units; 8 are needed" in out
    with pytest.raises(UserError, match="Cell: samples=100 is no multiple of batch=64"):
        grid_command("grid", samples=100)
    with pytest.raises(
        UserError, match="Cell: d: Input should be greater than or equal to 1, got 0"
    ):
        grid_command("grid", d=0)
    with pytest.raises(UserError, match="--seeds must be 1 to 1,000,000, got 0"):
        grid_command("grid", seeds=0)
