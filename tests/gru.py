"""A model of somebody's own, as an outsider writes one: a gated recurrent unit in plain JAX.

z = sigmoid(x W_z + b_z + h U_z),   r = sigmoid(x W_r + b_r + h U_r)
c = tanh(x W_c + b_c + (r h) U_c)
h <- (1 - z) h + z c
"""

from typing import Literal

import jax
import jax.numpy as jnp

import mnemoscope as ms


def next_hidden(params, h, given):
    """The hidden units after a token, of which `given` is what it says to each gate."""
    z = jax.nn.sigmoid(given[0] + h @ params["gru.U_z"])
    r = jax.nn.sigmoid(given[1] + h @ params["gru.U_r"])
    c = jnp.tanh(given[2] + (r * h) @ params["gru.U_c"])
    return (1 - z) * h + z * c


class Gru(ms.Model):
    """One layer of gated recurrent units."""

    kind: Literal["gru"] = "gru"
    d_hidden: int = 5
    """Units."""

    def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None):
        d = self.d_hidden
        return {
            "embed.W_E": (d_vocab, d),
            "gru.W": (3, d, d),
            "gru.b": (3, d),
            "gru.U_z": (d, d),
            "gru.U_r": (d, d),
            "gru.U_c": (d, d),
            "unembed.W_U": (d, d_vocab if d_vocab_out is None else d_vocab_out),
        }

    def sites(self):
        return {
            "hook_embed": "pos d_hidden",
            "gru.hook_gates": "pos gate d_hidden",
            "gru.hook_hidden": "pos d_hidden",
        }

    @property
    def is_causal(self):
        return True

    def forward(self, params, tokens, site):
        x = site("hook_embed", params["embed.W_E"][tokens])
        given = jnp.einsum("pd,gde->pge", x, params["gru.W"]) + params["gru.b"][None]
        given = site("gru.hook_gates", given)

        def step(h, given):
            h = next_hidden(params, h, given)
            return h, h

        _, hidden = jax.lax.scan(step, jnp.zeros(self.d_hidden), given)
        return site("gru.hook_hidden", hidden) @ params["unembed.W_U"]
