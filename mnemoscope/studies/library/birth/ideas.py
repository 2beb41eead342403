"""B14-B16: the three ideas that the paper's theory rests on.

Attention starts even, so that what layers receive are averages; the right output is in every
context, while other tokens are noise; and right associations sharpen attention.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import HookedModel, bind
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, NO_OUTPUT, NO_SECOND
from mnemoscope.studies.library.birth.curves import (
    BySeed,
    at_step,
    drawn,
    in_reading,
    trained_readings,
)
from mnemoscope.studies.library.birth.sample import SAMPLE_KEY, sampled, task_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Plots
from mnemoscope.tasks import Bigrams

SEQUENCES = 4  # in which attention is read before training
CONTEXTS = {"quick": 2048, "full": 8192}  # sequences in which tokens are counted
FEWEST = 20  # contexts of a right output from which its token counts
QUARTER = 0.25  # of a head's attention
HALF = 0.5


# ---- attention before training


def uneven(task: Bigrams, model: HookedModel) -> Array:
    """How much of each layer's attention would have to move to make it even, by layer.

    The total variation distance to the same weight everywhere, as a mean over the positions that
    have a choice.

    Args:
        task: from which sequences are drawn.
        model: what is read, two layers of one head.
    """
    n = task.length
    allowed = jnp.tril(jnp.ones((n, n)))
    even = allowed / allowed.sum(axis=1, keepdims=True)

    def one(row: Array) -> Array:
        trace = model.run_with_trace(row)[1]
        patterns = [trace[f"blocks.{layer}.attn.hook_pattern"][0] for layer in (0, 1)]
        return jnp.stack([(jnp.abs(each - even).sum(axis=1) / 2)[1:].mean() for each in patterns])

    return jax.vmap(one)(sampled(task, SEQUENCES)[0][:, :-1]).mean(axis=0)


def measure_start(evidence: Evidence) -> Measurement:
    """B14: how far attention is from even in models as they are drawn."""
    condition = evidence.conditions[ALL]
    task = task_of(evidence, ALL)
    config = condition.spec.model

    def of_draw(seed: Array) -> Array:
        params = config.draw_parameters(task.d_vocab, task.n_ctx, key=jax.random.key(seed))
        return uneven(task, bind(config, params))

    seeds = np.array(condition.seed_range)
    found = np.asarray(map_over_seeds(of_draw, len(seeds))(seeds))
    by_layer = {"first layer": found[:, 0], "second layer": found[:, 1]}
    return Measurement(by_layer, by_layer)


# ---- what stands in contexts


def measure_contexts(evidence: Evidence) -> Measurement:
    """B15: whether the right output is in the context, and which token's share grows with it."""
    task = task_of(evidence, ALL)
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), CONTEXTS[evidence.scale])
    drawn_sequences = jax.jit(jax.vmap(lambda key: task.draw(key=key)))(keys)
    tokens, triggers, outputs = map(np.asarray, drawn_sequences)
    rises, others = compare_contexts(tokens, triggers, outputs, task.d_vocab)
    parts = {
        "in the context": share_in_context(tokens, triggers),
        "right output rises most": rises,
        "other tokens": others,
    }
    return Measurement(parts, {"how often it stands in contexts that it does not answer": others})


def share_in_context(tokens: np.ndarray, triggers: np.ndarray) -> float:
    """Share of predictable positions whose answer followed the same trigger earlier.

    Args:
        tokens: of each sequence, answers included.
        triggers: of each sequence.
    """
    n_right = 0
    n_asked = 0
    for row, its_triggers in zip(tokens, triggers, strict=True):
        for trigger in its_triggers:
            places = np.flatnonzero(row[:-1] == trigger)
            followers = row[places + 1]
            n_asked += max(len(places) - 1, 0)
            # an answer counts if it is among those before it
            n_right += sum(followers[i] in followers[:i] for i in range(1, len(places)))
    return n_right / n_asked


def compare_contexts(
    tokens: np.ndarray, triggers: np.ndarray, outputs: np.ndarray, n_tokens: int
) -> tuple[np.ma.MaskedArray[Any, Any], np.ndarray]:
    """Compare contexts in which a token is the right output of a trigger with all others.

    A context is a sequence in which the trigger was seen at least twice.

    Args:
        tokens: of each sequence, answers included.
        triggers: of each sequence.
        outputs: of each trigger of each sequence.
        n_tokens: how many tokens there are.

    Returns:
        For each token, whether no other token's share of the context grows more when it is the
        right output (masked where it hardly ever is), and how often it stands in contexts of which
        it is no right output.
    """
    inputs = tokens[:, :-1]
    shares = np.stack([(inputs == token).mean(axis=1) for token in range(n_tokens)], axis=1)
    seen = (inputs[:, None, :] == triggers[:, :, None]).sum(axis=2)
    sequences, which = np.nonzero(seen >= 2)
    right = outputs[sequences, which]
    usual = shares[sequences].mean(axis=0)
    counts = np.bincount(right, minlength=n_tokens)
    rises = np.zeros(n_tokens)
    for token in np.flatnonzero(counts >= FEWEST):
        growth = shares[sequences[right == token]].mean(axis=0) - usual
        rises[token] = growth.argmax() == token
    is_output = (outputs[:, :, None] == np.arange(n_tokens)).any(axis=1)
    present = (shares > 0) & ~is_output
    others = present.sum(axis=0) / np.maximum((~is_output).sum(axis=0), 1)
    return np.ma.masked_array(rises, mask=counts < FEWEST), others


# ---- what sharpens attention


def measure_sharpening(evidence: Evidence) -> Measurement:
    """B16: the second layer's attention to answers, with the output memory and without it."""
    readings = trained_readings(evidence, [ALL, NO_OUTPUT])
    unfreeze_steps = evidence.conditions[NO_OUTPUT].spec.unfreeze_steps()
    unfrozen = max(unfreeze_steps.values())

    def to_answer(name: str, reading: str, step: int) -> BySeed:
        return at_step(evidence, in_reading(name, reading), "to answer", step)

    last = evidence.conditions[ALL].spec.steps
    start = {reading: to_answer(ALL, reading, 0) for reading in readings}
    end = {reading: to_answer(ALL, reading, last) for reading in readings}
    whole = {reading: to_answer(ALL, reading, unfrozen) for reading in readings}
    without = {reading: to_answer(NO_OUTPUT, reading, unfrozen) for reading in readings}
    parts = {
        "sharpens": {each: (start[each] <= QUARTER) & (end[each] >= HALF) for each in readings},
        "not without the output memory": {each: without[each] <= QUARTER for each in readings},
        "sharp by then": {each: whole[each] >= HALF for each in readings},
        "at the start": start["plain"],
        "with the output memory": whole["plain"],
        "without the output memory": without["plain"],
        "first layer without second keys": at_step(evidence, NO_SECOND, "previous", unfrozen),
    }
    by_seed = {
        "at the start": start["plain"].compressed(),
        "at the end": end["plain"].compressed(),
        "with the output memory": whole["plain"].compressed(),
        "without the output memory": without["plain"].compressed(),
    }
    curves = {
        "everything trained": drawn(evidence, ALL, "to answer"),
        "output frozen": drawn(evidence, NO_OUTPUT, "to answer"),
    }
    return Measurement(parts, by_seed, Plots(curves=curves))
