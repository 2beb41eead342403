"""The errors that somebody meets first with a task or a metric of their own: each is one line that
says what was wrong, what came, what is allowed.
"""

import re
import traceback
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.core.kinds import known_kinds
from mnemoscope.training.first_look import require_trainable
from mnemoscope.training.metric import metric
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec

MODEL = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)
N = 4  # positions
EXAMPLE = ms.Example(jnp.zeros(N, int), jnp.zeros(N, int), jnp.ones(N))


class Base(ms.Task):
    """A task without a kind, to be one in each test."""

    @property
    def d_vocab(self):
        return 5

    @property
    def n_ctx(self):
        return N


class Scripted(Base):
    """Draws whatever a test says."""

    kind: Literal["scripted"] = "scripted"

    def world(self, *, key):
        return make_world(key)

    def at_step(self, world, step):
        return at_step(world, step)

    def sample(self, world, *, key):
        return draw(world, key)


def make_world(key):
    return ()


def at_step(world, step):
    return world


def draw(world, key):
    return EXAMPLE


def refusal(monkeypatch, **functions):
    """What is said of a task whose functions are these."""
    for name, function in functions.items():
        monkeypatch.setitem(globals(), name, function)
    with pytest.raises(UserError) as error:
        require_trainable(Scripted())
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_is_right_is_let_through():
    require_trainable(Scripted())


def changed(**fields):
    return lambda world, key: EXAMPLE._replace(**fields)


REFUSED = {
    "a tuple": (
        lambda world, key: tuple(EXAMPLE),
        r"task 'scripted': sample must return an Example\(tokens, targets, weights\), got tuple",
    ),
    "a shape": (
        changed(tokens=jnp.zeros(N + 1, int)),
        r"sample: tokens must have the shape \(4,\) \(n_ctx positions\), got \(5,\)",
    ),
    "a dtype": (changed(targets=jnp.zeros(N)), "targets must be whole numbers, got float32"),
    "whole weights": (changed(weights=jnp.ones(N, int)), "weights must be floats, got int32"),
    "a list": (changed(tokens=[1, 2, 3, 4]), r"tokens must be an array, got \[1, 2, 3, 4\]"),
    "a layer": (changed(layer=jnp.zeros((), int)), "reads_early is False; allowed: reads_early"),
    "a token": (
        changed(tokens=jnp.array([0, 0, 5, 0])),
        r"tokens must be 0 to 4 \(d_vocab\), got 5 at position 2",
    ),
    "a target": (
        changed(targets=jnp.array([0, -1, 0, 0])),
        r"targets must be 0 to 4 \(d_vocab_out\), got -1 at position 1",
    ),
    "nan": (
        changed(weights=jnp.array([1, jnp.nan, 1, 1])),
        "weights must be finite and not negative, got nan at position 1",
    ),
    "negative": (
        changed(weights=jnp.array([1.0, 1, 1, -1])),
        r"not negative, got -1\.0 at position 3",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_sample_returns_is_looked_at_before_anything_is_compiled(monkeypatch, name):
    sample, message = REFUSED[name]
    assert re.search(message, refusal(monkeypatch, draw=sample))


def test_training_is_what_asks(monkeypatch):
    monkeypatch.setitem(globals(), "draw", lambda world, key: "nothing")
    with pytest.raises(UserError, match=r"must return an Example.*, got str"):
        ms.fit(Spec(task=Scripted(), model=MODEL, steps=1, batch=2), 1)


# ---- Python on traced values


def branching(world, key):
    if jax.random.uniform(key) > 0.5:
        return EXAMPLE
    return EXAMPLE


TRACED = {
    "branch": (branching, "decides in Python", "jnp.where, jax.lax.cond"),
    "numpy": (
        lambda world, key: np.sort(jax.random.uniform(key, (3,))),
        "hands an array to NumPy",
        "jax.numpy in its place",
    ),
    "range": (
        lambda world, key: list(range(jax.random.randint(key, (), 0, 3))),
        "as a number of Python, such as an index",
        "jnp.take",
    ),
    "int": (
        lambda world, key: int(jax.random.randint(key, (), 0, 3)),
        "turns an array into a number of Python",
        "lengths from fields",
    ),
    "mask": (
        lambda world, key: EXAMPLE.tokens[jax.random.uniform(key, (N,)) > 0.5],
        "picks entries by a mask",
        "jnp.where",
    ),
}


@pytest.mark.parametrize("name", TRACED)
def test_python_on_a_traced_value_is_one_line_that_says_where(monkeypatch, name):
    sample, asked, instead = TRACED[name]
    said = refusal(monkeypatch, draw=sample)
    assert said.startswith("task 'scripted': sample ")
    assert asked in said
    assert "known only when the compiled program runs (test_outside_errors.py, line " in said
    assert instead in said.partition("; use ")[2]


def test_a_branch_in_world_and_in_a_metric_says_so_too(monkeypatch):
    def world(key):
        return jnp.zeros(3) if jax.random.uniform(key) > 0.5 else jnp.ones(3)

    assert "world decides in Python" in refusal(monkeypatch, make_world=world)
    said = metric_refusal(lambda model: model(jnp.zeros(2, int)) if model.W_E[0, 0] > 0 else 0.0)
    assert said.startswith("metric 'asked' decides in Python")


def test_an_error_of_their_own_keeps_its_traceback_and_gets_a_note(monkeypatch):
    def broken(world, key):
        return {}["nothing"]

    monkeypatch.setitem(globals(), "draw", broken)
    with pytest.raises(KeyError) as error:
        require_trainable(Scripted())
    note = error.value.__notes__[0]
    assert note.startswith("while running task 'scripted': sample (test_outside_errors.py, line ")
    assert note.endswith('return {}["nothing"])')
    assert traceback.extract_tb(error.tb)[-1].name == "broken"


# ---- worlds and signatures


def test_a_world_is_a_pytree_of_arrays_that_keeps_its_shape(monkeypatch):
    said = refusal(monkeypatch, make_world=lambda key: {"name": "mine"})
    assert "world must return arrays" in said
    assert "got 'mine' of type str" in said
    said = refusal(monkeypatch, make_world=lambda key: jnp.zeros(2), at_step=lambda w, step: w[:1])
    assert said.endswith("got ['float32[1]'] of ['float32[2]']")


def test_arguments_are_as_the_package_calls_them():
    class Keyless(Base):
        kind: Literal["keyless"] = "keyless"

        def sample(self, key):
            return EXAMPLE

    said = r"task 'keyless': sample\(key\) must be sample\(self, world, \*, key\)"
    with pytest.raises(UserError, match=said):
        require_trainable(Keyless())


def test_sizes_are_whole_numbers_and_positions_are_there():
    class Sized(Base):
        kind: Literal["sized"] = "sized"
        answers: float = 2.5

        @property
        def d_vocab_out(self):
            return self.answers

        @property
        def loss_positions(self):
            return (0, N)

        def sample(self, world, *, key):
            return EXAMPLE

    with pytest.raises(UserError, match=r"d_vocab_out must be a whole number from 1 up, got 2\.5"):
        require_trainable(Sized())

    class Placed(Sized):
        kind: Literal["placed"] = "placed"
        answers: int = 3

    with pytest.raises(UserError, match=r"must be some of 0 to 3, got \(0, 4\)"):
        require_trainable(Placed())


# ---- metrics


def metric_refusal(read):
    """What is said of a metric that returns this of a model."""

    def asked(task, model, world):
        return read(model)

    observe = metrics_of(Spec(task=Scripted(), model=MODEL, metrics=metric(asked)))
    params = jax.eval_shape(lambda: ms.models.init(MODEL, 5, N, key=jax.random.key(0)))

    def of_params(params):
        return observe(ms.Transformer(MODEL, params), ())

    with pytest.raises(UserError) as error:
        jax.eval_shape(of_params, params)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_what_a_metric_returns_and_reads_is_looked_at():
    said = metric_refusal(lambda model: {"much": "very"})
    assert said == "the metric 'asked' returned 'very'; allowed: an array, or arrays by name"
    said = metric_refusal(lambda model: model.run_with_cache(jnp.zeros(2, int))[1]["hook_nothing"])
    assert "'hook_nothing'" in said or "hook_nothing" in said
    assert "allowed" in said


# ---- classes


def refused_class(message, **members):
    """Define a task with these members; nothing of it stays."""
    annotations = {name: member[0] for name, member in members.items() if isinstance(member, tuple)}
    values = {
        name: member[1] if isinstance(member, tuple) else member
        for name, member in members.items()
        if not isinstance(member, tuple) or len(member) == 2
    }
    before = known_kinds("task")
    with pytest.raises(UserError, match=message) as error:
        type(ms.Task)(
            "Mine", (Base,), {"__module__": __name__, "__annotations__": annotations, **values}
        )
    assert "\n" not in str(error.value)
    assert known_kinds("task") == before


KIND = (Literal["mine"], "mine")


def sample_nothing(self, world, *, key):
    return None


def test_a_class_that_lacks_something_is_refused_when_it_is_defined():
    refused_class(r"Mine lacks sample; a Task defines d_vocab, n_ctx, sample", kind=KIND)
    refused_class(
        r"Mine lacks sample \(is 'sampel' meant as 'sample'\?\)", kind=KIND, sampel=sample_nothing
    )


@pytest.mark.parametrize(
    "kind",
    [(str, "mine"), (Literal["mine"],), (Literal["mine"], "other"), (Literal["a", "b"], "a")],
)
def test_a_kind_is_one_literal_that_is_its_default_too(kind):
    refused_class(
        r"its kind must be one Literal that is its default too, got .*; allowed: kind: Literal\['",
        kind=kind,
        sample=sample_nothing,
    )


def test_a_kind_is_a_name():
    refused_class("'a kind' is no name of a kind", kind=(Literal["a kind"], "a kind"))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ((list[int], [1]), "the field 'table' is a list, which can change under its name"),
        ((tuple[dict[str, int], ...], ()), "the field 'table' is a dict"),
        ((np.ndarray,), "a field has the type numpy.ndarray, which has no plain values; allowed"),
        ((jax.Array,), "Array, which has no plain values; allowed: int, float"),
        (3, "table = 3 has no type, as in table: int = 3"),
    ],
)
def test_fields_are_plain_values(field, message):
    refused_class(message, kind=KIND, sample=sample_nothing, table=field)


@pytest.mark.filterwarnings("ignore:Field name")
def test_a_field_does_not_hide_a_property_or_a_method():
    refused_class(
        "d_vocab is a property of Base and cannot be a field; allowed: @property def d_vocab",
        kind=KIND,
        sample=sample_nothing,
        d_vocab=(int, 5),
    )
    refused_class("digest is a method of", kind=KIND, sample=sample_nothing, digest=(str, "no"))


def test_a_misspelled_field_is_named():
    with pytest.raises(UserError, match=r"unknown key of Scripted 'kin' \(did you mean 'kind'\?\)"):
        Scripted(kin="scripted")
