"""What W1-W7 measure: does the ABC model learn the cycle, and is attention needed for it?

And do the published numbers hold together?
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer, force_pattern, knock_out_head
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.walk import published
from mnemoscope.studies.library.walk.conditions import ABC, ALONE, POST, PRE
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.tasks import Cycle

REACHED = 0.00015  # rounds to the published 0.0001


def cycle(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """One model on the whole cycle: its loss and its accuracy.

    Both again with attention cut to the last token, and with attention off.

    Args:
        task: The cycle.
        model: One seed's.
        world: Nothing: a cycle has no world.
    """
    sequences = jnp.asarray(task.sequences())
    alone = force_pattern(model.config, 0, 0, jnp.eye(task.length))
    cuts = {
        "": (),
        "last token": (alone,),
        "no attention": (knock_out_head(model.config, 0, 0),),
    }
    found: dict[str, Array] = {}
    for name, edits in cuts.items():
        logits = jax.vmap(lambda row, edits=edits: model(row, edits))(sequences[:, :-1])
        targets = sequences[:, 1:]
        log_p = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_p, targets[:, :, None], axis=-1)
        found[f"loss {name}".strip()] = -chosen.mean()
        found[f"accuracy {name}".strip()] = (logits.argmax(axis=-1) == targets).mean()
    return found


def every_prompt(task: Cycle, model: Transformer, world: tuple[()]) -> Array:
    """Share of all prompts up to the context whose answer is the last token's successor.

    Args:
        task: The cycle; prompts need not be in it.
        model: One seed's.
        world: Nothing: a cycle has no world.
    """
    correct = []
    for length in range(1, task.length + 1):
        prompts = jnp.array(list(itertools.product(range(task.n_symbols), repeat=length)))
        answers = jax.vmap(model)(prompts)[:, -1].argmax(axis=-1)
        correct.append(answers == (prompts[:, -1] + 1) % task.n_symbols)
    return jnp.concatenate(correct).mean()


def measure_learning(evidence: Evidence) -> Measurement:
    """W1: the exact mean cross-entropy over the cycle at the end of training."""
    losses = evidence.by_reading(ABC, lambda name: evidence.measure(name, cycle)["loss"])
    parts = {
        "learns": {name: losses[name] < REACHED for name in ("plain", "mlp") if name in losses},
        "cross-entropy": losses["plain"],
    }
    for where, name in (("before", PRE), ("after", POST)):
        if name in evidence.conditions:
            loss = evidence.measure(name, cycle)["loss"]
            parts[f"cross-entropy with a norm {where} each part"] = loss
    by_seed = {name: losses[reading] for reading, name in evidence.readings(ABC).items()}
    return Measurement(parts, by_seed)


def measure_answers(evidence: Evidence) -> Measurement:
    """W2: accuracy over the cycle."""
    found = evidence.by_reading(ABC, lambda name: evidence.measure(name, cycle))
    prompts = evidence.measure(ABC, every_prompt)
    others = {reading: each for reading, each in found.items() if reading != "plain"}
    parts = {
        "answers": {reading: each["accuracy"] == 1 for reading, each in found.items()},
        "reaches the published loss": {
            reading: each["loss"] < REACHED for reading, each in others.items()
        },
        "all prompts": prompts,
    }
    by_seed = {"accuracy": found["plain"]["accuracy"], "accuracy on all prompts": prompts}
    return Measurement(parts, by_seed)


def measure_sums(_: Evidence) -> Measurement:
    """W3: embedding plus position against the published inputs, six entries."""
    distance = np.abs(published.W_E + published.W_POS - published.INPUTS).max()
    agree = sum(statement.holds for statement in published.inputs())
    return Measurement({"entries": agree, "distance": distance})


def measure_directions(_: Evidence) -> Measurement:
    """W4: which token the published output matrix reads in each of three published directions."""
    return Measurement({"directions": sum(each.holds for each in published.readings())})


def measure_facts(evidence: Evidence) -> Measurement:
    """W5: answers with attention forced to the last token, by seeds that know the cycle, and those
    of models that never had attention."""

    def last_token(name: str) -> np.ma.MaskedArray:
        found = evidence.measure(name, cycle)
        return among(found["accuracy"] == 1, found["accuracy last token"] == 1)

    found = evidence.measure(ABC, cycle)
    readings = {
        reading: last_token(name)
        for reading, name in evidence.readings(ABC).items()
        if reading in ("plain", "mlp")
    }
    without = evidence.measure(ALONE, answers_without_attention)
    parts = {
        "last token": readings,
        "trained without attention": without == 1,
        "no attention": among(found["accuracy"] == 1, found["accuracy no attention"] == 1),
    }
    return Measurement(parts, {**found, "accuracy, trained without attention": without})


def answers_without_attention(task: Cycle, model: Transformer, world: tuple[()]) -> Array:
    """Accuracy over the cycle of a model that has no attention.

    Args:
        task: The cycle.
        model: One seed's.
        world: Nothing: a cycle has no world.
    """
    sequences = jnp.asarray(task.sequences())
    logits = jax.vmap(model)(sequences[:, :-1])
    return (logits.argmax(axis=-1) == sequences[:, 1:]).mean()


def measure_log_probabilities(_: Evidence) -> Measurement:
    """W6: logits of the published directions beside their log-probabilities."""
    logits = np.array(published.DIRECTIONS) @ published.W_U.T
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    gap = logits - log_p
    parts = {
        "up to a constant": np.ptp(gap, axis=1).max(),
        "themselves": np.abs(gap).max(),
    }
    return Measurement(parts)


def measure_packed_blocks(_: Evidence) -> Measurement:
    """W7: x W^T + b cut into three blocks, beside three products of their own."""
    rng = np.random.default_rng(0)
    packed = rng.normal(size=(1000, 6, 2))
    bias = rng.normal(size=(1000, 1, 6))
    x = rng.normal(size=(1000, 3, 2))
    whole = x @ packed.transpose(0, 2, 1) + bias
    largest = 0.0
    for block in (slice(0, 2), slice(2, 4), slice(4, 6)):
        own = np.einsum("npd,ned->npe", x, packed[:, block]) + bias[..., block]
        largest = max(largest, float(np.abs(own - whole[..., block]).max()))
    return Measurement({"difference": largest})
