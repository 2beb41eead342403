"""The birth study: what it claims, and what it trains."""

from mnemoscope.studies.library.birth.conditions import build_conditions
from mnemoscope.studies.study import Study

STUDY = Study(
    title="How is an induction head born?",
    paper=(
        "Birth of a Transformer: A Memory Viewpoint (Bietti, Cabannes, Bouchacourt, Jegou, Bottou)"
    ),
    conditions=build_conditions,
    on_text=build_conditions,
)
