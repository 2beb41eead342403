"""Curves through training, read off the evals of every seed; memories are counted above chance."""

import numpy as np

from mnemoscope.probes.threshold_steps import above_chance
from mnemoscope.studies.claims import Curve
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.sample import task_of

MEMORIES = ("output memory", "second keys", "first keys, early", "first keys, late")


def curve(evidence: Evidence, name: str, series: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and what was read there for every finished seed; memories are counted above chance.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
    """
    run = evidence.run(name)
    steps = np.array(run.spec.eval_steps())
    values = run.metrics[series][run.finished]
    if series not in MEMORIES:
        return steps, values
    task = task_of(evidence, name)
    n_keys = task.n_triggers if task.triggers == "fixed" else task.d_vocab
    # among how many candidates a memory chooses; keys of the first layer choose among positions
    candidates = {"output memory": task.d_vocab, "second keys": n_keys}
    return steps, above_chance(values, candidates.get(series, task.length))


def at_step(evidence: Evidence, name: str, series: str, step: int) -> np.ndarray:
    """What was read at the last evaluation up to a step.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
        step: the step after which no evaluation counts.
    """
    steps, values = curve(evidence, name, series)
    last_look = np.flatnonzero(steps <= step)[-1]
    return values[:, last_look]


def drawn(evidence: Evidence, name: str, series: str) -> Curve:
    """A curve for the page: the mean over seeds and its spread.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
    """
    return Curve.over_seeds(*curve(evidence, name, series))


def steps_text(times: np.ndarray) -> str:
    """The median time over seeds, and how many got there."""
    there = np.isfinite(times)
    median = f"{np.median(times[there]):.0f}" if there.any() else "-"
    return f"{median} ({there.sum()} of {len(times)} seeds)"
