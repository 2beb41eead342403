"""The language study: what it asks of a language model. Nothing is trained."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from mnemoscope.studies.library.language.subject import Subject
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.study import ClaimTest, Study, load_tests

TESTS = load_tests(__name__.rpartition(".")[0])


def _of_subject(test: ClaimTest, subject: Subject) -> ClaimTest:
    """A test whose function is told which model it measures."""
    measure: Callable[..., Measurement] = test.measure
    return replace(test, measure=partial(measure, subject))


def study_of(path: Path | None = None) -> Study:
    """The study of the model at this path; of the one that is found where none is given."""
    subject = Subject(path)
    return Study(
        name="language",
        package=__package__,
        title="Does any of it hold in a real language model?",
        paper=(
            "N4: Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti); "
            "L1 to L3 go beyond the papers"
        ),
        conditions=lambda scale: {},
        tests=tuple(_of_subject(test, subject) for test in TESTS),
        on_model=study_of,
        fingerprint=subject.fingerprint,
    )


STUDY = study_of()
