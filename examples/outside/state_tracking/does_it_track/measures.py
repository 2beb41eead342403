"""What is measured of each model: its loss and its accuracy at the last position, exactly."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import mnemoscope as ms
from state_tracking.running_sum import RunningSum


def at_the_end(
    task: RunningSum, model: ms.HookedModel, world: object
) -> dict[str, Float[Array, ""]]:
    """Mean cross-entropy and accuracy at the last position, over every sequence.

    Args:
        task: What is asked.
        model: One seed's.
        world: Nothing is hidden.
    """
    sequences = jnp.asarray(task.sequences())
    logits = jax.vmap(model)(sequences)[:, -1]
    answers = sequences.sum(axis=1) % task.modulus
    said = jnp.take_along_axis(jax.nn.log_softmax(logits), answers[:, None], axis=1)
    accuracy = logits.argmax(axis=1) == answers
    return {"loss": -said.mean(), "accuracy": accuracy.mean()}


def measure_recurrence(evidence: ms.Evidence) -> ms.Measurement:
    """The recurrent model at the last position.

    Args:
        evidence: What was trained.
    """
    found = evidence.measure("gru", at_the_end)
    return ms.Measurement(
        parts={
            "loss of the recurrence": found["loss"],
            "accuracy of the recurrence": found["accuracy"],
        },
        by_seed={"loss": np.asarray(found["loss"])},
    )


def measure_gap(evidence: ms.Evidence) -> ms.Measurement:
    """How much more attention loses.

    Args:
        evidence: What was trained.
    """
    gru = evidence.measure("gru", at_the_end)
    attention = evidence.measure("attention", at_the_end)
    return ms.Measurement(
        parts={
            "gap": ms.Groups(attention["loss"], gru["loss"]),
            "accuracy of attention": attention["accuracy"],
        },
        by_seed={"attention": np.asarray(attention["loss"]), "gru": np.asarray(gru["loss"])},
    )
