"""The tensors of a file under our names: Llama's, GPT-NeoX's and GPT-2's.

The first two keep matrices y = M x; ours act on rows, x W, with the heads as an axis of their own:

    W_Q[h] = M_q[h * d_head : (h + 1) * d_head].T
    W_O[h] = M_o[:, h * d_head : (h + 1) * d_head].T

GPT-NeoX has one matrix for queries, keys and values: three blocks for each head in turn. GPT-2 has
one too, of all queries, then all keys, then all values, and its matrices act on rows already.
"""

from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Float, Params
from mnemoscope.core.errors import UserError
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.shapes import heads_of_qkv

Layout = Literal["llama", "neox", "gpt2"]
# by name; a tensor is read when it is asked for
Tensors = dict[str, Callable[[], np.ndarray]]


def take_parameters(layout: Layout, config: ModelConfig, tensors: Tensors) -> Params:
    """The parameters of a model in float32; what is left of the tensors then was not used.

    Args:
        layout: Whose names and matrices the tensors have.
        config: The model.
        tensors: The tensors, from which those that are used are taken out.
    """
    return _TAKE[layout](config, tensors)


def _take(tensors: Tensors, name: str) -> Float[np.ndarray, "..."]:
    """One tensor in float32; each is taken once, so that what is left was not used."""
    if name not in tensors:
        none_left = "" if tensors else ": there are none left"
        raise UserError(f"the tensor {name!r} is missing{none_left}")
    found = tensors.pop(name)()
    if not jnp.issubdtype(found.dtype, np.floating):
        raise UserError(
            f"the tensor {name!r} holds {found.dtype}; allowed: floats, of any width, so that "
            "nothing is read of a quantized model but what it says"
        )
    return np.asarray(found, np.float32)


def _take_both(tensors: Tensors, name: str) -> tuple[np.ndarray, np.ndarray]:
    """The weight and the bias of a linear map or of a norm."""
    return _take(tensors, f"{name}.weight"), _take(tensors, f"{name}.bias")


def _heads(
    matrix: Float[np.ndarray, "rows d_model"], heads: int
) -> Float[np.ndarray, "head d_model d_head"]:
    by_head = matrix.reshape(heads, -1, matrix.shape[1])
    return np.ascontiguousarray(by_head.transpose(0, 2, 1))


def _from_heads(
    matrix: Float[np.ndarray, "d_model columns"], heads: int
) -> Float[np.ndarray, "head d_head d_model"]:
    return np.ascontiguousarray(matrix.T.reshape(heads, -1, matrix.shape[0]))


def _take_llama(config: ModelConfig, tensors: Tensors) -> Params:
    def take(name: str) -> np.ndarray:
        return _take(tensors, f"{name}.weight")

    params: Params = {"embed.W_E": take("model.embed_tokens")}
    for layer in range(config.n_layers):
        ours = f"blocks.{layer}"
        theirs = f"model.layers.{layer}"
        params[f"{ours}.ln1.w"] = take(f"{theirs}.input_layernorm")
        for name, heads in heads_of_qkv(config).items():
            projection = take(f"{theirs}.self_attn.{name.lower()}_proj")
            params[f"{ours}.attn.W_{name}"] = _heads(projection, heads)
        projection = take(f"{theirs}.self_attn.o_proj")
        params[f"{ours}.attn.W_O"] = _from_heads(projection, config.n_heads)
        params[f"{ours}.ln2.w"] = take(f"{theirs}.post_attention_layernorm")
        for name, proj in (("gate", "gate_proj"), ("in", "up_proj"), ("out", "down_proj")):
            matrix = take(f"{theirs}.mlp.{proj}")
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(matrix.T)
    params["ln_final.w"] = take("model.norm")
    return params | _take_read_out(config, tensors, "lm_head.weight")


def _take_neox(config: ModelConfig, tensors: Tensors) -> Params:
    params: Params = {"embed.W_E": _take(tensors, "gpt_neox.embed_in.weight")}
    for layer in range(config.n_layers):
        ours = f"blocks.{layer}"
        theirs = f"gpt_neox.layers.{layer}"
        norm = _take_both(tensors, f"{theirs}.input_layernorm")
        params[f"{ours}.ln1.w"], params[f"{ours}.ln1.b"] = norm
        weight, bias = _take_both(tensors, f"{theirs}.attention.query_key_value")
        # head, one of query, key and value, d_head, d_model
        weights = weight.reshape(config.n_heads, 3, -1, weight.shape[1])
        biases = bias.reshape(config.n_heads, 3, -1)
        for i, name in enumerate("QKV"):
            by_head = weights[:, i].transpose(0, 2, 1)
            params[f"{ours}.attn.W_{name}"] = np.ascontiguousarray(by_head)
            params[f"{ours}.attn.b_{name}"] = np.ascontiguousarray(biases[:, i])
        dense = _take_both(tensors, f"{theirs}.attention.dense")
        weight, params[f"{ours}.attn.b_O"] = dense
        params[f"{ours}.attn.W_O"] = _from_heads(weight, config.n_heads)
        norm = _take_both(tensors, f"{theirs}.post_attention_layernorm")
        params[f"{ours}.ln2.w"], params[f"{ours}.ln2.b"] = norm
        for name, dense in (("in", "dense_h_to_4h"), ("out", "dense_4h_to_h")):
            weight, params[f"{ours}.mlp.b_{name}"] = _take_both(tensors, f"{theirs}.mlp.{dense}")
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(weight.T)
    norm = _take_both(tensors, "gpt_neox.final_layer_norm")
    params["ln_final.w"], params["ln_final.b"] = norm
    return params | _take_read_out(config, tensors, "embed_out.weight")


def _take_gpt2(config: ModelConfig, tensors: Tensors) -> Params:
    params: Params = {
        "embed.W_E": _take(tensors, "wte.weight"),
        "pos_embed.W_pos": _take(tensors, "wpe.weight"),
    }
    for layer in range(config.n_layers):
        ours = f"blocks.{layer}"
        theirs = f"h.{layer}"
        norm = _take_both(tensors, f"{theirs}.ln_1")
        params[f"{ours}.ln1.w"], params[f"{ours}.ln1.b"] = norm
        weight, bias = _take_both(tensors, f"{theirs}.attn.c_attn")
        # d_model, one of query, key and value, head, d_head
        weights = weight.reshape(weight.shape[0], 3, config.n_heads, -1)
        biases = bias.reshape(3, config.n_heads, -1)
        for i, name in enumerate("QKV"):
            by_head = weights[:, i].transpose(1, 0, 2)
            params[f"{ours}.attn.W_{name}"] = np.ascontiguousarray(by_head)
            params[f"{ours}.attn.b_{name}"] = biases[i]
        weight, params[f"{ours}.attn.b_O"] = _take_both(tensors, f"{theirs}.attn.c_proj")
        params[f"{ours}.attn.W_O"] = weight.reshape(config.n_heads, -1, weight.shape[1])
        norm = _take_both(tensors, f"{theirs}.ln_2")
        params[f"{ours}.ln2.w"], params[f"{ours}.ln2.b"] = norm
        for name, dense in (("in", "c_fc"), ("out", "c_proj")):
            both = _take_both(tensors, f"{theirs}.mlp.{dense}")
            params[f"{ours}.mlp.W_{name}"], params[f"{ours}.mlp.b_{name}"] = both
    params["ln_final.w"], params["ln_final.b"] = _take_both(tensors, "ln_f")
    return params | _take_read_out(config, tensors, "lm_head.weight")


def _take_read_out(config: ModelConfig, tensors: Tensors, name: str) -> Params:
    """The unembedding, where it is not the embedding."""
    if config.tied:
        tensors.pop(name, None)  # some folders hold the embedding a second time
        return {}
    return {"unembed.W_U": np.ascontiguousarray(_take(tensors, name).T)}


_TAKE: dict[Layout, Callable[[ModelConfig, Tensors], Params]] = {
    "llama": _take_llama,
    "neox": _take_neox,
    "gpt2": _take_gpt2,
}
