"""B4 and B13: an induction head without training.

It is written down by hand or by three gradient steps.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import Transformer, init
from mnemoscope.models.rewrites import score_tables
from mnemoscope.probes.weight_memories import first_keys, output_memory, second_keys
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, OUTPUT
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval
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


def written_by_hand(evidence: Evidence) -> Outcome:
    """B4: accuracy at predictable positions with weights written by hand, at every width.

    Reproduced if right in at least 95% at the largest width, and more often the wider the model;
    partly if above 50% at the paper's d = 256; else refuted.
    """
    n_seeds = evidence.conditions[ALL].seeds
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
        d: map_over_seeds(partial(accuracy_of, d), n_seeds)(np.arange(n_seeds)) for d in WIDTHS
    }
    means = [accuracy[d].mean() for d in WIDTHS]
    value, interval = mean_interval(accuracy[256])
    verdict: Verdict = "partly" if value > 0.5 else "refuted"
    rising = all(narrow < wide for narrow, wide in pairwise(means))
    if means[-1] >= 0.95 and rising:
        verdict = "reproduced"
    table = ", ".join(f"{accuracy[d].mean():.1%} at d={d}" for d in WIDTHS)
    sentence = (
        f"Three sums of outer products, no training, {n_seeds} draws of the embeddings: "
        f"right in {table}."
    )
    return Outcome(verdict, value, interval, sentence, {f"d={d}": accuracy[d] for d in WIDTHS})


def _after_three_steps(size: TheoremSize, seeds: int) -> np.ndarray:
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

    return map_over_seeds(one, seeds)(np.arange(seeds))


def _gradient_error(size: TheoremSize, seed: int) -> float:
    """How far the sampled first gradient is off the exact one, of the largest entry."""
    task = theorem_task(size.n_tokens, size.length)
    config, params = theorem_model(task)
    exact = output_gradient(task)
    key = jax.random.key(seed)
    found = sampled_gradient(task, config, params, OUTPUT, size.batches, size.batch, key=key)
    return float(np.abs(np.asarray(found.mean) - exact).max() / np.abs(exact).max())


def written_by_three_steps(evidence: Evidence) -> Outcome:
    """B13: recalls and accuracy after one gradient step for each of the three matrices.

    A sample of sequences does it if all three recalls are at least 90% and right at least 90%:
    reproduced if at least 90% of samples do; partly if the three recalls are; else refuted.
    """
    size = TheoremSize(*THEOREM[evidence.scale])
    n_seeds = evidence.conditions[ALL].seeds
    rows = _after_three_steps(size, n_seeds)
    recalls = rows[:, :3]
    accuracy = rows[:, 3]
    trigger = rows[:, 4]
    formed = (recalls >= 0.9).all(axis=1)
    share, interval = share_interval(formed & (accuracy >= 0.9))
    verdict: Verdict = "refuted"
    if share >= MOST:
        verdict = "reproduced"
    elif formed.mean() >= MOST:
        verdict = "partly"
    error = _gradient_error(size, n_seeds)  # on a sample of its own
    recall_text = " ".join(f"{x:.2f}" for x in recalls.mean(axis=0))
    sentence = (
        f"After one step each the recalls are {recall_text} (output, second-layer "
        f"keys, first-layer keys), all at least .9 in {formed.mean():.0%} of {n_seeds} samples "
        f"of {size.batches * size.batch:,} sequences; right in {accuracy.mean():.1%}. "
        f"Of the wrong answers {trigger.mean():.0%} are the trigger itself: the "
        "first step also writes what layer 0 carries along, the token before the answer. "
        "No entry of the sampled first "
        f"gradient is off the exact one by more than {error:.1%} of the largest."
    )
    seeds = {
        "output memory": recalls[:, 0],
        "second keys": recalls[:, 1],
        "first keys": recalls[:, 2],
        "accuracy": accuracy,
        "wrong answers that are the trigger": trigger,
    }
    return Outcome(verdict, share, interval, sentence, seeds)
