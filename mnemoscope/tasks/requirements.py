"""What a task must draw, each requirement as a function that raises in one line.

Training asks once, before a task from outside is first compiled; `mnemoscope.testing` asks of many
sequences.
"""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError, short
from mnemoscope.core.users_code import require_arguments
from mnemoscope.tasks.base import Example, Task, World


def name_of(task: Task) -> str:
    """A task as messages name it."""
    return f"task {task.kind_name()!r}"


def require_sizes(task: Task) -> None:
    """Raise unless the numbers of tokens, answers and positions are whole and positive."""
    for name in ("d_vocab", "d_vocab_out", "n_ctx"):
        size: object = getattr(task, name)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise UserError(
                f"{name_of(task)}: {name} must be a whole number from 1 up, got {short(size)}"
            )
    outside = [place for place in task.loss_positions if place not in range(task.n_ctx)]
    if outside or not task.loss_positions:
        raise UserError(
            f"{name_of(task)}: loss_positions must be some of 0 to {task.n_ctx - 1}, got "
            f"{short(task.loss_positions)}"
        )


def require_signature(task: Task, method: Callable[..., Any], *wanted: str) -> None:
    """Raise unless a method can be called as the package calls it.

    Args:
        task: whose it is.
        method: its method.
        *wanted: its arguments, `key` by name and all others by place.
    """
    require_arguments(name_of(task), method, *wanted)


def require_world(task: Task, world: World, method: str = "world") -> None:
    """Raise unless a world is a pytree of arrays.

    Args:
        task: whose it is.
        world: what `method` returned.
        method: `world` or `at_step`.
    """
    for leaf in jax.tree.leaves(world):
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float):
            raise UserError(
                f"{name_of(task)}: {method} must return arrays (in tuples, NamedTuples or "
                f"dictionaries), got {short(leaf)} of type {type(leaf).__name__}"
            )


def require_example(task: Task, example: object) -> None:
    """Raise unless what `sample` returned is an Example of the right shapes and types.

    Args:
        task: what was sampled.
        example: traced or not.
    """
    name = f"{name_of(task)}: sample"
    if not isinstance(example, Example):
        raise UserError(
            f"{name} must return an Example(tokens, targets, weights), got {type(example).__name__}"
        )
    shape = (task.n_ctx,)
    for field in ("tokens", "targets"):
        _require_array(
            f"{name}: {field}", getattr(example, field), shape, jnp.integer, "whole numbers"
        )
    _require_array(f"{name}: weights", example.weights, shape, jnp.floating, "floats")
    if example.layer is not None:
        _require_array(f"{name}: layer", example.layer, (), jnp.integer, "a whole number")
        if not task.reads_early:
            raise UserError(
                f"{name}: it names a layer, and its property reads_early is False; allowed: "
                "reads_early True, or no layer"
            )


def _require_array(
    name: str, value: object, shape: tuple[int, ...], kind: Any, numbers: str
) -> None:
    """Raise unless a value is an array of this shape, with numbers of this kind."""
    if not isinstance(value, jax.Array | np.ndarray):
        raise UserError(f"{name} must be an array, got {short(value)}")
    array = cast(Array, value)
    if array.shape != shape:
        hint = " (n_ctx positions)" if shape else ""
        raise UserError(f"{name} must have the shape {shape}{hint}, got {array.shape}")
    if not jnp.issubdtype(array.dtype, kind):
        raise UserError(f"{name} must be {numbers}, got {array.dtype}; .astype changes them")


def require_tokens(task: Task, batch: Example) -> None:
    """Raise for a token or a target outside of the vocabulary.

    Args:
        task: what was sampled.
        batch: examples along a batch axis.
    """
    for field, size in (("tokens", "d_vocab"), ("targets", "d_vocab_out")):
        values = np.asarray(getattr(batch, field))
        most = getattr(task, size)
        outside = np.argwhere((values < 0) | (values >= most))
        if len(outside):
            row, place = outside[0]
            raise UserError(
                f"{name_of(task)}: sample: {field} must be 0 to {most - 1} ({size}), got "
                f"{values[row, place]} at position {place}"
            )


def require_weights(task: Task, batch: Example) -> None:
    """Raise for a weight that is not finite, negative, or where the task says that none is.

    Args:
        task: what was sampled.
        batch: examples along a batch axis.
    """
    weights = np.asarray(batch.weights)
    wrong = np.argwhere(~np.isfinite(weights) | (weights < 0))
    if len(wrong):
        row, place = wrong[0]
        raise UserError(
            f"{name_of(task)}: sample: weights must be finite and not negative, got "
            f"{weights[row, place]} at position {place}"
        )
    unread = np.ones(task.n_ctx, bool)
    unread[list(task.loss_positions)] = False
    lost = np.argwhere((weights > 0) & unread)
    if len(lost):
        row, place = lost[0]
        raise UserError(
            f"{name_of(task)}: sample: the weight {weights[row, place]} at position {place} would "
            f"not count, since loss_positions has only {short(task.loss_positions)}"
        )


def require_query_token(task: Task, batch: Example) -> None:
    """Raise unless sequences end in the query token and are asked there alone, if there is one.

    Args:
        task: what was sampled.
        batch: examples along a batch axis.
    """
    if task.query_token is None:
        return
    last = np.asarray(batch.tokens)[:, -1]
    if not (last == task.query_token).all():
        came = last[last != task.query_token][0]
        raise UserError(
            f"{name_of(task)}: every sequence must end in its query_token {task.query_token}, got "
            f"one that ends in {came}"
        )
    if tuple(task.loss_positions) != (task.n_ctx - 1,):
        raise UserError(
            f"{name_of(task)}: with a query_token the loss is on the last position alone, "
            f"({task.n_ctx - 1},), got loss_positions {short(task.loss_positions)}"
        )
