"""A grid in a terminal: in each cell the share of seeds that reached, in percent, the darker the
more. A point is a cell that has no seeds yet.

The last axis runs to the right, the one before it down; of any others each point has a map of its
own. What does not fit the width is shown by every second value, or every third, and says so.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from rich.style import Style
from rich.text import Text

from mnemoscope.core.theme import COLORS, INK, SEED
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid, Place

WIDTH = 80  # of a terminal that does not say
WIDEST = 10  # of a cell
NARROWEST = 4  # that holds a number
WHITE = (255, 255, 255)
INK_ABOVE = 0.55  # the share above which white is read on the color, and black below


def short_value(value: Any) -> str:
    """A value of an axis, as short as it can be told from others."""
    if isinstance(value, float):
        return f"{value:.3g}".replace("e-0", "e-").replace("e+0", "e")
    text = str(value)
    return text if len(text) <= WIDEST - 1 else f"{text[: WIDEST - 3]}.."


def heat_map(grid: Grid, width: int = WIDTH, height: int | None = None) -> Text:
    """The map of a grid, line by line.

    Args:
        grid: the cells so far.
        width: of the terminal, in characters.
        height: the most lines; None: as many as it takes.
    """
    axes = list(grid.axes.items())
    if len(axes) == 1:
        axes = [("", ("",)), *axes]
    *outer, (down, rows), (across, columns) = axes
    shown = Text()
    left = max(len(down), *(len(short_value(value)) for value in rows)) + 2
    cell_width, every = _fit(columns, width - left)
    n_lines = 0
    for fixed in product(*(range(len(values)) for _, values in outer)):
        lines = list(
            _one_map(grid, fixed, (down, rows), (across, columns), left, cell_width, every)
        )
        if fixed:
            named = [
                f"{axis}={short_value(values[i])}"
                for (axis, values), i in zip(outer, fixed, strict=True)
            ]
            lines.insert(0, Text(", ".join(named), style="bold"))
        if height is not None and n_lines + len(lines) > height:
            shown.append(".. and more, which does not fit the screen\n", style="dim")
            break
        n_lines += len(lines)
        for line in lines:
            shown.append_text(line)
            shown.append("\n")
    return shown


def _one_map(
    grid: Grid,
    fixed: Place,
    down: tuple[str, Sequence[Any]],
    across: tuple[str, Sequence[Any]],
    left: int,
    cell_width: int,
    every: int,
) -> Iterator[Text]:
    """A head, a row for each value of the axis that runs down, and what the columns are."""
    name, rows = down
    columns = range(0, len(across[1]), every)
    for i, value in enumerate(rows):
        label = short_value(value)
        line = Text(f"{label:>{left - 2}}  ")
        for j in columns:
            place = (*fixed, i, j) if name else (*fixed, j)
            line.append_text(_draw_cell(grid.cell_at(place), cell_width))
        yield line
    labels = [short_value(across[1][j]) for j in columns]
    if max(map(len, labels)) < cell_width:
        ticks = "".join(f"{label:^{cell_width}}" for label in labels)
    else:
        room = cell_width * len(labels) - len(labels[0])
        ticks = f"{labels[0]}{labels[-1]:>{max(room, 1)}}"
    yield Text(f"{name:>{left - 2}}  {ticks}", style="dim")
    skipped = f", every {every} of {len(across[1])}" if every > 1 else ""
    yield Text(f"{'':{left}}{across[0]}{skipped}", style="dim")


def _fit(columns: Sequence[Any], room: int) -> tuple[int, int]:
    """How wide a cell is, and every how many-th value has a column."""
    longest = max(len(short_value(value)) for value in columns) + 1
    every = -(-len(columns) * NARROWEST // max(room, NARROWEST))  # rounded up
    n_columns = -(-len(columns) // every)
    widest = max(NARROWEST, room // n_columns)
    return min(widest, max(longest, NARROWEST + 1), WIDEST), every


def _draw_cell(cell: Cell | None, width: int) -> Text:
    """A share in percent on its color."""
    if cell is None:
        return Text(f"{'·':^{width}}", style="dim")
    share = float(cell.reached.mean())
    return Text(f"{share * 100:^{width}.0f}", style=_style(share))


def _style(share: float) -> Style:
    """White for none, and the darker the more."""
    full = tuple(int(SEED[i : i + 2], 16) for i in (1, 3, 5))
    mixed = [round(a + (b - a) * share) for a, b in zip(WHITE, full, strict=True)]
    color = "#{:02x}{:02x}{:02x}".format(*mixed)
    ink = COLORS["paper"].light if share > INK_ABOVE else INK
    return Style(color=ink, bgcolor=color)
