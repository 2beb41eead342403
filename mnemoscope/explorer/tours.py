"""Guided tours, from the file `tour.toml` of the study whose models they lead through.

title         the question that the tour answers
[task]        fields that a task must have, so that the tour is offered with it
[[steps]]     each a state of the page with two sentences

A step names no seed and no snapshot by number: it says by a rule which one it wants, and the page
finds it in the run that is open (`static/tour_rules.js`). A step whose rule nothing meets is left
out. What a step does not say stays as it was in the step before. In a text, a name in braces stands
for what the page computes there (`VALUES`, and the skills of the task, such as {recall}, and
{recall_end} for the end of training).
"""

import re
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import model_validator

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.strict import Strict
from mnemoscope.explorer.paper_prompts import fits, spell, study_files
from mnemoscope.tasks import Task

FILE = "tour.toml"
# what the page fills in, see computeValues of static/tour.js
VALUES = (
    "answer",
    "share",
    "was",
    "was_share",
    "reading",
    "off",
    "prompt",
    "seed",
    "seeds",
    "step",
    "last_step",
)


class SeedRule(Strict):
    """Which seed a step shows; exactly one of these."""

    highest: str | None = None
    """The one that ends with the highest accuracy in this skill."""
    lowest: str | None = None
    """The one that ends with the lowest."""
    most_different: Literal[True] | None = None
    """The one whose answer at the end, with the same knocked out, is farthest from that of the seed
    of the step before."""

    @model_validator(mode="after")
    def _check(self) -> "SeedRule":
        if len(self.model_fields_set) != 1:
            raise ValueError("a seed is picked by one of highest, lowest, most_different")
        return self


class SnapshotRule(Strict):
    """Which snapshot a step shows: the first at a level, or that with the largest difference."""

    first: str | None = None
    """The first snapshot where this skill ..."""
    at_least: float | None = None
    """... has at least this accuracy."""
    largest: str | None = None
    """The snapshot where this skill is largest ..."""
    minus: str | None = None
    """... after this one was subtracted; nothing is, where this is empty."""

    @model_validator(mode="after")
    def _check(self) -> "SnapshotRule":
        if self.model_fields_set not in ({"first", "at_least"}, {"largest", "minus"}):
            raise ValueError("a snapshot is picked by first and at_least, or by largest and minus")
        return self

    def skills(self) -> Iterable[str]:
        """The skills that it compares."""
        return filter(None, (self.first, self.largest, self.minus))


class TourStep(Strict):
    """One state of the page, and what is said of it."""

    title: str
    """A few words."""
    text: str
    """Two sentences; names in braces are filled in."""
    look: Literal["answer", "model", "part", "time", "prompt", "seeds"]
    """What is framed."""
    prompt: list[int] | str | None = None
    """The tokens that are asked about, by number, or as text by their names of one character."""
    seed: SeedRule | None = None
    """The seed."""
    at: Literal["start", "end"] | SnapshotRule | None = None
    """The snapshot."""
    off: Literal["nothing", "the head with the largest effect"] | list[str] | None = None
    """What is knocked out."""
    part: str | None = None
    """The part whose numbers are open."""


class Tour(Strict):
    """Steps through the models of one study."""

    title: str
    """The question that it answers."""
    task: dict[str, Any]
    """Fields of a task, with the values that they have where this is its tour."""
    steps: tuple[TourStep, ...]
    """In this order."""


def pack_tour(task: Task, brought: Tour | None, skills: Iterable[str]) -> dict[str, Any] | None:
    """The tour of a task as the page reads it; None where there is none.

    Args:
        task: What a run was trained on.
        brought: A tour that the task's adapter has; else the first that a study has for it.
        skills: What is measured of the run, by name.

    Raises:
        UserError: The tour names a value or a skill that there is not, or tokens that the task has
            not.
    """
    tour = brought or _find_tour(task)
    if tour is None:
        return None
    tour = _spell_prompts(tour, task)
    _check_tour(tour, task, tuple(skills))
    steps = [step.model_dump(mode="json", exclude_none=True) for step in tour.steps]
    return {"title": tour.title, "steps": steps}


def _find_tour(task: Task) -> Tour | None:
    """The first tour that a study has for a task."""
    tours = (Tour.model_validate(fields) for fields in study_files(FILE))
    return next((tour for tour in tours if fits(tour.task, task)), None)


def _spell_prompts(tour: Tour, task: Task) -> Tour:
    """The same tour with all its prompts as tokens."""
    steps: list[TourStep] = []
    for step in tour.steps:
        if isinstance(step.prompt, str):
            tokens = spell(step.prompt, task)
            if tokens is None:
                raise UserError(
                    f"tour {tour.title!r}, step {step.title!r}: the prompt is {step.prompt!r}; "
                    f"allowed: 1 to {task.n_ctx} of {' '.join(task.token_names)}"
                )
            step = step.model_copy(update={"prompt": tokens})
        steps.append(step)
    return tour.model_copy(update={"steps": tuple(steps)})


def _check_tour(tour: Tour, task: Task, skills: tuple[str, ...]) -> None:
    """Refuse what the page could not fill in or find."""
    values = (*VALUES, *skills, *(f"{name}_end" for name in skills))
    for step in tour.steps:
        where = f"tour {tour.title!r}, step {step.title!r}"
        for name in re.findall(r"\{([\w ]*)\}", step.text):
            if name not in values:
                raise UserError(f"{where}: {unknown('value', name, values)}")
        seed = step.seed or SeedRule(most_different=True)
        rules = [seed.highest, seed.lowest]
        if isinstance(step.at, SnapshotRule):
            rules += step.at.skills()
        for name in filter(None, rules):
            if name not in skills:
                raise UserError(f"{where}: {unknown('skill', name, skills)}")
        tokens = [0] if step.prompt is None else step.prompt
        assert not isinstance(tokens, str)  # spelled before
        if not 0 < len(tokens) <= task.n_ctx or not all(0 <= x < task.d_vocab for x in tokens):
            allowed = f"1 to {task.n_ctx} tokens from 0 to {task.d_vocab - 1}"
            raise UserError(f"{where}: the prompt is {tokens}; allowed: {allowed}")
