"""How a model knows where a token stands, by the names that `ModelConfig.positions` has for it.

To add one, add it here. The forward pass then has it, and whatever reads models in a way of its own
(`mnemoscope.models.consumer_support`) refuses it by name until it says that it can.
"""

from types import MappingProxyType

import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float

POSITIONS = MappingProxyType(
    {
        "learned": "a trained vector for each position, added to the embedding",
        "none": "no positions: a sequence is a bag of tokens with a last one",
        "rotary": "queries and keys are rotated by angles that grow with the position",
        "sinusoidal": "fixed sines and cosines of the position, added to the embedding",
    }
)


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
