r"""Direct logit attribution: what each part of a model adds to every logit.

The stream is a sum of what its parts wrote: embedding, positions, every head, biases, feed-forward
layers. A norm is linear once its scale is held, so the sum goes through it part by part:

    norm(sum_i part_i) = sum_i standard(part_i) / scale * w + b

where `standard` takes a part's own mean away if the norm subtracts means, and leaves it if not. The
shift b is a part of its own, and so is the bias of the unembedding: the parts sum to the logits.
"""

from collections.abc import Mapping

import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import HookedModel
from mnemoscope.models.norms import NORMS

Parts = dict[str, Float[np.ndarray, "pos _"]]
Numbers = Mapping[str, np.ndarray]


def on_host(arrays: Mapping[str, Array | np.ndarray]) -> dict[str, np.ndarray]:
    """The same arrays for NumPy, in 64 bits.

    Args:
        arrays: By name.
    """
    return {name: np.asarray(value, np.float64) for name, value in arrays.items()}


def decompose_logits(
    model: HookedModel, trace: Mapping[str, Array]
) -> dict[str, Float[np.ndarray, "pos vocab"]]:
    """What each part adds to every logit; the parts sum to the logits.

    Args:
        model: A plain transformer.
        trace: What its pass over one prompt saw, without edits.
    """
    config = model.config
    params = on_host(model.params)
    seen = on_host(trace)
    parts = {"embedding": seen["hook_embed"]}
    if "hook_pos_embed" in seen:
        parts["position"] = seen["hook_pos_embed"]
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        which = f" of layer {layer}" if config.n_layers > 1 else ""
        if config.has_attn(layer):
            if not config.attn_residual:
                parts = {}
            parts |= _parts_of_attention(config.n_heads, params, seen, block, which)
            if config.norm == "post":
                parts = _through_norm(model, parts, params, seen, f"{block}.ln1")
        if config.has_mlp(layer):
            parts[f"feed-forward{which}"] = seen[f"{block}.hook_mlp_out"]
            if config.norm == "post":
                parts = _through_norm(model, parts, params, seen, f"{block}.ln2")
    if config.norm == "pre":
        parts = _through_norm(model, parts, params, seen, "ln_final")
    w_u = params["embed.W_E"].T if config.tied else params["unembed.W_U"]
    split = {name: part @ w_u for name, part in parts.items()}
    if "unembed.b_U" in params:
        split["read-out's bias"] = _at_every_position(params["unembed.b_U"], seen)
    return split


def _parts_of_attention(
    n_heads: int, params: Numbers, seen: Numbers, block: str, which: str
) -> Parts:
    """What the heads of a layer wrote, each by itself, and the bias that they share."""
    result = seen[f"{block}.attn.hook_result"]
    parts = {f"head {head}{which}": result[:, head] for head in range(n_heads)}
    if f"{block}.attn.b_O" in params:
        parts[f"attention's bias{which}"] = _at_every_position(params[f"{block}.attn.b_O"], seen)
    return parts


def _through_norm(
    model: HookedModel, parts: Parts, params: Numbers, seen: Numbers, name: str
) -> Parts:
    """The parts of a normalized stream, from the parts of the stream before."""
    gain = params[f"{name}.w"] / seen[f"{name}.hook_scale"]
    normed = {}
    for key, part in parts.items():
        if NORMS[model.config.norm_type].subtracts_mean:
            part = part - part.mean(axis=-1, keepdims=True)
        normed[key] = part * gain
    if f"{name}.b" in params:
        normed[f"bias of {name}"] = _at_every_position(params[f"{name}.b"], seen)
    return normed


def _at_every_position(
    bias: Float[np.ndarray, "column"], seen: Numbers
) -> Float[np.ndarray, "pos column"]:
    return np.broadcast_to(bias, (len(seen["hook_embed"]), len(bias)))
