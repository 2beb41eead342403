"""The walk as plain text for a terminal, and as Markdown.

Headings, tables of numbers, one sentence a step.
"""

import textwrap
from collections.abc import Iterator

from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.walk.cells import (
    column_names,
    column_numbers,
    format_cells,
    format_heading,
    format_number,
)

WIDTH = 80  # columns of a terminal
Table = list[list[str]]


def align_columns(table: Table) -> Iterator[str]:
    """Cells in straight columns: labels to the left, numbers to the right.

    Args:
        table: Rows of cells, each led by its label.
    """
    widths = _widths(table)
    for label, *numbers in table:
        aligned = [f"{x:>{width}}" for x, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join([f"{label:<{widths[0]}}", *aligned]).rstrip()


def _widths(table: Table) -> list[int]:
    return [max(len(row[i]) for row in table) for i in range(len(table[0]))]


def split_table(table: Table, width: int) -> Iterator[Table]:
    """A table in tables that are not wider than they may be, unless one column is.

    Each has about as many columns as the others.

    Args:
        table: Rows of cells, each led by its label, which leads the row in every block.
        width: What a block may take.
    """
    n = len(table[0]) - 1
    fewest = len(_cuts(table, width, n))
    for first, end in _cuts(table, width, -(-n // fewest)):
        yield [[row[0], *row[1 + first : 1 + end]] for row in table]


def _cuts(table: Table, width: int, most: int) -> list[tuple[int, int]]:
    """From which column to which each block goes, with so many columns at most."""
    label, *widths = _widths(table)
    cuts = []
    first = 0
    taken = label
    for i, each in enumerate(widths):
        is_full = i - first == most or taken + 2 + each > width
        if i > first and is_full:
            cuts.append((first, i))
            first = i
            taken = label
        taken += 2 + each
    return [*cuts, (first, len(widths))]


def _table(line: Line, digits: int) -> Table:
    """A line's numbers, below the names of their columns where they have any."""
    table = format_cells(line, digits)
    names = column_names(line)
    return [names, *table] if names else table


def _within(line: Line, digits: int, width: int) -> Iterator[str]:
    """A line's numbers in columns, in as many blocks as it takes."""
    found = list(split_table(_table(line, digits), width))
    if len(found) > 1 and not line.columns:
        # without numbers nobody could tell which columns a block has
        found = list(split_table([column_numbers(line), *format_cells(line, digits)], width))
    for i, block in enumerate(found):
        if i:
            yield ""
        yield from align_columns(block)


def _wrapped(text: str, first: str, rest: str, width: int) -> list[str]:
    """A text in lines that are led by so much."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def render_text(walk: Walk, title: str, digits: int, width: int = WIDTH) -> str:
    """The walk for a terminal.

    Args:
        walk: The walk.
        title: What is walked, in words.
        digits: Of every number, after the point.
        width: Columns of the terminal; wider tables are broken into blocks.
    """
    said = _wrapped(title, "", "", width)
    lines = [*said, "=" * max(map(len, said)), ""]
    for i, step in enumerate(walk.steps, 1):
        lines += [f"{i}. {step.title}", ""]
        for line in step.lines:
            lines += _wrapped(format_heading(line), "   ", "      ", width)
            lines += _indented(_within(line, digits, width - 6), 6)
            lines.append("")
        lines += [*_wrapped(f"-> {step.sentence}", "   ", "      ", width), ""]
    who = _who(walk, digits, width - 3)
    lines += ["Direct logit attribution", "", *_indented(who, 3)]
    return "\n".join(lines)


def _indented(rows: Iterator[str], by: int) -> Iterator[str]:
    for row in rows:
        yield f"{' ' * by}{row}".rstrip()


def _who(walk: Walk, digits: int, width: int) -> Iterator[str]:
    """What each part of the model adds to every logit, position by position."""
    header = ["", *walk.token_names]
    for i, token in enumerate(walk.prompt):
        rows = []
        for name, values in walk.contributions(i).items():
            rows.append([name, *(format_number(x, digits) for x in values)])
        yield f"after {i} {token}"
        for block in split_table([header, *rows], width - 3):
            yield from _indented(align_columns(block), 3)
            yield ""


def render_markdown(walk: Walk, title: str, digits: int) -> str:
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
            table = _within(line, digits, WIDTH)
            lines += [f"`{format_heading(line)}`", "", "```", *table, "```", ""]
        lines += [f"**{step.sentence}**", ""]
    lines += ["## Direct logit attribution", "", "```", *_who(walk, digits, WIDTH), "```", ""]
    return "\n".join(lines)
