"""What a condition's seeds master: report cards, both skills, and other readings of the paper.

And what a short training may not settle.
"""

from collections.abc import Callable

import numpy as np

from mnemoscope.probes.skills import report_card
from mnemoscope.studies.claims import Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import SOURCE_SAMPLES


def percent(x: float | np.floating) -> str:
    """A share as a person writes it."""
    return f"{100 * x:.4g}%"


def short(evidence: Evidence, name: str) -> bool:
    """Whether a condition was trained on fewer samples than the paper's models."""
    spec = evidence.conditions[name].spec
    return spec.steps * spec.batch < 0.99 * SOURCE_SAMPLES


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
    return (recall(evidence, name) >= 0.99) & (eliminates(evidence, name) >= 0.99)


def readings(evidence: Evidence, name: str) -> list[str]:
    """The conditions that read the paper differently where it is silent (none at `quick`)."""
    return [other for other in evidence.conditions if other.startswith(f"{name}/")]


def over_readings(
    evidence: Evidence,
    name: str,
    verdict: Verdict,
    judge: Callable[[str], tuple[Verdict, float]],
    what: str,
) -> tuple[Verdict, str]:
    """Judge the other readings too: a verdict that does not survive them is `partly`.

    Also a note for the sentence.

    Args:
        evidence: What there is.
        name: The condition of the plain reading.
        verdict: What it came to.
        judge: The verdict and the value of a condition.
        what: What that value is, in words.
    """
    outcomes = {other.rsplit("/", 1)[-1]: judge(other) for other in readings(evidence, name)}
    if any(other != verdict for other, _ in outcomes.values()):
        verdict = "partly"
    notes = ", ".join(
        f"{reading} {percent(value)} ({other})" for reading, (other, value) in outcomes.items()
    )
    return verdict, f" Other readings of the paper, {what}: {notes}." if notes else ""
