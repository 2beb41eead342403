"""How parameters are drawn."""

import math
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Params, PRNGKeyArray
from mnemoscope.core.errors import UserError
from mnemoscope.models.shapes import parameter_shapes

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig


def init(
    config: "ModelConfig",
    d_vocab: int,
    n_ctx: int,
    d_vocab_out: int | None = None,
    *,
    key: PRNGKeyArray,
) -> Params:
    """Draw parameters.

    Embeddings are N(0, 1); matrices and biases uniform in +-1/sqrt(fan in); norms at identity.
    `identity`, `constant`, `orthogonal` and `scale` of `config.init` change that, in this order.

    Args:
        config: The model.
        d_vocab: Tokens of the vocabulary.
        n_ctx: Positions of a sequence.
        d_vocab_out: How many answers there are, where they are not the tokens.
        key: What the draws are made from.
    """
    shapes = parameter_shapes(config, d_vocab, n_ctx, d_vocab_out)
    custom = _drawn_by_layers(config, n_ctx, key)
    params = _drawn(config, shapes, custom, key)
    if config.init.orthogonal:
        params |= _orthogonal_embeddings(config, params)
    for name, factor in config.factors().items():
        params[name] = jnp.asarray(params[name]) * factor
    return params


def _drawn_by_layers(config: "ModelConfig", n_ctx: int, key: PRNGKeyArray) -> Params:
    """The parameters of layers that are of other kinds than the model's own."""
    found: Params = {}
    for number, layer in config.custom_layers:
        own = layer.draw_parameters(config, n_ctx, key=jax.random.fold_in(key, number))
        found |= {f"blocks.{number}.{name}": x for name, x in own.items()}
    return found


def _drawn(
    config: "ModelConfig", shapes: dict[str, tuple[int, ...]], custom: Params, key: PRNGKeyArray
) -> Params:
    """Every parameter as its kind is drawn, or as the config says that it starts."""
    gaussian = _gaussian_names(config)
    length = _embedding_length(config)
    identity = config.identity_names()
    constants = config.constants()
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if name not in custom}
    n_normal = sum(size for name, size in sizes.items() if name.split(".")[-1] in gaussian)
    # one draw of each kind, cut into pieces: a draw for each parameter takes seconds to compile
    for_normal, for_uniform = jax.random.split(key)
    normal = jax.random.normal(for_normal, (n_normal,))
    uniform = jax.random.uniform(for_uniform, (sum(sizes.values()),), minval=-1.0)
    params: Params = {}
    for name, shape in shapes.items():
        last = name.split(".")[-1]
        size = sizes.get(name, 0)
        if name in identity:
            params[name] = _identity(name, shape)
        elif name in constants:
            params[name] = jnp.full(shape, constants[name])
        elif name in custom:
            params[name] = custom[name]
        elif last in ("w", "b"):  # the scale and shift of a norm
            params[name] = jnp.ones(shape) if last == "w" else jnp.zeros(shape)
        elif last in gaussian:
            params[name] = normal[:size].reshape(shape) * length
            normal = normal[size:]
        else:
            params[name] = uniform[:size].reshape(shape) * _fan_in(config, last) ** -0.5
            uniform = uniform[size:]
    return params


def _gaussian_names(config: "ModelConfig") -> tuple[str, ...]:
    """The last parts of the names of parameters that are drawn from a normal distribution."""
    return ("W_E", "W_pos", "W_U") if config.init.embeddings == "unit" else ("W_E", "W_pos")


def _embedding_length(config: "ModelConfig") -> float:
    """The standard deviation of an embedding's entries."""
    return config.d_model**-0.5 if config.init.embeddings == "unit" else 1.0


def _fan_in(config: "ModelConfig", last: str) -> int:
    """How many numbers a matrix sums up; a bias is drawn as the matrix it belongs to."""
    if last in ("W_O", "b_O"):
        return config.n_heads * config.d_head
    if last in ("W_out", "b_out"):
        return config.d_mlp
    return config.d_model


def _identity(name: str, shape: tuple[int, ...]) -> Array:
    rows, columns = shape[-2:]
    if rows != columns:
        raise UserError(
            f"init.identity names {name!r}, which is no square matrix here: {rows} x {columns}"
        )
    return jnp.broadcast_to(jnp.eye(columns), shape)


def _orthogonal_embeddings(config: "ModelConfig", params: Params) -> Params:
    """Embeddings of tokens and positions at right angles, in the directions that were drawn."""
    names = [name for name in ("embed.W_E", "pos_embed.W_pos") if name in params]
    drawn = [jnp.asarray(params[name]) for name in names]
    rows = sum(len(x) for x in drawn)
    if rows > config.d_model:
        raise UserError(
            f"init.orthogonal=True needs a width of at least {rows}, for so many embeddings, "
            f"got {config.d_model}"
        )
    directions = jnp.linalg.qr(jnp.concatenate(drawn).T)[0].T
    vectors = directions * _embedding_length(config) * config.d_model**0.5
    n_tokens = len(drawn[0])
    # without positions the second piece is empty, and is not used
    return dict(zip(names, jnp.split(vectors, [n_tokens]), strict=False))
