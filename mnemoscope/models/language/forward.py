r"""One forward pass of a Llama or GPT-NeoX model: logits, and everything it saw on the way.

With x the residual stream (pos, d_model), for each layer:

    q, k = turn(norm(x) W_Q), turn(norm(x) W_K)                   turn: by position, see below
    x <- x + sum_head softmax(mask(q k^T / sqrt(d_head))) v W_O
    x <- x + (silu(y W_gate) * y W_in) W_out                      y = norm(x)       (Llama)
    x <- x + gelu(y W_in + b_in) W_out + b_out                    y = norm(x)       (GPT-NeoX)
    logits = norm(x) W_U                                          tied: W_U = W_E^T

turn: dimensions i and i + r/2 of a head (r = rotary_dims) are the two coordinates of a point that
is turned by the angle position * base^(-2i/r); what lies beyond r stays. norm is x / rms(x) * w
(Llama), or the layer norm with w and b (GPT-NeoX). A parallel model gives attention and
feed-forward layer the same x and adds both.

Interface and names are those of `mnemoscope.models.forward`: every named value passes through
`site`, which applies the edits for that name and records the result. Under `jit`, what is not asked
for of the trace is not computed.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Logits, Params, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.models import Cache, Edit
from mnemoscope.models.edits import recorder
from mnemoscope.models.language.config import LanguageConfig
from mnemoscope.models.transformer import row_of


def apply_rotary(
    x: Float[Array, "pos heads d_head"], dims: int, base: float
) -> Float[Array, "pos heads d_head"]:
    """Heads turned by the angles of their position: rotary embedding.

    Args:
        x: Queries or keys.
        dims: How many dimensions of every head are turned, from the first; the rest stays.
        base: The base of the angles.
    """
    half = dims // 2
    position = jnp.arange(x.shape[0], dtype=float)[:, None]
    frequency = (base ** (-jnp.arange(half) / half))[None]
    angles = position * frequency
    cos = jnp.cos(angles)[:, None]
    sin = jnp.sin(angles)[:, None]
    first = x[..., :half]
    second = x[..., half:dims]
    rest = x[..., dims:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


@dataclass(frozen=True)
class _Pass:
    """What every layer of one pass needs to know."""

    config: LanguageConfig
    params: Params
    site: Callable[[str, Array], Array]
    """What every named value goes through: it applies edits and records."""
    edited: frozenset[str]
    """The sites that are edited."""
    may_see: Array
    """(1, pos, key_pos): the causal mask."""

    def bias(self, name: str, rank: int) -> Array | float:
        """A bias with axes of size 1 in front, up to a rank; 0 where the model has none such."""
        if name not in self.params:
            return 0.0
        bias = self.params[name]
        return jnp.expand_dims(bias, tuple(range(rank - bias.ndim)))

    def normalized(self, name: str, x: Float[Array, "pos d_model"]) -> Float[Array, "pos d_model"]:
        """The norm of this name."""
        config = self.config
        centered = x - x.mean(axis=-1, keepdims=True) if config.kind == "neox" else x
        scale = jax.lax.rsqrt(jnp.square(centered).mean(axis=-1, keepdims=True) + config.norm_eps)
        standard = self.site(f"{name}.hook_normalized", centered * scale)
        return standard * self.params[f"{name}.w"][None] + self.bias(f"{name}.b", 2)


def forward(
    config: LanguageConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> tuple[Logits, dict[str, Array]]:
    """Logits after every token, and the trace: every site's value by name, after edits.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: One sequence.
        edits: What the pass should find at some sites instead of what it computed.
    """
    edits = tuple(edits)
    edited = frozenset(edit.site for edit in edits)
    site, trace = recorder(config, edits)
    n_pos = tokens.shape[0]
    may_see = jnp.tril(jnp.ones((n_pos, n_pos), bool))[None]
    run = _Pass(config, params, site, edited, may_see)
    x = site("hook_embed", jnp.asarray(params["embed.W_E"])[tokens])

    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        x = site(f"{block}.hook_resid_pre", x)
        out = _attention(run, block, x)
        middle = x if config.parallel else site(f"{block}.hook_resid_mid", x + out)
        added = _feed_forward(run, block, middle)
        after = middle + out + added if config.parallel else middle + added
        x = site(f"{block}.hook_resid_post", after)

    run.normalized("ln_final", x)
    return read_out(config, params, trace["ln_final.hook_normalized"]), trace


def _attention(
    run: _Pass, block: str, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's heads add to the stream x."""
    config = run.config
    params = run.params
    site = run.site
    attn = f"{block}.attn"
    seen = run.normalized(f"{block}.ln1", x)

    def project(name: str) -> Float[Array, "pos heads d_head"]:
        mapped = jnp.einsum("pd,hde->phe", seen, params[f"{attn}.W_{name}"])
        return site(f"{attn}.hook_{name.lower()}", mapped + run.bias(f"{attn}.b_{name}", 3))

    q = project("Q")
    k = project("K")
    v = project("V")
    q = site(f"{attn}.hook_rot_q", apply_rotary(q, config.rotary_dims, config.rotary_base))
    k = site(f"{attn}.hook_rot_k", apply_rotary(k, config.rotary_dims, config.rotary_base))
    # every key-value head serves a group of heads
    group = config.n_heads // config.n_kv_heads
    k = jnp.repeat(k, group, axis=1)
    v = jnp.repeat(v, group, axis=1)
    scores = jnp.einsum("phe,khe->hpk", q, k) * config.d_head**-0.5
    scores = site(f"{attn}.hook_attn_scores", jnp.where(run.may_see, scores, -jnp.inf))
    pattern = site(f"{attn}.hook_pattern", jax.nn.softmax(scores, axis=-1))
    z = site(f"{attn}.hook_z", jnp.einsum("hpk,khe->phe", pattern, v))
    by_head = site(f"{attn}.hook_result", jnp.einsum("phe,hed->phd", z, params[f"{attn}.W_O"]))
    # one product for all heads; each head's own share is needed only where it is edited or asked
    # for
    is_edited = f"{attn}.hook_result" in run.edited
    w_o = params[f"{attn}.W_O"]
    whole = by_head.sum(axis=1) if is_edited else jnp.einsum("phe,hed->pd", z, w_o)
    return site(f"{block}.hook_attn_out", whole + run.bias(f"{attn}.b_O", 2))


def _feed_forward(
    run: _Pass, block: str, x: Float[Array, "pos d_model"]
) -> Float[Array, "pos d_model"]:
    """What a layer's hidden units add to the stream x."""
    params = run.params
    site = run.site
    mlp = f"{block}.mlp"
    seen = run.normalized(f"{block}.ln2", x)
    if run.config.kind == "llama":
        gate = jax.nn.silu(site(f"{mlp}.hook_pre", seen @ params[f"{mlp}.W_gate"]))
        hidden = gate * site(f"{mlp}.hook_pre_linear", seen @ params[f"{mlp}.W_in"])
    else:
        pre = seen @ params[f"{mlp}.W_in"] + run.bias(f"{mlp}.b_in", 2)
        hidden = jax.nn.gelu(site(f"{mlp}.hook_pre", pre), approximate=False)
    post = site(f"{mlp}.hook_post", hidden)
    out = post @ params[f"{mlp}.W_out"] + run.bias(f"{mlp}.b_out", 2)
    return site(f"{block}.hook_mlp_out", out)


def read_out(
    config: LanguageConfig, params: Params, x: Float[Array, "row d_model"]
) -> Float[Array, "row vocab"]:
    """Logits: what the last norm's weights and the unembedding make of standard streams.

    Args:
        config: The model.
        params: Its parameters by name.
        x: Streams after the last norm, before its weights.
    """
    x = x * params["ln_final.w"][None]
    x = x + (params["ln_final.b"][None] if "ln_final.b" in params else 0.0)
    return x @ (params["embed.W_E"].T if config.tied else params["unembed.W_U"])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LanguageModel:
    """A model that was read from a file. Like `Transformer`, it goes through `jit` and `vmap`."""

    config: LanguageConfig = field(metadata={"static": True})
    """Its shape."""
    params: Params
    """Its weights by name."""

    def __call__(self, tokens: Tokens, edits: Iterable[Edit] = ()) -> Logits:
        """Logits after every token of one sequence."""
        return forward(self.config, self.params, tokens, edits)[0]

    def run_with_trace(
        self, tokens: Tokens, edits: Iterable[Edit] = ()
    ) -> tuple[Logits, dict[str, Array]]:
        """Logits and the plain trace, unchecked: for use inside `jit` and `vmap`."""
        return forward(self.config, self.params, tokens, edits)

    def run_with_cache(
        self, tokens: Tokens | Sequence[int], edits: Iterable[Edit] = ()
    ) -> tuple[Logits, Cache]:
        """Logits and every site's value for one prompt, which is checked first."""
        logits, trace = _compiled(self.config, self.params, self.check(tokens), tuple(edits))
        return logits, Cache(self.config, trace)

    def after(self, layer: int) -> "LanguageModel":
        """The layers from this one on as a model of their own.

        Put a stream in at `hook_embed`, and it goes on from there.
        """
        config = self.config.model_copy(update={"n_layers": self.config.n_layers - layer})

        def name_here(name: str) -> str:
            return re.sub(r"^blocks\.(\d+)", lambda m: f"blocks.{int(m[1]) + layer}", name)

        params = {name: self.params[name_here(name)] for name in config.shapes()}
        return LanguageModel(config, params)

    def check(self, tokens: Tokens | Sequence[int]) -> Tokens:
        """The prompt as an array, or an error that says what a prompt may be."""
        config = self.config
        array = row_of(tokens)
        is_row = array.ndim == 1 and 1 <= array.size <= config.n_ctx
        if not is_row or array.dtype.kind not in "iu":
            raise UserError(
                f"a prompt is one row of 1 to {config.n_ctx} whole numbers, "
                f"got {array.dtype} {array.shape}"
            )
        if array.min() < 0 or array.max() >= config.d_vocab:
            raise UserError(f"tokens are 0 to {config.d_vocab - 1}, got {array.tolist()}")
        return jnp.asarray(array)


_compiled = partial(jax.jit, static_argnums=0)(forward)
