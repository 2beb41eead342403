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

from mnemoscope.arrays import Array, Float, Int, Params
from mnemoscope.model.config import ModelConfig
from mnemoscope.model.fast import kept
from mnemoscope.model.forward import ACTS


def applies(config: ModelConfig) -> bool:
    """Whether the rewrite covers this model."""
    return config.norm == "none" and config.n_heads == 1


def read_logits(
    config: ModelConfig, params: Params, tokens: Int[Array, "batch pos"], rows: Int[Array, "batch row"]
) -> Float[Array, "batch row vocab"]:
    """`forward`'s logits at the positions `rows` of every sequence."""
    p = {name: jnp.asarray(value) for name, value in params.items()}
    n_pos, d_vocab = tokens.shape[1], p["embed.W_E"].shape[0]
    true = tokens[0, 0] >= 0
    every = jnp.broadcast_to(jnp.arange(n_pos)[None], tokens.shape)

    def bias(name: str) -> Array | float:
        return p[name].reshape(1, -1) if name in p else 0.0

    def at(rows: Array, x: Float[Array, "batch pos d_model"]) -> Array:
        return x if rows is every else jnp.take_along_axis(x, rows[:, :, None], axis=1)

    def pattern(rows: Array, scores: Float[Array, "batch row pos"]) -> Array:
        seen = jnp.arange(n_pos)[None, None, :] <= rows[:, :, None]
        return kept(true, lambda s: jax.nn.softmax(jnp.where(seen, s, -jnp.inf), axis=-1), scores)

    def asking(layer: int, x: Float[Array, "column d_model"]) -> Float[Array, "column d_model"]:
        """Queries as keys see them: scores are their products with the stream."""
        attn = f"blocks.{layer}.attn"
        by_key = p[f"{attn}.W_K"][0].T * config.d_head**-0.5
        return x @ (p[f"{attn}.W_Q"][0] @ by_key) + (bias(f"{attn}.b_Q") @ by_key if config.bias else 0.0)

    read_out = p["embed.W_E"].T if config.tied else p["unembed.W_U"]
    x = p["embed.W_E"][tokens] + p["pos_embed.W_pos"][None, :n_pos]
    last = config.n_layers - 1
    for layer in range(config.n_layers):
        attn, mlp, read = f"blocks.{layer}.attn", f"blocks.{layer}.mlp", rows if layer == last else every
        here = at(read, x)
        carry = p[f"{attn}.W_V"][0] @ p[f"{attn}.W_O"][0]
        if layer == 0:
            both = jnp.concatenate([p["embed.W_E"], p["pos_embed.W_pos"][:n_pos]])
            scores = kept(true, lambda m: table_scores(m, d_vocab, tokens, read), asking(0, both) @ both.T)
            values = both @ carry
            values = kept(true, lambda v: v[:d_vocab][tokens] + v[None, d_vocab:], values)
            mixed = jnp.einsum("brk,bkd->brd", pattern(read, scores), values)
        else:
            ask = asking(layer, here.reshape(-1, config.d_model)).reshape(here.shape)
            mixed = jnp.einsum("brk,bkd->brd", pattern(read, jnp.einsum("brd,bkd->brk", ask, x)), x)
            if layer == last and not config.has_mlp(layer) and not config.bias:
                return here @ read_out + mixed @ (carry @ read_out)
            mixed = mixed @ carry
        x = kept(true, lambda h, m: h + m, here, mixed)
        if config.bias:
            x = x + (bias(f"{attn}.b_V") @ p[f"{attn}.W_O"][0] + bias(f"{attn}.b_O"))[None]
        if config.has_mlp(layer):
            hidden = ACTS[config.act](x @ p[f"{mlp}.W_in"] + bias(f"{mlp}.b_in"))
            x = x + hidden @ p[f"{mlp}.W_out"] + bias(f"{mlp}.b_out")
    return x @ read_out + bias("unembed.b_U")


def table_scores(table: Array, d_vocab: int, tokens: Array, rows: Array) -> Array:
    """s[b, r, k] = table[z_r, z_k] + table[z_r, k] + table[r, z_k] + table[r, k], tokens before positions on both axes."""
    asked = jnp.take_along_axis(tokens, rows, axis=1)
    wide = table[asked] + table[rows + d_vocab]  # batch row (vocab + pos)
    keys = jnp.broadcast_to(tokens[:, None, :], (*rows.shape, tokens.shape[1]))
    return wide[:, :, d_vocab:] + jnp.take_along_axis(wide[:, :, :d_vocab], keys, axis=2)
