"""A model for each row of the layer tables, for tests of all who read models."""

import jax.numpy as jnp
import numpy as np

from mnemoscope.models import (
    ModelConfig,
    Transformer,
    parameter_shapes,
)
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS
from mnemoscope.tasks import Bigrams
from mnemoscope.theory import gradients

D_VOCAB = 6
N_CTX = 7
PROMPT = [2, 4, 5, 3, 4, 5, 3]
# small, and with noise, so that all that is read of noise is read
TEXT = Bigrams(corpus=gradients.uniform_text(5), n_triggers=1, length=8, noise=0.5)

# one model for each row of the tables, and some that have several together
ROWS = {
    **{f"act {name}": {"act": name} for name in ACTIVATIONS},
    **{f"attention {name}": {"attention": name} for name in ATTENTION},
    **{f"pre {name}": {"norm": "pre", "norm_type": name} for name in NORMS},
    **{f"post {name}": {"norm": "post", "norm_type": name} for name in NORMS},
    **{f"positions {name}": {"positions": name} for name in POSITIONS},
    "epsilon": {"norm": "pre", "norm_eps": 0.3},
    "part of a head is rotated": {"positions": "rotary", "rotary_dim": 2, "rotary_base": 50.0},
    "adjacent pairs": {"positions": "rotary", "rotary_adjacent_pairs": True},
    "adjacent pairs of a part": {
        "positions": "rotary",
        "rotary_adjacent_pairs": True,
        "rotary_dim": 2,
    },
    "gated": {"gated_mlp": True, "act": "silu"},
    "shared keys and values": {"n_key_value_heads": 2},
    "one key and value": {"n_key_value_heads": 1},
    "parallel": {"parallel_attn_mlp": True},
    "wide heads": {"d_head": 6},
    "every position sees every other": {"causal": False},
    "no residual connection": {"attn_residual": False},
    "attention in layer 1 alone": {"attn_layers": (1,)},
    "feed-forward in layer 0 alone": {"mlp_layers": (0,)},
    "post, attention in layer 1 alone": {"attn_layers": (1,), "norm": "post"},
    "parallel, a part in each layer": {
        "parallel_attn_mlp": True,
        "attn_layers": (0,),
        "mlp_layers": (1,),
    },
    "Llama": {
        "norm": "pre",
        "norm_type": "rms",
        "bias": False,
        "act": "silu",
        "gated_mlp": True,
        "positions": "rotary",
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
    "GPT-2": {"norm": "pre", "act": "gelu_new", "tied": True, "unembed_bias": False},
}


def model_of(fields, seed=0):
    """A model whose parameters are nowhere at their neutral start,
    so that a forgotten one shows.
    """
    config = ModelConfig(**{"d_model": 16, "n_heads": 4, "n_layers": 2, "d_mlp": 5} | fields)
    rng = np.random.default_rng(seed)
    params = {
        name: jnp.asarray(float(name.endswith(".w")) + 0.5 * rng.normal(size=shape), jnp.float32)
        for name, shape in parameter_shapes(config, D_VOCAB, N_CTX).items()
    }
    return Transformer(config, params)
