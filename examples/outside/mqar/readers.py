"""What one gets without recall, in closed form.

guess value      every value is as probable as any other: right in 2 / V, loss ln(V / 2)
guess from row   every value of this row is: right in 1 / D, loss ln D
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mqar.recall import MultiQueryRecall


def guess_value(task: MultiQueryRecall, tokens: Int[Array, "pos"]) -> Float[Array, "read answer"]:
    """All values alike.

    Args:
        task: What is asked.
        tokens: A sequence.
    """
    half = task.vocabulary // 2
    row = jnp.where(jnp.arange(task.vocabulary) >= half, 1 / half, 0.0)
    return jnp.tile(row, (len(task.loss_positions), 1))


def guess_from_row(
    task: MultiQueryRecall, tokens: Int[Array, "pos"]
) -> Float[Array, "read answer"]:
    """All values that stand in this sequence alike.

    Args:
        task: What is asked.
        tokens: A sequence.
    """
    values = tokens[1 : 2 * task.n_pairs : 2]
    row = jax.nn.one_hot(values, task.vocabulary).mean(axis=0)
    return jnp.tile(row, (len(task.loss_positions), 1))
