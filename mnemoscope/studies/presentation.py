"""What a study's page says besides its ledger.

The question, the task with an example, the setup, and how seeds are drawn.
"""

import tomllib
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

from pydantic import Field

from mnemoscope.core.config import Strict


class Panel(Strict):
    """One axis of a claim's figure: which series it shows, and what the paper printed for them."""

    kind: Literal["seeds", "curves", "grid"] = "seeds"
    # names or patterns of what a judge read off each seed, followed through training, or laid out
    series: tuple[str, ...]
    axis: str  # what is measured: for a grid, what its color means
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


class StudyPage(Strict):
    """A study in words."""

    question: str  # what the study asks
    task: str  # what the models are trained on
    # the tokens of one sequence, each with what is asked there, if anything
    example: tuple[tuple[str, str], ...]
    setup: tuple[str, ...]  # how models are trained and read, a line each
    beyond: tuple[str, ...]  # what goes beyond the paper, a line each


def _read(study: str, file: str) -> dict[str, Any]:
    folder = resources.files(f"mnemoscope.studies.library.{study}")
    return tomllib.loads(folder.joinpath(file).read_text(encoding="utf-8"))


def load_page(study: str) -> StudyPage:
    """The words of a study's page, from the `page.toml` in its folder."""
    return StudyPage.model_validate(_read(study, "page.toml"))


def load_panels(study: str) -> dict[str, tuple[Panel, ...]]:
    """How each claim's seeds are drawn, from the `figures.toml` in the study's folder."""
    by_claim = _read(study, "figures.toml")
    return {claim: tuple(map(Panel.model_validate, each)) for claim, each in by_claim.items()}
