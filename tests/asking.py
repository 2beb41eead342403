"""A task of nothing but sizes: what a loss and the table of rewrites look at."""

from typing import Literal

import jax.numpy as jnp

from mnemoscope.tasks import Example, Task


class Asking(Task):
    """Sequences of any tokens, read at some positions, perhaps asked by one token at the end."""

    kind: Literal["asking"] = "asking"
    tokens: int = 6
    length: int = 9
    read: tuple[int, ...] = ()
    asks_by: int | None = None

    @property
    def d_vocab(self):
        return self.tokens

    @property
    def n_ctx(self):
        return self.length

    @property
    def loss_positions(self):
        return self.read or tuple(range(self.length))

    @property
    def query_token(self):
        return self.asks_by

    def world(self, *, key):
        return ()

    def sample(self, world, *, key):
        zeros = jnp.zeros(self.length, int)
        return Example(zeros, zeros, jnp.ones(self.length))
