"""What the language study claims, what it trains, and which judge settles which claim."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from mnemoscope.studies.claims import ClaimTest, Outcome, Study, load_claims
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language import copying_heads, keys, pairs, places
from mnemoscope.studies.library.language.subject import Subject

CLAIMS = load_claims(__package__)
JUDGES: dict[str, Callable[[Subject, Evidence], Outcome]] = {
    "N4": places.located,
    "L1": copying_heads.copying,
    "L2": keys.memory,
    "L3": pairs.recalled,
}


def study_of(path: Path | None = None) -> Study:
    """The study of the model at this path; of the one that is found where none is given."""
    subject = Subject(path)
    tests = [ClaimTest(CLAIMS[name], (), partial(judge, subject)) for name, judge in JUDGES.items()]
    return Study(
        name="language",
        package=__package__,
        title="Does any of it hold in a real language model?",
        paper=(
            "N4: Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti); "
            "L1 to L3 go beyond the papers"
        ),
        conditions=lambda scale: {},
        tests=tuple(tests),
        on_model=study_of,
        fingerprint=subject.fingerprint,
    )


STUDY = study_of()
