"""What a study's page says besides its ledger: the question, the task with an example, the setup, and how seeds are drawn."""

import tomllib
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any, Literal

from pydantic import Field

from mnemoscope.core.config import Strict


class Panel(Strict):
    """One axis of a claim's figure: which series it shows, and what the source printed for them."""

    kind: Literal["seeds", "curves", "grid"] = "seeds"
    series: tuple[
        str, ...
    ]  # names or patterns of what a judge read off each seed, followed through training, or laid out
    axis: str  # what is measured: for a grid, what its colour means
    title: str = ""
    x: str = "step"  # what curves run along, or what the columns of a grid are
    y: str = ""  # what the rows of a grid are
    log_x: bool = False
    limits: tuple[float, float] | None = None  # of what is measured
    log: bool = False
    source: dict[str, float] = Field(default_factory=dict)

    def chosen(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """The series it shows, out of those that there are, in their own order."""
        return tuple(name for name in known if any(fnmatchcase(name, pattern) for pattern in self.series))


class About(Strict):
    """A study in words. `example` are the tokens of one sequence, each with what is asked there, if anything."""

    question: str
    task: str
    example: tuple[tuple[str, str], ...]
    setup: tuple[str, ...]
    beyond: tuple[str, ...]


def _read(study: str, file: str) -> dict[str, Any]:
    return tomllib.loads(
        resources.files(f"mnemoscope.studies.library.{study}").joinpath(file).read_text(encoding="utf-8")
    )


def about(study: str) -> About:
    """The words of a study's page, from the `about.toml` in its folder."""
    return About.model_validate(_read(study, "about.toml"))


def panels(study: str) -> dict[str, tuple[Panel, ...]]:
    """How each claim's seeds are drawn, from the `figures.toml` in the study's folder."""
    return {name: tuple(map(Panel.model_validate, each)) for name, each in _read(study, "figures.toml").items()}
