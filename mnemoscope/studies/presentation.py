"""What a study's page says besides its ledger.

The question, the task with an example, the setup, and how seeds are drawn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from pydantic import Field

from mnemoscope.core.errors import UserError, in_one_line, unknown
from mnemoscope.core.strict import Strict
from mnemoscope.studies.folder import LAST, read_toml
from mnemoscope.studies.scales import LARGEST_FIRST
from mnemoscope.studies.study import Study


class Panel(Strict):
    """One axis of a claim's figure: which series it shows, and what the paper printed for them."""

    kind: Literal["seeds", "curves", "grid"] = "seeds"
    # names or patterns of what a judge read off each seed, followed through training, or laid out
    series: tuple[str, ...]
    axis: str = ""  # what is measured: for a grid, what its color means
    title: str = ""  # above the axis
    x: str = "step"  # what curves run along, or what the columns of a grid are
    y: str = ""  # what the rows of a grid are
    log_x: bool = False  # whether what curves run along is on a logarithmic axis
    limits: tuple[float, float] | None = None  # of what is measured
    log: bool = False  # whether what is measured is on a logarithmic axis
    published: dict[str, float] = Field(default_factory=dict)  # what the paper printed, by series

    def chosen(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """The series it shows, out of those that there are, in their own order."""
        return tuple(name for name in known if self._shows(name))

    def _shows(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.series)


class Statement(NamedTuple):
    """Something the paper says, and whether its own numbers agree."""

    said: str  # by the paper
    follows: str  # from the published numbers
    holds: bool  # whether the two agree


class StudyPage(Strict):
    """A study in words."""

    order: int = LAST  # its place among the studies, lowest first
    in_short: str = ""  # the study in a sentence, for the overview
    # the claim whose figure the overview opens with, if no study before it has one
    hero: str = ""
    hero_says: str = ""  # below that figure: what is claimed, what a dot is, what is seen
    question: str = ""  # what the study asks
    task: str = ""  # what the models are trained on
    # the tokens of one sequence, each with what is asked there, if anything
    example: tuple[tuple[str, str], ...] = ()
    setup: tuple[str, ...] = ()  # how models are trained and read, a line each
    beyond: tuple[str, ...] = ()  # what goes beyond the paper, a line each
    # what the paper's authors would object, each with our answer
    objections: tuple[tuple[str, str], ...] = ()


def load_page(study: Study) -> StudyPage:
    """The words of a study's page, from the `page.toml` in its folder; none where there is none."""
    with _said_of(study, "page.toml"):
        return StudyPage.model_validate(_read(study, "page.toml"))


def describe_conditions(study: Study) -> tuple[str, ...]:
    """What a study trains at its largest scale, a line for each condition.

    Args:
        study: without words of its own for it.
    """
    return tuple(
        f"{name}: {each.seeds} seeds, {each.spec.steps:,} steps of {each.spec.batch} sequences; "
        f"{_what_is_stated(each.spec.task)}; {_what_is_stated(each.spec.model)}"
        for name, each in study.list_conditions(LARGEST_FIRST[0]).items()
    )


def _what_is_stated(configuration: Strict) -> str:
    """A configuration in one line, without what is as it is by default."""
    fields = {
        name: getattr(configuration, name)
        for name, field in type(configuration).model_fields.items()
        if name in configuration.model_fields_set and getattr(configuration, name) != field.default
    }
    return in_one_line(type(configuration).__name__, fields)


def load_panels(study: Study) -> dict[str, tuple[Panel, ...]]:
    """How each claim's seeds are drawn, from the `figures.toml` in the study's folder.

    A claim without panels is drawn on a plain axis.
    """
    with _said_of(study, "figures.toml"):
        by_claim = _read(study, "figures.toml")
        return {claim: tuple(map(Panel.model_validate, each)) for claim, each in by_claim.items()}


def require_words(study: Study) -> None:
    """Raise for a page or figures that cannot be read, and for figures of what is no claim."""
    known = [test.claim.id for test in study.tests]
    hero = load_page(study).hero
    if hero and hero not in known:
        raise UserError(unknown(f"claim in hero= in page.toml of {study.name!r}", hero, known))
    for claim in load_panels(study):
        if claim not in known:
            raise UserError(unknown(f"claim in figures.toml of {study.name!r}", claim, known))


def require_explored(study: Study) -> None:
    """Raise for a condition that the explorer is to show and that is not trained at the quick
    scale."""
    known = study.list_conditions("quick") if study.explore else {}
    for name in study.explore:
        if name not in known:
            raise UserError(unknown(f"condition in explore= of study {study.name!r}", name, known))


def require_presentable(study: Study) -> None:
    """Raise for what would be refused after the training: words, figures, what is explored.

    Args:
        study: before anything of it is trained.
    """
    require_words(study)
    require_explored(study)


def _read(study: Study, file: str) -> dict[str, Any]:
    return read_toml(study.package, file) if study.package else {}


@contextmanager
def _said_of(study: Study, file: str) -> Iterator[None]:
    """Say whose file is refused."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{file} of {study.name}: {error}") from None
