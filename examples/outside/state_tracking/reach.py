"""How far into a sequence a model keeps track."""

import jax
from jaxtyping import Array, Float

import mnemoscope as ms

SAMPLE = 512  # sequences, the same for every model
SAMPLE_KEY = 7


@ms.metric(kind="state_tracking/reach")
def reach(task: ms.Task, model: ms.HookedModel, world: object) -> dict[str, Float[Array, "..."]]:
    """Accuracy by position over a fixed sample, and at the last position alone.

    Args:
        task: What is asked.
        model: What is read.
        world: What the seed hides.
    """
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), SAMPLE)
    examples = jax.vmap(lambda key: task.sample(world, key=key))(keys)
    logits = jax.vmap(model)(examples.tokens)
    accuracy = (logits.argmax(axis=-1) == examples.targets).mean(axis=0)
    return {"by position": accuracy, "last": accuracy[-1]}
