"""What a model knows of hops: accuracy by number of hops, by where they are read,
and with a layer ablated.

Everything is read on one fixed sample of contexts, at every position. The level of 2^j hops is j.
"""

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import Edit, HookedModel, early_logits, knock_out_head
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.tasks import Hops, HopWorld

SAMPLE = 64  # contexts
SAMPLE_KEY = 2**31 - 1


def read_after(
    task: Hops, model: HookedModel, world: HopWorld, edits: Iterable[Edit] = ()
) -> Float[Array, "layer level"]:
    """Accuracy on each level when it is read after each layer.

    Args:
        task: draws contexts and knows the answers.
        model: what is read.
        world: the hidden permutations.
        edits: changes to the forward pass.
    """
    edits = tuple(edits)
    config = as_transformer(model.config, "accuracy by number of hops")
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), SAMPLE)

    def one(key: Array) -> Array:
        context = task.context(key=key)
        logits = early_logits(config, model.params, context.reshape(-1), edits)
        said = logits.argmax(axis=-1)  # layer pos
        return (said[:, None] == task.answers(world, context)[None]).mean(axis=-1)

    return jax.vmap(one)(keys).mean(axis=0)


def by_level(
    task: Hops, model: HookedModel, world: HopWorld, edits: Iterable[Edit] = ()
) -> Float[Array, "level"]:
    """The same where training reads it: 2^j hops after layer j, or after the last if there are
    fewer.

    Args:
        task: draws contexts and knows the answers.
        model: what is read.
        world: the hidden permutations.
        edits: changes to the forward pass.
    """
    levels = jnp.arange(task.levels)
    by_layer = read_after(task, model, world, edits)
    return by_layer[jnp.minimum(levels, model.config.n_layers - 1), levels]


def ablate_each_layer(
    task: Hops, model: HookedModel, world: HopWorld
) -> Float[Array, "layer level"]:
    """The same with the attention of each layer ablated in turn; one head a layer.

    Args:
        task: draws contexts and knows the answers.
        model: what is read.
        world: the hidden permutations.
    """
    found = []
    for layer in range(model.config.n_layers):
        without = knock_out_head(model.config, layer, 0)
        found.append(by_level(task, model, world, (without,)))
    return jnp.stack(found)
