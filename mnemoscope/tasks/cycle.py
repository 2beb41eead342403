r"""A pattern that repeats: A B C A B C ...  The next token is certain once one token has been seen.

A sequence starts anywhere in the cycle of n symbols, so there are n sequences of each length, and

    p(next | tokens) = 1   for the successor of the last token.

Three facts (A -> B, B -> C, C -> A) are all there is to know, each about the last token; the rest
of the prompt adds nothing. The loss floor is 0.
"""

import string
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, Tokens
from mnemoscope.tasks.base import Example, Task


class Cycle(Task):
    """A pattern that repeats: A B C A B C ..., from a random start."""

    kind: Literal["cycle"] = "cycle"
    """The name of this task in files."""

    n_symbols: Annotated[int, Field(ge=2, le=26)] = 3
    """n, the tokens of the cycle."""

    length: Annotated[int, Field(ge=1, le=64)] = 3
    """The context: how many tokens the model sees at most."""

    @property
    def d_vocab(self) -> int:
        return self.n_symbols

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def token_names(self) -> tuple[str, ...]:
        return tuple(string.ascii_uppercase[: self.n_symbols])

    def world(self, *, key: PRNGKeyArray) -> tuple[()]:
        """Nothing is hidden: all runs share one world."""
        return ()

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> Example:
        """The cycle from a random start."""
        return self.example(world, jax.random.randint(key, (), 0, self.n_symbols))

    @property
    def n_examples(self) -> int:
        """One for each start."""
        return self.n_symbols

    def example(self, world: tuple[()], index: Int[Array, ""]) -> Example:
        """The cycle from this start."""
        tokens = (index + jnp.arange(self.length + 1)) % self.n_symbols
        return Example(tokens[:-1], tokens[1:], jnp.ones(self.length))

    def sequences(self) -> Int[np.ndarray, "batch length"]:
        """Every sequence, one for each start, with the token that follows the context at its
        end."""
        starts = np.arange(self.n_symbols)[:, None]
        places = np.arange(self.length + 1)[None]
        return (starts + places) % self.n_symbols

    def list_examples(self, world: tuple[()]) -> tuple[Example, Float[Array, "batch"]]:
        """Every start, each as likely as the others."""
        tokens = jnp.asarray(self.sequences())
        weights = jnp.ones((self.n_symbols, self.length))
        chances = jnp.full(self.n_symbols, 1 / self.n_symbols)
        return Example(tokens[:, :-1], tokens[:, 1:], weights), chances

    def posterior(self, tokens: Tokens, world: tuple[()] = ()) -> Float[Array, "pos vocab"]:
        """p(next | tokens so far) after each token: certainty on the successor of the last one."""
        return jax.nn.one_hot((tokens + 1) % self.n_symbols, self.n_symbols)

    def loss_floor(self, world: tuple[()] = ()) -> float:
        """The least mean loss of any predictor: nothing is uncertain."""
        return 0.0
