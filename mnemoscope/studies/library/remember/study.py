"""The remember study: what it claims, and what it trains."""

from mnemoscope.studies.library.remember.conditions import PLAIN, SMALL, TWO, WIDE, build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="Can a tiny transformer learn to remember?",
    paper="Can a Tiny Transformer Learn to Remember? (permutation study)",
    conditions=build_conditions,
    explore=(TWO, WIDE, SMALL, PLAIN),
)
