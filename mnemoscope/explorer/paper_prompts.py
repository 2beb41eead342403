"""Prompts that papers print, from the file `prompts.toml` of the study that is about the paper.

[task]        fields that a task must have, so that they are offered with it
[[prompts]]   each with its name, its tokens, and why it is worth trying
"""

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

    def are_for(self, task: Task) -> bool:
        """Whether a task has all these fields, with these values."""
        fields = task.model_dump()
        return all(name in fields and fields[name] == x for name, x in self.task.items())


def list_prompts(task: Task) -> list[dict[str, Any]]:
    """The prompts that papers print for a task, study by study.

    Args:
        task: what a run was trained on.
    """
    found: list[dict[str, Any]] = []
    for package in packages().values():
        tables = read_toml(package, FILE)
        if tables:
            of_paper = PaperPrompts.model_validate(tables)
            if of_paper.are_for(task):
                found += [prompt.model_dump() for prompt in of_paper.prompts]
    return found
