"""One step of one seed's training: draw a batch, take the gradient of its loss, follow it.

    State_{i+1} = train_step(State_i, batch_i),     batch_i drawn from fold_in(data key, i)

The batch of a step depends on seed and step alone, so a seed's run does not depend on its
neighbors, on where it was stopped, or on the number of devices. The parameters that training
changes are one vector, in the order of `trained_shapes`: a step ends with one update, not a dozen.
"""

import math
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mnemoscope.core.axes import Array, Float, Int, Params, PRNGKeyArray
from mnemoscope.core.xla import materialize, order_after
from mnemoscope.tasks import Example, World
from mnemoscope.training.loss import loss_and_gradient
from mnemoscope.training.numbered import Numbers
from mnemoscope.training.spec import Spec
from mnemoscope.training.worlds import seed_keys


class TrainingNumbers(NamedTuple):
    """What a step needs of a Spec that is no part of its shape: arguments of the program."""

    # of the optimizer, by field
    optimizer: Numbers
    # of the loss
    loss: Numbers
    # all steps of the training
    steps: Int[Array | np.ndarray, "*seed"]
    # from which step each trained parameter moves; read only if the Spec has `unfreeze_at`
    unfreeze_steps: Int[Array | np.ndarray, "*seed parameter"]


class State(NamedTuple):
    """Where one seed's training is."""

    # the parameters that move, in the order of `trained_shapes`
    trained: Float[Array, "trained"]
    # those that stay as they were drawn
    frozen: Params
    # what the optimizer remembers
    optimizer: optax.OptState
    # of the losses since the last stop
    loss_sum: Float[Array, ""]
    # steps with a finite loss
    finite_steps: Int[Array, ""]


# ---- the trained parameters as one vector


def _all_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """Every parameter, in the order of the computation."""
    task = spec.task
    return spec.model.parameter_shapes(task.d_vocab, task.n_ctx, task.d_vocab_out)


def trained_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The parameters that training changes, in the order of the computation."""
    frozen = spec.model.frozen_names()
    return {name: shape for name, shape in _all_shapes(spec).items() if name not in frozen}


def _trained_sizes(spec: Spec) -> list[int]:
    """How many entries of the vector each trained parameter has."""
    return [math.prod(shape) for shape in trained_shapes(spec).values()]


def ravel_params(spec: Spec, tree: Params) -> Float[Array, "trained"]:
    """The trained parameters, or their gradient, as one vector."""
    # the empty piece: a Spec may freeze everything
    return jnp.concatenate([jnp.zeros(0), *(tree[name].ravel() for name in trained_shapes(spec))])


def unravel_params(spec: Spec, vector: Float[Array | np.ndarray, "*seed trained"]) -> Params:
    """The parameters that such a vector holds; a seed axis before it stays."""
    seed_axis = vector.shape[:-1]
    params: Params = {}
    end = 0
    for name, shape in trained_shapes(spec).items():
        begin = end
        end = begin + math.prod(shape)
        params[name] = vector[..., begin:end].reshape(*seed_axis, *shape)
    return params


def all_params(
    spec: Spec, trained: Float[Array | np.ndarray, "*seed trained"], frozen: Params
) -> Params:
    """All parameters, in the order of the computation.

    Args:
        spec: says what the parameters are.
        trained: the vector of those that training changes; a seed axis before it stays.
        frozen: the others, by name.
    """
    found = {**unravel_params(spec, trained), **frozen}
    return {name: found[name] for name in _all_shapes(spec)}


# ---- the start, and a step


def start(spec: Spec, seed: int | Int[Array, ""]) -> State:
    """The state before the first step."""
    task = spec.task
    weights_key = seed_keys(seed)[1]
    params = spec.model.draw_parameters(task.d_vocab, task.n_ctx, task.d_vocab_out, key=weights_key)
    trained = ravel_params(spec, params)
    frozen_names = spec.model.frozen_names()
    return State(
        trained=trained,
        frozen={name: value for name, value in params.items() if name in frozen_names},
        optimizer=_transformation(spec, numbers_of(spec)).init(_seen(spec, trained)),
        loss_sum=jnp.zeros(()),
        finite_steps=jnp.zeros((), int),
    )


def numbers_of(spec: Spec) -> TrainingNumbers:
    """The arguments of a program that a Spec's numbers are."""
    unfreeze_steps = spec.unfreeze_steps()
    return TrainingNumbers(
        optimizer=spec.optimizer.numbers(),
        loss=spec.loss.numbers(),
        steps=np.asarray(spec.steps, np.int32),
        unfreeze_steps=np.array(
            [unfreeze_steps.get(name, 0) for name in trained_shapes(spec)], np.int32
        ),
    )


def _transformation(spec: Spec, numbers: TrainingNumbers) -> optax.GradientTransformation:
    """The optimizer's transformation, by numbers that may be arguments of a program."""
    return spec.optimizer.with_numbers(numbers.optimizer).transformation(jnp.asarray(numbers.steps))


def _seen(spec: Spec, vector: Float[Array, "trained"]) -> Array | Params:
    """Parameters or their gradient as the optimizer wants them: one vector, or by name."""
    return unravel_params(spec, vector) if spec.optimizer.wants_tree else vector


def draw(spec: Spec, world: World, data_key: PRNGKeyArray, step: Int[Array, ""]) -> Example:
    """The batch of a step, with a leading batch axis.

    Args:
        spec: says the task and how many sequences a batch has.
        world: what the seed hides.
        data_key: the seed's third key.
        step: the number of the step, from 0.
    """

    def folded(key: PRNGKeyArray, step: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(key, step))

    # as one operation: its own are many, and all ready at a step's start
    key_bits = materialize(step >= 0, folded, data_key, step)
    step_key = jax.random.wrap_key_data(key_bits, impl=jax.random.key_impl(data_key))
    keys = jax.random.split(step_key, spec.batch)
    world = spec.task.at_step(world, step)
    return jax.vmap(lambda key: spec.task.sample(world, key=key))(keys)


def train_step(
    spec: Spec,
    world: World,
    data_key: PRNGKeyArray,
    step: Int[Array, ""],
    state: State,
    numbers: TrainingNumbers,
) -> State:
    """Draw a batch, take the gradient of its loss in the parameters that are not frozen, and follow
    it.

    Args:
        spec: what is trained; its numbers are not read.
        world: what the seed hides.
        data_key: the seed's third key.
        step: the number of the step, from 0.
        state: the training before the step.
        numbers: the Spec's, or those of another Spec of the same shape.
    """
    batch = draw(spec, world, data_key, step)
    trained, optimizer = order_after(batch.tokens, (state.trained, state.optimizer))
    loss, gradient_by_name = loss_and_gradient(
        spec.task,
        spec.model,
        unravel_params(spec, trained),
        state.frozen,
        batch,
        spec.precision,
        spec.loss.with_numbers(numbers.loss),
    )
    gradient = ravel_params(spec, gradient_by_name)

    def zero_while_frozen(vector: Array) -> Array:
        if not spec.unfreeze_at:
            return vector
        return jnp.where(_still_frozen(spec, step, numbers.unfreeze_steps), 0.0, vector)

    # a parameter that is still frozen has no gradient and, for its decay, no size; and whatever
    # the optimizer makes of that, nothing of it moves, not even a bit
    found, optimizer = _transformation(spec, numbers).update(
        _seen(spec, zero_while_frozen(gradient)), optimizer, _seen(spec, zero_while_frozen(trained))
    )
    update = cast(Any, found)
    if spec.optimizer.wants_tree:
        update = ravel_params(spec, update)
    return State(
        trained=cast(Array, optax.apply_updates(trained, zero_while_frozen(update))),
        frozen=state.frozen,
        optimizer=optimizer,
        loss_sum=state.loss_sum + loss,
        finite_steps=state.finite_steps + jnp.isfinite(loss),
    )


def _still_frozen(spec: Spec, step: Array, unfreeze_steps: Array | np.ndarray) -> Array:
    """Which entries of the vector of trained parameters are still frozen at this step."""
    sizes = _trained_sizes(spec)
    parameter_of_entry = np.repeat(np.arange(len(sizes)), sizes)
    return (step < jnp.asarray(unfreeze_steps))[parameter_of_entry]
