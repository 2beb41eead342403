r"""What a model answers where the loss is read, added up: accuracy and loss, and a metric of both.

    accuracy = sum_i sum_t w_it [argmax logits_it = target_it] / sum_i sum_t w_it
    loss     = sum_i sum_t w_it (-log softmax(logits_it)[target_it]) / sum_i sum_t w_it

over all sequences i that the task is evaluated on (`Task.n_examples`), which is exact; or, where a
task does not say which these are, over a sample that is drawn with one key for all seeds.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.models import HookedModel, Model, ModelConfig, early_logits
from mnemoscope.models.rewrites.choose import read_logits
from mnemoscope.tasks import Example, Task, World
from mnemoscope.training.loss import cross_entropy
from mnemoscope.training.metric import Metric

SAMPLE = 1024  # sequences that are drawn where a task has no list of them
SAMPLE_KEY = 2**31 - 1
AT_ONCE = 64  # sequences
LAST_STEP = 2**31 - 1  # of any training: a schedule has ended by then


class Sums(NamedTuple):
    """What is added up of some sequences at each position where the loss is read."""

    right: Float[Array, "*chunk read"]
    """The weight of the right answers."""
    loss: Float[Array, "*chunk read"]
    """The weighted losses."""
    weight: Float[Array, "*chunk read"]
    """All the weight."""


def read_answers(
    task: Task, model: Model, params: Params, world: World, sample: int = SAMPLE
) -> Sums:
    """The sums of one model, a few sequences at a time.

    Args:
        task: with its arrays at hand.
        model: the configuration.
        params: its parameters by name.
        world: what the seed hides, as `Task.at_step` has it.
        sample: how many sequences are drawn, where the task has no list of them.
    """
    exact = task.n_examples
    n_sequences = exact or sample

    def sequence(index: Array) -> Example:
        if exact is None:
            return task.sample(world, key=jax.random.fold_in(jax.random.key(SAMPLE_KEY), index))
        return task.example(world, jnp.minimum(index, exact - 1))

    def of_chunk(chunk: Array) -> Sums:
        index = chunk * AT_ONCE + jnp.arange(AT_ONCE)
        batch = jax.vmap(sequence)(index)
        weights = jnp.where((index < n_sequences)[:, None], batch.weights, 0.0)
        return _sums(task, model, params, batch._replace(weights=weights))

    n_chunks = -(-n_sequences // AT_ONCE)
    return jax.lax.map(of_chunk, jnp.arange(n_chunks))


def _sums(task: Task, model: Model, params: Params, batch: Example) -> Sums:
    """What some sequences add up to."""
    read = np.array(task.loss_positions)
    if batch.layer is None:
        logits = read_logits(model, params, batch.tokens, task)
    else:
        layers = jnp.minimum(batch.layer, model.n_layers - 1)

        def after(tokens: Array, layer: Array) -> Array:
            return early_logits(cast(ModelConfig, model), params, tokens)[layer]

        logits = jax.vmap(after)(batch.tokens, layers)[:, read]
    targets = batch.targets[:, read]
    weights = batch.weights[:, read]
    right = logits.argmax(axis=-1) == targets
    return Sums(
        right=(right * weights).sum(axis=0),
        loss=jnp.where(weights > 0, cross_entropy(logits, targets) * weights, 0.0).sum(axis=0),
        weight=weights.sum(axis=0),
    )


class AnswerMetrics(Metric):
    """Accuracy and loss where the loss is read, as `Run.accuracy` and `Run.loss` have them.

    Of a task with a schedule, as it is when the schedule has ended.
    """

    kind: Literal["answers"] = "answers"
    """The name of this metric in files."""

    def read(self, task: Task, model: HookedModel, world: World) -> Mapping[str, Array]:
        at_end = task.at_step(world, jnp.array(LAST_STEP))
        sums = read_answers(task, model.config, model.params, at_end)
        weight = sums.weight.sum()
        return {"accuracy": sums.right.sum() / weight, "loss": sums.loss.sum() / weight}
