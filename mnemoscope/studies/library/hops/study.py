"""The hops study: what it claims, and what it trains."""

from mnemoscope.studies.library.hops.conditions import build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="Must a transformer be taught easy steps before hard ones?",
    paper=(
        "Learning Compositional Functions with Transformers from Easy-to-Hard Data "
        "(Wang and others)"
    ),
    conditions=build_conditions,
)
