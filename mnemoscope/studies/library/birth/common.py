"""What the judges of this study share: curves through training, memories above chance, answers on a larger sample."""

from typing import Any

import jax
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.levels import above_chance
from mnemoscope.studies.claims import Curve, NotSettledError, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import by_role

SAMPLE = 256  # sequences on which a finished model is examined
MEMORIES = ("output memory", "second keys", "first keys, early", "first keys, late")


def task_of(evidence: Evidence, name: str) -> Bigrams:
    """The task of a setting, which is always bigram text."""
    task = evidence.settings[name].spec.task
    assert isinstance(task, Bigrams)
    return task


def sampled(task: Bigrams, size: int = SAMPLE) -> tuple[Array, Array]:
    """The sequences on which finished models are examined, and their triggers."""
    return jax.vmap(lambda key: task.draw(key=key))(jax.random.split(jax.random.key(2**31 - 2), size))[:2]


def answers(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Right answers and losses by role at the end of training, on the larger sample."""
    return by_role(task, model, *sampled(task))


def curve(evidence: Evidence, name: str, series: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and what was read there for every finished seed; memories are counted above chance."""
    run, task = evidence.run(name), task_of(evidence, name)
    values = run.observed[series][run.finished]
    if series in MEMORIES:
        keys = task.n_triggers if task.triggers == "fixed" else task.d_vocab
        candidates = {"output memory": task.d_vocab, "second keys": keys}
        values = above_chance(values, candidates.get(series, task.length))
    return np.array(run.spec.look_steps()), values


def at_step(evidence: Evidence, name: str, series: str, step: int) -> np.ndarray:
    """What was read at the last look up to a step."""
    steps, values = curve(evidence, name, series)
    return values[:, np.flatnonzero(steps <= step)[-1]]


def drawn(evidence: Evidence, name: str, series: str) -> Curve:
    """A curve for the page."""
    return Curve.over_seeds(*curve(evidence, name, series))


def settled(evidence: Evidence, verdict: Verdict) -> Verdict:
    """What a shorter training on shorter sequences may not refute. Added for B3 and B7 after full and quick had been compared."""
    return "undecided" if evidence.scale == "quick" and verdict != "reproduced" else verdict


def trained(evidence: Evidence, name: str, what: str) -> None:
    """Stop a judge whose settings only the full scale trains."""
    if name not in evidence.settings:
        raise NotSettledError(f"{what} are trained at full scale only.")


def steps_text(times: np.ndarray) -> str:
    """The median time over seeds, and how many got there."""
    there = np.isfinite(times)
    median = f"{np.median(times[there]):.0f}" if there.any() else "-"
    return f"{median} ({there.sum()} of {len(times)} seeds)"
