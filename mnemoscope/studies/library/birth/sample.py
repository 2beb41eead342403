"""The sequences on which finished models are examined, and what a model answers on them."""

from typing import Any

import jax

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.studies.evidence import Evidence
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import by_role

SAMPLE = 256  # sequences on which a finished model is examined
SAMPLE_KEY = 2**31 - 2  # no condition trains this seed


def task_of(evidence: Evidence, name: str) -> Bigrams:
    """The task of a condition, which is always bigram text."""
    task = evidence.conditions[name].spec.task
    assert isinstance(task, Bigrams)
    return task


def sampled(task: Bigrams, size: int = SAMPLE) -> tuple[Array, Array]:
    """The sequences on which finished models are examined, and their triggers."""
    keys = jax.random.split(jax.random.key(SAMPLE_KEY), size)
    tokens, triggers = jax.vmap(lambda key: task.draw(key=key))(keys)[:2]
    return tokens, triggers


def answers(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Accuracy and losses by role at the end of training, on the larger sample.

    Args:
        task: the text that the model was trained on.
        model: the model of one seed.
        _: the seed's world, of which bigram text has none.
    """
    return by_role(task, model, *sampled(task))
