r"""The same logits, faster: an exact rewrite for models of any layers, a row for each token.

The plain pass is written for one sequence; here all tokens of some sequences are the rows of one
matrix, and what a device does slowly is written as products:

1. *Rows.* Every linear map is one product of x (row, d) with a matrix; queries, keys and values are
   one product together. The gradient of a matrix, dw = x^T dy, is taken from the side that is
   fast (`product`).
2. *Few sequences at a time.* On a CPU training works on so many tokens as fit a core's cache, each
   with its own gradient (`mnemoscope.training.loss`).
3. *One-hot embedding.* Where the vocabulary is small, an embedding is a product with one-hot rows,
   and its gradient a product too instead of a scatter.
4. *Attention* has its derivative written out: `row_attention` on a CPU, on a GPU one kernel that
   keeps the scores on the chip (`attention_kernel`).
5. *Norms.* What a norm before a linear map scales and shifts is done to the map's weights.
6. *Only the positions that are read* are computed in the last layer, but for its keys and values.

It has whatever the forward pass has: activations, attention kinds, norms and positions come from
the same tables.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int, Params
from mnemoscope.core.xla import materialize, pin_layout
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import rotate, sinusoids
from mnemoscope.models.precision import wide
from mnemoscope.models.rewrites import attention_kernel, row_attention
from mnemoscope.models.rewrites.batch_last import take
from mnemoscope.models.shapes import heads_of_qkv
from mnemoscope.tasks import Task

SUPPORT = Support(
    "token rows",
    {
        "norm": ANY,
        "norm_type": ("layer", "rms"),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "gated_mlp": ANY,
        "parallel_attn_mlp": ANY,
        "attn_layers": ANY,
        "mlp_layers": ANY,
        "attention": ("softmax", "linear", "relu"),
        "attn_residual": ANY,
        "causal": ANY,
        "d_head": ANY,
        "n_key_value_heads": ANY,
        "positions": ("learned", "none", "rotary", "sinusoidal"),
        "rotary_dim": ANY,
        "rotary_base": ANY,
        "rotary_adjacent_pairs": ANY,
    },
)
# the largest vocabulary whose embedding is a product: it costs as much as a layer of this width
MOST_TOKENS = 256

Rows = Float[Array, "row d_model"]
ReadRows = Float[Array, "read_row d_model"]


def why_not(config: ModelConfig, task: Task) -> str | None:
    """Why the rewrite is not used; None if it covers this model, and pays.

    Args:
        config: The model.
        task: What it is trained on.
    """
    if task.reads_early:
        return "answers are read after earlier layers too"
    unsupported = SUPPORT.why_not(config)
    if unsupported is None and jax.default_backend() != "cpu":
        return "it pays on a CPU alone"
    return unsupported


def why_not_fused(config: ModelConfig, task: Task) -> str | None:
    """Why the rewrite with its attention in one kernel is not used; None if it is.

    Args:
        config: The model.
        task: What it is trained on.
    """
    if task.reads_early:
        return "answers are read after earlier layers too"
    unsupported = SUPPORT.why_not(config)
    if unsupported is None and config.attention != "softmax":
        return f"attention={config.attention!r} (allowed: 'softmax')"
    return unsupported or attention_kernel.why_not(task.n_ctx, config.d_head)


def read_logits(
    config: ModelConfig,
    params: Params,
    tokens: Int[Array, "batch pos"],
    read: np.ndarray | Int[Array, "batch read"],
    fused: bool = False,
) -> Float[Array, "batch read vocab"]:
    """`forward`'s logits at some positions of every sequence.

    Args:
        config: The model, of a shape that `why_not` has nothing against.
        params: Its parameters by name.
        tokens: A batch of sequences.
        read: The positions at which logits are wanted: the same for all sequences, as constants, or
            an array with the same number of them for each.
        fused: Whether attention is one kernel.
    """
    p = {name: jnp.asarray(value) for name, value in params.items()}
    run = _Pass(config, p, tokens, read, fused, true=tokens[0, 0] >= 0)
    x = _embed(run)
    for layer in range(config.n_layers):
        x = _layer(run, layer, x)
    w_u = run.p["embed.W_E"].T if config.tied else run.p["unembed.W_U"]
    seen = _standard_if_pre(run, x)
    logits = _read(run, "ln_final", seen, w_u, run.p.get("unembed.b_U"), widen=True)
    return logits.reshape(run.batch, read.shape[-1], -1)


# ---- what every part of a pass needs to know


@dataclass(frozen=True)
class _Pass:
    """One pass of one model over a batch."""

    config: ModelConfig
    p: dict[str, Array]
    """The parameters by name."""
    tokens: Array
    """(batch, pos)"""
    read: np.ndarray | Array
    """The positions that the last layer is computed at: (read,) or (batch, read)."""
    fused: bool
    """Whether attention is one kernel."""
    true: Array
    """A flag that is true, known only at run time; see `materialize`."""

    @property
    def batch(self) -> int:
        return self.tokens.shape[0]

    @property
    def n_pos(self) -> int:
        return self.tokens.shape[1]

    @property
    def reads_all(self) -> bool:
        """Whether every position of every sequence is read, in their order."""
        read = self.read
        if not isinstance(read, np.ndarray):
            return False
        return len(read) == self.n_pos and bool((read == np.arange(self.n_pos)).all())

    def product(self, x: Array, w: Array) -> Array:
        """x w, for rows x."""
        return product(self.true, x, w)

    def bias(self, name: str) -> Array | float:
        """A bias beside rows; 0 where the model has none of this name."""
        return self.p[name].reshape(1, -1) if name in self.p else 0.0

    def at_read(self, x: Array) -> Array:
        """Those rows (batch pos) that are at positions that are read."""
        if self.reads_all:
            return x
        by_pos = x.reshape(self.batch, self.n_pos, -1)
        if isinstance(self.read, np.ndarray):
            rows = take(self.read, by_pos.swapaxes(0, 1)).swapaxes(0, 1)
        else:
            rows = jnp.take_along_axis(by_pos, self.read[:, :, None], axis=1)
        return rows.reshape(-1, x.shape[-1])


# ---- products of rows


@jax.custom_vjp
def product(
    true: Bool[Array, ""], x: Float[Array, "row d"], w: Float[Array, "d e"]
) -> Float[Array, "row e"]:
    """x w for many rows.

    Args:
        true: A flag that is true, known only at run time; see `materialize`.
        x: The rows.
        w: The weights.
    """
    return x @ w


def _product_backward(saved: tuple[Array, Array, Array], dy: Array) -> tuple[None, Array, Array]:
    r"""dx = dy w^T;   dw = x^T dy.

    The longer side of dw comes last: 200 GFLOP/s instead of 95 for 256 x 64 of 512 rows.
    """
    true, x, w = saved
    is_wide = w.shape[0] <= w.shape[1]
    dw = x.T @ dy if is_wide else pin_layout(true, dy.T @ x).T
    return None, dy @ w.T, dw


product.defvjp(lambda *args: (product(*args), args), _product_backward)


# ---- norms


def _norm(run: _Pass, name: str, x: Rows) -> Rows:
    """The norm of this name, computed in float32 at least."""
    kind = NORMS[run.config.norm_type]
    standard = _standard(run.config.norm_eps, kind.subtracts_mean, run.true, wide(x))
    scaled = standard * run.p[f"{name}.w"][None] + run.bias(f"{name}.b")
    return scaled.astype(x.dtype)


def _standard_if_pre(run: _Pass, x: Rows) -> Rows:
    """What a pre-norm makes standard; its scale and shift are left to `_read`."""
    if run.config.norm != "pre":
        return x
    centered = NORMS[run.config.norm_type].subtracts_mean
    return _standard(run.config.norm_eps, centered, run.true, wide(x)).astype(x.dtype)


def _read(
    run: _Pass,
    norm: str,
    seen: Rows,
    w: Float[Array, "d_model e"],
    b: Float[Array, "e"] | None,
    widen: bool = False,
) -> Float[Array, "row e"]:
    r"""(scale seen + shift) w + b, of rows that a pre-norm of this name made standard.

        = seen (scale w) + (shift w + b)

    Scale and shift meet the weights, so neither they nor their gradients meet the rows.

    Args:
        run: The pass.
        norm: The name of the norm; without norms it has no weights.
        seen: What `_standard_if_pre` returned.
        w: The weights that read it.
        b: Their bias, if there is one.
        widen: Whether the outcome is float32 also in bfloat16.
    """
    if run.config.norm == "pre":
        shift = run.p.get(f"{norm}.b")
        if shift is not None:
            of_shift = shift @ wide(w)
            b = of_shift if b is None else wide(b) + of_shift
        w = (run.p[f"{norm}.w"][:, None] * wide(w)).astype(w.dtype)
    y = run.product(seen, w)
    y = wide(y) if widen else y
    return y if b is None else y + b.astype(y.dtype)[None]


def _standard(eps: float, centered: bool, true: Array, x: Rows) -> Rows:
    """x with mean square 1 in every row, and mean 0 if it is centered.

    y = (x - mean) / scale,     dx = (dy - mean(dy) - y mean(dy y)) / scale
    """

    @jax.custom_vjp
    def standard(true: Array, x: Array) -> Array:
        return forward(true, x)[0]

    def forward(true: Array, x: Array) -> tuple[Array, tuple[Array, Array]]:
        mean = x.mean(axis=1, keepdims=True) if centered else jnp.zeros((len(x), 1), x.dtype)
        mean_square = jnp.square(x - mean).mean(axis=1, keepdims=True)
        over_scale = jax.lax.rsqrt(mean_square + eps)
        y = materialize(true, lambda x, mean, over: (x - mean) * over, x, mean, over_scale)
        return y, (y, over_scale)

    def backward(saved: tuple[Array, Array], dy: Array) -> tuple[None, Array]:
        y, over_scale = saved
        along = (dy * y).mean(axis=1, keepdims=True)
        if centered:
            dy = dy - dy.mean(axis=1, keepdims=True)
        return None, over_scale * (dy - y * along)

    standard.defvjp(forward, backward)
    return standard(true, x)


# ---- the parts of a model


def _embed(run: _Pass) -> Rows:
    config = run.config
    embedding = run.p["embed.W_E"]
    n_tokens = len(embedding)
    flat = run.tokens.reshape(-1)
    if n_tokens <= MOST_TOKENS:
        one_hot = flat[:, None] == jnp.arange(n_tokens)[None]
        x = run.product(one_hot.astype(embedding.dtype), embedding)
    else:
        x = embedding[flat]
    if config.positions == "learned":
        places = run.p["pos_embed.W_pos"][: run.n_pos]
    elif config.positions == "sinusoidal":
        places = sinusoids(run.n_pos, config.d_model).astype(x.dtype)
    else:
        return x
    return (x.reshape(run.batch, run.n_pos, -1) + places[None]).reshape(x.shape)


def _layer(run: _Pass, layer: int, x: Rows) -> ReadRows:
    """From the stream before a layer to that after it; the last one's, where it is read."""
    config = run.config
    block = f"blocks.{layer}"
    is_last = layer == config.n_layers - 1
    out = _attention(run, block, x, is_last) if config.has_attn(layer) else None
    x = run.at_read(x) if is_last else x
    if out is not None:
        if config.parallel_attn_mlp:
            added = _feed_forward(run, block, x) if config.has_mlp(layer) else 0.0
            return x + out + added
        x = x + out if config.attn_residual else out
        if config.norm == "post":
            x = _norm(run, f"{block}.ln1", x)
    if config.has_mlp(layer):
        x = x + _feed_forward(run, block, x)
        if config.norm == "post":
            x = _norm(run, f"{block}.ln2", x)
    return x


def _attention(run: _Pass, block: str, x: Rows, is_last: bool) -> ReadRows:
    """What a layer's heads add to the stream x, where it is needed."""
    config = run.config
    attn = f"{block}.attn"
    whole = not is_last or run.reads_all
    heads = _queries_keys_values(run, block, _standard_if_pre(run, x))
    if run.fused and whole:
        z = attention_kernel.attend(heads, config.n_heads, config.causal)
    elif config.attention == "softmax" and whole:
        q, k, v = _by_head(run, heads, whole)
        z = row_attention.attend(run.true, config.causal, q, k, v).swapaxes(1, 2)
    else:
        q, k, v = _by_head(run, heads, whole)
        z = _by_pattern(run, jnp.einsum("bhre,bhke->bhrk", q, k), v, is_last).swapaxes(1, 2)
    z = z.reshape(-1, config.n_heads * config.d_head)
    w_o = run.p[f"{attn}.W_O"].reshape(z.shape[1], -1)
    return run.product(z, w_o) + run.bias(f"{attn}.b_O")


def _by_head(run: _Pass, heads: Float[Array, "batch pos heads d_head"], whole: bool) -> list[Array]:
    """Queries where they are needed, scaled, keys and values: (batch, head, row or pos, d_head)."""
    config = run.config
    n_kv = config.n_key_value_heads
    q, k, v = jnp.split(heads, [config.n_heads, config.n_heads + n_kv], axis=2)
    if not whole:
        shape = (run.batch, -1, config.n_heads, config.d_head)
        q = run.at_read(q.reshape(run.batch * run.n_pos, -1)).reshape(shape)
    if ATTENTION[config.attention].is_scaled:
        q = q * config.d_head**-0.5
    # every key-value head serves a group of heads
    k, v = (jnp.repeat(x, config.n_heads // n_kv, axis=2) for x in (k, v))
    return [x.swapaxes(1, 2) for x in (q, k, v)]


def _by_pattern(run: _Pass, scores: Array, v: Array, is_last: bool) -> Array:
    """z of any attention, for scores that every row has for every key."""
    kind = ATTENTION[run.config.attention]
    scores = wide(scores)
    if run.config.causal:
        rows = jnp.asarray(run.read) if is_last else jnp.arange(run.n_pos)
        rows = rows if rows.ndim == 2 else rows[None]
        may_see = jnp.arange(run.n_pos)[None, None] <= rows[:, :, None]
        scores = jnp.where(may_see[:, None], scores, kind.hidden)
    pattern = kind.pattern(scores).astype(v.dtype)
    return jnp.einsum("bhrk,bhke->bhre", pattern, v)


def _queries_keys_values(
    run: _Pass, block: str, seen: Rows
) -> Float[Array, "batch pos heads d_head"]:
    """Queries of all heads, then keys and values of those that have them, from one product."""
    config = run.config
    attn = f"{block}.attn"
    n_heads = heads_of_qkv(config)
    d_model = config.d_model
    by_name = [run.p[f"{attn}.W_{name}"].transpose(1, 0, 2) for name in n_heads]
    w = jnp.concatenate([w.reshape(d_model, -1) for w in by_name], axis=1)
    b = None
    if config.bias:
        b = jnp.concatenate([run.p[f"{attn}.b_{name}"].reshape(-1) for name in n_heads])
    mapped = _read(run, f"{block}.ln1", seen, w, b)
    heads = mapped.reshape(run.batch, run.n_pos, -1, config.d_head)
    if config.positions != "rotary":
        return heads
    n_turned = config.n_heads + config.n_key_value_heads
    how = (config.rotary_dim, config.rotary_base, config.rotary_adjacent_pairs)
    turned = jax.vmap(lambda x: rotate(x, *how))(heads[:, :, :n_turned]).astype(heads.dtype)
    return jnp.concatenate([turned, heads[:, :, n_turned:]], axis=2)


def _feed_forward(run: _Pass, block: str, x: Rows) -> Rows:
    """What a layer's hidden units add to the stream x."""
    config = run.config
    mlp = f"{block}.mlp"
    act = ACTIVATIONS[config.act]
    ln2 = f"{block}.ln2"
    seen = _standard_if_pre(run, x)
    into = run.p[f"{mlp}.W_in"]
    if config.gated_mlp:
        gate = act(_read(run, ln2, seen, run.p[f"{mlp}.W_gate"], None))
        hidden = gate * _read(run, ln2, seen, into, None) + run.bias(f"{mlp}.b_in")
    else:
        hidden = act(_read(run, ln2, seen, into, run.p.get(f"{mlp}.b_in")))
    return run.product(hidden, run.p[f"{mlp}.W_out"]) + run.bias(f"{mlp}.b_out")
