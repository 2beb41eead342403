"""The walk as plain text for a terminal, and as Markdown.

Headings, tables of numbers, one sentence a step.
"""

from collections.abc import Iterator

from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.walk.cells import cells, head, heading, number


def columns(table: list[list[str]]) -> Iterator[str]:
    """Cells in straight columns: labels to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for label, *numbers in table:
        aligned = [f"{x:>{width}}" for x, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([f"{label:<{widths[0]}}", *aligned])


def _table(line: Line, digits: int) -> Iterator[str]:
    """A line's numbers in columns, below their names where they have any."""
    table = cells(line, digits)
    names = head(line)
    return columns([names, *table] if names else table)


def text(walk: Walk, title: str, digits: int) -> str:
    """The walk for a terminal.

    Args:
        walk: The walk.
        title: What is walked, in words.
        digits: Of every number, after the point.
    """
    lines = [title, "=" * len(title), ""]
    for i, step in enumerate(walk.steps, 1):
        lines += [f"{i}. {step.title}", ""]
        for line in step.lines:
            rows = [f"      {row}" for row in _table(line, digits)]
            lines += [f"   {heading(line)}", *rows, ""]
        lines += [f"   -> {step.sentence}", ""]
    lines += ["Direct logit attribution", "", *(f"   {row}" for row in _who(walk, digits)), ""]
    return "\n".join(lines)


def _who(walk: Walk, digits: int) -> Iterator[str]:
    """What each part of the model adds to every logit, position by position."""
    header = ["", *walk.token_names]
    for i, token in enumerate(walk.prompt):
        rows = []
        for name, values in walk.contributions(i).items():
            rows.append([name, *(number(x, digits) for x in values)])
        yield f"after {i} {token}"
        yield from (f"   {row}" for row in columns([header, *rows]))
        yield ""


def markdown(walk: Walk, title: str, digits: int) -> str:
    """The walk as a Markdown file.

    Args:
        walk: The walk.
        title: What is walked, in words.
        digits: Of every number, after the point.
    """
    lines = [f"# {title}", ""]
    for i, step in enumerate(walk.steps, 1):
        lines += [f"## {i}. {step.title}", ""]
        for line in step.lines:
            lines += [f"`{heading(line)}`", "", "```", *_table(line, digits), "```", ""]
        lines += [f"**{step.sentence}**", ""]
    lines += ["## Direct logit attribution", "", "```", *_who(walk, digits), "```", ""]
    return "\n".join(lines)
