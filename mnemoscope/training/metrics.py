r"""Probes that a Spec names and that read every seed's model while it trains.

`bigrams` reads, on one fixed sample of the task's sequences, accuracy and the loss by role,

    global    after a token that is no trigger: what the language says
    first     at a trigger seen for the first time: nobody can know
    context   at a trigger seen before: what the context says

and, in two layers of one head, what the heads attend to and how much of each memory stands in the
weights.

`facts` reads every fact, in noise that stays the same: the loss and accuracy, the loss
when only the relation or only the subject is shown, how far the answers are from p(a | r), and the
probabilities of one fact.

`noise` reads who says the noise token and who the right one (`probes.distraction`).

`hops` reads accuracy for each number of hops, at every position of one fixed sample of
contexts.
"""

from collections.abc import Mapping
from typing import Any, Literal, cast

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError
from mnemoscope.core.kinds import find_kind
from mnemoscope.models import HookedModel, Model
from mnemoscope.models.rewrites.choose import read_logits
from mnemoscope.probes import weight_memories
from mnemoscope.probes.distraction import distraction, require_parts
from mnemoscope.probes.hop_accuracy import by_level
from mnemoscope.tasks import SHOWN, Bigrams, Facts, FactWorld, Hops, HopWorld, Task, World
from mnemoscope.training.loss import cross_entropy
from mnemoscope.training.metric import AnyMetrics, Metric, Observe
from mnemoscope.training.spec import Spec

SAMPLE = 64  # sequences
SAMPLE_KEY = 2**31 - 1
NOISE_DRAWS = 8  # contexts in which each fact is read


def metrics_of(spec: Spec) -> Observe | None:
    """The function that reads everything that a Spec's `metrics` name; None where they name
    nothing."""
    chosen = list_metrics(spec.metrics)
    if not chosen:
        return None
    task = spec.task
    for each in chosen:
        each.require(task, spec.model)

    def observe(model: HookedModel, world: World) -> Mapping[str, Array]:
        found: dict[str, Array] = {}
        for each in chosen:
            for name, value in each(task, model, world).items():
                if name in found:
                    raise UserError(f"two metrics of one Spec read {name!r}; allowed: one of them")
                found[name] = value
        return found

    return observe


def list_metrics(named: AnyMetrics) -> tuple[Metric, ...]:
    """The metrics that a Spec's field `metrics` holds."""
    if named is None:
        return ()
    each = named if isinstance(named, tuple) else (named,)
    return tuple(
        cast(Metric, find_kind("metric", one)()) if isinstance(one, str) else one for one in each
    )


def bigrams(task: Bigrams, model: HookedModel, world: World) -> Mapping[str, Float[Array, ""]]:
    """Everything that `birth` follows through training, as one number each.

    Args:
        task: from which a fixed sample of sequences is drawn.
        model: what is read.
        world: nothing is read from it; every probe gets one.
    """
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), SAMPLE)
    tokens, triggers, _ = jax.vmap(lambda key: task.draw(key=key))(keys)
    found = by_role(task, model, tokens, triggers)
    config = model.config
    if not weight_memories.has_two_heads(config):
        return found
    chosen = task.fixed_triggers if task.triggers == "fixed" else None
    quarter = task.length // 4
    inputs = tokens[:, :-1]
    roles = jax.vmap(task.roles)(inputs, triggers)
    asked = (roles >= 2).astype(float)
    found |= weight_memories.head_scores(model, inputs, asked, quarter)
    found |= {
        "output memory": weight_memories.output_memory(model),
        "second keys": weight_memories.second_keys(model, chosen),
        "first keys, early": weight_memories.first_keys(model, 1, quarter),
        "first keys, late": weight_memories.first_keys(model, quarter, None),
        "first keys among early positions": weight_memories.early_keys(model, quarter),
    }
    if any(config.has_mlp(layer) for layer in range(config.n_layers)):
        found["bigram memory"] = weight_memories.bigram_memory(
            model, task.text.bigrams, task.fixed_triggers
        )
    return found


def facts(task: Facts, model: HookedModel, world: FactWorld) -> Mapping[str, Float[Array, "..."]]:
    """Everything that `facts` follows through training: losses, distances, and what is answered to
    the fact in the middle.

    Args:
        task: says what is asked.
        model: what is read.
        world: the facts.
    """
    found: dict[str, Array] = {}
    for shown in SHOWN:
        key = jax.random.key(SAMPLE_KEY)
        tokens, answer = task.every_fact(world, shown, NOISE_DRAWS, key=key)
        # asked at the end of each sequence alone
        logits = read_logits(model.config, model.params, tokens, task)[:, -1]
        found[f"loss, {shown}"] = cross_entropy(logits, answer).mean()
        if shown == "both":
            found |= _answers_to_facts(task, world, logits, answer)
    return found


def _answers_to_facts(
    task: Facts, world: FactWorld, logits: Float[Array, "batch vocab"], answer: Int[Array, "batch"]
) -> dict[str, Float[Array, "..."]]:
    """How the answers to whole facts compare with the right ones and with p(a | r)."""
    said = jax.nn.softmax(logits, axis=-1)
    said = said.reshape(task.subjects, task.relations, NOISE_DRAWS, -1)
    accuracy = (logits.argmax(axis=-1) == answer).mean()
    by_relation = task.answer_shares(world, "relation")[:, :, None]
    # half the sum of absolute differences: 0 when the subject is ignored and the relation used as
    # well as can be
    distance = jnp.abs(said - by_relation).sum(axis=-1).mean() / 2
    in_the_middle = said[task.subjects // 2, task.relations // 2].mean(axis=0)
    return {"accuracy": accuracy, "distance to p(a | r)": distance, "p(a)": in_the_middle}


def hops(task: Hops, model: HookedModel, world: HopWorld) -> Mapping[str, Float[Array, ""]]:
    """Accuracy by number of hops, each read where training reads it.

    Args:
        task: from which a fixed sample of contexts is drawn.
        model: what is read.
        world: the hidden permutations.
    """
    accuracy = by_level(task, model, world)
    return {f"{2**level} hops": accuracy[level] for level in range(task.levels)}


def by_role(
    task: Bigrams, model: HookedModel, tokens: Array, triggers: Array
) -> dict[str, Float[Array, ""]]:
    """Loss by role, and accuracy where the context knows.

    Args:
        task: says the role of each position.
        model: what is read.
        tokens: sequences, one row each.
        triggers: the triggers of each sequence.
    """
    inputs = tokens[:, :-1]
    targets = tokens[:, 1:]
    roles = jax.vmap(task.roles)(inputs, triggers)
    # answers are read at every position, as in training
    logits = read_logits(model.config, model.params, inputs, task)
    losses = cross_entropy(logits, targets)
    correct = logits.argmax(axis=-1) == targets

    def mean(x: Array, where: Array) -> Array:
        return jnp.where(where, x, 0.0).sum() / jnp.maximum(where.sum(), 1)

    return {
        "accuracy": mean(correct, roles >= 2),
        "global loss": mean(losses, roles == 0),
        "first loss": mean(losses, roles == 1),
        "context loss": mean(losses, roles >= 2),
    }


def noise(task: Bigrams, model: HookedModel, world: World) -> Mapping[str, Float[Array, ""]]:
    """Everything that `noise` follows through training.

    Args:
        task: from which a fixed sample of sequences is drawn.
        model: what is read.
        world: nothing is read from it; every probe gets one.
    """
    return distraction(task, model, SAMPLE)


# ---- the kinds


def _require_kind(metric: Metric, task: Task, kind: str) -> None:
    """Raise unless a task is of the kind that a metric reads."""
    if task.kind_name() != kind:
        raise UserError(
            f"metrics={metric.kind_name()!r} reads the task {kind!r}, got {task.kind_name()!r}"
        )


class BigramMetrics(Metric):
    """Accuracy and loss by role, and what two heads attend to and hold."""

    kind: Literal["bigrams"] = "bigrams"
    """The name of this metric in files."""

    def require(self, task: Task, config: Model) -> None:
        _require_kind(self, task, "bigrams")
        if weight_memories.has_two_heads(config):
            # memories are read as products, which they must be
            weight_memories.require_memories(config)

    def read(self, task: Any, model: HookedModel, world: World) -> Mapping[str, Array]:
        return bigrams(task, model, world)


class FactMetrics(Metric):
    """Losses by what is shown, and what is answered."""

    kind: Literal["facts"] = "facts"
    """The name of this metric in files."""

    def require(self, task: Task, config: Model) -> None:
        _require_kind(self, task, "facts")

    def read(self, task: Any, model: HookedModel, world: World) -> Mapping[str, Array]:
        return facts(task, model, world)


class NoiseMetrics(Metric):
    """Who says the noise token and who the right one."""

    kind: Literal["noise"] = "noise"
    """The name of this metric in files."""

    def require(self, task: Task, config: Model) -> None:
        _require_kind(self, task, "bigrams")
        require_parts(config)

    def read(self, task: Any, model: HookedModel, world: World) -> Mapping[str, Array]:
        return noise(task, model, world)


class HopMetrics(Metric):
    """Accuracy for each number of hops."""

    kind: Literal["hops"] = "hops"
    """The name of this metric in files."""

    def require(self, task: Task, config: Model) -> None:
        _require_kind(self, task, "hops")

    def read(self, task: Any, model: HookedModel, world: World) -> Mapping[str, Array]:
        return hops(task, model, world)
