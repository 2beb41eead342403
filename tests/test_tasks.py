"""The permutation task against brute force:
everything exact is found again by counting in plain Python.
"""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import batch_of
from hypothesis import given
from hypothesis import strategies as st

from mnemoscope.core.errors import UserError
from mnemoscope.tasks import Permutation, Role
from mnemoscope.tasks.permutation import permutations


def split_of(task, seed=0):
    return task.world(key=jax.random.key(seed))


def brute_posterior(mappings, prefix, n):
    """Count, among the mappings that fit the pairs so far, the values of the last x;
    None if none fits.
    """
    *pairs, last = [prefix[i : i + 2] for i in range(0, len(prefix), 2)]
    fitting = [m for m in mappings if all(m[x - 1] + 1 == y for x, y in pairs)]
    counts = Counter(m[last[0] - 1] + 1 for m in fitting)
    return [counts[v] / len(fitting) for v in range(n + 1)] if fitting else None


@pytest.mark.parametrize("n", [3, 4, 5])
def test_posterior_is_what_counting_gives(n):
    task = Permutation(n_symbols=n, repeat=0.3, repeat_of="any", held_out=0.3)
    split = split_of(task)
    everything = [tuple(p) for p in itertools.permutations(range(n))]
    trained = [tuple(int(x) for x in row) for row in split.train]
    listed = task.sequences(permutations(n)).tokens
    rows = np.random.default_rng(0).choice(listed, 40, replace=False)
    seen_undefined = False
    routes = [
        jax.jit(jax.vmap(lambda prompt, m=m: task.posterior(prompt, mappings=m)))
        for m in (None, permutations(n), split.train)
    ]
    found = [np.asarray(route(jnp.asarray(rows[:, :-1]))) for route in routes]
    for row, closed, counted, by_training in zip(rows, *found, strict=True):
        for step in range(n):
            prefix = [int(t) for t in row[: 2 * step + 1]]
            expected = brute_posterior(everything, prefix, n)
            np.testing.assert_allclose(closed[step], expected, atol=1e-6)
            np.testing.assert_allclose(counted[step], expected, atol=1e-6)
            expected = brute_posterior(trained, prefix, n)
            if expected is None:
                seen_undefined = True
                assert np.isnan(by_training[step]).all()
            else:
                np.testing.assert_allclose(by_training[step], expected, atol=1e-6)
    assert seen_undefined, "held-out mappings must reach rows that no training mapping fits"


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("repeat", [0.0, 0.3])
@pytest.mark.parametrize("of_training", [False, True])
def test_loss_floor_is_the_enumerated_entropy(n, repeat, of_training):
    task = Permutation(n_symbols=n, repeat=repeat)
    mappings = split_of(task).train if of_training else permutations(n)
    listed = task.sequences(mappings)
    exact = jax.jit(jax.vmap(lambda row: task.posterior(row, mappings=mappings)))(
        jnp.asarray(listed.tokens[:, :-1])
    )
    given_ = np.take_along_axis(np.asarray(exact), listed.tokens[:, 1::2, None], axis=-1)[..., 0]
    enumerated = (listed.probability[:, None] * -np.log(given_)).sum() / n
    assert enumerated == pytest.approx(math.log(len(mappings)) / n, abs=1e-6)
    assert task.floor_of(len(mappings)) == pytest.approx(enumerated, abs=1e-6)


@pytest.mark.parametrize("n", [3, 4])
@pytest.mark.parametrize("repeat", [0.0, 0.3])
@pytest.mark.parametrize("x_order", ["shuffled", "fixed"])
def test_loss_floor_of_all_positions_is_the_entropy_of_the_sequences(n, repeat, x_order):
    """By the chain rule: everything after the first token, which nobody is asked for."""
    task = Permutation(n_symbols=n, repeat=repeat, repeat_of="any", x_order=x_order, loss="all")
    listed = task.sequences(permutations(n))
    whole, first = Counter(), Counter()
    for row, p in zip(listed.tokens.tolist(), listed.probability, strict=True):
        whole[tuple(row)] += p
        first[row[0]] += p
    entropies = [-sum(p * math.log(p) for p in each.values()) for each in (whole, first)]
    expected = (entropies[0] - entropies[1]) / (2 * n - 1)
    assert task.floor_of(math.factorial(n)) == pytest.approx(expected)


def test_x_can_come_in_order():
    task = Permutation(n_symbols=3, repeat=0.3, x_order="fixed", held_out=0.5)
    listed = task.sequences(permutations(3))
    assert len(listed.tokens) == 6 * 2
    expected = [[1, 2, 3], [1, 2, 1]] * 6  # the last pair is new, or the first one again
    assert sorted(listed.tokens[:, 0::2].tolist()) == sorted(expected)
    drawn = batch_of(task, split_of(task), 100)
    assert {tuple(row) for row in drawn.tokens[:, 0::2].tolist()} == set(map(tuple, expected))


def test_a_fixed_set_is_all_that_a_run_sees():
    task = Permutation(fixed_set=20, repeat=0.3)

    def seen(seed):
        drawn = batch_of(task, split_of(task, seed), 1000)
        return Counter(map(tuple, np.asarray(drawn.tokens).tolist()))

    one, another = seen(0), seen(1)
    assert len(one) == 20  # of 23,040: no two are the same
    assert max(one.values()) < 100  # 50 of each on average
    assert not set(one) & set(another)
    trained = {tuple(row) for row in task.sequences(split_of(task).train).tokens[:, :-1].tolist()}
    assert set(one) <= trained


def test_the_loss_can_be_everywhere():
    task = Permutation(n_symbols=3, loss="all")
    drawn = batch_of(task, split_of(task), 2)
    np.testing.assert_array_equal(drawn.weights, np.ones((2, 5)))
    assert task.loss_positions == (0, 1, 2, 3, 4)
    assert task.asked_positions == (0, 2, 4)


def test_published_counts():
    task = Permutation()
    split = split_of(task)
    assert len(np.unique(task.sequences(permutations(5)).tokens, axis=0)) == 120 * 120
    assert len(np.unique(task.sequences(split.train).tokens, axis=0)) == 96 * 120
    assert len(np.unique(task.sequences(split.held_out).tokens, axis=0)) == 24 * 120


@pytest.mark.parametrize("repeat_of", ["first", "any"])
def test_sampling_matches_the_enumerated_probabilities(repeat_of):
    task = Permutation(n_symbols=3, repeat=0.3, repeat_of=repeat_of, held_out=0.5)
    split = split_of(task)
    n = 200_000
    drawn = jax.jit(jax.vmap(lambda key: task.sample(split, key=key)))(
        jax.random.split(jax.random.key(1), n)
    )
    whole = np.concatenate([drawn.tokens, drawn.targets[:, -1:]], axis=1)
    counts = Counter(map(tuple, whole.tolist()))
    listed = task.sequences(split.train)
    expected = Counter()
    for row, p in zip(listed.tokens.tolist(), listed.probability, strict=True):
        expected[tuple(row)] += p
    assert set(counts) == set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    for row, p in expected.items():  # five standard deviations of a binomial share
        assert abs(counts[row] / n - p) < 5 * math.sqrt(p * (1 - p) / n)
    np.testing.assert_array_equal(drawn.tokens[:, 1:], drawn.targets[:, :-1])
    np.testing.assert_array_equal(drawn.weights[0], [1, 0, 1, 0, 1])


def test_no_trained_sequence_shows_a_held_out_mapping():
    task = Permutation()
    split = split_of(task, 7)
    train, held = ({tuple(row) for row in np.asarray(part).tolist()} for part in split)
    assert len(train) == 96
    assert len(held) == 24
    assert not train & held
    other = split_of(task, 8)
    assert not np.array_equal(other.held_out, split.held_out)
    fixed = Permutation(split_seed=3)
    np.testing.assert_array_equal(split_of(fixed, 7).held_out, split_of(fixed, 8).held_out)


def test_roles_of_the_published_probe():
    roles = Permutation().roles(jnp.array([2, 4, 5, 3, 4, 5, 3, 2, 2]))
    expected = [Role.ELIMINATE, Role.OUTPUT] * 4 + [Role.RECALL]
    assert roles.tolist() == expected


@given(st.integers(2, 5), st.floats(0, 0.9), st.sampled_from(["first", "any"]))
def test_source_probabilities_sum_to_one(n, repeat, repeat_of):
    chances = Permutation(n_symbols=n, repeat=repeat, repeat_of=repeat_of).source_probability
    assert len(chances) == n
    assert sum(chances) == pytest.approx(1)
    assert chances[-1] == pytest.approx(1 - repeat)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_symbols": 1}, "greater than or equal to 2"),
        ({"n_symbols": 10}, "less than or equal to 9"),
        ({"repeat": -0.1}, "greater than or equal to 0"),
        (
            {"repeats": 0.1},
            "unknown key of Permutation 'repeats' (did you mean 'repeat'?); "
            "allowed: kind, n_symbols",
        ),
        ({"repeat_of": "last"}, "'first' or 'any'"),
    ],
)
def test_bad_configuration_says_what_is_allowed(fields, message):
    with pytest.raises(UserError) as error:
        Permutation(**fields)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


def test_lists_that_cannot_be_made_are_refused():
    with pytest.raises(UserError, match=r"pair numbers from 0 to 4, got \[5\]"):
        Permutation().sequences(permutations(5), (5,))
    with pytest.raises(UserError, match="too many to list; at most 4,000,000"):
        Permutation(n_symbols=7).sequences(permutations(7))
