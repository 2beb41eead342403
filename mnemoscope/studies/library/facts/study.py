"""The facts study: what it claims, and what it trains."""

from mnemoscope.studies.library.facts.conditions import build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="How are facts recalled, and why does a model make them up?",
    paper=(
        "Understanding Factual Recall in Transformers via Associative Memories "
        "(Nichani, Lee, Bietti)"
    ),
    conditions=build_conditions,
)
