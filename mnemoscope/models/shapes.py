"""The named parameters of a model, with their shapes, in the order of the computation.

The names are those of TransformerLens. Heads may share keys and values: W_K, W_V, b_K and b_V then
have as many heads as there are keys and values.
"""

from typing import TYPE_CHECKING

from mnemoscope.core.errors import UserError
from mnemoscope.models.model import Model, Shapes
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig


def parameter_shapes(
    config: "ModelConfig", d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
) -> Shapes:
    """Every parameter's name and shape, in the order of the computation.

    Args:
        config: The model.
        d_vocab: Tokens of the vocabulary.
        n_ctx: Positions of a sequence.
        d_vocab_out: How many answers there are, where they are not the tokens.
    """
    d_model = config.d_model
    n_out = d_vocab if d_vocab_out is None else d_vocab_out
    if config.tied and n_out != d_vocab:
        raise UserError(
            f"tied=True reads out with the embedding of {d_vocab} tokens, "
            f"but there are {n_out} answers"
        )
    shapes: Shapes = {"embed.W_E": (d_vocab, d_model)}
    if POSITIONS[config.positions].has_table:
        shapes["pos_embed.W_pos"] = (n_ctx, d_model)
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        custom = config.custom_layer(layer)
        if custom is not None:
            own = custom.parameter_shapes(config, n_ctx)
            shapes |= {f"{block}.{name}": shape for name, shape in own.items()}
        if config.has_attn(layer):
            shapes |= _norm_shapes(config, f"{block}.ln1")
            shapes |= _attention_shapes(config, f"{block}.attn")
        if config.has_mlp(layer):
            shapes |= _norm_shapes(config, f"{block}.ln2")
            shapes |= _mlp_shapes(config, f"{block}.mlp")
    if config.norm == "pre":
        shapes |= _norm_shapes(config, "ln_final")
    if not config.tied:
        shapes["unembed.W_U"] = (d_model, n_out)
    if config.bias and config.unembed_bias:
        shapes["unembed.b_U"] = (n_out,)
    return shapes


def heads_of_qkv(config: Model) -> dict[str, int]:
    """How many heads queries, keys and values have, by the letters of their names."""
    n_kv = config.n_key_value_heads
    return {"Q": config.n_heads, "K": n_kv, "V": n_kv}


def _norm_shapes(config: "ModelConfig", name: str) -> Shapes:
    if config.norm == "none":
        return {}
    shapes: Shapes = {f"{name}.w": (config.d_model,)}
    if NORMS[config.norm_type].has_shift:
        shapes[f"{name}.b"] = (config.d_model,)
    return shapes


def _attention_shapes(config: "ModelConfig", attn: str) -> Shapes:
    d_model = config.d_model
    d_head = config.d_head
    shapes: Shapes = {}
    for name, heads in heads_of_qkv(config).items():
        shapes[f"{attn}.W_{name}"] = (heads, d_model, d_head)
        if config.bias:
            shapes[f"{attn}.b_{name}"] = (heads, d_head)
    shapes[f"{attn}.W_O"] = (config.n_heads, d_head, d_model)
    if config.bias:
        shapes[f"{attn}.b_O"] = (d_model,)
    return shapes


def _mlp_shapes(config: "ModelConfig", mlp: str) -> Shapes:
    d_model = config.d_model
    d_mlp = config.d_mlp
    shapes: Shapes = {}
    if config.gated_mlp:
        shapes[f"{mlp}.W_gate"] = (d_model, d_mlp)
    shapes[f"{mlp}.W_in"] = (d_model, d_mlp)
    shapes[f"{mlp}.W_out"] = (d_mlp, d_model)
    if config.bias:
        shapes[f"{mlp}.b_in"] = (d_mlp,)
        shapes[f"{mlp}.b_out"] = (d_model,)
    return shapes
