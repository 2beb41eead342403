r"""Pairs of keys and values, and each key once more: say its value.

    k_1 v_1 k_2 v_2 .. k_D v_D   filler .. k_j filler .. k_i filler ..

Keys are drawn from 1 .. V/2 - 1 and values from V/2 .. V - 1, each without replacement. After the
pairs come (L - 2D) / 2 slots of two tokens. D of them are drawn, one after another and without
replacement, slot m (from 1) with probability proportional to m^(a - 1); the j-th that is drawn has
k_j as its first token, and all else is filler, token 0. The answer is never shown. It is certain at
every query, so the loss floor is 0.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pydantic import Field, model_validator

import mnemoscope as ms

FILLER = 0


class MultiQueryRecall(ms.Task):
    """Say the value that was beside a key."""

    kind: Literal["mqar/recall"] = "mqar/recall"
    """The name of this task in files."""

    vocabulary: Annotated[int, Field(ge=4, le=2**17, multiple_of=2)] = 8192
    """V, how many tokens there are: filler, keys, and half of them values."""

    n_pairs: Annotated[int, Field(ge=1)] = 4
    """D, how many pairs a sequence has, and how many queries."""

    length: Annotated[int, Field(ge=4, le=4096, multiple_of=2)] = 64
    """L, how many tokens the model reads."""

    power: Annotated[float, Field(gt=0, le=1)] = 0.01
    """a: the nearer to 0, the nearer queries come to the pairs; 1: they may be anywhere."""

    @model_validator(mode="after")
    def _check(self) -> "MultiQueryRecall":
        if self.length < 4 * self.n_pairs:
            raise ValueError(
                f"{self.n_pairs} pairs and as many queries need length={4 * self.n_pairs} or more, "
                f"got {self.length}"
            )
        if self.n_pairs > self.vocabulary // 2 - 1:
            raise ValueError(
                f"n_pairs={self.n_pairs} is more than the {self.vocabulary // 2 - 1} keys there are"
            )
        return self

    @property
    def d_vocab(self) -> int:
        return self.vocabulary

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def loss_positions(self) -> tuple[int, ...]:
        """The first token of every slot."""
        return tuple(range(2 * self.n_pairs, self.length, 2))

    @property
    def sparse_loss(self) -> bool:
        """D of the slots have a query, and these differ from sequence to sequence."""
        return True

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> ms.Example:
        """Draw pairs, and where each key is asked for.

        Args:
            world: Nothing is hidden.
            key: Of the sequence.
        """
        for_keys, for_values, for_slots = jax.random.split(key, 3)
        half = self.vocabulary // 2
        keys = 1 + _draw_apart(for_keys, jnp.zeros(half - 1), self.n_pairs)
        values = half + _draw_apart(for_values, jnp.zeros(half), self.n_pairs)
        n_slots = (self.length - 2 * self.n_pairs) // 2
        near = (self.power - 1) * jnp.log(jnp.arange(1, n_slots + 1))
        slots = 2 * self.n_pairs + 2 * _draw_apart(for_slots, near, self.n_pairs)
        pairs = jnp.stack([keys, values], axis=1).reshape(-1)
        rest = jnp.full(self.length - 2 * self.n_pairs, FILLER, dtype=pairs.dtype)
        tokens = jnp.concatenate([pairs, rest]).at[slots].set(keys)
        targets = jnp.zeros_like(tokens).at[slots].set(values)
        weights = jnp.zeros(self.length).at[slots].set(1.0)
        return ms.Example(tokens, targets, weights)

    def posterior(self, tokens: Int[Array, "pos"], world: tuple[()]) -> Float[Array, "read answer"]:
        """p(value | tokens so far): certainty on the value that was beside the key.

        Args:
            tokens: A sequence.
            world: Nothing is hidden.
        """
        keys = tokens[0 : 2 * self.n_pairs : 2]
        values = tokens[1 : 2 * self.n_pairs : 2]
        asked = tokens[jnp.array(self.loss_positions)]
        found = (asked[:, None] == keys[None]).astype(float)
        return found @ jax.nn.one_hot(values, self.vocabulary)

    def loss_floor(self, world: tuple[()]) -> float:
        """The least mean loss of any predictor: nothing is uncertain.

        Args:
            world: Nothing is hidden.
        """
        return 0.0


def _draw_apart(key: PRNGKeyArray, logits: Float[Array, "choice"], n: int) -> Int[Array, "drawn"]:
    """Different choices one after another, each in proportion to exp(logit) among those left.

    The n largest of logit + Gumbel noise, largest first, are distributed so.

    Args:
        key: Of the draw.
        logits: Of every choice.
        n: How many are drawn.
    """
    noisy = logits + jax.random.gumbel(key, logits.shape)
    return jax.lax.top_k(noisy, n)[1]
