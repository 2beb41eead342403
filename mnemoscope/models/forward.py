r"""One forward pass for one sequence; it returns the logits and everything it saw on the way.

With x the residual stream (pos, d_model), for each layer:

    pattern = softmax(mask(q k^T / sqrt(d_head)))        q, k, v = x W_Q + b_Q, ...   for each head
    x <- x + sum_head (pattern v) W_O + b_O
    x <- x + act(x W_in + b_in) W_out + b_out                     act = relu, or nothing
    logits = x W_U + b_U

Linear attention has pattern = mask(q k^T), with 0 for what may not be seen. Without `attn_residual` the first sum has no x. The
mask hides what comes later, unless `causal=False`.
`norm="pre"` normalises what attention, feed-forward and read-out receive; `norm="post"` normalises each sum.
Every named value passes through `site`, which applies the edits for that name and records the result: what the
trace holds is what the rest of the computation used.
"""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Logits, Params, PRNGKeyArray, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.models.config import ModelConfig, parameter_shapes
from mnemoscope.models.edits import Edit, recorder

NORM_EPS = 1e-5
Site = Callable[[str, Array], Array]
ACTS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "linear": lambda x: x}


def init(config: ModelConfig, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None, *, key: PRNGKeyArray) -> Params:
    """Draw parameters: embeddings N(0, 1); matrices and biases uniform in +-1/sqrt(fan in); norms at identity.

    `d_vocab_out` counts the answers where they are not the tokens.
    """
    from_heads = config.n_heads * config.d_head
    fan_in = {"W_O": from_heads, "b_O": from_heads, "W_out": config.d_mlp, "b_out": config.d_mlp}
    shapes, constants = parameter_shapes(config, d_vocab, n_ctx, d_vocab_out), config.constants()
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    gaussian = ("W_E", "W_pos", "W_U") if config.unit_embeddings else ("W_E", "W_pos")
    length = config.d_model**-0.5 if config.unit_embeddings else 1.0
    # one draw of each kind, cut into pieces: a draw for each parameter would take seconds to compile
    for_normal, for_uniform = jax.random.split(key)
    normal = jax.random.normal(for_normal, (sum(n for name, n in sizes.items() if name.split(".")[-1] in gaussian),))
    uniform = jax.random.uniform(for_uniform, (sum(sizes.values()),), minval=-1.0)
    params: Params = {}
    for name, shape in shapes.items():
        last = name.split(".")[-1]
        if name in config.identity_names():
            if shape[-2] != shape[-1]:
                raise UserError(f"identity names {name!r}, which is no square matrix here: {shape[-2]} x {shape[-1]}")
            params[name] = jnp.broadcast_to(jnp.eye(shape[-1]), shape)
        elif name in constants:
            params[name] = jnp.full(shape, constants[name])
        elif last in ("w", "b"):
            params[name] = jnp.ones(shape) if last == "w" else jnp.zeros(shape)
        elif last in gaussian:
            params[name], normal = normal[: sizes[name]].reshape(shape) * length, normal[sizes[name] :]
        else:
            bound = fan_in.get(last, config.d_model) ** -0.5
            params[name], uniform = uniform[: sizes[name]].reshape(shape) * bound, uniform[sizes[name] :]
    if config.orthogonal:
        drawn = {name: jnp.asarray(params[name]) for name in ("embed.W_E", "pos_embed.W_pos") if name in params}
        rows = sum(len(x) for x in drawn.values())
        if rows > config.d_model:
            raise UserError(
                f"orthogonal=True needs a width of at least {rows}, for so many embeddings, got {config.d_model}"
            )
        axes = jnp.linalg.qr(jnp.concatenate(list(drawn.values())).T)[0].T * length * config.d_model**0.5
        params |= dict(zip(drawn, jnp.split(axes, [d_vocab]), strict=False))
    for name, factor in config.factors().items():
        params[name] = jnp.asarray(params[name]) * factor
    return params


def _bias(params: Params, name: str, rank: int) -> Array | float:
    return jnp.expand_dims(params[name], tuple(range(rank - params[name].ndim))) if name in params else 0.0


def _normalised(params: Params, name: str, x: Float[Array, "pos d_model"], site: Site) -> Float[Array, "pos d_model"]:
    centred = x - x.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + NORM_EPS)
    return site(f"{name}.hook_normalized", centred * scale) * params[f"{name}.w"][None] + params[f"{name}.b"][None]


def _read_out(
    config: ModelConfig, params: Params, x: Float[Array, "pos d_model"], site: Site = lambda _, x: x
) -> Logits:
    if config.norm == "pre":
        x = _normalised(params, "ln_final", x, site)
    w_u = params["embed.W_E"].T if config.tied else params["unembed.W_U"]
    return x @ w_u + _bias(params, "unembed.b_U", 2)


def forward(
    config: ModelConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> tuple[Logits, dict[str, Array]]:
    """Logits after every token, and the trace: every site's value by name, after edits."""
    edits = tuple(edits)
    site, trace = recorder(config, edits)

    def bias(name: str, rank: int) -> Array | float:
        return _bias(params, name, rank)

    def normalised(name: str, x: Float[Array, "pos d_model"]) -> Float[Array, "pos d_model"]:
        return _normalised(params, name, x, site)

    n_pos = tokens.shape[0]
    everything = jnp.ones((n_pos, n_pos), bool)
    may_see = (jnp.tril(everything) if config.causal else everything)[None]
    x = site("hook_embed", jnp.asarray(params["embed.W_E"])[tokens])
    if config.positions:
        x = x + site("hook_pos_embed", jnp.asarray(params["pos_embed.W_pos"])[:n_pos])

    for layer in range(config.n_layers):
        at, attn, mlp = f"blocks.{layer}", f"blocks.{layer}.attn", f"blocks.{layer}.mlp"
        x = site(f"{at}.hook_resid_pre", x)
        seen = normalised(f"{at}.ln1", x) if config.norm == "pre" else x
        q, k, v = (
            site(f"{attn}.hook_{n.lower()}", jnp.einsum("pd,hde->phe", seen, params[f"{attn}.W_{n}"])
                 + bias(f"{attn}.b_{n}", 3))
            for n in "QKV"
        )  # fmt: skip
        linear = config.attention == "linear"
        scores = jnp.einsum("phe,khe->hpk", q, k) * (1.0 if linear else config.d_head**-0.5)
        scores = site(f"{attn}.hook_attn_scores", jnp.where(may_see, scores, 0.0 if linear else -jnp.inf))
        pattern = site(f"{attn}.hook_pattern", scores if linear else jax.nn.softmax(scores, axis=-1))
        z = site(f"{attn}.hook_z", jnp.einsum("hpk,khe->phe", pattern, v))
        result = site(f"{attn}.hook_result", jnp.einsum("phe,hed->phd", z, params[f"{attn}.W_O"]))
        out = site(f"{at}.hook_attn_out", result.sum(axis=1) + bias(f"{attn}.b_O", 2))
        x = x + out if config.attn_residual else out
        if config.norm == "post":
            x = normalised(f"{at}.ln1", x)
        x = site(f"{at}.hook_resid_mid", x)
        if config.has_mlp(layer):
            seen = normalised(f"{at}.ln2", x) if config.norm == "pre" else x
            pre = site(f"{mlp}.hook_pre", seen @ params[f"{mlp}.W_in"] + bias(f"{mlp}.b_in", 2))
            post = site(f"{mlp}.hook_post", ACTS[config.act](pre))
            x = x + site(f"{at}.hook_mlp_out", post @ params[f"{mlp}.W_out"] + bias(f"{mlp}.b_out", 2))
            if config.norm == "post":
                x = normalised(f"{at}.ln2", x)
        x = site(f"{at}.hook_resid_post", x)

    return _read_out(config, params, x, site), trace


def early_logits(
    config: ModelConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> Float[Array, "layer pos vocab"]:
    """What would be answered if the stream were read after each layer instead of the last: the last row is `forward`'s."""
    _, trace = forward(config, params, tokens, edits)
    streams = [trace[f"blocks.{layer}.hook_resid_post"] for layer in range(config.n_layers)]
    return jnp.stack([_read_out(config, params, x) for x in streams])
