"""A model of somebody's own, as an outsider writes one: a gated recurrent unit in plain JAX.

    z = sigmoid(x W_z + h U_z + b_z),   r = sigmoid(x W_r + h U_r + b_r)
    c = tanh(x W_c + (r h) U_c + b_c)
    h <- (1 - z) h + z c
"""

from typing import Literal

import jax
import jax.numpy as jnp

import mnemoscope as ms

GATES = ("z", "r", "c")


def gate(params, name, x, h):
    return x @ params[f"gru.W_{name}"] + h @ params[f"gru.U_{name}"] + params[f"gru.b_{name}"]


class Gru(ms.Model):
    """One layer of gated recurrent units."""

    kind: Literal["gru"] = "gru"
    d_hidden: int = 5
    """Units."""

    def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None):
        d = self.d_hidden
        shapes = {"embed.W_E": (d_vocab, d)}
        for name in GATES:
            shapes |= {f"gru.W_{name}": (d, d), f"gru.U_{name}": (d, d), f"gru.b_{name}": (d,)}
        return shapes | {"unembed.W_U": (d, d_vocab if d_vocab_out is None else d_vocab_out)}

    def sites(self):
        return {
            "hook_embed": "pos d_hidden",
            "gru.hook_update": "pos d_hidden",
            "gru.hook_hidden": "pos d_hidden",
        }

    def forward(self, params, tokens, site):
        x = site("hook_embed", params["embed.W_E"][tokens])

        def step(h, x):
            z = jax.nn.sigmoid(gate(params, "z", x, h))
            r = jax.nn.sigmoid(gate(params, "r", x, h))
            new = (1 - z) * h + z * jnp.tanh(gate(params, "c", x, r * h))
            return new, (z, new)

        _, (update, hidden) = jax.lax.scan(step, jnp.zeros(self.d_hidden), x)
        site("gru.hook_update", update)
        return site("gru.hook_hidden", hidden) @ params["unembed.W_U"]
