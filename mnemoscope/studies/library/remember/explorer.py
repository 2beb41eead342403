"""The models of the study that travel with its explorer."""

from mnemoscope.studies.library.remember.conditions import PLAIN, SMALL, TWO, build_conditions
from mnemoscope.studies.study import Condition


def models() -> dict[str, Condition]:
    """Two heads, a smaller model, and one that never saw a repeat: those of the quick scale."""
    conditions = build_conditions("quick")
    return {name: conditions[name] for name in (TWO, SMALL, PLAIN)}
