"""The walk as plain text for a terminal, and as Markdown: headings, tables of numbers, one sentence a step."""

from collections.abc import Iterator

from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.walk.cells import cells, head, heading, number


def columns(table: list[list[str]]) -> Iterator[str]:
    """Cells in straight columns: labels to the left, numbers to the right."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        label, *numbers = row
        yield f"{label:<{widths[0]}}  " + "  ".join(
            f"{x:>{w}}" for x, w in zip(numbers, widths[1:], strict=True)
        )


def _table(line: Line, digits: int) -> Iterator[str]:
    return columns([*filter(None, [head(line)]), *cells(line, digits)])


def text(walk: Walk, title: str, digits: int) -> str:
    """The walk for a terminal."""
    lines = [title, "=" * len(title), ""]
    for i, step in enumerate(walk.steps, 1):
        lines += [f"{i}. {step.title}", ""]
        for line in step.lines:
            lines += [f"   {heading(line)}", *(f"      {row}" for row in _table(line, digits)), ""]
        lines += [f"   -> {step.sentence}", ""]
    lines += ["Direct logit attribution", "", *(f"   {row}" for row in _who(walk, digits)), ""]
    return "\n".join(lines)


def _who(walk: Walk, digits: int) -> Iterator[str]:
    header = ["", *walk.token_names]
    for i, token in enumerate(walk.prompt):
        rows = [
            [name, *(number(x, digits) for x in values)]
            for name, values in walk.contributions(i).items()
        ]
        yield f"after {i} {token}"
        yield from (f"   {row}" for row in columns([header, *rows]))
        yield ""


def markdown(walk: Walk, title: str, digits: int) -> str:
    """The walk as a Markdown file."""
    lines = [f"# {title}", ""]
    for i, step in enumerate(walk.steps, 1):
        lines += [f"## {i}. {step.title}", ""]
        for line in step.lines:
            lines += [f"`{heading(line)}`", "", "```", *_table(line, digits), "```", ""]
        lines += [f"**{step.sentence}**", ""]
    lines += ["## Direct logit attribution", "", "```", *_who(walk, digits), "```", ""]
    return "\n".join(lines)
