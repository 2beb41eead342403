r"""An induction head written down: three matrices, each a sum of outer products of random
embeddings.

In the simplified two-layer model (one head a layer, queries are the stream itself, no norm, no
bias) with rows as vectors, x_t = e(z_t) + p_t, three associative memories are enough to copy what
followed a token the last time it was seen:

    W_K of layer 0 = b sum_t  p_{t-1}^T p_t            the key of a position is the place after it:
                                                       attend to the token before
    W_K of layer 1 = b sum_k  (e_k W_V0 W_O0)^T e_k    the key of a position is the token before it:
                                                       attend to what followed
    W_O of layer 1 = b sum_v  (e_v W_V1)^T u_v         what is attended to is read out

W_V and W_O of layer 0 and W_V of layer 1 are random and stay so: they move an embedding into a
nearly orthogonal direction, which marks it as "the token before" or as a value. Terms are divided
by the squared lengths of their vectors, so that a right pair scores `strength`, whatever the width;
wrong pairs score of the order of 1/sqrt(d).
"""

from collections.abc import Sequence

import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.core.errors import UserError
from mnemoscope.models import Init, ModelConfig

TRAINED = ("blocks.0.attn.W_K", "blocks.1.attn.W_K", "blocks.1.attn.W_O")


def simplified_model(d: int, **other: object) -> ModelConfig:
    """The simplified model: of the attention only W_K of both layers and W_O of the second are
    trained."""
    fields = {
        "d_model": d,
        "n_heads": 1,
        "n_layers": 2,
        "d_mlp": 0,
        "norm": "none",
        "bias": False,
        "init": Init(identity=("*.attn.W_Q",)),
        "frozen": (
            "embed.W_E",
            "pos_embed.W_pos",
            "unembed.W_U",
            "*.attn.W_Q",
            "*.attn.W_V",
            "blocks.0.attn.W_O",
        ),
    }
    return ModelConfig.model_validate(fields | other)


def outer_sum(
    inputs: Float[Array, "pair d_in"], outputs: Float[Array, "pair d_out"]
) -> Float[Array, "d_in d_out"]:
    r"""sum_i x_i^T y_i / (|x_i|^2 |y_i|^2): for orthogonal vectors, x_i W y_i^T = 1 and every other
    pair has 0."""
    scale = jnp.square(inputs).sum(axis=1) * jnp.square(outputs).sum(axis=1)
    return jnp.einsum("id,ie->de", inputs / scale[:, None], outputs)


def induction_weights(
    config: ModelConfig,
    params: Params,
    triggers: Sequence[int] | None = None,
    strength: float = 30.0,
) -> Params:
    """A model with the three memories written in.

    Args:
        config: the model, as `simplified_model` shapes it.
        params: its random parameters.
        triggers: the tokens that the second memory is about (None: all).
        strength: what right pairs score.
    """
    if config.n_layers != 2 or config.n_heads != 1:
        raise UserError(
            "an induction head needs two layers of one head, "
            f"got {config.n_layers} of {config.n_heads}"
        )
    p = {name: jnp.asarray(value) for name, value in params.items()}
    tokens = p["embed.W_E"]
    places = p["pos_embed.W_pos"]
    read = p["unembed.W_U"].T
    (v0,) = p["blocks.0.attn.W_V"]  # of the one head
    (o0,) = p["blocks.0.attn.W_O"]
    (v1,) = p["blocks.1.attn.W_V"]
    chosen = tokens if triggers is None else tokens[jnp.array(list(triggers))]
    root = config.d_model**0.5  # attention divides its scores by it
    written = {
        "blocks.0.attn.W_K": strength * root * outer_sum(places[:-1], places[1:]),
        "blocks.1.attn.W_K": strength * root * outer_sum(chosen @ v0 @ o0, chosen),
        "blocks.1.attn.W_O": strength * outer_sum(tokens @ v1, read),
    }
    return {**params, **{name: value[None] for name, value in written.items()}}
