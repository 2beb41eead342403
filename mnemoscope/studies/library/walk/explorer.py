"""The models of the study that travel with its explorer."""

from mnemoscope.studies.library.walk.conditions import ABC, build_conditions
from mnemoscope.studies.study import Condition


def models() -> dict[str, Condition]:
    """The ABC model, as it is trained at the quick scale."""
    return {ABC: build_conditions("quick")[ABC]}
