"""Prompts that papers print, from the file `prompts.toml` of the study that is about the paper.

[task]        fields that a task must have, so that they are offered with it
[[prompts]]   each with its name, its tokens, and why it is worth trying
"""

from collections.abc import Iterator
from typing import Any

from mnemoscope.core.strict import Strict
from mnemoscope.studies.discover import packages
from mnemoscope.studies.folder import read_toml
from mnemoscope.tasks import Task

FILE = "prompts.toml"


class PaperPrompt(Strict):
    """One prompt of a paper."""

    name: str
    """What the explorer calls it."""
    tokens: list[int]
    """Its tokens, by number."""
    why: str
    """What is to be seen with it."""


class PaperPrompts(Strict):
    """The prompts of one study's paper."""

    task: dict[str, Any]
    """Fields of a task, with the values that they have where these are its prompts."""
    prompts: tuple[PaperPrompt, ...]
    """The prompts, in the order in which they are offered."""


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
        if fits(of_paper.task, task):
            found += [prompt.model_dump() for prompt in of_paper.prompts]
    return found
