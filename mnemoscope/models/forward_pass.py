r"""One forward pass for one sequence; it returns the logits and everything it saw on the way.

With x the residual stream (pos, d_model), for each layer:

    q, k, v = x W_Q + b_Q, ...                                    for each head
    pattern = softmax(mask(q k^T / sqrt(d_head)))
    x <- x + sum_head (pattern v) W_O + b_O
    x <- x + act(x W_in + b_in) W_out + b_out
    logits = x W_U + b_U

`norm="pre"` normalizes what attention, feed-forward and unembedding receive; `norm="post"`
normalizes each sum. Rotary positions turn q and k. Groups of heads may share k and v: head h reads
those of key-value head h // (n_heads / n_key_value_heads). A gated feed-forward layer has
act(x W_gate) * (x W_in) + b_in for hidden units. A parallel model gives attention and feed-forward
the same x and adds both. The kinds of activations, attention, norms and positions are tables beside
this file.

Parameters in bfloat16 (`mnemoscope.models.precision`) make a pass in it, but for norms, softmax and
logits.

Every named value passes through `site`, which applies the edits for that name and records the
result: what the trace holds is what the rest of the computation used. Under `jit`, what is not
asked for of the trace is not computed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax.numpy as jnp

from mnemoscope.core.axes import Array, Bool, Float, Logits, Params, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.core.users_code import calling
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.edits import Intervention, SiteRecorder
from mnemoscope.models.layer import Layer, SiteOfBlock
from mnemoscope.models.model import Model, Site, no_site
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS
from mnemoscope.models.precision import wide
from mnemoscope.models.shapes import heads_of_qkv

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig

# what queries, keys and values are made from
Received = tuple[
    Float[Array, "pos d_model"], Float[Array, "pos d_model"], Float[Array, "pos d_model"]
]


def forward(
    config: Model, params: Params, tokens: Tokens, edits: Iterable[Intervention] = ()
) -> tuple[Logits, dict[str, Array]]:
    """Logits after every token, and the trace: every site's value by name, after edits.

    Args:
        config: The model, of any kind.
        params: Its parameters by name.
        tokens: One sequence.
        edits: What the pass should find at some sites instead of what it computed.
    """
    site = SiteRecorder(config, tuple(edits))
    with calling(f"model {config.kind_name()!r}: forward", params):
        logits = config.forward(params, tokens, site)
    site.require_all_edited()
    if jnp.ndim(logits) != 2 or len(logits) != len(tokens):
        raise UserError(
            f"the pass of {config.kind_name()!r} returned logits of shape {jnp.shape(logits)} for "
            f"{len(tokens)} tokens; allowed: ({len(tokens)}, answers)"
        )
    return wide(logits), site.trace


def transformer_logits(config: "ModelConfig", params: Params, tokens: Tokens, site: Site) -> Logits:
    """The pass of a transformer.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: One sequence.
        site: What every named value goes through.
    """
    run = _Pass(config, params, site, _may_see(config, tokens.shape[0]))
    x = _embed(run, tokens)
    for layer in range(config.n_layers):
        x = _layer(run, layer, x)
    return _unembed(run, x)


def unembed(
    config: "ModelConfig", params: Params, x: Float[Array, "row d_model"]
) -> Float[Array, "row vocab"]:
    """Logits of streams: the last norm, if there is one, and the unembedding.

    Args:
        config: The model.
        params: Its parameters by name.
        x: Streams after the last layer, or after another one.
    """
    return _unembed(_Pass(config, params, no_site), x)


def unembedding(config: "ModelConfig", params: Params) -> Float[Array, "d_model vocab"]:
    """The matrix that reads logits off the stream.

    Args:
        config: The model.
        params: Its parameters by name.
    """
    if config.tied:
        return jnp.asarray(params["embed.W_E"]).T
    return jnp.asarray(params["unembed.W_U"])


def read_out(
    config: "ModelConfig", params: Params, x: Float[Array, "row d_model"]
) -> Float[Array, "row vocab"]:
    """Logits of vectors that are read as they are: not normalized, but weighted as the last norm
    weights them.

    Args:
        config: The model.
        params: Its parameters by name.
        x: Vectors such as a unit's row of W_out.
    """
    run = _Pass(config, params, no_site)
    weighted = run.weights_of_norm("ln_final", x) if config.norm == "pre" else x
    return _product_with_unembedding(run, weighted)


def early_logits(
    config: "ModelConfig", params: Params, tokens: Tokens, edits: Iterable[Intervention] = ()
) -> Float[Array, "layer pos vocab"]:
    """What would be answered if the stream were read after each layer instead of the last.

    The last row is `forward`'s.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: One sequence.
        edits: What the pass should find at some sites instead of what it computed.
    """
    return logits_by_layer(config, params, forward(config, params, tokens, edits)[1])


def logits_by_layer(
    config: "ModelConfig", params: Params, trace: Mapping[str, Array]
) -> Float[Array, "layer pos vocab"]:
    """What would be answered if the stream of a pass were read after each layer.

    Args:
        config: The model.
        params: Its parameters by name.
        trace: What the pass saw.
    """
    streams = [trace[f"blocks.{layer}.hook_resid_post"] for layer in range(config.n_layers)]
    return jnp.stack([unembed(config, params, x) for x in streams])


def run_part(
    config: "ModelConfig", params: Params, name: str, *inputs: Array
) -> Float[Array, "pos out"]:
    """What one part of a model makes of what it receives, for one sequence and without edits.

    Args:
        config: The model.
        params: Its parameters by name.
        name: `embed`, `pos_embed`, `unembed`, `ln_final`, `blocks.0`, or, in a block, `attn`,
            `mlp`, `ln1` or `ln2`.
        *inputs: Tokens for the first two; else streams (pos, d_model), which `attn` and `mlp`
            receive after the norm. `attn` takes one for queries, keys and values together or one
            for each.
    """
    n_pos = inputs[0].shape[0]
    run = _Pass(config, params, no_site, may_see=_may_see(config, n_pos))
    block, _, last = name.rpartition(".")
    if last == "embed":
        return _embedding(run, inputs[0])
    if last == "pos_embed":
        added = POSITIONS[config.positions].added
        return jnp.zeros((n_pos, config.d_model)) if added is None else added(config, params, n_pos)
    if last == "unembed":
        return _product_with_unembedding(run, inputs[0])
    if last == "attn":
        q, k, v = inputs if len(inputs) == 3 else (inputs[0],) * 3
        return _heads(run, block, (q, k, v), q)
    if last == "mlp":
        return _hidden_units(run, block, inputs[0])
    if last in ("ln1", "ln2", "ln_final"):
        return _norm(run, name, inputs[0]) if f"{name}.w" in params else inputs[0]
    return _layer(run, int(last), inputs[0])


# ---- what every part of a pass needs to know


@dataclass(frozen=True)
class _Pass:
    """One pass of one model over one sequence."""

    config: "ModelConfig"
    params: Params
    site: Site
    """What every named value goes through: it applies edits and records."""
    may_see: Bool[Array, "1 pos key_pos"] | None = None
    """Which keys each position sees."""

    def bias(self, name: str, rank: int) -> Array | float:
        """A bias with axes of size 1 in front, up to a rank; 0 where the model has none such."""
        if name not in self.params:
            return 0.0
        bias = self.params[name]
        return jnp.expand_dims(bias, tuple(range(rank - bias.ndim)))

    def weights_of_norm(self, name: str, x: Array) -> Array:
        """The scale and shift of a norm, applied to what it made standard."""
        scale = jnp.expand_dims(self.params[f"{name}.w"], tuple(range(x.ndim - 1)))
        return x * scale + self.bias(f"{name}.b", x.ndim)


def _may_see(config: "ModelConfig", n_pos: int) -> Bool[Array, "1 pos key_pos"]:
    everything = jnp.ones((n_pos, n_pos), bool)
    return (jnp.tril(everything) if config.causal else everything)[None]


# ---- norms


def _norm(run: _Pass, name: str, x: Float[Array, "pos d_model"]) -> Float[Array, "pos d_model"]:
    """The norm of this name; at `hook_normalized` its weights have not acted yet."""
    site = run.site
    centered, scale = _center_and_measure(run.config, wide(x))
    standard = centered / site(f"{name}.hook_scale", scale)
    normalized = run.weights_of_norm(name, site(f"{name}.hook_normalized", standard))
    return normalized.astype(x.dtype)


def _norm_of_copies(run: _Pass, name: str, x: Float[Array, "pos head d_model"]) -> Array:
    """The same norm of a copy of the stream for each head; it has no sites."""
    centered, scale = _center_and_measure(run.config, wide(x))
    return run.weights_of_norm(name, centered / scale).astype(x.dtype)


def _center_and_measure(
    config: "ModelConfig", x: Float[Array, "*axes d_model"]
) -> tuple[Float[Array, "*axes d_model"], Float[Array, "*axes 1"]]:
    """x without its mean where the norm subtracts it, and how long it is."""
    if NORMS[config.norm_type].subtracts_mean:
        x = x - x.mean(axis=-1, keepdims=True)
    mean_square = jnp.square(x).mean(axis=-1, keepdims=True)
    return x, jnp.sqrt(mean_square + config.norm_eps)


# ---- the parts of a model


def _embed(run: _Pass, tokens: Tokens) -> Float[Array, "pos d_model"]:
    n_pos = tokens.shape[0]
    x = run.site("hook_embed", _embedding(run, tokens))
    added = POSITIONS[run.config.positions].added
    if added is None:
        return x
    return x + run.site("hook_pos_embed", added(run.config, run.params, n_pos).astype(x.dtype))


def _embedding(run: _Pass, tokens: Tokens) -> Float[Array, "pos d_model"]:
    return jnp.asarray(run.params["embed.W_E"])[tokens]


def _layer(run: _Pass, layer: int, x: Float[Array, "pos d_model"]) -> Float[Array, "pos d_model"]:
    """From the stream before a layer to the stream after it."""
    config = run.config
    site = run.site
    block = f"blocks.{layer}"
    x = site(f"{block}.hook_resid_pre", x)
    custom = config.custom_layer(layer)
    if custom is not None:
        return site(f"{block}.hook_resid_post", _custom(run, custom, block, x))
    if config.parallel_attn_mlp:
        added = _attention(run, block, x) if config.has_attn(layer) else 0.0
        if config.has_mlp(layer):
            added = added + _feed_forward(run, block, x)
        return site(f"{block}.hook_resid_post", x + added)
    if config.has_attn(layer):
        out = _attention(run, block, x)
        x = x + out if config.attn_residual else out
        if config.norm == "post":
            x = _norm(run, f"{block}.ln1", x)
    x = site(f"{block}.hook_resid_mid", x)
    if config.has_mlp(layer):
        x = x + _feed_forward(run, block, x)
        if config.norm == "post":
            x = _norm(run, f"{block}.ln2", x)
    return site(f"{block}.hook_resid_post", x)


def _custom(
    run: _Pass, layer: Layer, block: str, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """The stream after a layer of another kind."""
    start = f"{block}."
    own = {
        name.removeprefix(start): value
        for name, value in run.params.items()
        if name.startswith(start)
    }
    after = layer.forward(run.config, own, x, SiteOfBlock(run.site, block))
    if jnp.shape(after) != x.shape:
        raise UserError(
            f"the layer {layer.kind_name()!r} made shape {jnp.shape(after)} of the stream; "
            f"allowed: {x.shape}, as before it"
        )
    return after.astype(x.dtype)


def _attention(
    run: _Pass, block: str, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's heads add to the stream x."""
    seen = _norm(run, f"{block}.ln1", x) if run.config.norm == "pre" else x
    return _heads(run, block, (seen, seen, seen), x)


def _heads(
    run: _Pass, block: str, seen: Received, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's heads make of what their queries, keys and values are made from; x is the
    stream before its norm."""
    config = run.config
    site = run.site
    attn = f"{block}.attn"
    kind = ATTENTION[config.attention]
    assert run.may_see is not None
    q, k, v = _queries_keys_values(run, block, seen, x)
    products = wide(jnp.einsum("phe,khe->hpk", q, k))
    scores = products * (config.d_head**-0.5 if kind.is_scaled else 1.0)
    scores = site(f"{attn}.hook_attn_scores", jnp.where(run.may_see, scores, kind.hidden))
    pattern = site(f"{attn}.hook_pattern", kind.pattern(scores))
    z = site(f"{attn}.hook_z", jnp.einsum("hpk,khe->phe", pattern.astype(v.dtype), v))
    # one product for all heads: each head's own share is needed only where it is asked for or
    # edited, and then what the edit changed is added
    w_o = run.params[f"{attn}.W_O"]
    out = jnp.einsum("phe,hed->pd", z, w_o)
    by_head = jnp.einsum("phe,hed->phd", z, w_o)
    edited_by_head = site(f"{attn}.hook_result", by_head)
    if f"{attn}.hook_result" in run.site.edited:
        out = out + (edited_by_head - by_head).sum(axis=1)
    return site(f"{block}.hook_attn_out", out + run.bias(f"{attn}.b_O", 2))


def _queries_keys_values(
    run: _Pass, block: str, seen: Received, x: Float[Array, "pos d_model"]
) -> list[Float[Array, "pos head d_head"]]:
    """Queries, keys and values of a layer, one of each for every head."""
    config = run.config
    site = run.site
    attn = f"{block}.attn"
    found = {}
    for (name, heads), read in zip(heads_of_qkv(config).items(), seen, strict=True):
        letter = name.lower()
        mapped = jnp.einsum("pd,hde->phe", read, run.params[f"{attn}.W_{name}"])
        if f"{block}.hook_{letter}_input" in run.site.edited:
            mapped = mapped + _change_by_split_input(run, block, name, heads, x)
        found[name] = site(f"{attn}.hook_{letter}", mapped + run.bias(f"{attn}.b_{name}", 3))
    turned = POSITIONS[config.positions].turned
    if turned is not None:
        for name in "QK":
            rotated = turned(config, found[name]).astype(found[name].dtype)
            found[name] = site(f"{attn}.hook_rot_{name.lower()}", rotated)
    # every key-value head serves a group of heads
    group = config.n_heads // config.n_key_value_heads
    k = jnp.repeat(found["K"], group, axis=1)
    v = jnp.repeat(found["V"], group, axis=1)
    return [found["Q"], k, v]


def _change_by_split_input(
    run: _Pass, block: str, name: str, heads: int, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos head d_head"]:
    """What an edit of the stream that each head reads changes of queries, keys or values.

    It is added to what they are without, so that an edit that changes nothing changes no bit.
    """
    w = run.params[f"{block}.attn.W_{name}"]
    copies = jnp.repeat(x[:, None], heads, axis=1)
    edited = run.site(f"{block}.hook_{name.lower()}_input", copies)
    if run.config.norm == "pre":
        copies = _norm_of_copies(run, f"{block}.ln1", copies)
        edited = _norm_of_copies(run, f"{block}.ln1", edited)
    before = jnp.einsum("phd,hde->phe", copies, w)
    return jnp.einsum("phd,hde->phe", edited, w) - before


def _feed_forward(
    run: _Pass, block: str, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's hidden units add to the stream x."""
    seen = _norm(run, f"{block}.ln2", x) if run.config.norm == "pre" else x
    return _hidden_units(run, block, seen)


def _hidden_units(
    run: _Pass, block: str, seen: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's hidden units make of what they receive."""
    config = run.config
    site = run.site
    params = run.params
    mlp = f"{block}.mlp"
    act = ACTIVATIONS[config.act]
    into = seen @ params[f"{mlp}.W_in"]
    b_in = run.bias(f"{mlp}.b_in", 2)
    if config.gated_mlp:
        gate = act(site(f"{mlp}.hook_pre", seen @ params[f"{mlp}.W_gate"]))
        hidden = gate * site(f"{mlp}.hook_pre_linear", into) + b_in
    else:
        hidden = act(site(f"{mlp}.hook_pre", into + b_in))
    post = site(f"{mlp}.hook_post", hidden)
    out = post @ params[f"{mlp}.W_out"] + run.bias(f"{mlp}.b_out", 2)
    return site(f"{block}.hook_mlp_out", out)


def _unembed(run: _Pass, x: Float[Array, "pos d_model"]) -> Logits:
    if run.config.norm == "pre":
        x = _norm(run, "ln_final", x)
    return _product_with_unembedding(run, x)


def _product_with_unembedding(run: _Pass, x: Float[Array, "pos d_model"]) -> Logits:
    return wide(x @ unembedding(run.config, run.params)) + run.bias("unembed.b_U", 2)
