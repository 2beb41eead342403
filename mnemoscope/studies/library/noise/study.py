"""The noise study: what it claims, and what it trains."""

from mnemoscope.studies.library.noise.conditions import build_conditions
from mnemoscope.studies.study import Study, load_tests

STUDY = Study(
    name="noise",
    package=__package__,
    title="Which part of a model learns the noise?",
    paper="Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti)",
    conditions=build_conditions,
    tests=load_tests(__package__),
)
