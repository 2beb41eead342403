r"""The same logits, faster: an exact rewrite of `forward` for many short sequences of few tokens.

Four things make the difference, and none changes a value by more than rounding:

1. *Tables.* What the first layer sees at a position depends only on (position, token). Queries,
   keys, values and all scores are therefore computed once for each such pair, not once for each
   sample, and picked out by one-hot products. The first position sees itself alone: with one layer
   its logits too are computed once for each token.
2. *Only what is read.* The last layer is computed at the positions that the loss reads.
3. *Weights first.* With one layer and no norm, nothing but sums stands between attention and what
   follows, so the matrices are multiplied with each other before they meet the batch. A norm's own
   scale and shift are folded into the weights that read it.
4. *Batch last.* Every large product is W[d, e]^T x[d, columns], and attention is sums over short
   unrolled axes, vectorized along the batch.

Axes here end with the batch: `row` are the positions at which a layer is computed, `u` and `v`
stand for tokens as queries and keys. `why_not` says for which shapes this is used.
"""

from dataclasses import dataclass
from functools import cached_property, partial

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.xla import materialize
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.models.rewrites import gpu_kernel
from mnemoscope.models.rewrites.batch_last import attend, compare, pick, product, standard, take
from mnemoscope.tasks import Task

VECTOR = 16  # columns come in whole registers: 528 are 2% faster than 518 on a core, 7% on an H200


SUPPORT = Support(
    "pair tables",
    {
        "norm": ANY,
        "norm_type": ("layer",),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "mlp_layers": ANY,
    },
)
# (position, token) pairs up to which tables pay. Measured on one core with d=32 and batch 128: 9
# positions of 32 tokens take 1.1 ms against the plain pass's 1.8, 48 of 6 tokens 6.6 against 12.3;
# 9 of 64 tokens 3.4 against 1.9. Around 400 pairs it depends on which there are more of.
MOST_PAIRS = 300


def why_not(config: ModelConfig, task: Task) -> str | None:
    """Why the rewrite is not used; None if it covers this model, and tables pay.

    Args:
        config: The model.
        task: What it is trained on.
    """
    if task.reads_early:
        return "answers are read after earlier layers too"
    pairs = task.d_vocab * task.n_ctx
    if pairs > MOST_PAIRS:
        return (
            f"{task.d_vocab} tokens at {task.n_ctx} positions are {pairs} pairs; "
            f"tables pay up to {MOST_PAIRS}"
        )
    return SUPPORT.why_not(config)


def read_logits(
    config: ModelConfig,
    params: Params,
    tokens: Int[Array, "batch pos"],
    read: tuple[int, ...],
) -> Float[Array, "vocab read batch"]:
    """`forward`'s logits at the positions `read` of every sequence.

    Args:
        config: The model, of a shape that `why_not` has nothing against.
        params: Its parameters by name.
        tokens: A batch of sequences.
        read: The positions at which logits are wanted, in ascending order.
    """
    run = _begin(config, params, tokens, read)
    attended = _first_attention(run)
    columns = _stream_columns(run, attended)
    parts = _stream_parts(run)
    if run.is_one_layer and config.norm == "none":
        logits = _folded_logits(run, parts, columns)
    else:
        x = _first_stream(run, parts, columns)
        for layer in range(1, config.n_layers):
            x = _later_layer(run, layer, x)
        logits = _unembed(run, x)
    return _by_position(run, logits, attended.is_token)


@dataclass(frozen=True)
class _Pass:
    """What every stage of one pass needs to know."""

    config: ModelConfig
    p: dict[str, Array]
    """The parameters by name."""
    tokens: Array
    """(batch, pos)"""
    read: tuple[int, ...]
    """The positions that the last layer is computed at."""
    true: Array
    """A flag that is true, known only at run time; see `materialize`."""
    w_u: Array
    """(d_model, vocab): the unembedding."""

    @property
    def batch(self) -> int:
        return self.tokens.shape[0]

    @property
    def n_pos(self) -> int:
        return self.tokens.shape[1]

    @property
    def d_vocab(self) -> int:
        return self.p["embed.W_E"].shape[0]

    @property
    def is_one_layer(self) -> bool:
        return self.config.n_layers == 1

    @property
    def by_token(self) -> bool:
        """Whether columns of the first position stand for tokens instead of sequences.

        It sees itself alone, so with one layer there are only as many answers as tokens.
        """
        reads_first = len(self.read) > 1 and self.read[0] == 0
        return self.is_one_layer and reads_first and self.d_vocab < self.batch

    # built once: JAX knows two constants for the same one only if they are the same array

    @cached_property
    def _asked(self) -> np.ndarray:
        return np.array(self.read)

    @cached_property
    def _every(self) -> np.ndarray:
        return np.arange(self.n_pos)

    def places(self, layer: int) -> np.ndarray:
        """The positions at which a layer's output is needed."""
        is_last = layer == self.config.n_layers - 1
        return self._asked if is_last else self._every

    @cached_property
    def first_rows(self) -> np.ndarray:
        """The positions at which the first layer is computed for every sequence."""
        places = self.places(0)
        return places[1:] if self.by_token else places

    def last_norm(self, layer: int) -> str:
        """The name of the norm with which a layer of a post-norm model ends."""
        return f"blocks.{layer}.{'ln2' if self.config.has_mlp(layer) else 'ln1'}"

    def bias(self, name: str) -> Array | float:
        """A bias beside columns; 0 where the model has none of this name."""
        return self.p[name][:, None] if name in self.p else 0.0

    def normalized(self, name: str, x: Array, axis: int = 0) -> Array:
        """The norm `name` of x along an axis."""
        other = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
        scale = jnp.expand_dims(self.p[f"{name}.w"], other)
        scaled = standard(x, self.config.norm_eps, axis) * scale
        return scaled + jnp.expand_dims(self.p[f"{name}.b"], other)

    def norm_linear(self, norm: str, w: Array, bias: str, x: Array) -> Array:
        """w^T (scale x + shift) + bias, for standard columns x and a norm's scale and shift."""
        scaled = product(self.true, self.p[f"{norm}.w"][:, None] * w, x)
        return scaled + (self.p[f"{norm}.b"] @ w)[:, None] + self.bias(bias)


def _begin(config: ModelConfig, params: Params, tokens: Array, read: tuple[int, ...]) -> _Pass:
    p = {name: jnp.asarray(value) for name, value in params.items()}
    true = tokens[0, 0] >= 0
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    return _Pass(config, p, tokens, read, true, w_u)


# ---- stage 1: the first layer's attention, from tables over (position, token)


@dataclass(frozen=True)
class _Attended:
    """What the first layer's attention hands on."""

    z: Array
    """(head, d_head, row, batch): the mixed values at the rows of `first_rows`."""
    first_v: Array
    """(d_model, vocab): the values of each token at the first position."""
    is_token: Array
    """(pos, vocab, batch): the sequences, one-hot."""


def _first_attention(run: _Pass) -> _Attended:
    """Score each (position, token) pair once; the batch picks its entries from the tables."""
    config = run.config
    rows = run.first_rows
    q, k, v = _qkv_tables(run)
    first_v = v[0].reshape(run.d_vocab, config.d_model).T
    scores = jnp.einsum("ruhe,kvhe->rhkvu", take(rows, q), k) * config.d_head**-0.5
    is_token = materialize(run.true, partial(_one_hot, run.d_vocab), run.tokens.T.astype(jnp.int8))
    if gpu_kernel.applies(run.n_pos * run.d_vocab, config.d_head, run.batch):
        z = _attend_in_kernel(run, scores, v, is_token)
    else:
        z = _attend_by_picking(run, scores, v, is_token)
    return _Attended(z, first_v, is_token)


def _qkv_tables(run: _Pass) -> list[Array]:
    """Queries, keys and values (pos, vocab, head, d_head) of every (position, token) pair."""
    p = run.p
    embedded = p["pos_embed.W_pos"][: run.n_pos, None] + p["embed.W_E"][None]
    is_pre_norm = run.config.norm == "pre"
    seen = run.normalized("blocks.0.ln1", embedded, -1) if is_pre_norm else embedded
    w_qkv = jnp.concatenate([p[f"blocks.0.attn.W_{name}"] for name in "QKV"])
    tables = jnp.split(jnp.einsum("pvd,hde->pvhe", seen, w_qkv), 3, axis=2)
    if run.config.bias:
        biases = [f"blocks.0.attn.b_{name}" for name in "QKV"]
        tables = [x + p[b][None, None] for b, x in zip(biases, tables, strict=True)]
    return tables


def _attend_in_kernel(run: _Pass, scores: Array, v: Array, is_token: Array) -> Array:
    """On a GPU: scores of pairs (row, head, pair, u) and values of pairs go to one kernel."""
    config = run.config
    rows = run.first_rows
    scores = scores + _unseen(rows, run.n_pos)[:, None, :, None, None]
    scores = scores.reshape(len(rows), config.n_heads, -1, run.d_vocab)
    v = v.transpose(2, 3, 0, 1).reshape(config.n_heads, config.d_head, -1)
    is_key = is_token.reshape(-1, run.batch).astype(jnp.int8)
    return gpu_kernel.table_attention(scores, v, is_key, take(rows, run.tokens.T))


def _attend_by_picking(run: _Pass, scores: Array, v: Array, is_token: Array) -> Array:
    """Elsewhere: one-hot products pick each sequence's scores and values, and attention mixes."""
    config = run.config
    rows = run.first_rows
    # first the query's token, then each key's own
    scores = scores.reshape(len(rows), -1, run.d_vocab)
    scores = jnp.einsum("rxu,rub->rxb", scores, take(rows, is_token))
    by_key = (len(rows), config.n_heads, run.n_pos, run.d_vocab, run.batch)
    scores = pick(scores.reshape(by_key), is_token)
    v = v.transpose(0, 2, 3, 1).reshape(run.n_pos, config.d_model, run.d_vocab)
    v = jnp.einsum("kxv,kvb->kxb", v, is_token)
    scores = scores + _unseen(rows, run.n_pos)[:, None, :, None]
    heads = (run.n_pos, config.n_heads, config.d_head, run.batch)
    return attend(run.true, scores, v.reshape(heads))


# ---- stage 2: the residual stream after it, as one product parts^T [z; data]


@dataclass(frozen=True)
class _Columns:
    """What the parts of the stream are multiplied with: a column for each row of each sequence."""

    z: Array
    """(d_model, column): the mixed values of all heads."""
    data: Array
    """(vocab + place, column): the column's token and its position, one-hot."""


def _stream_columns(run: _Pass, attended: _Attended) -> _Columns:
    places = run.places(0)
    rows = run.first_rows
    z = attended.z.reshape(run.config.d_model, -1)
    is_at_row = take(rows, attended.is_token).transpose(1, 0, 2).reshape(run.d_vocab, -1)
    place = np.repeat(np.arange(len(places))[-len(rows) :], run.batch)
    if run.by_token:
        fill = [(0, 0), (0, -(z.shape[1] + run.d_vocab) % VECTOR)]
        z = jnp.pad(jnp.concatenate([z, attended.first_v], axis=1), fill)
        every_token = jnp.eye(run.d_vocab, dtype=z.dtype)
        is_at_row = jnp.pad(jnp.concatenate([is_at_row, every_token], axis=1), fill)
        place = np.concatenate([place, np.zeros(z.shape[1] - len(place), int)])
    data = jnp.concatenate([is_at_row, np.eye(len(places), dtype=z.dtype)[:, place]])
    return _Columns(z, data)


def _stream_parts(run: _Pass) -> Float[Array, "part d_model"]:
    """What a column adds up: W_O for z, the embedding of its token, that of its position."""
    p = run.p
    d_model = run.config.d_model
    b_o = p["blocks.0.attn.b_O"][None] if run.config.bias else 0.0
    return jnp.concatenate(
        [
            p["blocks.0.attn.W_O"].reshape(d_model, d_model),
            p["embed.W_E"],
            take(run.places(0), p["pos_embed.W_pos"]) + b_o,
        ]
    )


def _first_stream(
    run: _Pass, parts: Float[Array, "part d_model"], columns: _Columns
) -> Float[Array, "d_model column"]:
    """The stream after the whole first layer."""
    if run.config.norm == "post":
        parts = parts - parts.mean(axis=1, keepdims=True)  # the norm would center every column
    return _feed_forward(run, 0, product(run.true, parts, columns.z, columns.data))


# ---- stage 3: feed-forward layers, and the layers after the first


def _feed_forward(
    run: _Pass, layer: int, x: Float[Array, "d_model column"]
) -> Float[Array, "d_model column"]:
    """From the stream after attention to the next layer's.

    After the last layer of a post-norm model: standard columns, whose scale and shift `_unembed`
    folds into the unembedding.
    """
    if run.config.norm == "post":
        return _feed_forward_post_norm(run, layer, x)
    if not run.config.has_mlp(layer):
        return x
    mlp = f"blocks.{layer}.mlp"
    seen = run.normalized(f"blocks.{layer}.ln2", x) if run.config.norm == "pre" else x
    before = product(run.true, run.p[f"{mlp}.W_in"], seen) + run.bias(f"{mlp}.b_in")
    hidden = ACTIVATIONS[run.config.act](before)
    return x + product(run.true, run.p[f"{mlp}.W_out"], hidden) + run.bias(f"{mlp}.b_out")


def _feed_forward_post_norm(
    run: _Pass, layer: int, x: Float[Array, "d_model column"]
) -> Float[Array, "d_model column"]:
    p = run.p
    at = f"blocks.{layer}"
    mlp = f"{at}.mlp"
    eps = run.config.norm_eps
    x = standard(x, eps, centered=layer == 0)
    if run.config.has_mlp(layer):
        before = run.norm_linear(f"{at}.ln1", p[f"{mlp}.W_in"], f"{mlp}.b_in", x)
        hidden = ACTIVATIONS[run.config.act](before)
        x = p[f"{at}.ln1.w"][:, None] * x + product(run.true, p[f"{mlp}.W_out"], hidden)
        x = standard(x + p[f"{at}.ln1.b"][:, None] + run.bias(f"{mlp}.b_out"), eps)
    if layer == run.config.n_layers - 1:
        return x
    norm = run.last_norm(layer)
    return x * p[f"{norm}.w"][:, None] + p[f"{norm}.b"][:, None]


def _later_layer(
    run: _Pass, layer: int, x: Float[Array, "d_model every"]
) -> Float[Array, "d_model column"]:
    """A layer after the first: the stream at every position in, at the layer's own rows out."""
    config = run.config
    d_model = config.d_model
    at = f"blocks.{layer}"
    rows = run.places(layer)

    def at_rows(x: Array) -> Array:
        return x.reshape(d_model, run.n_pos, run.batch)[:, rows].reshape(d_model, -1)

    def split(name: str, x: Array) -> Array:
        w = run.p[f"{at}.attn.W_{name}"].transpose(1, 0, 2).reshape(d_model, d_model)
        b = run.p[f"{at}.attn.b_{name}"].reshape(d_model, 1) if config.bias else 0.0
        return (product(run.true, w, x) + b).reshape(config.n_heads, config.d_head, -1, run.batch)

    seen = run.normalized(f"{at}.ln1", x) if config.norm == "pre" else x
    q = split("Q", at_rows(seen)) * config.d_head**-0.5
    k = split("K", seen).transpose(2, 0, 1, 3)
    v = split("V", seen).transpose(2, 0, 1, 3)
    scores = compare(run.true, q, k) + _unseen(rows, run.n_pos)[:, None, :, None]
    z = attend(run.true, scores, v).reshape(d_model, -1)
    around = at_rows(x)
    w_o = run.p[f"{at}.attn.W_O"].reshape(d_model, d_model)
    x = around + product(run.true, w_o, z) + run.bias(f"{at}.attn.b_O")
    return _feed_forward(run, layer, x)


# ---- stage 4: logits


def _folded_logits(
    run: _Pass, parts: Float[Array, "part d_model"], columns: _Columns
) -> Float[Array, "vocab column"]:
    """One layer without norm, from the parts of the stream: hidden units and logits in one product.

    With x = parts^T [z; data]:   hidden = W_in^T x,   logits = W_U^T x + (W_out W_U)^T act(hidden).
    Each column holds exactly one of the last `n_read` parts, its position, so these carry the
    biases.
    """
    config = run.config
    p = run.p
    mlp = "blocks.0.mlp"
    n_read = parts.shape[0] - sum(p["embed.W_E"].shape)
    b_u = p.get("unembed.b_U", jnp.zeros(run.w_u.shape[1], run.w_u.dtype))
    weights = [run.w_u]
    biases = [b_u]
    if config.has_mlp(0):
        weights = [p[f"{mlp}.W_in"], run.w_u]
        if config.bias:
            biases = [p[f"{mlp}.b_in"], b_u + p[f"{mlp}.b_out"] @ run.w_u]
    w = parts @ jnp.concatenate(weights, axis=1)
    if config.bias:
        w = w.at[-n_read:].add(jnp.concatenate(biases)[None])
    both = product(run.true, w, columns.z, columns.data)
    if not config.has_mlp(0):
        return both
    hidden = both[: config.d_mlp]
    logits = both[config.d_mlp :]
    return logits + product(run.true, p[f"{mlp}.W_out"] @ run.w_u, ACTIVATIONS[config.act](hidden))


def _unembed(run: _Pass, x: Float[Array, "d_model column"]) -> Float[Array, "vocab column"]:
    """The last norm, if there is one, and the unembedding."""
    if run.config.norm == "none":
        return product(run.true, run.w_u, x) + run.bias("unembed.b_U")
    if run.config.norm == "pre":
        x = standard(x, run.config.norm_eps)
        return run.norm_linear("ln_final", run.w_u, "unembed.b_U", x)
    norm = run.last_norm(run.config.n_layers - 1)
    return run.norm_linear(norm, run.w_u, "unembed.b_U", x)


def _by_position(
    run: _Pass, logits: Float[Array, "vocab column"], is_token: Float[Array, "pos token batch"]
) -> Float[Array, "vocab read batch"]:
    """Columns as positions and sequences; each sequence takes its first position's by token."""
    n_columns = run.batch * (len(run.read) - run.by_token)
    of_batch = logits[:, :n_columns].reshape(len(logits), -1, run.batch)
    if not run.by_token:
        return of_batch
    of_tokens = logits[:, n_columns : n_columns + run.d_vocab]
    first = jnp.einsum("yt,tb->yb", of_tokens, is_token[0])
    return jnp.concatenate([first[:, None], of_batch], axis=1)


# ---- what the tables are picked with


def _one_hot(d_vocab: int, tokens: Int[Array, "pos batch"]) -> Float[Array, "pos vocab batch"]:
    here = tokens[:, None]
    every_token = jnp.arange(d_vocab, dtype=tokens.dtype)[None, :, None]
    return (here == every_token).astype(float)


def _unseen(rows: np.ndarray, n_pos: int) -> Float[Array, "row key_pos"]:
    """What the causal mask adds to the scores."""
    return jnp.where(np.arange(n_pos)[None, :] > rows[:, None], gpu_kernel.MASKED, 0.0)
