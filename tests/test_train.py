"""Training by other routes: a Python loop, seeds alone, one golden step,
and the number of compilations.
"""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import device_mesh, different_seeds
from mnemoscope.models import ModelConfig, Transformer, forward
from mnemoscope.tasks import Permutation
from mnemoscope.training import compilation as programs_module
from mnemoscope.training.compilation import programs
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import (
    all_params,
    draw,
    numbers_of,
    ravel_params,
    start,
    train_step,
    trained_shapes,
    unravel_params,
)
from mnemoscope.training.worlds import seed_keys

SMALL = Spec(
    task=Permutation(n_symbols=3, repeat=0.3),
    model=ModelConfig(d_model=8, n_heads=2, d_mlp=8),
    steps=70,
    batch=16,
    snapshots=5,
)


@partial(jax.jit, static_argnums=0)
def begin(spec, seed):
    """A seed's world, and its state before the first step."""
    return spec.task.world(key=seed_keys(seed)[0]), start(spec, seed)


def close(a, b, tolerance=2e-5):
    for name in a:
        np.testing.assert_allclose(a[name], b[name], atol=tolerance, err_msg=name)


def test_the_compiled_loop_equals_a_python_loop():
    # a large eps: where the gradient is mere rounding (keys' biases), Adam would follow its sign
    spec = SMALL.model_copy(update={"optimizer": Adam(eps=1e-3)})
    run = fit(spec, [3])
    _, _, for_data = seed_keys(3)
    world, state = begin(spec, 3)
    step = jax.jit(lambda i, s: train_step(spec, world, for_data, i, s, numbers_of(spec)))
    losses = []
    for i in range(spec.steps):
        before = float(state.loss_sum)
        state = step(i, state)
        losses.append(float(state.loss_sum) - before)
    close(run.model(3).params, all_params(spec, state.trained, state.frozen))
    means = [
        np.mean(losses[a:b]) for a, b in zip([0, *run.loss_steps[:-1]], run.loss_steps, strict=True)
    ]
    np.testing.assert_allclose(run.losses[0], means, atol=1e-4)


def test_one_step_is_adam_on_the_plain_gradient():
    """The golden step: plain forward pass, Optax written out, no fast rewrite."""
    spec = SMALL.model_copy(update={"steps": 1, "optimizer": Adam(lr=0.01)})
    _, _, for_data = seed_keys(0)
    world, first = begin(spec, 0)
    params = unravel_params(spec, first.trained)
    keys = jax.random.split(jax.random.fold_in(for_data, 0), spec.batch)
    batch = jax.jit(jax.vmap(lambda key: spec.task.sample(world, key=key)))(keys)

    def loss(p):
        logits = jax.vmap(lambda row: forward(spec.model, p, row)[0])(batch.tokens)[:, 0::2]
        return optax.losses.softmax_cross_entropy_with_integer_labels(
            logits, batch.targets[:, 0::2]
        ).mean()

    value, gradient = jax.jit(jax.value_and_grad(loss))(params)
    # Adam's first step has m/sqrt(v) = g/|g|: each weight moves by lr against its gradient's sign
    # (eps apart)
    gradient = jax.device_get(gradient)
    expected = jax.tree.map(
        lambda p, g: p - 0.01 * g / (np.abs(g) + 1e-8), jax.device_get(params), gradient
    )
    run = fit(spec, [0])
    assert run.losses[0, -1] == pytest.approx(float(value), abs=1e-6)
    for name in expected:  # where the gradient is mere rounding its sign is too
        clear = np.abs(gradient[name]) > 1e-6
        np.testing.assert_allclose(
            np.asarray(run.model(0).params[name])[clear],
            np.asarray(expected[name])[clear],
            atol=1e-5,
        )


# a large eps, as above
RULES = [
    Adam(lr=0.01, eps=1e-3, weight_decay=0.1, clip=0.5),
    SGD(lr=0.1, momentum=0.9, weight_decay=0.1),
]


@pytest.mark.parametrize("optimizer", RULES)
def test_steps_on_one_vector_are_steps_on_every_parameter(optimizer):
    """The second route keeps each parameter apart: the plain forward pass, and Optax on a tree."""
    model = SMALL.model.model_copy(update={"frozen": ("embed.*",)})
    spec = SMALL.model_copy(
        update={"steps": 4, "model": model, "optimizer": optimizer, "unfreeze_at": (("*.W_in", 2),)}
    )
    _, _, for_data = seed_keys(0)
    world, first = begin(spec, 0)
    params, rule = unravel_params(spec, first.trained), optimizer.transformation(spec.steps)
    assert set(first.frozen) == {"embed.W_E"}
    assert "embed.W_E" not in params

    def loss(params, batch):
        logits = jax.vmap(lambda row: forward(spec.model, {**first.frozen, **params}, row)[0])(
            batch.tokens
        )[:, 0::2]
        return optax.losses.softmax_cross_entropy_with_integer_labels(
            logits, batch.targets[:, 0::2]
        ).mean()

    @jax.jit
    def after_step(params, state, step):
        gradient = jax.grad(loss)(params, draw(spec, world, for_data, step))
        moves = {
            name: jnp.where((name == "blocks.0.mlp.W_in") & (step < 2), 0, 1) for name in params
        }
        gradient, sizes = (
            {n: x * moves[n] for n, x in tree.items()} for tree in (gradient, params)
        )
        updates, state = rule.update(gradient, state, sizes)
        return optax.apply_updates(params, updates), state

    state = rule.init(params)
    for step in range(spec.steps):
        params, state = after_step(params, state, jnp.array(step))
    close(fit(spec, [0]).model(0).params, {**first.frozen, **params})


def test_a_vector_of_parameters_comes_apart_as_it_was_joined():
    shapes = trained_shapes(SMALL)
    tree = {
        name: np.arange(np.prod(shape)).reshape(shape) + 1000.0 * i
        for i, (name, shape) in enumerate(shapes.items())
    }
    vector = jax.jit(partial(ravel_params, SMALL))(dict(reversed(tree.items())))
    assert vector.shape == (sum(np.prod(shape) for shape in shapes.values()),)
    for name, value in tree.items():
        np.testing.assert_array_equal(unravel_params(SMALL, np.asarray(vector))[name], value)
        two = unravel_params(SMALL, np.stack([vector, -vector]))
        np.testing.assert_array_equal(two[name], np.stack([value, -value]))


def test_no_core_gets_a_piece_of_anothers_step(monkeypatch):
    """Without the option the loop's larger operations are cut into one piece a core
    (`mnemoscope.core.xla`).
    """
    spec = Spec(
        task=Permutation(), model=ModelConfig(d_model=32, n_heads=2, d_mlp=64), steps=1, batch=128
    )

    def is_cut() -> bool:
        advance = programs_module._compile(spec, device_mesh(2), 2).advance
        return 'outer_dimension_partitions":["' in advance.as_text()

    assert not is_cut()
    monkeypatch.setattr(programs_module, "compiler_options", lambda mesh: None)
    # with two devices there are two threads, however many cores there are
    assert is_cut(), "if the compiler no longer does it, the option may go"


def test_a_seed_trains_the_same_alone_and_among_others():
    together = fit(SMALL, [5, 1, 3])  # three seeds on two devices: one of them is padded
    for seed in (1, 3, 5):
        alone = fit(SMALL, [seed])
        close(alone.model(seed).params, together.model(seed).params)
        np.testing.assert_array_equal(alone.world(seed).held_out, together.world(seed).held_out)
    again = fit(SMALL, [5, 1, 3])
    for name, value in together.snapshots.items():
        np.testing.assert_array_equal(
            value, again.snapshots[name], err_msg="same seeds, same machine: the same bits"
        )
    assert not np.allclose(
        together.model(1).params["embed.W_E"], together.model(3).params["embed.W_E"]
    )


def test_snapshots_and_observations_are_of_their_step():
    def observe(model, split):
        return {
            "norm": jnp.sqrt(sum(jnp.square(p).sum() for p in model.params.values())),
            "first": split.train[0, 0],
        }

    run = fit(SMALL, [0, 1], observe)
    assert SMALL.snapshot_steps() == (0, 1, 4, 17, 70)
    for snap, steps in enumerate(SMALL.snapshot_steps()[1:], 1):
        # the rate is constant, so a shorter training is a prefix of the longer one
        if steps < SMALL.steps:
            shorter = fit(SMALL.model_copy(update={"steps": steps}), [1])
            close(run.model(1, snap).params, shorter.model(1).params)
    norm = np.sqrt(sum(np.square(v[1, 2]).sum() for v in run.snapshots.values()))
    assert run.metrics["norm"].shape == (2, 5)
    assert run.metrics["norm"][1, 2] == pytest.approx(norm, rel=1e-5)


def test_one_compilation_for_every_stretch_and_every_call(monkeypatch):
    compiled = {}
    monkeypatch.setattr(programs_module, "_programs", compiled)
    spec = SMALL.model_copy(update={"steps": 71})
    fit(spec, [0, 1])
    fit(spec, [2, 3])
    assert len(compiled) == 1
    fit(spec, [0, 1, 2])
    assert len(compiled) == 2, "another number of seeds is another shape"
    assert programs(spec, 2).start is programs(spec, 2).start


def test_trainings_that_differ_in_unfreezing_share_a_program(monkeypatch):
    compiled = {}
    monkeypatch.setattr(programs_module, "_programs", compiled)
    specs = [
        SMALL.model_copy(update={"unfreeze_at": (("*.W_K", step),), "snapshots": n})
        for step, n in ((3, 2), (9, 4))
    ]
    early, late = (fit(spec, [0, 1]) for spec in specs)
    assert len(compiled) == 1
    assert (early.snapshots["embed.W_E"][:, -1] != late.snapshots["embed.W_E"][:, -1]).any(), (
        "the steps that unfreeze were told apart"
    )


def test_evals_are_evenly_spaced():
    spec = SMALL.model_copy(update={"steps": 20, "n_evals": 4, "snapshots": 2})
    assert spec.eval_steps() == (0, 5, 10, 15, 20)
    run = fit(
        spec, [0, 1], lambda model, world: {"norm": jnp.square(model.params["embed.W_E"]).sum()}
    )
    assert run.metrics["norm"].shape == (2, 5)
    for look, snapshot in ((0, 0), (4, 1)):
        at = np.square(run.snapshots["embed.W_E"][:, snapshot]).sum(axis=(1, 2))
        np.testing.assert_allclose(run.metrics["norm"][:, look], at, rtol=1e-5)
    assert "looks" not in SMALL.canonical_json()  # an older Spec keeps its identity


def test_frozen_parameters_stay_and_the_others_move():
    model = ModelConfig(d_model=8, n_heads=2, d_mlp=8, frozen=("*.W_E", "blocks.0.attn.*"))
    run = fit(SMALL.model_copy(update={"model": model}), [0])
    for name, value in run.snapshots.items():
        stays = name == "embed.W_E" or name.startswith("blocks.0.attn.")
        assert np.array_equal(value[0, 0], value[0, -1]) == stays, name


def test_a_diverged_seed_is_told_and_does_not_touch_its_neighbors():
    wild = SMALL.model_copy(update={"optimizer": Adam(lr=1e18)})
    run = fit(wild, [0])
    assert run.outcome(0) == "diverged"
    assert not run.finished.any()
    assert fit(SMALL, [0]).outcome(0) == "finished"


def test_weights_that_the_last_step_made_infinite_are_noticed():
    """The loss of the one step is finite; what follows it is not."""
    run = fit(
        SMALL.model_copy(update={"optimizer": SGD(lr=3e38, weight_decay=100), "steps": 1}), [0, 1]
    )
    assert np.isfinite(run.losses).all()
    assert [run.outcome(seed) for seed in (0, 1)] == ["diverged", "diverged"]
    assert run.diverged() == "seed 0 (after 0 of 1 steps), seed 1 (after 0 of 1 steps)"


def test_training_learns_what_the_oracle_knows():
    """Three symbols without repeats: the loss comes near ln(3!)/3, elimination's,
    and not below the training floor.
    """
    task = Permutation(n_symbols=3)
    spec = SMALL.model_copy(
        update={"task": task, "steps": 1500, "batch": 64, "optimizer": Adam(lr=1e-2)}
    )
    run = fit(spec, range(4))
    last = run.losses[:, -8:].mean()
    n_train = 6 - spec.task.n_held_out
    assert np.log(n_train) / 3 - 0.02 < last < np.log(6) / 3 + 0.02


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1]])
def test_seeds_that_cannot_be(seeds):
    with pytest.raises(
        UserError, match="seeds must be a number of seeds or different whole numbers from 0 up"
    ):
        fit(SMALL, seeds)


@pytest.mark.parametrize("seeds", [0, -3, True, [0.5], ["1"], None])
def test_seeds_that_are_no_seeds(seeds):
    allowed = "for example 8 or range(8) (no more than 1,000,000, each below 2^31)"
    with pytest.raises(UserError, match=re.escape(f"{allowed}, got {seeds!r}")):
        different_seeds(seeds)


def test_seeds_of_every_whole_kind():
    assert (
        different_seeds(np.arange(3))
        == different_seeds(jnp.arange(3))
        == different_seeds(range(3))
        == different_seeds(3)
        == different_seeds(np.int64(3))
        == (0, 1, 2)
    )


def test_a_run_and_its_models_fit_a_line():
    run = fit(SMALL, 2)
    assert run.seeds == (0, 1)
    assert repr(run).startswith("<Run of permutation: 2 seeds, 70 steps of 16, 2 finished; loss ")
    assert repr(run.model(0)) == "<Transformer: 1 layers, 2 heads, d_model 8, d_mlp 8, norm none>"
    assert len(repr(run)) < 120


def test_asking_for_a_seed_that_was_not_run():
    with pytest.raises(UserError, match="no seed 9 in this run; allowed: 0"):
        fit(SMALL, [0]).model(9)


specs = st.fixed_dictionaries(
    {
        "n_symbols": st.integers(2, 6),
        "repeat": st.sampled_from([0.0, 0.25]),
        "d_head": st.integers(1, 4),
        "n_heads": st.integers(1, 4),
        "lr": st.floats(1e-5, 1),
        "steps": st.integers(1, 10**6),
        "snapshots": st.integers(1, 30),
    }
)


@settings(max_examples=50)
@given(specs)
def test_a_spec_survives_its_json(fields):
    spec = Spec(
        task=Permutation(n_symbols=fields["n_symbols"], repeat=fields["repeat"]),
        model=ModelConfig(d_model=fields["d_head"] * fields["n_heads"], n_heads=fields["n_heads"]),
        optimizer=Adam(lr=fields["lr"]),
        steps=fields["steps"],
        snapshots=fields["snapshots"],
    )
    again = Spec.model_validate_json(spec.canonical_json())
    assert again == spec
    assert hash(again) == hash(spec)
    assert again.digest() == spec.digest()
    steps = spec.snapshot_steps()
    assert steps[-1] == spec.steps
    assert list(steps) == sorted(set(steps))
    assert len(steps) <= max(fields["snapshots"], 2)


def test_unknown_keys_of_a_stored_spec_are_refused():
    text = SMALL.canonical_json().replace('"batch":16', '"batch":16,"batchsize":3')
    with pytest.raises(UserError, match=r"unknown key of Spec 'batchsize' .*allowed: format, task"):
        Spec.model_validate_json(text)
    with pytest.raises(
        UserError, match=r"^Spec: steps: Input should be greater than or equal to 1, got -5$"
    ):
        Spec(task=Permutation(), steps=-5)


def test_a_model_goes_through_vmap():
    run = fit(SMALL, [0, 1])
    tokens = jnp.array([1, 2, 3, 1, 2])
    together = jax.vmap(lambda model: model(tokens))(run.models())
    assert isinstance(run.models(), Transformer)
    for row, seed in enumerate(run.seeds):
        np.testing.assert_allclose(together[row], run.model(seed)(tokens), atol=1e-5)


def test_sgd_is_the_rule_it_says():
    """v <- momentum v + gradient + decay p, p <- p - lr v, by hand for two steps."""
    optimizer = SGD(lr=0.1, momentum=0.5, weight_decay=0.01).transformation(10)
    p, v = 2.0, 0.0
    params, state = {"p": jnp.array(p)}, optimizer.init({"p": jnp.array(p)})
    for gradient in (1.0, -3.0):
        updates, state = optimizer.update({"p": jnp.array(gradient)}, state, params)
        params = optax.apply_updates(params, updates)
        v = 0.5 * v + gradient + 0.01 * p
        p = p - 0.1 * v
        assert float(params["p"]) == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize(
    "optimizer", [SGD(lr=0.1, momentum=0.9, weight_decay=0.1), Adam(lr=1e-2, weight_decay=0.1)]
)
def test_a_parameter_is_frozen_to_the_last_bit_until_it_is_unfrozen(optimizer):
    unfreeze_at = (("*.W_K", 6), ("embed.*", 3))
    spec = Spec(
        task=Permutation(n_symbols=3),
        model=ModelConfig(d_model=4, d_mlp=4),
        optimizer=optimizer,
        steps=10,
        batch=4,
        snapshots=20,
        unfreeze_at=unfreeze_at,
    )
    run = fit(spec, range(2))
    steps = spec.snapshot_steps()
    for name, values in run.snapshots.items():
        begins = {"blocks.0.attn.W_K": 6, "embed.W_E": 3}.get(name, 0)
        for at, step in enumerate(steps):
            moved = (values[:, at] != values[:, 0]).any()
            assert moved == (step > begins), f"{name} at step {step}"


def test_an_unfreezing_that_names_nothing_trained_is_refused():
    with pytest.raises(
        ValueError, match=r"unknown trained parameter in unfreeze_at 'blocks\.7\.\*'"
    ):
        Spec(task=Permutation(n_symbols=3), unfreeze_at=(("blocks.7.*", 3),))
    with pytest.raises(ValueError, match="unknown trained parameter in unfreeze_at"):
        Spec(
            task=Permutation(n_symbols=3),
            model=ModelConfig(frozen=("*.W_K",)),
            unfreeze_at=(("*.W_K", 3),),
        )
    plain = Spec(task=Permutation(n_symbols=3))
    assert "release" not in plain.canonical_json()  # an older Spec keeps its identity
