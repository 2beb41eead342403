"""The studies by name, and the same studies on a text or a language model of the user's."""

import re
from dataclasses import replace
from pathlib import Path

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.studies.claims import Condition, Scale, Study
from mnemoscope.studies.library.birth import STUDY as BIRTH
from mnemoscope.studies.library.facts import STUDY as FACTS
from mnemoscope.studies.library.hops import STUDY as HOPS
from mnemoscope.studies.library.language import STUDY as LANGUAGE
from mnemoscope.studies.library.memories import STUDY as MEMORIES
from mnemoscope.studies.library.noise import STUDY as NOISE
from mnemoscope.studies.library.remember import STUDY as REMEMBER
from mnemoscope.studies.library.walk import STUDY as WALK
from mnemoscope.tasks import read_corpus

_ALL = (REMEMBER, WALK, BIRTH, MEMORIES, FACTS, NOISE, HOPS, LANGUAGE)
STUDIES: dict[str, Study] = {study.name: study for study in _ALL}


def find_study(name: str) -> Study:
    """The study of this name."""
    if name not in STUDIES:
        raise UserError(unknown("study", name, STUDIES))
    return STUDIES[name]


def find_claim(claim_id: str) -> tuple[Study, str]:
    """The study that has this claim."""
    known = {test.claim.id: study for study in STUDIES.values() for test in study.tests}
    if claim_id not in known:
        raise UserError(unknown("claim", claim_id, known))
    return known[claim_id], claim_id


def on_corpus(study: Study, path: Path) -> Study:
    """A study of text on a text file of the user's.

    Its ledger is kept apart, under the study's and the file's name and the start of a hash of what
    the text holds: another text may have the same name.
    """
    if study.on_text is None:
        texts = ", ".join(s.name for s in STUDIES.values() if s.on_text)
        raise UserError(
            f"study {study.name!r} is not about text, so it takes no --corpus; allowed: {texts}"
        )
    conditions = study.on_text
    corpus = read_corpus(path)

    def of_corpus(scale: Scale) -> dict[str, Condition]:
        try:
            return conditions(scale, corpus)
        except UserError as error:
            raise UserError(
                f"the corpus {str(path)!r} does not do for {study.name!r}: {error}"
            ) from None

    return replace(
        study,
        name=_name_on(study, path, corpus.digest()),
        title=f"{study.title} ({path.name})",
        conditions=of_corpus,
    )


def _name_on(study: Study, path: Path, content: str) -> str:
    """The name of a study of a file of the user's, by the file's name and a hash of its content."""
    stem = re.sub(r"[^0-9A-Za-z._-]", "_", path.stem)
    digest = (content or "unread")[:8]
    return f"{study.name}@{stem}-{digest}"


def on_model(study: Study, path: Path) -> Study:
    """A study of a language model on the user's own. Its ledger is kept apart, as for a text."""
    if study.on_model is None:
        those = ", ".join(s.name for s in STUDIES.values() if s.on_model)
        raise UserError(
            f"study {study.name!r} is not about a language model, so it takes no --model; "
            f"allowed: {those}"
        )
    if not path.exists():
        raise UserError(
            f"there is no language model at {str(path)!r}; "
            "allowed: a GGUF file, or a folder with *.safetensors"
        )
    made = study.on_model(path)
    return replace(
        made,
        name=_name_on(study, path, made.fingerprint()),
        title=f"{study.title} ({path.name})",
    )
