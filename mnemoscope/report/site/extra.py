"""What a study adds to the site: `STATEMENTS` and `PAGES` of the `pages.py` in its folder."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mnemoscope.studies.folder import load_part
from mnemoscope.studies.presentation import Statement
from mnemoscope.studies.study import Study
from mnemoscope.training.run import Run


class ExtraPage(NamedTuple):
    """A page of its own."""

    file: str  # its name, such as walk-through.html
    title: str  # on the overview and, in small letters, in every page's navigation
    about: str  # one sentence for the overview
    # its HTML, from the study's featured runs that are stored, by condition; empty leaves it out
    make: Callable[[Mapping[str, Run]], str]


def load_statements(study: Study) -> tuple[Statement, ...]:
    """What the paper says and its own numbers show; most studies have nothing of the kind."""
    part = load_part(study.package, "pages")
    return getattr(part, "STATEMENTS", ())


def load_extra_pages(study: Study) -> tuple[ExtraPage, ...]:
    """The pages that a study has besides its ledger's."""
    part = load_part(study.package, "pages")
    return getattr(part, "PAGES", ())
