r"""One forward pass of a Llama or GPT-NeoX model for one sequence; it returns the logits and everything it saw on the way.

With x the residual stream (pos, d_model), for each layer:

    q, k = turn(norm(x) W_Q), turn(norm(x) W_K)                   turn: by position, see below
    x <- x + sum_head softmax(mask(q k^T / sqrt(d_head))) v W_O
    x <- x + (silu(y W_gate) * y W_in) W_out                      y = norm(x)       (Llama)
    x <- x + gelu(y W_in + b_in) W_out + b_out                    y = norm(x)       (GPT-NeoX)
    logits = norm(x) W_U                                          tied: W_U = W_E^T

turn: dimensions i and i + r/2 of a head (r = rotary_dims) are the two coordinates of a point that is turned by the angle
position * base^(-2i/r); what lies beyond r stays. norm is x / rms(x) * w (Llama), or the layer norm with w and b (GPT-NeoX).
A parallel model gives attention and feed-forward layer the same x and adds both.

Interface and names are those of `mnemoscope.models.forward`: every named value passes through `site`, which applies the edits for
that name and records the result. Under `jit`, what is not asked for of the trace is not computed.
"""

import re
from collections.abc import Iterable, Sequence
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


def turned(
    x: Float[Array, "pos heads d_head"], dims: int, base: float
) -> Float[Array, "pos heads d_head"]:
    """The first `dims` dimensions of every head turned by the angles of their position; the rest as it was."""
    half = dims // 2
    angles = (
        jnp.arange(x.shape[0], dtype=float)[:, None] * (base ** (-jnp.arange(half) / half))[None]
    )
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second, rest = x[..., :half], x[..., half:dims], x[..., dims:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin, rest], axis=-1)


def forward(
    config: LanguageConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> tuple[Logits, dict[str, Array]]:
    """Logits after every token, and the trace: every site's value by name, after edits."""
    edits = tuple(edits)
    edited, (site, trace) = {edit.site for edit in edits}, recorder(config, edits)

    def bias(name: str, rank: int) -> Array | float:
        return (
            jnp.expand_dims(params[name], tuple(range(rank - params[name].ndim)))
            if name in params
            else 0.0
        )

    def normalised(name: str, x: Float[Array, "pos d_model"]) -> Float[Array, "pos d_model"]:
        centred = x - x.mean(axis=-1, keepdims=True) if config.kind == "neox" else x
        scale = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + config.norm_eps)
        return site(f"{name}.hook_normalized", centred * scale) * params[f"{name}.w"][None] + bias(
            f"{name}.b", 2
        )

    n_pos, group = tokens.shape[0], config.n_heads // config.n_kv_heads
    may_see = jnp.tril(jnp.ones((n_pos, n_pos), bool))[None]
    x = site("hook_embed", jnp.asarray(params["embed.W_E"])[tokens])

    for layer in range(config.n_layers):
        at, attn, mlp = f"blocks.{layer}", f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        x = site(f"{at}.hook_resid_pre", x)
        seen = normalised(f"{at}.ln1", x)
        q, k, v = (
            site(f"{attn}.hook_{n.lower()}", jnp.einsum("pd,hde->phe", seen, params[f"{attn}.W_{n}"])
                 + bias(f"{attn}.b_{n}", 3))
            for n in "QKV"
        )  # fmt: skip
        q, k = (
            site(f"{attn}.hook_rot_{n}", turned(each, config.rotary_dims, config.rotary_base))
            for n, each in (("q", q), ("k", k))
        )
        k, v = (jnp.repeat(each, group, axis=1) for each in (k, v))
        scores = jnp.where(
            may_see, jnp.einsum("phe,khe->hpk", q, k) * config.d_head**-0.5, -jnp.inf
        )
        pattern = site(
            f"{attn}.hook_pattern",
            jax.nn.softmax(site(f"{attn}.hook_attn_scores", scores), axis=-1),
        )
        z = site(f"{attn}.hook_z", jnp.einsum("hpk,khe->phe", pattern, v))
        result = site(f"{attn}.hook_result", jnp.einsum("phe,hed->phd", z, params[f"{attn}.W_O"]))
        # one product for all heads; each head's own share is needed only where it is edited or asked for
        whole = (
            result.sum(axis=1)
            if f"{attn}.hook_result" in edited
            else jnp.einsum("phe,hed->pd", z, params[f"{attn}.W_O"])
        )
        out = site(f"{at}.hook_attn_out", whole + bias(f"{attn}.b_O", 2))
        middle = x if config.parallel else site(f"{at}.hook_resid_mid", x + out)
        seen = normalised(f"{at}.ln2", middle)
        if config.kind == "llama":
            gate = site(f"{mlp}.hook_pre", seen @ params[f"{mlp}.W_gate"])
            hidden = jax.nn.silu(gate) * site(
                f"{mlp}.hook_pre_linear", seen @ params[f"{mlp}.W_in"]
            )
        else:
            pre = site(f"{mlp}.hook_pre", seen @ params[f"{mlp}.W_in"] + bias(f"{mlp}.b_in", 2))
            hidden = jax.nn.gelu(pre, approximate=False)
        post = site(f"{mlp}.hook_post", hidden)
        added = site(f"{at}.hook_mlp_out", post @ params[f"{mlp}.W_out"] + bias(f"{mlp}.b_out", 2))
        x = site(
            f"{at}.hook_resid_post", middle + out + added if config.parallel else middle + added
        )

    normalised("ln_final", x)
    return read_out(config, params, trace["ln_final.hook_normalized"]), trace


def read_out(
    config: LanguageConfig, params: Params, x: Float[Array, "row d_model"]
) -> Float[Array, "row vocab"]:
    """Logits of normalised streams: what the last norm's weights and the unembedding make of them."""
    x = x * params["ln_final.w"][None] + (
        params["ln_final.b"][None] if "ln_final.b" in params else 0.0
    )
    return x @ (params["embed.W_E"].T if config.tied else params["unembed.W_U"])


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LanguageModel:
    """A model that was read from a file: its shape and its weights. Like `Transformer`, it goes through `jit` and `vmap`."""

    config: LanguageConfig = field(metadata={"static": True})
    params: Params

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
        """The layers from this one on as a model of their own: put a stream in at `hook_embed`, and it goes on from there."""
        config = self.config.model_copy(update={"n_layers": self.config.n_layers - layer})
        old = {
            name: re.sub(r"^blocks\.(\d+)", lambda m: f"blocks.{int(m[1]) + layer}", name)
            for name in config.shapes()
        }
        return LanguageModel(config, {name: self.params[there] for name, there in old.items()})

    def check(self, tokens: Tokens | Sequence[int]) -> Tokens:
        """The prompt as an array, or an error that says what a prompt may be."""
        array, config = row_of(tokens), self.config
        if array.ndim != 1 or not 1 <= array.size <= config.n_ctx or array.dtype.kind not in "iu":
            raise UserError(
                f"a prompt is one row of 1 to {config.n_ctx} whole numbers, got {array.dtype} {array.shape}"
            )
        if array.min() < 0 or array.max() >= config.d_vocab:
            raise UserError(f"tokens are 0 to {config.d_vocab - 1}, got {array.tolist()}")
        return jnp.asarray(array)


_compiled = partial(jax.jit, static_argnums=0)(forward)
