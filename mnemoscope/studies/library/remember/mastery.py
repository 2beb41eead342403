"""What a condition's seeds master, in every reading of the paper, and seeds side by side."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import accuracy, answers, report_card
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import InconclusiveError
from mnemoscope.tasks import Permutation, Split
from mnemoscope.verdicts.claim import PLAIN as PLAIN_READING

MASTERED = 0.99
"""A seed masters a skill that it gets right on at least so many held-out sequences."""

ByReading = dict[str, Any]


def card(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    """The report card of a condition, with a leading seed axis."""
    return evidence.measure(name, report_card)


def recall(evidence: Evidence, name: str) -> np.ndarray:
    """Recall of the first pair, by seed."""
    return card(evidence, name)["recall"][:, 0]


def eliminates(evidence: Evidence, name: str) -> np.ndarray:
    """Accuracy at the last step when the last pair is new, by seed."""
    return card(evidence, name)["accuracy"][:, -1]


def masters(evidence: Evidence, name: str) -> np.ndarray:
    """Seeds that get both skills right on at least 99% of held-out sequences."""
    both = np.minimum(recall(evidence, name), eliminates(evidence, name))
    return both >= MASTERED


def elimination_rate(task: Permutation, model: Transformer, split: Split) -> Array:
    """Accuracy at the last step on held-out mappings: all that some claims need of a card.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    tokens = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    return accuracy(answers(task, model, tokens), tokens)[-1]


# ---- conditions and readings


def full_only(evidence: Evidence, *names: str) -> None:
    """Stop where a claim's models are not trained at this scale.

    Args:
        evidence: What there is.
        names: The conditions that are needed.
    """
    if any(name not in evidence.conditions for name in names):
        raise InconclusiveError("It is trained at full scale only.")


def in_readings(
    evidence: Evidence, names: tuple[str, ...], measure: Callable[..., Any]
) -> ByReading:
    """What is measured of some conditions together, in every reading in which all were trained.

    Args:
        evidence: What there is.
        names: The conditions of the plain reading.
        measure: Of the names of the conditions of one reading.
    """
    by_name = [evidence.readings(name) for name in names]
    common = [reading for reading in by_name[0] if all(reading in each for each in by_name)]
    return {reading: measure(*(each[reading] for each in by_name)) for reading in common}


def in_other_readings(
    evidence: Evidence, names: tuple[str, ...], measure: Callable[..., Any]
) -> ByReading:
    """The same without the plain reading: what says whether a reading counts.

    Args:
        evidence: What there is.
        names: The conditions of the plain reading.
        measure: Of the names of the conditions of one reading.
    """
    found = in_readings(evidence, names, measure)
    return {reading: each for reading, each in found.items() if reading != PLAIN_READING}


def that_eliminate(evidence: Evidence, name: str) -> ByReading:
    """In readings other than the plain one, the seeds that eliminate as the paper's models do.

    Args:
        evidence: What there is.
        name: The condition of the plain reading.
    """
    return in_other_readings(
        evidence, (name,), lambda each: evidence.measure(each, elimination_rate) >= MASTERED
    )


def that_master_both(evidence: Evidence, name: str) -> ByReading:
    """In readings other than the plain one, the seeds that master both skills as the paper's do.

    Args:
        evidence: What there is.
        name: The condition of the plain reading.
    """
    return in_other_readings(evidence, (name,), lambda each: masters(evidence, each))


def of_same_seeds(evidence: Evidence, values: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Values of several conditions, cut down to the seeds that finished in all of them.

    Args:
        evidence: Knows which seeds a condition has.
        values: By condition, a value for each seed that finished.
    """
    seeds = {name: finished_seeds(evidence, name) for name in values}
    common = sorted(set.intersection(*map(set, seeds.values())))
    return {
        name: np.asarray(each)[np.searchsorted(seeds[name], common)]
        for name, each in values.items()
    }


def finished_seeds(evidence: Evidence, name: str) -> np.ndarray:
    """The seeds of a condition that did not diverge, in the order of what is measured of them."""
    run = evidence.run(name)
    return np.array(run.seeds)[run.finished]


# ---- series of figures


def named_by_condition(
    evidence: Evidence, what: str, name: str, measure: Callable[[str], np.ndarray]
) -> dict[str, np.ndarray]:
    """A series for each reading of a condition: `what` for the plain one, `what NAME` for others.

    Args:
        evidence: What there is.
        what: Is measured.
        name: The condition of the plain reading.
        measure: Of a condition's name.
    """
    return {
        what if other == name else f"{what} {other}": measure(other)
        for other in evidence.readings(name).values()
    }
