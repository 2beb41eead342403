r"""A gated recurrent unit: one hidden state, updated with every token.

    z = sigmoid(x W_z + h U_z + b_z)             how much is replaced
    r = sigmoid(x W_r + h U_r + b_r)             what of the state the candidate sees
    c = tanh(x W_c + (r h) U_c + b_c)            the candidate
    h <- (1 - z) h + z c                         logits = h W_U + b_U

with x the embedding of the token. An edit at `hook_embed` goes through the recurrence: every later
state hears of it. One at `hook_hidden` changes what is read off, position by position.
"""

from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from pydantic import Field

import mnemoscope as ms

GATES = ("z", "r", "c")


class Gru(ms.Model):
    """One layer of gated recurrent units."""

    kind: Literal["state_tracking/gru"] = "state_tracking/gru"
    """The name of this model in files."""

    d_hidden: Annotated[int, Field(ge=1, le=4096)] = 32
    """Width of the state and of the embedding."""

    def parameter_shapes(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Every parameter's name and shape.

        Args:
            d_vocab: Tokens of the vocabulary.
            n_ctx: Positions of a sequence; a recurrence does not count them.
            d_vocab_out: How many answers there are, where they are not the tokens.
        """
        d = self.d_hidden
        n_out = d_vocab if d_vocab_out is None else d_vocab_out
        shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (d_vocab, d)}
        for gate in GATES:
            shapes[f"gru.W_{gate}"] = (d, d)
            shapes[f"gru.U_{gate}"] = (d, d)
            shapes[f"gru.b_{gate}"] = (d,)
        shapes["unembed.W_U"] = (d, n_out)
        shapes["unembed.b_U"] = (n_out,)
        return shapes

    def sites(self) -> dict[str, str]:
        """Every named value and its axes."""
        return {"hook_embed": "pos d_hidden", "hook_hidden": "pos d_hidden"}

    @property
    def is_causal(self) -> bool:
        """No state hears of a later token."""
        return True

    def forward(
        self, params: dict[str, Array], tokens: Int[Array, "pos"], site: Any
    ) -> Float[Array, "pos vocab"]:
        """Logits after every token.

        Args:
            params: The parameters by name.
            tokens: One sequence.
            site: What every named value goes through.
        """
        x = site("hook_embed", jnp.asarray(params["embed.W_E"])[tokens])
        # what a token says to each gate does not depend on the state: one product for all tokens
        said = {gate: x @ params[f"gru.W_{gate}"] + params[f"gru.b_{gate}"] for gate in GATES}

        def step(h: Array, now: dict[str, Array]) -> tuple[Array, Array]:
            z = jax.nn.sigmoid(now["z"] + h @ params["gru.U_z"])
            r = jax.nn.sigmoid(now["r"] + h @ params["gru.U_r"])
            c = jnp.tanh(now["c"] + (r * h) @ params["gru.U_c"])
            h = (1 - z) * h + z * c
            return h, h

        _, states = jax.lax.scan(step, jnp.zeros(self.d_hidden), said)
        hidden = site("hook_hidden", states)
        return hidden @ params["unembed.W_U"] + params["unembed.b_U"]
