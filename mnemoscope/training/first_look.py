"""A first look at a task or a model from outside, once, before a training of it is compiled.

Its functions are evaluated without a computation (`jax.eval_shape`), then one small batch is drawn:
what would train on nonsense, or fail in the middle of JAX, is one line. Tasks of this package are
held to the same by the tests.
"""

from typing import Any

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, PRNGKeyArray
from mnemoscope.core.errors import UserError
from mnemoscope.core.kinds import is_ours
from mnemoscope.core.users_code import calling
from mnemoscope.models import Model, forward
from mnemoscope.tasks import Example, Task, World
from mnemoscope.tasks.requirements import (
    name_of,
    require_example,
    require_query_token,
    require_signature,
    require_sizes,
    require_tokens,
    require_weights,
    require_world,
)

SEQUENCES = 16


def require_trainable(task: Task) -> None:
    """Raise for a task from outside whose world or sequences cannot be trained on.

    Args:
        task: of this package, too: those are not looked at.
    """
    if is_ours(type(task)):
        return
    require_sizes(task)
    require_signature(task, task.world, "key")
    require_signature(task, task.at_step, "world", "step")
    require_signature(task, task.sample, "world", "key")
    key = jax.random.key(0)
    require_same_shapes(task, key)
    batch = draw_first(task, key, SEQUENCES)
    require_tokens(task, batch)
    require_weights(task, batch)
    require_query_token(task, batch)


def require_answers(model: Model, task: Task) -> None:
    """Raise for a model from outside whose logits are not one for each answer; computes nothing.

    Args:
        model: of this package, too: those are not looked at.
        task: what it is to be trained on.
    """
    if is_ours(type(model)):
        return

    def first_logits(key: PRNGKeyArray) -> Array:
        with calling(f"the model {model.kind_name()!r}"):
            params = model.draw_parameters(task.d_vocab, task.n_ctx, task.d_vocab_out, key=key)
            return forward(model, params, jnp.zeros(task.n_ctx, int))[0]

    width = jax.eval_shape(first_logits, jax.random.key(0)).shape[-1]
    if width != task.d_vocab_out:
        raise UserError(
            f"the model {model.kind_name()!r} returned {width} logits at each position; allowed: "
            f"{task.d_vocab_out}, one for each answer (d_vocab_out)"
        )


def require_same_shapes(task: Task, key: PRNGKeyArray) -> None:
    """Raise unless world, `at_step` and `sample` give what a compiled step needs; computes nothing.

    Args:
        task: what is looked at.
        key: any; its numbers are not read.
    """

    def all_of_it(key: PRNGKeyArray) -> tuple[World, World]:
        world, at_step = _worlds(task, key)
        with calling(f"{name_of(task)}: sample"):
            example = task.sample(at_step, key=key)
        require_example(task, example)
        return world, at_step

    world, at_step = jax.eval_shape(all_of_it, key)
    if _shapes(world) != _shapes(at_step):
        raise UserError(
            f"{name_of(task)}: at_step must keep the shapes and types of the world, got "
            f"{_shapes(at_step)[0]} of {_shapes(world)[0]}"
        )


def _worlds(task: Task, key: PRNGKeyArray) -> tuple[World, World]:
    """The world of a key, and the same one at the first step."""
    with calling(f"{name_of(task)}: world"):
        world = task.world(key=key)
    require_world(task, world)
    with calling(f"{name_of(task)}: at_step"):
        at_step = task.at_step(world, jnp.zeros((), int))
    require_world(task, at_step, "at_step")
    return world, at_step


def _shapes(world: World) -> tuple[list[str], Any]:
    """Type and shape of every array of a world, and how they stand in it."""
    leaves, structure = jax.tree.flatten(world)
    return [f"{x.dtype}{list(x.shape)}" for x in leaves], structure


def draw_first(task: Task, key: PRNGKeyArray, n: int) -> Example:
    """So many sequences of one world, at the first step.

    Args:
        task: what is drawn from.
        key: of the world and of the sequences.
        n: how many.
    """

    def draw(key: Array) -> Example:
        _, world = _worlds(task, key)
        return jax.vmap(lambda key: task.sample(world, key=key))(jax.random.split(key, n))

    return jax.jit(draw)(key)
