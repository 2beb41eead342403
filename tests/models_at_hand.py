"""Small models for tests of the model object: one whose numbers can be worked out on paper,
and one of every kind of layer with nothing at its neutral start.
"""

import jax.numpy as jnp
import numpy as np

from mnemoscope.models import ModelConfig, Transformer, parameter_shapes

VOCAB = 5
CTX = 7
BATCH = [[3, 0, 4, 2], [1, 1, 4, 0], [2, 4, 3, 3]]

CONFIGS = {
    "plain": ModelConfig(d_model=6, n_heads=2, n_layers=2, d_mlp=3),
    "layer norm": ModelConfig(d_model=6, n_heads=3, n_layers=2, d_mlp=3, norm="pre", tied=True),
    "llama": ModelConfig(
        d_model=8,
        n_heads=4,
        n_layers=2,
        d_mlp=3,
        norm="pre",
        norm_type="rms",
        act="silu",
        gated_mlp=True,
        n_key_value_heads=2,
        positions="rotary",
        n_ctx=CTX,
        bias=False,
    ),
    "parallel": ModelConfig(
        d_model=6, n_heads=2, n_layers=2, d_mlp=3, norm="pre", parallel_attn_mlp=True, act="gelu"
    ),
    "parts": ModelConfig(
        d_model=6,
        n_heads=1,
        n_layers=3,
        d_mlp=3,
        d_head=4,
        attn_layers=(0, 2),
        mlp_layers=(1, 2),
        positions="sinusoidal",
    ),
}


def drawn(config, seed=0):
    """A model whose every number matters."""
    rng = np.random.default_rng(seed)
    shapes = parameter_shapes(config, VOCAB, CTX)
    params = {}
    for name, shape in shapes.items():
        is_scale = name.endswith((".ln1.w", ".ln2.w", "ln_final.w"))
        params[name] = jnp.asarray(0.5 * rng.normal(size=shape) + is_scale, "f4")
    return Transformer(config, params)


def on_paper():
    """One layer of one head that attends evenly,
    doubles the first dimension and triples the second, and one linear unit.

    Of the prompt 0 1 it sees at the last position: embedding (0, 1), attention (1, 1.5),
    hidden unit 3.5, which writes (1.75, -1.75); stream (2.75, 0.75), logits 2.75, 0.75, 2.
    """
    config = ModelConfig(
        d_model=2, n_heads=1, d_mlp=1, act="linear", positions="none", bias=False, n_ctx=CTX
    )
    params = {
        "embed.W_E": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
        "blocks.0.attn.W_Q": [[[0.0, 0.0], [0.0, 0.0]]],
        "blocks.0.attn.W_K": [[[0.0, 0.0], [0.0, 0.0]]],
        "blocks.0.attn.W_V": [[[2.0, 0.0], [0.0, 3.0]]],
        "blocks.0.attn.W_O": [[[1.0, 0.0], [0.0, 1.0]]],
        "blocks.0.mlp.W_in": [[1.0], [1.0]],
        "blocks.0.mlp.W_out": [[0.5, -0.5]],
        "unembed.W_U": [[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]],
    }
    return Transformer(config, {name: jnp.array(value) for name, value in params.items()})
