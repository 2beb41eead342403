"""Prompts that papers print, from the file `prompts.toml` of the study that is about the paper.

[task]        fields that a task must have, so that they are offered with it
[[prompts]]   each with its name, its tokens or the text that they spell, and why it is worth trying
"""

from collections.abc import Iterator
from typing import Any

from pydantic import model_validator

from mnemoscope.core.strict import Strict
from mnemoscope.studies.discover import packages
from mnemoscope.studies.folder import read_toml
from mnemoscope.tasks import Task

FILE = "prompts.toml"


class PaperPrompt(Strict):
    """One prompt of a paper."""

    name: str
    """What the explorer calls it."""
    why: str
    """What is to be seen with it."""
    tokens: list[int] | None = None
    """Its tokens, by number, or ..."""
    text: str | None = None
    """... by their names of one character each; a task that has not all of them is not asked."""

    @model_validator(mode="after")
    def _check(self) -> "PaperPrompt":
        if (self.tokens is None) == (self.text is None):
            raise ValueError(f"the prompt {self.name!r} has one of tokens and text")
        return self

    def tokens_for(self, task: Task) -> list[int] | None:
        """Its tokens for a task; None where the task cannot be asked its text."""
        return self.tokens if self.text is None else spell(self.text, task)


class PaperPrompts(Strict):
    """The prompts of one study's paper."""

    task: dict[str, Any]
    """Fields of a task, with the values that they have where these are its prompts."""
    prompts: tuple[PaperPrompt, ...]
    """The prompts, in the order in which they are offered."""


def spell(text: str, task: Task) -> list[int] | None:
    """A text as tokens, each named by one character; None where the task has not all of them.

    Args:
        text: what is spelled.
        task: whose tokens they are.
    """
    names = task.token_names
    if len(text) > task.n_ctx or not set(text) <= set(names):
        return None
    return [names.index(character) for character in text]


def fits(fields: dict[str, Any], task: Task) -> bool:
    """Whether a task has all these fields, with these values.

    Args:
        fields: their values by name.
        task: what a run was trained on.
    """
    own = task.model_dump()
    return all(name in own and own[name] == value for name, value in fields.items())


def study_files(file: str) -> Iterator[dict[str, Any]]:
    """What a file of this name says, in each study that has one.

    Args:
        file: its name in a study's folder.
    """
    for package in packages().values():
        fields = read_toml(package, file)
        if fields:
            yield fields


def list_prompts(task: Task) -> list[dict[str, Any]]:
    """The prompts that papers print for a task, study by study.

    Args:
        task: what a run was trained on.
    """
    found: list[dict[str, Any]] = []
    for fields in study_files(FILE):
        of_paper = PaperPrompts.model_validate(fields)
        if not fits(of_paper.task, task):
            continue
        for prompt in of_paper.prompts:
            tokens = prompt.tokens_for(task)
            if tokens is not None:
                found.append({"name": prompt.name, "tokens": tokens, "why": prompt.why})
    return found
