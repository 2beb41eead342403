r"""Keep track of a state: the running sum of digits, modulo m.

    digits      d_1 d_2 ... d_n      each uniform on 0 .. m - 1
    answers     s_t = (d_1 + ... + d_t) mod m

For m = 2 this is parity. The answer is certain at every position, so the loss floor is 0; whoever
misses one digit knows nothing: p(s_t | all but one digit) is uniform, and the loss is ln m.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pydantic import Field

import mnemoscope as ms

MOST_SEQUENCES = 2**16


class RunningSum(ms.Task):
    """Say the sum of all digits so far, modulo m."""

    kind: Literal["state_tracking/running-sum"] = "state_tracking/running-sum"
    """The name of this task in files."""

    modulus: Annotated[int, Field(ge=2, le=32)] = 2
    """m, how many digits there are."""

    length: Annotated[int, Field(ge=1, le=256)] = 16
    """n, how many digits a sequence has."""

    @property
    def d_vocab(self) -> int:
        return self.modulus

    @property
    def n_ctx(self) -> int:
        return self.length

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> ms.Example:
        """Uniform digits, and their running sum.

        Args:
            world: Nothing is hidden.
            key: Of the sequence.
        """
        digits = jax.random.randint(key, (self.length,), 0, self.modulus)
        return ms.Example(digits, self.answers(digits), jnp.ones(self.length))

    def answers(self, tokens: Int[Array, "pos"]) -> Int[Array, "pos"]:
        """The running sum of a sequence.

        Args:
            tokens: Digits.
        """
        return jnp.cumsum(tokens) % self.modulus

    def posterior(self, tokens: Int[Array, "pos"], world: tuple[()]) -> Float[Array, "pos vocab"]:
        """p(answer | digits so far): certainty on the running sum.

        Args:
            tokens: Digits.
            world: Nothing is hidden.
        """
        return jax.nn.one_hot(self.answers(tokens), self.modulus)

    def loss_floor(self, world: tuple[()]) -> float:
        """The least mean loss of any predictor: nothing is uncertain.

        Args:
            world: Nothing is hidden.
        """
        return 0.0

    def sequences(self) -> Int[np.ndarray, "sequence pos"]:
        """Every sequence of digits, one row each; refused where there are more than 65,536."""
        count = self.modulus**self.length
        if count > MOST_SEQUENCES:
            raise ms.UserError(
                f"modulus={self.modulus} and length={self.length} make {count:,} sequences; "
                f"allowed: up to {MOST_SEQUENCES:,}"
            )
        number = np.arange(count)[:, None]
        place = self.modulus ** np.arange(self.length)[None]
        return number // place % self.modulus
