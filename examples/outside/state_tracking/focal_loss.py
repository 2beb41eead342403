r"""A loss that cares less for what is nearly right.

    loss_t = (1 - p)^gamma (-log p)     with p = softmax(logits_t)[target_t]

At gamma = 0 it is the cross-entropy.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
from pydantic import Field

import mnemoscope as ms


class FocalLoss(ms.Loss):
    """The cross-entropy, weighted by how wrong an answer is."""

    kind: Literal["state_tracking/focal"] = "state_tracking/focal"
    """The name of this loss in files."""

    gamma: Annotated[float, Field(ge=0)] = 2.0
    """How fast the weight falls as an answer becomes right."""

    def at_positions(
        self, logits: Float[Array, "*axes vocab"], targets: Int[Array, "*axes"]
    ) -> Float[Array, "*axes"]:
        """The loss at each position.

        Args:
            logits: What a model says.
            targets: The right answers.
        """
        every = jax.nn.log_softmax(logits)
        said = jnp.take_along_axis(every, targets[..., None], axis=-1)[..., 0]
        return -((1 - jnp.exp(said)) ** self.gamma) * said
