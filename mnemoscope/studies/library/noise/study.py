"""The noise study: what it claims, and what it trains."""

from mnemoscope.studies.library.noise.conditions import build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="Which part of a model learns the noise?",
    paper="Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti)",
    conditions=build_conditions,
)
