r"""Probes that a Spec names and that read every seed's model while it trains.

`bigrams` reads, on one fixed sample of the task's sequences, the share of right answers and the loss by role,

    global    after a token that is no trigger: what the language says
    first     at a trigger seen for the first time: nobody can know
    context   at a trigger seen before: what the context says

and, in two layers of one head, what the heads attend to and how much of each memory stands in the weights.
"""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from mnemoscope.arrays import Array, Float
from mnemoscope.loss import cross_entropy
from mnemoscope.model import Transformer
from mnemoscope.probes import memories
from mnemoscope.spec import Spec
from mnemoscope.tasks import Bigrams, World
from mnemoscope.train import Observe

SAMPLE, SAMPLE_KEY = 64, 2**31 - 1


def watch_of(spec: Spec) -> Observe | None:
    """The function that a Spec's `watch` names, for `fit`."""
    if spec.watch is None:
        return None
    if not isinstance(spec.task, Bigrams):
        raise ValueError(f"watch={spec.watch!r} reads the task 'bigrams', got {spec.task.kind!r}")
    task = spec.task
    return lambda model, world: bigrams(task, model, world)


def bigrams(task: Bigrams, model: Transformer, world: World) -> Mapping[str, Float[Array, ""]]:
    """Everything that `birth` follows through training, as one number each."""
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), SAMPLE)
    tokens, triggers, _ = jax.vmap(lambda key: task.draw(key=key))(keys)
    found = by_role(task, model, tokens, triggers)
    config = model.config
    if config.n_layers != 2 or config.n_heads != 1:
        return found
    chosen = task.fixed_triggers if task.triggers == "fixed" else None
    quarter = task.length // 4
    roles = jax.vmap(task.roles)(tokens[:, :-1], triggers)
    found |= memories.head_scores(model, tokens[:, :-1], (roles >= 2).astype(float), quarter)
    found |= {
        "output memory": memories.output_memory(model),
        "second keys": memories.second_keys(model, chosen),
        "first keys, early": memories.first_keys(model, 1, quarter),
        "first keys, late": memories.first_keys(model, quarter, None),
    }
    if any(map(config.has_mlp, range(config.n_layers))):
        found["bigram memory"] = memories.bigram_memory(model, task.text.bigrams, task.fixed_triggers)
    return found


def by_role(task: Bigrams, model: Transformer, tokens: Array, triggers: Array) -> dict[str, Float[Array, ""]]:
    """Loss by role, and the share of right answers where the context knows."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    roles = jax.vmap(task.roles)(inputs, triggers)
    logits = jax.vmap(model)(inputs)
    losses, right = cross_entropy(logits, targets), logits.argmax(axis=-1) == targets

    def mean(x: Array, where: Array) -> Array:
        return jnp.where(where, x, 0.0).sum() / jnp.maximum(where.sum(), 1)

    return {
        "right": mean(right, roles >= 2), "global loss": mean(losses, roles == 0), "first loss": mean(losses, roles == 1),
        "context loss": mean(losses, roles >= 2),
    }  # fmt: skip
