"""B4 and B13: an induction head without training.

It is written down by hand or by three gradient steps.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import Transformer, init
from mnemoscope.models.rewrites import score_tables
from mnemoscope.probes.weight_memories import first_keys, output_memory, second_keys
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, OUTPUT
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.gradients import (
    output_gradient,
    sampled_gradient,
    theorem_model,
    theorem_task,
    three_steps,
)
from mnemoscope.theory.induction import induction_weights, simplified_model

WIDTHS = (128, 256, 512, 1024)
RECOVERED = 0.9  # of each memory


class TheoremSize(NamedTuple):
    """How large the theorem's world is."""

    n_tokens: int
    length: int  # of a sequence
    batches: int  # over which a gradient is averaged
    batch: int  # sequences in each


# the fields of a TheoremSize
THEOREM = {"quick": (12, 24, 128, 128), "full": (24, 64, 512, 1024)}


def _answered(
    model: Transformer, task: Bigrams, tokens: Array, triggers: Array
) -> tuple[Array, Array, Array]:
    """What a model answers on a sample of sequences, where it is asked, and where it is right."""
    inputs = tokens[:, :-1]
    rows = jnp.broadcast_to(jnp.arange(task.length)[None], inputs.shape)
    logits = score_tables.read_logits(model.config, model.params, inputs, rows)
    said = logits.argmax(axis=-1)
    asked = jax.vmap(task.roles)(inputs, triggers) >= 2
    return said, asked, asked & (said == tokens[:, 1:])


def measure_by_hand(evidence: Evidence) -> Measurement:
    """B4: accuracy at predictable positions with weights written by hand, at every width."""
    seeds = np.array(evidence.conditions[ALL].seed_range)
    n_sequences = 64 if evidence.scale == "full" else 16
    task = task_of(evidence, ALL).model_copy(update={"length": 256})
    sample = sampled(task, n_sequences)

    def accuracy_of(d: int, seed: Array) -> Array:
        config = simplified_model(d)
        params = init(config, task.d_vocab, task.length, key=jax.random.key(seed))
        model = Transformer(config, induction_weights(config, params, task.fixed_triggers))
        _, asked, right = _answered(model, task, *sample)
        return right.sum() / asked.sum()

    accuracy = {
        f"d={d}": np.asarray(map_over_seeds(partial(accuracy_of, d), len(seeds))(seeds))
        for d in WIDTHS
    }
    return Measurement(accuracy, accuracy)


def _after_three_steps(size: TheoremSize, seeds: np.ndarray) -> np.ndarray:
    """What three gradient steps wrote, a row for each sample of sequences.

    Columns: the recalls of output memory, second keys and first keys, accuracy,
    and the share of wrong answers that are the trigger.
    """
    task = theorem_task(size.n_tokens, size.length)
    config, params = theorem_model(task)
    sample = sampled(task)

    def one(seed: Array) -> Array:
        key = jax.random.key(seed)
        steps = three_steps(task, config, params, size.batches, size.batch, key=key)
        model = Transformer(config, steps.params)
        said, asked, right = _answered(model, task, *sample)
        wrong = asked & ~right
        trigger = (wrong & (said == sample[1])).sum() / jnp.maximum(wrong.sum(), 1)
        memories = (output_memory(model), second_keys(model), first_keys(model))
        return jnp.stack([*memories, right.sum() / asked.sum(), trigger])

    return map_over_seeds(one, len(seeds))(seeds)


def _gradient_error(size: TheoremSize, seed: int) -> float:
    """How far the sampled first gradient is off the exact one, of the largest entry."""
    task = theorem_task(size.n_tokens, size.length)
    config, params = theorem_model(task)
    exact = output_gradient(task)
    key = jax.random.key(seed)
    found = sampled_gradient(task, config, params, OUTPUT, size.batches, size.batch, key=key)
    return float(np.abs(np.asarray(found.mean) - exact).max() / np.abs(exact).max())


def measure_three_steps(evidence: Evidence) -> Measurement:
    """B13: recalls and accuracy after one gradient step for each of the three matrices."""
    size = TheoremSize(*THEOREM[evidence.scale])
    seeds = np.array(evidence.conditions[ALL].seed_range)
    rows = _after_three_steps(size, seeds)
    recalls = rows[:, :3]
    by_sample = {
        "output memory": rows[:, 0],
        "second keys": rows[:, 1],
        "first keys": rows[:, 2],
        "accuracy": rows[:, 3],
        "wrong answers that are the trigger": rows[:, 4],
    }
    parts = {
        "recovered": (recalls >= RECOVERED).all(axis=1),
        **by_sample,
        # on a sample of its own
        "error of the first gradient": _gradient_error(size, int(seeds.max()) + 1),
    }
    return Measurement(parts, by_sample)
