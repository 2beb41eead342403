"""Shapes compile, numbers do not: rates, decays and lengths are arguments of one program, and each
training is what it would be with constants. Schedules by arithmetic; optimizers that want matrices.
"""

from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import device_mesh, for_each_seed
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Permutation
from mnemoscope.training import compilation
from mnemoscope.training.compilation import numbers_by_seed
from mnemoscope.training.loop import fit, fit_many
from mnemoscope.training.optimizers import SGD, Adam, Optimizer
from mnemoscope.training.schedules import (
    Constant,
    Cosine,
    Linear,
    Schedule,
    WarmupStableDecay,
)
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import numbers_of, start, train_step, trained_shapes, unravel_params
from mnemoscope.training.worlds import seed_keys

TINY = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=4),
    steps=6,
    batch=4,
    snapshots=1,
)


def by(optimizer, **rest):
    return TINY.model_copy(update={"optimizer": optimizer, **rest})


@pytest.fixture
def compiled(monkeypatch):
    """The programs compiled from here on."""
    found = {}
    monkeypatch.setattr(compilation, "_programs", found)
    return found


# ---- what is compiled


def test_twelve_rates_are_compiled_once(compiled):
    losses = [fit(by(Adam(lr=rate)), [0]).losses[0, -1] for rate in np.geomspace(1e-4, 0.3, 12)]
    assert len(compiled) == 1
    assert len(set(losses)) == 12, "each training had its own rate"


def test_side_by_side_each_trains_as_it_does_alone(compiled):
    """Two shapes in turns, each with its rates and unfreeze steps in one program of three seeds."""
    specs = [
        by(Adam(lr=0.1)),
        by(SGD(lr=0.1, momentum=0.9)),
        by(Adam(lr=0.02, b1=0.5)),
        by(SGD(lr=0.3, momentum=0.5)),
        by(Adam(lr=0.1), steps=7),
    ]
    told = []
    seeds = [4, 0, 2]
    together = fit_many(specs, seeds, progress=lambda done, of: told.append((done, of)))
    assert len(compiled) == 3, "two rates of each shape, and another length is a group of its own"
    assert told[-1] == (6 + 6 + 7, 19)
    assert [run.spec for run in together] == specs
    for spec, run in zip(specs, together, strict=True):
        alone = fit(spec, seeds)
        np.testing.assert_array_equal(run.losses, alone.losses)
        np.testing.assert_array_equal(run.finite_steps, alone.finite_steps)
        np.testing.assert_array_equal(run.world_hashes, alone.world_hashes)
        for name, weights in alone.snapshots.items():
            np.testing.assert_array_equal(run.snapshots[name], weights, err_msg=name)
    assert not np.array_equal(together[0].losses, together[2].losses)


@pytest.mark.parametrize(
    "optimizers",
    [
        (
            Adam(lr=0.1, b1=0.8, b2=0.9, eps=1e-3, weight_decay=0.1, clip=0.5, warmup=3),
            Adam(lr=0.2, b1=0.0, b2=0.7, eps=1e-2, weight_decay=0.2, clip=0.1, warmup=4),
        ),
        (
            SGD(lr=0.1, momentum=0.9, weight_decay=0.1, schedule=Linear(end=0.5)),
            SGD(lr=0.2, momentum=0.5, weight_decay=0.2, schedule=Linear(end=0.4)),
        ),
        (
            SGD(schedule=WarmupStableDecay(decay=0.5)),
            SGD(schedule=WarmupStableDecay(decay=0.3)),
        ),
        (Adam(schedule="cosine"), Adam(lr=0.5, schedule="cosine")),
    ],
)
def test_the_program_of_a_shape_holds_no_number_of_it(optimizers):
    """The text of the program is the same, with other steps and unfreezing too; so each number is
    read as an argument.
    """

    def text(spec):
        mesh = device_mesh(1)

        def one_step(each, step):
            seed, state, numbers = each
            world = spec.task.world(key=seed_keys(seed)[0])
            return train_step(spec, world, seed_keys(seed)[2], step, state, numbers)

        ids = jnp.zeros(1, int)
        states = jax.eval_shape(for_each_seed(lambda seed: start(spec, seed), mesh, None), ids)
        numbers = numbers_by_seed([spec])
        run = for_each_seed(one_step, mesh, None)
        return jax.jit(run).lower((ids, states, numbers), jnp.array(0)).as_text()

    one = by(optimizers[0], steps=6, unfreeze_at=(("*.W_K", 2),))
    other = by(optimizers[1], steps=9, unfreeze_at=(("embed.*", 5),))
    assert one.compile_key() == other.compile_key()
    assert text(one) == text(other)


def test_what_changes_the_operations_is_another_program():
    keys = {
        by(optimizer).compile_key()
        for optimizer in (
            Adam(),
            Adam(weight_decay=0.1),
            Adam(clip=1.0),
            Adam(warmup=1),
            Adam(schedule="cosine"),
            Adam(schedule=Cosine(end=0.1)),
            SGD(),
            SGD(momentum=0.5),
        )
    }
    assert len(keys) == 8
    assert TINY.compile_key() != by(Adam(), batch=5).compile_key()
    assert TINY.compile_key() == by(Adam(lr=0.5), steps=7, snapshots=3).compile_key()


@pytest.mark.parametrize(
    "optimizer",
    [
        Adam(lr=0.01, b1=0.8, b2=0.99, eps=1e-4),
        Adam(lr=0.01, eps=1e-4, weight_decay=0.1, schedule="cosine", warmup=3, clip=0.5),
        SGD(lr=0.1, momentum=0.9, weight_decay=0.01, schedule=Linear(end=0.2)),
    ],
)
def test_arguments_train_to_what_constants_train_to(optimizer):
    """A second route: Optax itself, with every number a constant of the program."""
    spec = by(optimizer)
    rates = np.array([_rate(optimizer, step, spec.steps) for step in range(spec.steps)], np.float32)

    def rate(step):
        return jnp.asarray(rates)[step]

    if isinstance(optimizer, Adam):
        rule = optax.adamw(
            rate,
            b1=optimizer.b1,
            b2=optimizer.b2,
            eps=optimizer.eps,
            weight_decay=optimizer.weight_decay,
        )
    else:
        decay = optax.add_decayed_weights(optimizer.weight_decay)
        rule = optax.chain(decay, optax.sgd(rate, optimizer.momentum))
    if optimizer.clip:
        rule = optax.chain(optax.clip_by_global_norm(optimizer.clip), rule)
    ours = optimizer.with_numbers(optimizer.numbers()).transformation(jnp.array(spec.steps))
    rng = np.random.default_rng(0)
    mine = theirs = jnp.asarray(rng.normal(size=50), np.float32)
    my_state = ours.init(mine)
    their_state = rule.init(theirs)
    for _ in range(spec.steps):
        gradient = jnp.asarray(rng.normal(size=50), np.float32)
        update, my_state = ours.update(gradient, my_state, mine)
        mine = optax.apply_updates(mine, update)
        update, their_state = rule.update(gradient, their_state, theirs)
        theirs = optax.apply_updates(theirs, update)
    np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-7)


def _rate(optimizer, step, steps):
    """The rate at a step, as arithmetic."""
    rise = min(step / optimizer.warmup, 1) if optimizer.warmup else 1
    share = step / steps
    if optimizer.schedule == "cosine":
        return optimizer.lr * rise * (1 + np.cos(np.pi * share)) / 2
    if isinstance(optimizer.schedule, Linear):
        return optimizer.lr * rise * (1 - (1 - optimizer.schedule.end) * share)
    return optimizer.lr * rise


# ---- schedules


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [
        (Constant(), [1, 1, 1, 1, 1]),
        (Linear(), [1, 0.75, 0.5, 0.25, 0]),
        (Linear(end=0.2), [1, 0.8, 0.6, 0.4, 0.2]),
        (Cosine(), [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5, 0]),
        (Cosine(end=0.5), [1, 0.75 + 0.5**2.5, 0.75, 0.75 - 0.5**2.5, 0.5]),
        (WarmupStableDecay(decay=0.5), [1, 1, 1, 0.5, 0]),
        (WarmupStableDecay(decay=0.5, end=0.5), [1, 1, 1, 0.75, 0.5]),
    ],
)
def test_a_schedule_is_what_it_says(schedule, shares):
    found = [float(schedule.share(step, 8)) for step in (0, 2, 4, 6, 8)]
    np.testing.assert_allclose(found, shares, atol=1e-6)
    assert float(schedule.share(20, 8)) == pytest.approx(shares[-1], abs=1e-6)


def test_a_schedule_at_its_defaults_is_its_name():
    assert Adam(schedule=Cosine()).digest() == Adam(schedule="cosine").digest()
    assert Adam(schedule={"kind": "cosine", "end": 0.0}) == Adam(schedule="cosine")
    ends = Adam(schedule=Cosine(end=0.1))
    assert ends.digest() != Adam(schedule="cosine").digest()
    assert Adam.model_validate_json(ends.canonical_json()) == ends
    assert '"schedule"' not in SGD().canonical_json(), "0.1's SGD had none"
    with pytest.raises(UserError, match=r"unknown kind of schedule 'cosin'.*did you mean 'cosine'"):
        Adam(schedule="cosin")


# ---- numbers


def test_a_number_that_decides_must_be_named():
    """Inside a program a number is not known: code that decides by it raises."""
    optimizer = Adam()

    def decides(numbers):
        return 1.0 if optimizer.with_numbers(numbers).lr > 1 else 0.0

    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(decides)(optimizer.numbers())


def test_one_less_a_share_is_rounded_once():
    optimizer = Adam(b2=0.999)
    inside = optimizer.with_numbers(optimizer.numbers())
    assert float(inside.one_minus("b2")) == float(np.float32(1 - 0.999))
    assert float(inside.one_minus("b2")) != float(1 - np.float32(0.999))
    assert optimizer.one_minus("b2") == 1 - 0.999


# ---- optimizers that want to know names and shapes


class _Signs(Optimizer):
    """Every matrix follows its singular directions alike; everything else the sign of its gradient.

    Neither can be done on one vector of all parameters.
    """

    wants_tree: ClassVar[bool] = True
    kind: Literal["signs"] = "signs"
    lr: float = 0.01

    def direction(self):
        def update(gradient, state, params=None):
            def one(name, g):
                if g.ndim == 2 and "W_E" not in name:
                    u, _, v = jnp.linalg.svd(g, full_matrices=False)
                    return u @ v
                return jnp.sign(g)

            return {name: one(name, g) for name, g in gradient.items()}, state

        return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def test_an_optimizer_may_want_the_tree():
    spec = by(_Signs())
    before = start(spec, 0)
    step = jax.jit(lambda state, n: train_step(spec, world, data_key, jnp.array(0), state, n))
    world_key, _, data_key = seed_keys(0)
    world = spec.task.world(key=world_key)
    after = step(before, numbers_of(spec))
    moved = unravel_params(spec, (after.trained - before.trained) / 0.01)
    assert set(moved) == set(trained_shapes(spec))
    singular = np.linalg.svd(moved["blocks.0.mlp.W_in"], compute_uv=False)
    np.testing.assert_allclose(singular, 1, atol=1e-3)
    assert np.isin(np.round(moved["embed.W_E"], 3), (-1, 0, 1)).all()


class Muon(Optimizer):
    """Optax's own, as an outsider brings it: matrices orthogonalized, the rest by Adam."""

    wants_tree: ClassVar[bool] = True
    kind: Literal["muon"] = "muon"
    lr: float = 0.02
    beta: float = 0.9

    def direction(self):
        # what Optax adds to the parameters at a rate of 1 is what a step of rate 1 takes away
        return optax.chain(optax.contrib.muon(1.0, beta=self.beta), optax.scale(-1.0))


class Triangle(Schedule):
    """Up in a line to the middle of the training, and down again."""

    kind: Literal["triangle"] = "triangle"
    low: float = 0.25

    def share(self, step, steps):
        up = 1 - jnp.abs(2 * jnp.asarray(step, float) / steps - 1)
        return self.low + (1 - self.low) * up


def test_muon_of_an_outsider_with_a_schedule_of_its_own(store):
    spec = by(Muon(beta=0.8, schedule=Triangle(low=0.5)), steps=4)
    assert Spec.model_validate_json(spec.canonical_json()) == spec
    assert spec.compile_key() == by(Muon(lr=1.0, schedule=Triangle())).compile_key()
    run = fit(spec, [0, 1])
    assert run.finished.all()
    store.save(run, 1.0, "a machine")
    assert store.load(store.rows()[0]).spec == spec
    # a second route: Optax itself with the rates written out, on gradients of the named shapes
    rates = jnp.array([0.5, 0.75, 1.0, 0.75]) * 0.02
    theirs = optax.contrib.muon(lambda step: rates[step], beta=0.8, adam_learning_rate=None)
    ours = spec.optimizer.with_numbers(spec.optimizer.numbers()).transformation(4)
    shapes = trained_shapes(spec)
    rng = np.random.default_rng(0)

    def drawn():
        return {name: jnp.asarray(rng.normal(size=x), float) for name, x in shapes.items()}

    mine = other = drawn()
    my_state = ours.init(mine)
    their_state = theirs.init(other)

    @jax.jit
    def step(gradient, mine, my_state, other, their_state):
        update, my_state = ours.update(gradient, my_state, mine)
        their_update, their_state = theirs.update(gradient, their_state, other)
        mine = optax.apply_updates(mine, update)
        return mine, my_state, optax.apply_updates(other, their_update), their_state

    for _ in range(4):
        mine, my_state, other, their_state = step(drawn(), mine, my_state, other, their_state)
    for name in shapes:
        np.testing.assert_allclose(mine[name], other[name], rtol=1e-5, atol=1e-6)
