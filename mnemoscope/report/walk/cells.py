"""A line's numbers as cells of text: rounded, and folded where there are too many.

A folded table shows the first rows and columns, the last one, and "..." between; its shape is
always written beside it.
"""

import re

import numpy as np

from mnemoscope.probes.walk import Line

MOST = 12  # rows or columns shown whole
HEAD = 5  # of more, the first ones that are shown; the last is shown too
GAP = "..."


def format_number(value: float, digits: int) -> str:
    """A number rounded to so many digits after the point; -inf is what the mask hides."""
    if np.isneginf(value):
        return "-inf"
    shown = f"{value:.{digits}f}"
    return shown.lstrip("-") if float(shown) == 0 else shown  # no minus zero


def list_shown(n: int) -> list[int | None]:
    """Which of n rows or columns are shown; None stands for the gap."""
    return list(range(n)) if n <= MOST else [*range(HEAD), None, n - 1]


def format_cells(line: Line, digits: int) -> list[list[str]]:
    """Rows of cells, each led by its label."""
    columns = list_shown(line.values.shape[1])
    table = []
    for i in list_shown(line.values.shape[0]):
        if i is None:
            table.append([GAP] * (1 + len(columns)))
            continue
        values = line.values[i]
        row = [GAP if j is None else format_number(values[j], digits) for j in columns]
        table.append([line.rows[i], *row])
    return table


def column_names(line: Line) -> list[str]:
    """The names above the columns, led by an empty cell; nothing where they have no names."""
    if not line.columns:
        return []
    columns = list_shown(line.values.shape[1])
    return ["", *[GAP if j is None else line.columns[j] for j in columns]]


def column_numbers(line: Line) -> list[str]:
    """The numbers of the columns that are shown, led by an empty cell."""
    return ["", *[GAP if j is None else str(j) for j in list_shown(line.values.shape[1])]]


def format_heading(line: Line) -> str:
    """`X = E + P (3 x 2)`."""
    rows, columns = line.values.shape
    equation = f"{line.name} = {line.formula}" if line.formula else line.name
    return f"{equation} ({rows} x {columns})"


def format_powers(formula: str, times: str, power: str) -> str:
    """A formula in which 1e-05 and 2.5e-06 are powers of ten.

    Args:
        formula: Of a line.
        times: What stands between a factor and the power.
        power: The power, with %d for its exponent: `10^{%d}`.
    """

    def written(found: re.Match[str]) -> str:
        factor = "" if found[1] == "1" else found[1] + times
        return factor + power % int(found[2])

    return re.sub(r"\b(\d+(?:\.\d+)?)e([+-]\d+)\b", written, formula)
