"""The memories study: what it claims. It trains no transformer."""

from mnemoscope.studies.study import Study

STUDY = Study(
    title="What can weights store?",
    paper=(
        "Scaling Laws for Associative Memories (Cabannes, Dohmatob, Bietti) "
        "and the slides on memory in transformers"
    ),
    conditions=lambda scale: {},
)
