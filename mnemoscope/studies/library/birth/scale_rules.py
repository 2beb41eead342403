"""What a scale may settle: quick runs are short, and some conditions only the full scale trains."""

from mnemoscope.studies.claims import InconclusiveError, Verdict
from mnemoscope.studies.evidence import Evidence


def settled(evidence: Evidence, verdict: Verdict) -> Verdict:
    """What a shorter training on shorter sequences may not refute.

    Added for B3 and B7 after full and quick had been compared.
    """
    if evidence.scale == "quick" and verdict != "reproduced":
        return "undecided"
    return verdict


def trained(evidence: Evidence, name: str, what: str) -> None:
    """Stop a judge whose conditions only the full scale trains.

    Args:
        evidence: the conditions of this scale.
        name: a condition that the judge needs.
        what: the conditions in words, which begin the sentence on why nothing is settled.
    """
    if name not in evidence.conditions:
        raise InconclusiveError(f"{what} are trained at full scale only.")
