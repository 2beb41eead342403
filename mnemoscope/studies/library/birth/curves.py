"""Curves through training, read off the evaluations of every seed.

Memories are counted above chance: 0 is what guessing gives, 1 is perfect. What is compared seed by
seed has a place for every seed, masked where it diverged.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from mnemoscope.probes.threshold_steps import above_chance, first_reach
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import OTHER
from mnemoscope.studies.library.birth.sample import task_of
from mnemoscope.studies.measurement import InconclusiveError
from mnemoscope.studies.plot_data import Curve
from mnemoscope.verdicts.claim import PLAIN

OUTPUT_MEMORY = "output memory"
SECOND = "second keys"
EARLY = "first keys among early positions"  # the authors' probe
EARLY_AMONG_ALL = "first keys, early"  # ours: keys of late positions compete
LATE = "first keys, late"
MEMORIES = (OUTPUT_MEMORY, SECOND, EARLY, EARLY_AMONG_ALL, LATE)

BySeed = np.ma.MaskedArray[Any, Any]


def curve(evidence: Evidence, name: str, series: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and what was read there for every finished seed; memories are counted above chance.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
    """
    run = evidence.run(name)
    steps = np.array(run.spec.eval_steps())
    if series not in run.metrics:
        raise InconclusiveError(
            f"What is stored of {name!r} lacks {series!r}, which earlier versions did not read; "
            "it must be trained again."
        )
    values = run.metrics[series][run.finished]
    if series not in MEMORIES:
        return steps, values
    task = task_of(evidence, name)
    n_keys = task.n_triggers if task.triggers == "fixed" else task.d_vocab
    # among how many candidates a memory chooses; keys of the first layer choose among positions
    candidates = {
        OUTPUT_MEMORY: task.d_vocab,
        SECOND: n_keys,
        EARLY: task.length // 4 - 1,
    }
    return steps, above_chance(values, candidates.get(series, task.length))


def of_seeds(evidence: Evidence, name: str, values: Any) -> BySeed:
    """What was read of a condition's finished seeds, with a masked place for each diverged one.

    Args:
        evidence: the trained conditions.
        name: the condition.
        values: by finished seed.
    """
    finished = evidence.run(name).finished
    placed = np.zeros(len(finished))
    placed[finished] = values
    return np.ma.masked_array(placed, mask=~finished)


def steps_to(evidence: Evidence, name: str, series: str, level: float) -> BySeed:
    """The step at which each seed's curve comes to a level to stay; infinite if it never does.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
        level: which it should reach.
    """
    return of_seeds(evidence, name, first_reach(*curve(evidence, name, series), level))


def at_step(evidence: Evidence, name: str, series: str, step: int) -> BySeed:
    """What was read of every seed at the last evaluation up to a step.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
        step: the step after which no evaluation counts.
    """
    steps, values = curve(evidence, name, series)
    last = np.flatnonzero(steps <= step)[-1]
    return of_seeds(evidence, name, values[:, last])


def not_by_luck(evidence: Evidence, name: str) -> np.ndarray:
    """Whether a finished seed's second-layer keys are less than half formed before any training.

    Three of five triggers are found by luck in one model of 17: such a seed tells nothing of when
    its keys form.

    Args:
        evidence: the trained conditions.
        name: the condition.
    """
    at_start = at_step(evidence, name, SECOND, 0) < 0.5
    return np.ma.filled(at_start, False).astype(bool)


def up_to_end(evidence: Evidence, name: str, times: BySeed) -> np.ndarray:
    """Times of the finished seeds for a figure, in which the last step stands for never.

    Args:
        evidence: the trained conditions.
        name: the condition.
        times: by seed.
    """
    return np.minimum(times.compressed(), float(evidence.conditions[name].spec.steps))


def drawn(evidence: Evidence, name: str, series: str) -> Curve:
    """A curve for the page: the mean over seeds and its spread.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: what was read at every evaluation.
    """
    return Curve.over_seeds(*curve(evidence, name, series))


# ---- what a scale trains


def in_reading(name: str, reading: str) -> str:
    """The condition of a reading: NAME or NAME/reading.

    Args:
        name: the condition of the plain reading.
        reading: its name.
    """
    return name if reading == PLAIN else f"{name}/{reading}"


def trained_readings(
    evidence: Evidence, names: Iterable[str], wanted: Iterable[str] = (OTHER,)
) -> list[str]:
    """The plain reading, and those of the others in which all of these conditions are trained.

    Args:
        evidence: the conditions of this scale.
        names: the conditions of the plain reading.
        wanted: the other readings.
    """
    names = tuple(names)
    trained = [
        reading
        for reading in wanted
        if all(in_reading(name, reading) in evidence.conditions for name in names)
    ]
    return [PLAIN, *trained]


def require_trained(evidence: Evidence, name: str) -> None:
    """Stop a measurement whose condition only the full scale trains.

    Args:
        evidence: the conditions of this scale.
        name: the condition.
    """
    if name not in evidence.conditions:
        raise InconclusiveError("It is trained at full scale only.")
