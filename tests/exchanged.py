"""Small models with drawn weights, to be exported and imported:
one for each thing that TransformerLens has too.
"""

import numpy as np

from mnemoscope.models import ModelConfig, Transformer, parameter_shapes

VOCAB = 5
CTX = 4

# fields of models that both sides have, beside sizes: every value of every field, and some together
LENS_ROWS = {
    **{f"act {name}": {"act": name} for name in ("relu", "gelu", "gelu_new", "silu")},
    "layer norm": {"norm": "pre"},
    "RMS norm": {"norm": "pre", "norm_type": "rms"},
    "epsilon": {"norm": "pre", "norm_eps": 0.3},
    "epsilon of an RMS norm": {"norm": "pre", "norm_type": "rms", "norm_eps": 0.3},
    "no positions": {"positions": "none"},
    "rotary": {"positions": "rotary"},
    "part of a head is rotated": {"positions": "rotary", "rotary_dim": 2, "rotary_base": 50.0},
    "adjacent pairs": {"positions": "rotary", "rotary_adjacent_pairs": True},
    "adjacent pairs of a part": {
        "positions": "rotary",
        "rotary_adjacent_pairs": True,
        "rotary_dim": 2,
    },
    "gated": {"gated_mlp": True, "act": "silu", "norm": "pre"},
    "shared keys and values": {"n_key_value_heads": 2, "norm": "pre"},
    "one key and value": {"n_key_value_heads": 1},
    "parallel": {"parallel_attn_mlp": True, "norm": "pre"},
    "both ways": {"causal": False},
    "wide heads": {"d_head": 5},
    "attention only": {"d_mlp": 0, "norm": "pre"},
    "attention only, said to be parallel": {"d_mlp": 0, "parallel_attn_mlp": True},
    "no feed-forward layer": {"mlp_layers": ()},
    "no biases": {"bias": False, "norm": "pre"},
    "no bias at the read-out": {"unembed_bias": False},
    "tied": {"tied": True},
    "Llama": {
        "norm": "pre",
        "norm_type": "rms",
        "norm_eps": 1e-6,
        "bias": False,
        "act": "silu",
        "gated_mlp": True,
        "positions": "rotary",
        "rotary_base": 500.0,
        "n_key_value_heads": 2,
        "tied": True,
    },
    "GPT-NeoX": {
        "norm": "pre",
        "unembed_bias": False,
        "act": "gelu",
        "positions": "rotary",
        "rotary_dim": 2,
        "parallel_attn_mlp": True,
    },
    "GPT-J": {
        "norm": "pre",
        "act": "gelu_new",
        "positions": "rotary",
        "rotary_dim": 2,
        "rotary_adjacent_pairs": True,
        "parallel_attn_mlp": True,
        "d_head": 5,
        "n_key_value_heads": 1,
    },
    "GPT-2": {"norm": "pre", "act": "gelu_new", "tied": True, "unembed_bias": False},
}


def small(**fields):
    return ModelConfig(**{"d_model": 4, "n_heads": 2, "d_mlp": 6, **fields})


def row(name):
    """The shape of a row of the table."""
    return small(**{"d_model": 16, "n_heads": 4, "n_layers": 2, **LENS_ROWS[name]})


def drawn(config, vocab=VOCAB, ctx=CTX, n_out=None, scale=1.0):
    """A model of this shape, whose every number is drawn."""
    rng = np.random.default_rng(0)
    params = {
        name: np.float32(scale) * rng.normal(size=shape).astype("f4")
        for name, shape in parameter_shapes(config, vocab, ctx, n_out).items()
    }
    return Transformer(config, params)


def bits(arrays):
    """What two dictionaries of arrays must share to be the same to the last bit."""
    return {name: (x.dtype, x.shape, x.tobytes()) for name, x in arrays.items()}
