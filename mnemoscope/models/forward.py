r"""One forward pass for one sequence; it returns the logits and everything it saw on the way.

With x the residual stream (pos, d_model), for each layer:

    pattern = softmax(mask(q k^T / sqrt(d_head)))        q, k, v = x W_Q + b_Q, ...   for each head
    x <- x + sum_head (pattern v) W_O + b_O
    x <- x + act(x W_in + b_in) W_out + b_out                     act = relu, or nothing
    logits = x W_U + b_U

Linear attention has pattern = mask(q k^T), with 0 for what may not be seen. Without `attn_residual`
the first sum has no x. The mask hides what comes later, unless `causal=False`.
`norm="pre"` normalizes what attention, feed-forward and unembedding receive; `norm="post"`
normalizes each sum.

Every named value passes through `site`, which applies the edits for that name and records the
result: what the trace holds is what the rest of the computation used.
"""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Bool, Float, Logits, Params, PRNGKeyArray, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.models.config import ModelConfig, parameter_shapes
from mnemoscope.models.edits import Edit, recorder

NORM_EPS = 1e-5
Site = Callable[[str, Array], Array]
ACTS: dict[str, Callable[[Array], Array]] = {"relu": jax.nn.relu, "linear": lambda x: x}

# ---- parameters


def init(
    config: ModelConfig,
    d_vocab: int,
    n_ctx: int,
    d_vocab_out: int | None = None,
    *,
    key: PRNGKeyArray,
) -> Params:
    """Draw parameters.

    Embeddings are N(0, 1); matrices and biases uniform in +-1/sqrt(fan in); norms at identity.
    `identity`, `constant`, `orthogonal` and `scaled` of the config change that, in this order.

    Args:
        config: The model.
        d_vocab: Tokens of the vocabulary.
        n_ctx: Positions of a sequence.
        d_vocab_out: How many answers there are, where they are not the tokens.
        key: What the draws are made from.
    """
    shapes = parameter_shapes(config, d_vocab, n_ctx, d_vocab_out)
    params = _drawn(config, shapes, key)
    if config.orthogonal:
        params |= _orthogonal_embeddings(config, params)
    for name, factor in config.factors().items():
        params[name] = jnp.asarray(params[name]) * factor
    return params


def _drawn(config: ModelConfig, shapes: dict[str, tuple[int, ...]], key: PRNGKeyArray) -> Params:
    """Every parameter as its kind is drawn, or as the config says that it starts."""
    gaussian = _gaussian_names(config)
    length = _embedding_length(config)
    identity = config.identity_names()
    constants = config.constants()
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    n_normal = sum(size for name, size in sizes.items() if name.split(".")[-1] in gaussian)
    # one draw of each kind, cut into pieces: a draw for each parameter takes seconds to compile
    for_normal, for_uniform = jax.random.split(key)
    normal = jax.random.normal(for_normal, (n_normal,))
    uniform = jax.random.uniform(for_uniform, (sum(sizes.values()),), minval=-1.0)
    params: Params = {}
    for name, shape in shapes.items():
        last = name.split(".")[-1]
        size = sizes[name]
        if name in identity:
            params[name] = _identity(name, shape)
        elif name in constants:
            params[name] = jnp.full(shape, constants[name])
        elif last in ("w", "b"):  # the scale and shift of a norm
            params[name] = jnp.ones(shape) if last == "w" else jnp.zeros(shape)
        elif last in gaussian:
            params[name] = normal[:size].reshape(shape) * length
            normal = normal[size:]
        else:
            params[name] = uniform[:size].reshape(shape) * _fan_in(config, last) ** -0.5
            uniform = uniform[size:]
    return params


def _gaussian_names(config: ModelConfig) -> tuple[str, ...]:
    """The last parts of the names of parameters that are drawn from a normal distribution."""
    return ("W_E", "W_pos", "W_U") if config.unit_embeddings else ("W_E", "W_pos")


def _embedding_length(config: ModelConfig) -> float:
    """The standard deviation of an embedding's entries."""
    return config.d_model**-0.5 if config.unit_embeddings else 1.0


def _fan_in(config: ModelConfig, last: str) -> int:
    """How many numbers a matrix sums up; a bias is drawn as the matrix it belongs to."""
    if last in ("W_O", "b_O"):
        return config.n_heads * config.d_head
    if last in ("W_out", "b_out"):
        return config.d_mlp
    return config.d_model


def _identity(name: str, shape: tuple[int, ...]) -> Array:
    rows, columns = shape[-2:]
    if rows != columns:
        raise UserError(
            f"identity names {name!r}, which is no square matrix here: {rows} x {columns}"
        )
    return jnp.broadcast_to(jnp.eye(columns), shape)


def _orthogonal_embeddings(config: ModelConfig, params: Params) -> Params:
    """Embeddings of tokens and positions at right angles, in the directions that were drawn."""
    names = [name for name in ("embed.W_E", "pos_embed.W_pos") if name in params]
    drawn = [jnp.asarray(params[name]) for name in names]
    rows = sum(len(x) for x in drawn)
    if rows > config.d_model:
        raise UserError(
            f"orthogonal=True needs a width of at least {rows}, for so many embeddings, "
            f"got {config.d_model}"
        )
    directions = jnp.linalg.qr(jnp.concatenate(drawn).T)[0].T
    vectors = directions * _embedding_length(config) * config.d_model**0.5
    n_tokens = len(drawn[0])
    # without positions the second piece is empty, and is not used
    return dict(zip(names, jnp.split(vectors, [n_tokens]), strict=False))


# ---- the pass


def _bias(params: Params, name: str, rank: int) -> Array | float:
    """A bias with axes of size 1 in front, up to a rank; 0 where the model has none such."""
    if name not in params:
        return 0.0
    return jnp.expand_dims(params[name], tuple(range(rank - params[name].ndim)))


def _normalized(
    params: Params, name: str, x: Float[Array, "pos d_model"], site: Site
) -> Float[Array, "pos d_model"]:
    centered = x - x.mean(axis=-1, keepdims=True)
    scale = jax.lax.rsqrt(jnp.square(centered).mean(axis=-1, keepdims=True) + NORM_EPS)
    standard = site(f"{name}.hook_normalized", centered * scale)
    return standard * params[f"{name}.w"][None] + params[f"{name}.b"][None]


def _unembed(
    config: ModelConfig,
    params: Params,
    x: Float[Array, "pos d_model"],
    site: Site = lambda _, x: x,
) -> Logits:
    if config.norm == "pre":
        x = _normalized(params, "ln_final", x, site)
    w_u = params["embed.W_E"].T if config.tied else params["unembed.W_U"]
    return x @ w_u + _bias(params, "unembed.b_U", 2)


def _attention(
    config: ModelConfig,
    params: Params,
    layer: int,
    x: Float[Array, "pos d_model"],
    may_see: Bool[Array, "1 pos pos"],
    site: Site,
) -> Float[Array, "pos d_model"]:
    """What a layer's heads add to the stream x."""
    block = f"blocks.{layer}"
    attn = f"{block}.attn"
    is_linear = config.attention == "linear"
    seen = _normalized(params, f"{block}.ln1", x, site) if config.norm == "pre" else x

    def project(name: str) -> Float[Array, "pos head d_head"]:
        mapped = jnp.einsum("pd,hde->phe", seen, params[f"{attn}.W_{name}"])
        return site(f"{attn}.hook_{name.lower()}", mapped + _bias(params, f"{attn}.b_{name}", 3))

    q = project("Q")
    k = project("K")
    v = project("V")
    scores = jnp.einsum("phe,khe->hpk", q, k) * (1.0 if is_linear else config.d_head**-0.5)
    scores = jnp.where(may_see, scores, 0.0 if is_linear else -jnp.inf)
    scores = site(f"{attn}.hook_attn_scores", scores)
    pattern = scores if is_linear else jax.nn.softmax(scores, axis=-1)
    pattern = site(f"{attn}.hook_pattern", pattern)
    z = site(f"{attn}.hook_z", jnp.einsum("hpk,khe->phe", pattern, v))
    result = jnp.einsum("phe,hed->phd", z, params[f"{attn}.W_O"])
    result = site(f"{attn}.hook_result", result)
    return site(f"{block}.hook_attn_out", result.sum(axis=1) + _bias(params, f"{attn}.b_O", 2))


def _feed_forward(
    config: ModelConfig, params: Params, layer: int, x: Float[Array, "pos d_model"], site: Site
) -> Float[Array, "pos d_model"]:
    """What a layer's hidden units add to the stream x."""
    block = f"blocks.{layer}"
    mlp = f"{block}.mlp"
    seen = _normalized(params, f"{block}.ln2", x, site) if config.norm == "pre" else x
    pre = seen @ params[f"{mlp}.W_in"] + _bias(params, f"{mlp}.b_in", 2)
    pre = site(f"{mlp}.hook_pre", pre)
    post = site(f"{mlp}.hook_post", ACTS[config.act](pre))
    out = post @ params[f"{mlp}.W_out"] + _bias(params, f"{mlp}.b_out", 2)
    return site(f"{block}.hook_mlp_out", out)


def forward(
    config: ModelConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> tuple[Logits, dict[str, Array]]:
    """Logits after every token, and the trace: every site's value by name, after edits.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: One sequence.
        edits: What the pass should find at some sites instead of what it computed.
    """
    site, trace = recorder(config, tuple(edits))
    n_pos = tokens.shape[0]
    everything = jnp.ones((n_pos, n_pos), bool)
    may_see = (jnp.tril(everything) if config.causal else everything)[None]
    x = site("hook_embed", jnp.asarray(params["embed.W_E"])[tokens])
    if config.positions:
        x = x + site("hook_pos_embed", jnp.asarray(params["pos_embed.W_pos"])[:n_pos])

    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        x = site(f"{block}.hook_resid_pre", x)
        out = _attention(config, params, layer, x, may_see, site)
        x = x + out if config.attn_residual else out
        if config.norm == "post":
            x = _normalized(params, f"{block}.ln1", x, site)
        x = site(f"{block}.hook_resid_mid", x)
        if config.has_mlp(layer):
            x = x + _feed_forward(config, params, layer, x, site)
            if config.norm == "post":
                x = _normalized(params, f"{block}.ln2", x, site)
        x = site(f"{block}.hook_resid_post", x)

    return _unembed(config, params, x, site), trace


def early_logits(
    config: ModelConfig, params: Params, tokens: Tokens, edits: Iterable[Edit] = ()
) -> Float[Array, "layer pos vocab"]:
    """What would be answered if the stream were read after each layer instead of the last.

    The last row is `forward`'s.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: One sequence.
        edits: What the pass should find at some sites instead of what it computed.
    """
    _, trace = forward(config, params, tokens, edits)
    streams = [trace[f"blocks.{layer}.hook_resid_post"] for layer in range(config.n_layers)]
    return jnp.stack([_unembed(config, params, x) for x in streams])
