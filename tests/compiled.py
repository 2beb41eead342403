"""What tests ask of tasks and models, each compiled as a whole.

Called as they stand, these functions are compiled operation by operation,
hundreds of them for a shape that nobody used before.
"""

from functools import partial

import jax

from mnemoscope import models

init = jax.jit(models.init, static_argnums=(0, 1, 2, 3))
forward = jax.jit(models.forward, static_argnums=0)
early_logits = jax.jit(models.early_logits, static_argnums=0)


@partial(jax.jit, static_argnums=(0, 1))
def world_of(task, seed=0):
    """The world that a task draws from this key."""
    return task.world(key=jax.random.key(seed))


@partial(jax.jit, static_argnums=(0, 2, 3))
def batch_of(task, world, n, seed=1):
    """So many sequences of a world."""
    return jax.vmap(lambda key: task.sample(world, key=key))(
        jax.random.split(jax.random.key(seed), n)
    )
