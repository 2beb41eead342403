"""`ms.testing` on tasks: ours pass, and each check fails on a task with the defect it is for."""

import itertools
import re
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pydantic import field_serializer

import mnemoscope as ms
from mnemoscope.testing.check_result import Check, NotApplicable, require, run_checks
from mnemoscope.testing.posterior_checks import (
    check_agrees,
    check_agrees_exactly,
    check_floor_of_posterior,
    check_floor_of_training,
    check_listed,
    check_possible,
    check_sums,
)
from mnemoscope.testing.sure_tests import ERROR_RATE, best_bet, is_refuted, largest_mean
from mnemoscope.testing.task_checks import _check_trains
from mnemoscope.testing.task_draws import TaskDraws

NOISE = 0.4
COUNT = itertools.count()  # what Python has while tracing: another number each time
ENTROPY = -(0.6 + NOISE / 3) * np.log(0.6 + NOISE / 3) - 2 * (NOISE / 3) * np.log(NOISE / 3)


class Honest(ms.Task):
    """Say each token, moved on by a hidden number, or with some probability any token."""

    kind: Literal["honest"] = "honest"
    weight: float = 1.0

    @property
    def d_vocab(self):
        return 3

    @property
    def n_ctx(self):
        return 2

    def world(self, *, key):
        return jax.random.randint(key, (), 0, 3)

    def sample(self, world, *, key):
        for_tokens, for_noise, for_others = jax.random.split(key, 3)
        tokens = jax.random.randint(for_tokens, (2,), 0, 3)
        others = jax.random.randint(for_others, (2,), 0, 3)
        is_noise = jax.random.uniform(for_noise, (2,)) < NOISE
        targets = jnp.where(is_noise, others, (tokens + world) % 3)
        return ms.Example(tokens, targets, self.weight * jnp.ones(2))

    def posterior(self, tokens, world):
        return (1 - NOISE) * jax.nn.one_hot((tokens + world) % 3, 3) + NOISE / 3

    def loss_floor(self, world):
        return ENTROPY

    def list_examples(self, world):
        rows = jnp.stack(jnp.meshgrid(*[jnp.arange(3)] * 4), axis=-1).reshape(-1, 4)
        tokens, targets = rows[:, :2], rows[:, 2:]
        right = targets == (tokens + world) % 3
        chances = jnp.where(right, 1 - NOISE + NOISE / 3, NOISE / 3).prod(axis=1) / 9
        return ms.Example(tokens, targets, jnp.ones((81, 2))), chances


class Heir(Honest):
    """Has its parent's kind."""


class Rounded(Honest):
    """A field is another one after JSON."""

    kind: Literal["rounded"] = "rounded"
    size: float = 0.123

    @field_serializer("size")
    def _round(self, size):
        return round(size, 1)


def drawn(self, change, world, key):
    return change(Honest.sample(self, world, key=key), world, key)


def with_drawn(change):
    """A task that draws something else."""
    return {"sample": lambda self, world, *, key: drawn(self, change, world, key)}


def branch(example, world, key):
    return example if example.tokens[0] > 0 else None


def counted(example, world, key):
    return example._replace(tokens=(example.tokens + next(COUNT)) % 3)


def negative(example, world, key):
    return example._replace(weights=jnp.array([1.0, -1.0]))


def off_by_one(self, tokens, world):
    return (
        (1 - NOISE) * jax.nn.one_hot((tokens + world) % 3, 3)
        + NOISE / 3
        + 0.01 * ((tokens == 0)[:, None] * jnp.array([[1.0, -1, 0]]))
    )


def of_noise(noise):
    def posterior(self, tokens, world):
        return (1 - noise) * jax.nn.one_hot((tokens + world) % 3, 3) + noise / 3

    return {"posterior": posterior}


def listing(change):
    return {"list_examples": lambda self, world: change(*Honest.list_examples(self, world))}


# what is checked, what is wrong, and what is said of it
DEFECTS = {
    "sizes": (
        {"loss_positions": property(lambda self: (0, 5))},
        "sizes and loss positions fit together",
        r"loss_positions must be some of 0 to 1, got \(0, 5\)",
    ),
    "names": (
        {"token_names": property(lambda self: ("a", "a", "b"))},
        "every token has a name",
        "two tokens have one name",
    ),
    "branch": (with_drawn(branch), "it goes through jit and vmap", "decides in Python"),
    "random": (
        with_drawn(counted),
        "one key draws the same bits, alone and in any batch",
        "all that is random must come from the key",
    ),
    "no-key": (
        {"sample": lambda self, world, *, key: Honest.sample(self, world, key=jax.random.key(0))},
        "other keys draw other sequences",
        "the key is not read",
    ),
    "token": (
        with_drawn(lambda example, world, key: example._replace(tokens=example.tokens + 1)),
        "tokens and targets are in the vocabulary",
        r"tokens must be 0 to 2 \(d_vocab\), got 3",
    ),
    "weight": (
        with_drawn(negative),
        "weights are finite, not negative, and at loss_positions alone",
        "must be finite and not negative, got -1.0 at position 1",
    ),
    "unread-weight": (
        {"loss_positions": property(lambda self: (1,))},
        "weights are finite, not negative, and at loss_positions alone",
        "the weight 1.0 at position 0 would not count",
    ),
    "query": (
        {"query_token": property(lambda self: 2)},
        "query_token ends every sequence",
        "must end in its query_token 2",
    ),
    "sparse": (
        {"sparse_loss": property(lambda self: True)},
        "sparse_loss: what is asked differs",
        "every sequence asks at the same positions",
    ),
    "early": (
        {"reads_early": property(lambda self: True)},
        "reads_early: examples name a layer",
        "no example names a layer",
    ),
    "world": (
        {"world": lambda self, *, key: jnp.asarray(next(COUNT))},
        "one key draws the same world again",
        "the same key draws another world the second time",
    ),
    "hides-nothing": (
        {"sample": lambda self, world, *, key: Honest.sample(self, 0, key=key)},
        "sequences depend on what the world hides",
        "the same keys draw the same sequences in all of them",
    ),
    "at-step": (
        {"at_step": lambda self, world, step: world[None]},
        "at_step keeps the world's shapes",
        r"at step 0 it has \['int32\[1\]'\], and not \['int32\[\]'\]",
    ),
}
# of the posterior and the list, on the sequences of the honest task
INEXACT = {
    "sum": (
        {"posterior": lambda self, tokens, world: 1.1 * Honest.posterior(self, tokens, world)},
        check_sums,
        "a row sums to 1.1, not to 1",
    ),
    "shape": (
        {"posterior": lambda self, tokens, world: jnp.ones((3, 3)) / 3},
        check_sums,
        r"\(2, 3\); got \(3, 3\)",
    ),
    "impossible": (
        of_noise(0),
        check_possible,
        "it gives 0 to an answer that was drawn",
    ),
    "too-sure": (
        of_noise(0.2),
        check_agrees,
        "times as likely if the posterior is",
    ),
    "too-careful": (
        of_noise(0.6),
        check_agrees,
        "times as likely if the posterior is",
    ),
    "a-little-wrong": (
        {"posterior": off_by_one},
        check_agrees_exactly,
        r"after \[0\] it is 0.01 from what counting all examples gives",
    ),
    "half-listed": (
        listing(lambda examples, p: (jax.tree.map(lambda x: x[9:], examples), p[9:] / p[9:].sum())),
        check_listed,
        "an example was drawn that is not listed",
    ),
    "evenly-listed": (
        listing(lambda examples, p: (examples, jnp.ones(81) / 81)),
        check_listed,
        "times as likely by its own counts",
    ),
}


def planted(name, members):
    """The honest task with one defect, as a task of its own."""
    kind = {"__annotations__": {"kind": Literal[name]}, "kind": name, "__module__": __name__}
    return type(Honest)(name, (Honest,), kind | members)()


def look(task, name):
    (check,) = [each for each in ms.testing.list_task_checks(task) if str(each) == name]
    row, _ = check.look()
    return row


@pytest.fixture(scope="module")
def honest():
    return TaskDraws(Honest())


@pytest.mark.parametrize("name", DEFECTS)
def test_each_check_finds_the_defect_that_it_is_for(name):
    members, check, message = DEFECTS[name]
    row = look(planted(name, members), check)
    assert row.outcome == "failed", row
    assert re.search(message, row.why), row.why


@pytest.mark.parametrize("name", INEXACT)
def test_what_is_said_to_be_exact_is_held_against_what_is_drawn(name, honest):
    members, check, message = INEXACT[name]
    draws = TaskDraws(planted(name, members))
    vars(draws).update(worlds=honest.worlds, batch=honest.batch)
    check(honest)
    with pytest.raises(AssertionError, match=message):
        check(draws)


def test_what_is_exact_is_asked_in_several_worlds(honest):
    """A posterior that is right in the first world alone."""
    first = int(honest.worlds[0])
    others = [each for each in honest.in_worlds if each.seed]
    assert len({int(each.world) for each in honest.in_worlds}) == len(others) + 1 >= 2

    def posterior(self, tokens, world):
        return Honest.posterior(self, tokens, first)

    draws = TaskDraws(planted("of-one-world", {"posterior": posterior}))
    vars(draws).update(worlds=honest.worlds, batch=honest.batch, draw=honest.draw)
    assert check_agrees(honest).startswith(f"{2048 + 512 * len(others):,} sequences in ")
    said = rf"if the posterior is .* in {1 + len(others)} worlds\)"
    with pytest.raises(AssertionError, match=said):
        check_agrees(draws)
    with pytest.raises(AssertionError, match=rf"\(in the world of seed {others[0].seed}\)"):
        check_agrees_exactly(draws)


def test_a_kind_of_ones_own_and_fields_that_stay():
    row = look(Heir(), "it is a registered kind whose code can be read")
    assert row.outcome == "failed"
    assert "Heir is a class of its own" in row.why
    row = look(Rounded(), "JSON gives the same task and digest again")
    assert row.outcome == "failed"
    assert "it comes back as Rounded(" in row.why


# ---- all of them at once


def test_the_honest_task_passes_every_check_that_applies():
    result = ms.testing.check_task(Honest(), train=False)
    assert result.summary == ("23 checks of task 'honest': 17 passed, 0 failed, 6 do not apply")
    left = [row.check for row in result.having("does not apply")]
    assert left[:4] == [
        "query_token ends every sequence",
        "sparse_loss: what is asked differs",
        "reads_early: examples name a layer",
        "at_step keeps the world's shapes",
    ]
    assert {row.why for row in result.rows[-3:] if row.outcome != "passed"} == {
        "no training was asked for"
    }


def test_a_training_holds_the_floor_and_stays_finite(honest, monkeypatch):
    assert "the loss ended at" in _check_trains(honest)
    assert check_floor_of_training(honest).startswith(f"{ENTROPY:.4g}; a model after 64 steps has ")
    monkeypatch.setattr(Honest, "loss_floor", lambda self, world: 1.5)
    with pytest.raises(AssertionError, match=r"the floor 1\.5 is above .* of a trained model"):
        check_floor_of_training(honest)
    with pytest.raises(AssertionError, match=r"the floor 1\.5 is above .* the posterior itself"):
        check_floor_of_posterior(honest)
    monkeypatch.setattr(Honest, "list_examples", lambda self, world: None)
    unlisted = TaskDraws(Honest())
    vars(unlisted).update(worlds=honest.worlds, batch=honest.batch)
    with pytest.raises(AssertionError, match=r"1\.5 is above .* the posterior on 4,096 sequences"):
        check_floor_of_posterior(unlisted)
    honest.run.losses[0, 3] = np.nan
    with pytest.raises(AssertionError, match="the loss is not finite"):
        _check_trains(honest)


OURS = (
    ms.Cycle(),
    ms.Permutation(n_symbols=3, repeat=0.3),
    ms.Facts(subjects=3, relations=2, per_relation=2, length=5),
    ms.Hops(n=2, k=2, schedule=((0, (1, 1)), (9, (0, 1)))),
    ms.Bigrams(length=12, n_triggers=2),
)


@pytest.mark.parametrize("task", OURS, ids=lambda task: task.kind)
def test_our_tasks_pass(task):
    result = ms.testing.check_task(task, train=False)
    assert result.ok
    assert len(result.having("passed")) >= 12


@pytest.mark.long
@pytest.mark.parametrize("task", OURS, ids=lambda task: task.kind)
def test_our_tasks_pass_with_a_training(task):
    assert ms.testing.check_task(task).ok


# ---- what checks are


def checks():
    def fail():
        require(1 > 2, "1 is not more than 2")

    def raise_other():
        raise KeyError("nothing\nelse")

    def leave():
        raise NotApplicable("there is nothing")

    failing = Check("one", fail)
    return (
        failing,
        Check("two", raise_other),
        Check("three", leave),
        Check("four", lambda: "a " * 60),
        Check("five", lambda: None, (failing,)),
    )


def test_one_error_names_every_failed_check():
    with pytest.raises(AssertionError) as error:
        run_checks("task 'x'", checks())
    assert str(error.value).splitlines() == [
        "5 checks of task 'x': 1 passed, 2 failed, 2 do not apply",
        "  one: 1 is not more than 2",
        "  two: KeyError: 'nothing\\nelse'",
    ]
    assert str(error.value.__cause__) == "1 is not more than 2"


def test_a_result_is_a_table_of_80_columns():
    result = run_checks("task 'x'", checks(), raise_on_failure=False)
    assert not result.ok
    lines = str(result).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert lines[1] == "FAILED  one: 1 is not more than 2"
    assert lines[3] == "-       three: there is nothing"
    assert lines[-1] == "-       five: 'one' failed"
    assert result._repr_html_().count("<tr>") == 1 + 5


def test_checks_are_tests_with_a_parameter():
    one, two, three, four, five = checks()
    assert list(map(str, (one, four))) == ["one", "four"]
    with pytest.raises(AssertionError, match="one: 1 is not more than 2"):
        one()
    with pytest.raises(AssertionError, match="two: KeyError"):
        two()
    for skipped in (three, five):
        with pytest.raises(Exception, match=r"there is nothing|'one' failed") as error:
            skipped()
        assert type(error.value).__name__ == "SkipTest"
    assert four() is None


@pytest.mark.parametrize("check", ms.testing.list_task_checks(Honest(), train=False), ids=str)
def test_as_an_outsider_writes_it(check):
    if check.name.startswith(("it is", "every", "sizes")):  # the cheap ones; all of them are above
        check()


# ---- the statistics


def test_bets_multiply_and_are_shared():
    # one bet wins 2 x 2 x 2, the other loses 1/2 each time: (8 + 1/8) / 2
    won = {"up": np.full(3, 2.0), "down": np.full(3, 0.5)}
    best, money = best_bet(won)
    assert best == "up"
    assert 10**money == pytest.approx((8 + 1 / 8) / 2)
    assert best_bet({"lost": np.array([0.0, 3.0])})[1] == -np.inf
    assert is_refuted(-np.log10(ERROR_RATE))
    assert not is_refuted(-np.log10(ERROR_RATE) - 0.01)


def test_the_bound_of_a_mean_is_maurer_and_pontils():
    numbers = np.array([0.0, 1.0] * 50)
    variance = 100 * 0.25 / 99
    log = np.log(2 / ERROR_RATE)
    expected = 0.5 + np.sqrt(2 * variance * log / 100) + 7 * 2 * log / (3 * 99)
    assert largest_mean(numbers, width=2.0) == pytest.approx(expected)
