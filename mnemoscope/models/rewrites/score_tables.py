r"""The same logits, faster: an exact rewrite for long sequences, one head a layer and no norm.

What is written here differs from the plain pass in three ways, none of which changes a value by
more than rounding:

1. *Score tables.* In the first layer x_t = e(z_t) + p_t, so a score is a sum of four entries of one
   table over tokens and positions:  s_tk = EE[z_t, z_k] + EP[z_t, k] + PE[t, z_k] + PP[t, k].
   The table costs (vocab + pos)^2 d, whatever the batch.
2. *Only the rows that are read* are computed in the last layer; they may differ from sequence to
   sequence.
3. *Weights first.* Without a norm nothing stands between two matrices in a row, so W_Q W_K^T and
   W_V W_O are multiplied before they meet the batch, and values are mixed before they are mapped.
   A key's bias adds the same to all scores of a row, which softmax does not see.

`row` are the positions that are read, the same number in every sequence; callers give rows that
they ignore as padding.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.xla import materialize
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.tasks import Task

SUPPORT = Support(
    "score tables",
    {
        "norm": ("none",),
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "mlp_layers": ANY,
    },
)


def why_not(config: ModelConfig, task: Task) -> str | None:
    """Why the rewrite is not used; None if it covers this model, and pays.

    On an H200 the plain pass is as fast: 4.1 ms a step of the simplified induction model against
    4.0, and 2.5 against 3.2 at d=128 when all is read.

    Args:
        config: The model.
        task: What it is trained on.
    """
    if task.reads_early:
        return "answers are read after earlier layers too"
    if config.n_heads != 1:
        return f"n_heads={config.n_heads} (allowed: 1)"
    unsupported = SUPPORT.why_not(config)
    if unsupported is None and jax.default_backend() != "cpu":
        return "it pays on a CPU alone"
    return unsupported


def read_logits(
    config: ModelConfig,
    params: Params,
    tokens: Int[Array, "batch pos"],
    rows: Int[Array, "batch row"],
) -> Float[Array, "batch row vocab"]:
    """`forward`'s logits at the positions `rows` of every sequence.

    Args:
        config: The model, of a shape that `why_not` has nothing against.
        params: Its parameters by name.
        tokens: A batch of sequences.
        rows: The positions at which logits are wanted.
    """
    p = {name: jnp.asarray(value) for name, value in params.items()}
    n_pos = tokens.shape[1]
    run = _Pass(config, p, tokens, true=tokens[0, 0] >= 0)
    every = jnp.broadcast_to(jnp.arange(n_pos)[None], tokens.shape)
    w_u = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][None, :n_pos]
    for layer in range(config.n_layers):
        attn = f"blocks.{layer}.attn"
        is_last = layer == config.n_layers - 1
        read = rows if is_last else every
        here = jnp.take_along_axis(x, rows[:, :, None], axis=1) if is_last else x
        w_ov = p[f"{attn}.W_V"][0] @ p[f"{attn}.W_O"][0]
        if layer == 0:
            out = _first_attention(run, read, w_ov)
        else:
            scores = jnp.einsum("brd,bkd->brk", _asking(run, layer, here, config.bias), x)
            mixed = jnp.einsum("brk,bkd->brd", _pattern(run, read, scores), x)
            if is_last and not config.has_mlp(layer) and not config.bias:
                return here @ w_u + mixed @ (w_ov @ w_u)
            out = mixed @ w_ov
        x = _rest_of_layer(run, layer, materialize(run.true, jnp.add, here, out))
    return x @ w_u + run.bias("unembed.b_U")


@dataclass(frozen=True)
class _Pass:
    """What every stage of one pass needs to know."""

    config: ModelConfig
    p: dict[str, Array]
    """The parameters by name."""
    tokens: Array
    """(batch, pos)"""
    true: Array
    """A flag that is true, known only at run time; see `materialize`."""

    def bias(self, name: str) -> Array | float:
        """A bias (1, 1, d) beside streams; 0 where the model has none of this name."""
        return self.p[name].reshape(1, 1, -1) if name in self.p else 0.0


def _asking(
    run: _Pass, layer: int, x: Float[Array, "*column d_model"], biased: bool
) -> Float[Array, "*column d_model"]:
    """Queries as keys see them: scores are their products with the stream."""
    attn = f"blocks.{layer}.attn"
    w_q = run.p[f"{attn}.W_Q"][0]
    w_k = run.p[f"{attn}.W_K"][0]
    by_key = w_k.T * run.config.d_head**-0.5
    asked = x @ (w_q @ by_key)
    if not biased:
        return asked
    ones = (1,) * (x.ndim - 1)
    return asked + (run.p[f"{attn}.b_Q"][0] @ by_key).reshape(*ones, run.config.d_model)


def _pattern(
    run: _Pass, rows: Int[Array, "batch row"], scores: Float[Array, "batch row pos"]
) -> Float[Array, "batch row pos"]:
    may_see = jnp.arange(run.tokens.shape[1])[None, None, :] <= rows[:, :, None]

    def softmax(scores: Array) -> Array:
        return jax.nn.softmax(jnp.where(may_see, scores, -jnp.inf), axis=-1)

    return materialize(run.true, softmax, scores)


def _first_attention(
    run: _Pass, rows: Int[Array, "batch row"], w_ov: Float[Array, "d_model d_model"]
) -> Float[Array, "batch row d_model"]:
    """What the first layer's head adds: scores and values come from tables."""
    embedding = run.p["embed.W_E"]
    d_vocab = len(embedding)
    positions = run.p["pos_embed.W_pos"][: run.tokens.shape[1]]
    both = jnp.concatenate([embedding, positions])
    # a query's bias goes with its position, once
    by_token = _asking(run, 0, embedding, biased=False)
    by_position = _asking(run, 0, positions, biased=run.config.bias)
    table = jnp.concatenate([by_token, by_position]) @ both.T

    def pick_scores(table: Array) -> Array:
        return table_scores(table, d_vocab, run.tokens, rows)

    def pick_values(table: Array) -> Array:
        return table[:d_vocab][run.tokens] + table[None, d_vocab:]

    scores = materialize(run.true, pick_scores, table)
    values = materialize(run.true, pick_values, both @ w_ov)
    return jnp.einsum("brk,bkd->brd", _pattern(run, rows, scores), values)


def _rest_of_layer(
    run: _Pass, layer: int, x: Float[Array, "batch row d_model"]
) -> Float[Array, "batch row d_model"]:
    """Attention's biases, which every row has alike, and the feed-forward part."""
    p = run.p
    attn = f"blocks.{layer}.attn"
    mlp = f"blocks.{layer}.mlp"
    if run.config.bias:
        of_values = p[f"{attn}.b_V"][0] @ p[f"{attn}.W_O"][0]
        x = x + (of_values + p[f"{attn}.b_O"]).reshape(1, 1, run.config.d_model)
    if run.config.has_mlp(layer):
        hidden = ACTIVATIONS[run.config.act](x @ p[f"{mlp}.W_in"] + run.bias(f"{mlp}.b_in"))
        x = x + hidden @ p[f"{mlp}.W_out"] + run.bias(f"{mlp}.b_out")
    return x


def table_scores(
    table: Float[Array, "both both"],
    d_vocab: int,
    tokens: Int[Array, "batch pos"],
    rows: Int[Array, "batch row"],
) -> Float[Array, "batch row pos"]:
    """s[b, r, k] = table[z_r, z_k] + table[z_r, k] + table[r, z_k] + table[r, k].

    Args:
        table: Scores; on both axes tokens come before positions.
        d_vocab: Tokens of the vocabulary.
        tokens: A batch of sequences z.
        rows: The positions r that ask.
    """
    asked = jnp.take_along_axis(tokens, rows, axis=1)
    wide = table[asked] + table[rows + d_vocab]
    keys = jnp.broadcast_to(tokens[:, None, :], (*rows.shape, tokens.shape[1]))
    return wide[:, :, d_vocab:] + jnp.take_along_axis(wide[:, :, :d_vocab], keys, axis=2)
