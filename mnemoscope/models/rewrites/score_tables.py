r"""The same logits, faster: an exact rewrite of `forward` for long sequences, one head a layer and no norm.

What is written here differs from the plain pass in three ways, none of which changes a value by more than rounding:

1. *Score tables.* In the first layer x_t = e(z_t) + p_t, so a score is a sum of four entries of one table over tokens and
   positions:  s_tk = EE[z_t, z_k] + EP[z_t, k] + PE[t, z_k] + PP[t, k].  The table costs (vocab + pos)^2 d, whatever the batch.
2. *Only the rows that are read* are computed in the last layer; they may differ from sequence to sequence.
3. *Weights first.* Without a norm nothing stands between two matrices in a row, so W_Q W_K^T and W_V W_O are multiplied
   before they meet the batch, and values are mixed before they are mapped. A key's bias adds the same to all scores of
   a row, which softmax does not see.

`row` are the positions that are read, the same number in every sequence; callers give rows that they ignore as padding.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.xla import kept
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.forward import ACTS


def applies(config: ModelConfig) -> bool:
    """Whether the rewrite covers this model."""
    return not config.unusual and config.norm == "none" and config.n_heads == 1


def read_logits(
    config: ModelConfig, params: Params, tokens: Int[Array, "batch pos"], rows: Int[Array, "batch row"]
) -> Float[Array, "batch row vocab"]:
    """`forward`'s logits at the positions `rows` of every sequence."""
    p = {name: jnp.asarray(value) for name, value in params.items()}
    n_pos, (d_vocab, d), last = tokens.shape[1], p["embed.W_E"].shape, config.n_layers - 1
    true = tokens[0, 0] >= 0  # known only at run time; see `kept`
    every = jnp.broadcast_to(jnp.arange(n_pos)[None], tokens.shape)
    read_out = p["embed.W_E"].T if config.tied else p["unembed.W_U"]

    def bias(name: str) -> Float[Array, "1 1 d"] | float:
        return p[name].reshape(1, 1, -1) if name in p else 0.0

    def asking(
        layer: int, x: Float[Array, "*column d_model"], biased: bool = config.bias
    ) -> Float[Array, "*column d_model"]:
        """Queries as keys see them: scores are their products with the stream."""
        w_q, w_k = (p[f"blocks.{layer}.attn.W_{name}"][0] for name in "QK")
        by_key = w_k.T * config.d_head**-0.5
        asked = x @ (w_q @ by_key)
        if not biased:
            return asked
        return asked + (p[f"blocks.{layer}.attn.b_Q"][0] @ by_key).reshape(*(1 for _ in x.shape[:-1]), d)

    def pattern(rows: Array, scores: Float[Array, "batch row pos"]) -> Float[Array, "batch row pos"]:
        seen = jnp.arange(n_pos)[None, None, :] <= rows[:, :, None]
        return kept(true, lambda s: jax.nn.softmax(jnp.where(seen, s, -jnp.inf), axis=-1), scores)

    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][None, :n_pos]
    for layer in range(config.n_layers):
        attn, mlp, read = f"blocks.{layer}.attn", f"blocks.{layer}.mlp", rows if layer == last else every
        here = jnp.take_along_axis(x, rows[:, :, None], axis=1) if layer == last else x
        carry = p[f"{attn}.W_V"][0] @ p[f"{attn}.W_O"][0]
        if layer == 0:
            parts = p["embed.W_E"], p["pos_embed.W_pos"][:n_pos]
            both = jnp.concatenate(parts)
            # a query's bias goes with its position, once
            table = jnp.concatenate([asking(0, parts[0], biased=False), asking(0, parts[1])]) @ both.T
            scores = kept(true, lambda table, read=read: table_scores(table, d_vocab, tokens, read), table)
            values = kept(true, lambda v: v[:d_vocab][tokens] + v[None, d_vocab:], both @ carry)
            mixed = jnp.einsum("brk,bkd->brd", pattern(read, scores), values)
        else:
            scores = jnp.einsum("brd,bkd->brk", asking(layer, here), x)
            mixed = jnp.einsum("brk,bkd->brd", pattern(read, scores), x)
            if layer == last and not config.has_mlp(layer) and not config.bias:
                return here @ read_out + mixed @ (carry @ read_out)
            mixed = mixed @ carry
        x = kept(true, jnp.add, here, mixed)
        if config.bias:
            x = x + (p[f"{attn}.b_V"][0] @ p[f"{attn}.W_O"][0] + p[f"{attn}.b_O"]).reshape(1, 1, d)
        if config.has_mlp(layer):
            hidden = ACTS[config.act](x @ p[f"{mlp}.W_in"] + bias(f"{mlp}.b_in"))
            x = x + hidden @ p[f"{mlp}.W_out"] + bias(f"{mlp}.b_out")
    return x @ read_out + bias("unembed.b_U")


def table_scores(
    table: Float[Array, "both both"], d_vocab: int, tokens: Int[Array, "batch pos"], rows: Int[Array, "batch row"]
) -> Float[Array, "batch row pos"]:
    """s[b, r, k] = table[z_r, z_k] + table[z_r, k] + table[r, z_k] + table[r, k]; on both axes tokens come before positions."""
    asked = jnp.take_along_axis(tokens, rows, axis=1)
    wide = table[asked] + table[rows + d_vocab]
    keys = jnp.broadcast_to(tokens[:, None, :], (*rows.shape, tokens.shape[1]))
    return wide[:, :, d_vocab:] + jnp.take_along_axis(wide[:, :, :d_vocab], keys, axis=2)
