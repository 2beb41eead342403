"""Small models of every shape, for tests that draw one."""

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from mnemoscope.models import (
    ModelConfig,
    parameter_shapes,
)
from mnemoscope.models.activations import ACTIVATIONS

D_VOCAB, N_CTX = 6, 9

# plain data; the model is built inside the test,
# since beartype draws random numbers and strategies must not
shapes = st.fixed_dictionaries(
    {
        "n_heads": st.integers(1, 3),
        "width": st.integers(1, 5),
        "n_layers": st.integers(1, 2),
        "d_mlp": st.sampled_from([0, 7]),
        "norm": st.sampled_from(["none", "pre", "post"]),
        "norm_eps": st.sampled_from([1e-5, 0.3]),
        "bias": st.booleans(),
        "tied": st.booleans(),
        "unembed_bias": st.booleans(),
        "act": st.sampled_from(sorted(ACTIVATIONS)),
        "mlp_on": st.sampled_from([None, (), (0,)]),
    }
)


unusual = st.fixed_dictionaries(
    {
        "positions": st.sampled_from(["learned", "none"]),
        "attention": st.sampled_from(["softmax", "linear"]),
        "attn_residual": st.booleans(),
        "causal": st.booleans(),
    },
    optional={"d_head": st.sampled_from([1, 4])},
)


def config_of(shape):
    rest = {name: value for name, value in shape.items() if name not in ("width", "mlp_on")}
    on = shape.get("mlp_on") if shape["d_mlp"] else None
    return ModelConfig(d_model=shape["n_heads"] * shape["width"], mlp_layers=on, **rest)


def shaken(config, seed=0, dtype=np.float32):
    """Parameters that are nowhere at their neutral start, so that a forgotten one shows."""
    rng, scales = np.random.default_rng(seed), (".ln1.w", ".ln2.w", "ln_final.w")
    return {
        name: jnp.asarray(float(name.endswith(scales)) + 0.5 * rng.normal(size=size), dtype)
        for name, size in parameter_shapes(config, D_VOCAB, N_CTX).items()
    }
