"""How scores become weights on what is seen, by the names that `ModelConfig.attention` has for it.

    pattern = f(mask(scores))

To add one, add it here. The forward pass then has it, and whatever reads models in a way of its own
(`mnemoscope.models.consumer_support`) refuses it by name until it says that it can.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array


class AttentionKind(NamedTuple):
    """How scores become a pattern."""

    is_scaled: bool
    """Whether scores are divided by the root of the head's size."""
    hidden: float
    """The score of what may not be seen."""
    pattern: Callable[[Array], Array]
    """From masked scores to weights; keys are the last axis."""


ATTENTION: dict[str, AttentionKind] = {
    "softmax": AttentionKind(True, -jnp.inf, lambda scores: jax.nn.softmax(scores, axis=-1)),
    "linear": AttentionKind(False, 0.0, lambda scores: scores),
    "relu": AttentionKind(True, 0.0, jax.nn.relu),
}
