"""Models of ours and the same ones in TransformerLens, and how their values are compared.

Needs the extra 'interop'.
"""

import json

import numpy as np
import torch
import transformer_lens as lens
from safetensors.torch import load_file

from mnemoscope.exchange import write_transformer_lens
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes

VOCAB = 7
CTX = 8
BATCH = [[3, 0, 6, 6, 2], [1, 1, 4, 0, 5]]
CONFIGS = {
    "plain": ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=6),
    "norm": ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=6, norm="pre"),
    "attention only": ModelConfig(d_model=8, n_heads=2, n_layers=3, d_mlp=0, norm="pre"),
    "no biases, tied": ModelConfig(
        d_model=8, n_heads=2, n_layers=2, d_mlp=6, norm="pre", bias=False, tied=True
    ),
    "wide heads": ModelConfig(d_model=6, n_heads=2, n_layers=2, d_head=8, d_mlp=6),
}
# other kinds of layers, whose norms are drawn too: compared after TransformerLens has folded them
FOLDED = {
    "llama": ModelConfig(
        d_model=8,
        n_heads=4,
        n_layers=2,
        d_mlp=6,
        norm="pre",
        norm_type="rms",
        act="silu",
        gated_mlp=True,
        n_key_value_heads=2,
        positions="rotary",
        n_ctx=CTX,
        bias=False,
    ),
    "neox": ModelConfig(
        d_model=8,
        n_heads=2,
        n_layers=2,
        d_mlp=6,
        norm="pre",
        act="gelu",
        positions="rotary",
        rotary_dim=2,
        n_ctx=CTX,
        parallel_attn_mlp=True,
        unembed_bias=False,
    ),
    "gpt": ModelConfig(
        d_model=8, n_heads=2, n_layers=2, d_mlp=6, norm="pre", act="gelu_new", norm_eps=0.1
    ),
    "gelu": ModelConfig(d_model=8, n_heads=2, n_layers=2, d_mlp=6, norm="pre", act="gelu"),
}


def drawn(config, fresh_norms=True, seed=0):
    """A model whose every number matters; norms are as they start, or drawn too."""
    rng = np.random.default_rng(seed)
    params = {}
    for name, shape in parameter_shapes(config, VOCAB, CTX).items():
        params[name] = rng.normal(size=shape).astype("f4") * 0.3
        if ".ln" in f".{name}":
            start = float(name.endswith(".w"))
            params[name] = params[name] * (not fresh_norms) + np.float32(start)
    return Transformer(config, params)


def hooked(model, folder):
    """The model as TransformerLens reads it."""
    write_transformer_lens(model, folder)
    config = lens.HookedTransformerConfig.from_dict(
        json.loads((folder / "config.json").read_text())
    )
    theirs = lens.HookedTransformer(config)
    theirs.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    theirs.requires_grad_(False)
    return theirs


def folded(model, folder):
    """The same, with the weights of norms in the matrices that follow them."""
    theirs = hooked(model, folder)
    theirs.load_and_process_state_dict(
        theirs.state_dict(),
        center_writing_weights=False,
        center_unembed=False,
        fold_value_biases=False,
    )
    return theirs


def same(ours, theirs, atol=1e-5):
    theirs = theirs.detach().numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(np.asarray(ours), theirs, atol=atol, rtol=1e-5)


def both_caches(model, theirs, tokens=BATCH, **arguments):
    logits, cache = model.run_with_cache(tokens, **arguments)
    their_logits, their_cache = theirs.run_with_cache(torch.tensor(tokens), **arguments)
    same(logits, their_logits)
    return cache, their_cache
