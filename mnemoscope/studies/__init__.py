"""WHAT PAPERS CLAIM: one file a study, with its claims, its settings and its verdicts."""

from mnemoscope.config import UserError, unknown
from mnemoscope.studies.birth import STUDY as BIRTH
from mnemoscope.studies.claims import Study
from mnemoscope.studies.remember import STUDY as REMEMBER
from mnemoscope.studies.walk import STUDY as WALK

STUDIES: dict[str, Study] = {study.name: study for study in (REMEMBER, WALK, BIRTH)}


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
