"""The models of the study that travel with its explorer."""

from mnemoscope.studies.library.remember.conditions import SMALL, TWO, build_conditions
from mnemoscope.studies.study import Condition


def models() -> dict[str, Condition]:
    """Two heads, and a smaller model: both of the quick scale."""
    conditions = build_conditions("quick")
    return {name: conditions[name] for name in (TWO, SMALL)}
