"""How a model knows where a token stands, by the names that `ModelConfig.positions` has for it.

    x_0 = embedding + added         queries, keys <- turned(queries), turned(keys)

To add one, add it here. The forward pass, its sites and its parameters then have it, and whatever
reads models in a way of its own (`mnemoscope.models.consumer_support`) refuses it by name until it
says that it can.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Params

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig

Added = Callable[["ModelConfig", Params, int], Float[Array, "pos d_model"]]
Turned = Callable[
    ["ModelConfig", Float[Array, "pos heads d_head"]], Float[Array, "pos heads d_head"]
]


class PositionKind(NamedTuple):
    """What positions change, and where."""

    added: Added | None = None
    """What is added to the embedding, from the model, its parameters and how many positions there
    are; None: nothing."""
    turned: Turned | None = None
    """What becomes of queries and of keys; None: they stay."""
    has_table: bool = False
    """Whether there is a parameter `pos_embed.W_pos`, a row for each position."""


def sinusoids(n_pos: int, d_model: int) -> Float[Array, "pos d_model"]:
    r"""Sines in even dimensions and cosines in odd ones.

        p[t, 2i] = sin(t / 10000^{2i/d}),     p[t, 2i + 1] = cos(t / 10000^{2i/d})

    Args:
        n_pos: How many positions.
        d_model: How many dimensions.
    """
    dimension = jnp.arange(d_model)
    even = dimension - dimension % 2
    frequency = 10_000.0 ** (-even / d_model)
    angles = jnp.arange(n_pos)[:, None] * frequency[None]
    is_even = (dimension % 2 == 0)[None]
    return jnp.where(is_even, jnp.sin(angles), jnp.cos(angles))


def rotate(
    x: Float[Array, "pos heads d_head"], dims: int, base: float, adjacent_pairs: bool
) -> Float[Array, "pos heads d_head"]:
    r"""Rotary positions: pairs of a head's dimensions turned by an angle.

        angle_i = pos * base^{-2i/dims}              i = 0 .. dims/2 - 1

    Args:
        x: Queries or keys.
        dims: How many dimensions of every head are turned, from the first; the rest stays.
        base: The base of the angles.
        adjacent_pairs: Whether a pair is the dimensions 2i and 2i + 1, as in GPT-J, instead of i
            and i + dims/2, as in GPT-NeoX and Llama.
    """
    half = dims // 2
    position = jnp.arange(x.shape[0], dtype=float)[:, None]
    frequency = (base ** (-jnp.arange(half) / half))[None]
    angles = position * frequency
    cos = jnp.cos(angles)[:, None]
    sin = jnp.sin(angles)[:, None]
    turned = x[..., :dims]
    rest = x[..., dims:]
    if adjacent_pairs:
        first = turned[..., 0::2]
        second = turned[..., 1::2]
    else:
        first = turned[..., :half]
        second = turned[..., half:]
    new_first = first * cos - second * sin
    new_second = second * cos + first * sin
    if adjacent_pairs:
        turned = jnp.stack([new_first, new_second], axis=-1).reshape(turned.shape)
        return jnp.concatenate([turned, rest], axis=-1)
    return jnp.concatenate([new_first, new_second, rest], axis=-1)


def _rows_of_table(
    config: "ModelConfig", params: Params, n_pos: int
) -> Float[Array, "pos d_model"]:
    return jnp.asarray(params["pos_embed.W_pos"])[:n_pos]


def _waves(config: "ModelConfig", params: Params, n_pos: int) -> Float[Array, "pos d_model"]:
    return sinusoids(n_pos, config.d_model)


def _rotated(
    config: "ModelConfig", x: Float[Array, "pos heads d_head"]
) -> Float[Array, "pos heads d_head"]:
    return rotate(x, config.rotary_dim, config.rotary_base, config.rotary_adjacent_pairs)


# a trained vector for each position; nothing, so that a sequence is a bag of tokens with a last
# one; angles that grow with the position; fixed sines and cosines of it
POSITIONS: dict[str, PositionKind] = {
    "learned": PositionKind(added=_rows_of_table, has_table=True),
    "none": PositionKind(),
    "rotary": PositionKind(turned=_rotated),
    "sinusoidal": PositionKind(added=_waves),
}
