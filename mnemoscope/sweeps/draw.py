"""A grid as one SVG: a square for each cell, the fuller the more of its seeds reach the event.

In a square with room for it stands the share, and below it the interval, from the left edge for 0
to the right edge for 1, with a tick at one half. A ring marks a cell whose interval contains one
half. Over the squares runs the boundary, with its band. The same grid gives the same bytes; nothing
but a browser is needed to look at it, on light and on dark paper.
"""

import math
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.notebook import Safe
from mnemoscope.core.theme import COLORS, INK, PUBLISHED, SEED
from mnemoscope.sweeps.boundary_marks import Mark, boundary_marks
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.laid_out import label, lay_out
from mnemoscope.sweeps.shares import USUAL, Share, cell_share

if TYPE_CHECKING:
    from mnemoscope.sweeps.grid import Grid

FULLEST = 0.65  # opacity of a share of 1: ink can be read on it in light and in dark
FAINTEST = 0.04  # of a share of 0, which is told from no cell
WIDTH = 560  # pixels that the columns of all panels share, if they need as many
WIDEST = 58  # pixels of a square
TALLEST = 34
SMALLEST = 5
ROOM = 30  # pixels of a square from which on its share is printed
LETTER = 6.0  # pixels of a letter
FILL = f"var(--seed, {SEED})"
LINE = f"var(--published, {PUBLISHED})"


class SweepMap:
    """The shares of a grid as a map; `str` is an SVG, and a notebook shows it.

    Args:
        grid: of at most three axes with more than one value.
        boundary: the axis along which the boundary is drawn over the map, one of the first two;
            None: none is drawn.
        level: of the intervals.
    """

    def __init__(self, grid: "Grid", boundary: str | None = None, level: float = USUAL):
        self.grid = grid
        self.boundary = boundary
        self.level = level
        self._plane = lay_out(grid)
        drawn = (self._plane.columns, self._plane.rows)
        if boundary is not None and boundary not in [each.axis for each in drawn if each.axis]:
            allowed = [each.axis for each in drawn if each.is_numeric]
            raise UserError(unknown("axis for a boundary", boundary, allowed))
        self._n_panels = len(self._plane.panels.values)
        columns = len(self._plane.columns.values)
        rows = len(self._plane.rows.values)
        self._across = min(self._n_panels, max(1, 24 // columns) if self._n_panels > 1 else 1)
        self._w = float(max(SMALLEST, min(WIDEST, WIDTH / self._across / columns)))
        self._h = float(max(SMALLEST, min(TALLEST, self._w, 3 * WIDTH / 4 / rows)))

    def __str__(self) -> str:
        plane = self._plane
        longest = max(len(label(value)) for value in plane.rows.values)
        left = 26 + LETTER * longest if plane.rows.axis else 10
        width = self._w * len(plane.columns.values)
        height = self._h * len(plane.rows.values)
        top = 22 if plane.panels.axis else 8
        turned = self._labels_are_turned()
        names = [len(label(value)) for value in plane.columns.values]
        below = 24 + (LETTER * max(names) if turned else 14)
        step_x = left + width + 18
        step_y = top + height + below
        panels: list[str] = []
        for i in range(self._n_panels):
            x = (i % self._across) * step_x + left
            y = (i // self._across) * step_y + top
            panels.append(f'<g transform="translate({x:.1f} {y:.1f})">{self._panel(i)}</g>')
        lines = math.ceil(self._n_panels / self._across)
        total = max(self._across * step_x, 430)
        bottom = lines * step_y
        legend = f'<g transform="translate(10 {bottom + 6:.1f})">{self._legend()}</g>'
        tall = bottom + 44
        said = escape(f"share of seeds that reach {self.grid.event or 'the event'}", quote=True)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total:.0f} {tall:.0f}" '
            f'width="{total:.0f}" height="{tall:.0f}" role="img" aria-label="{said}" '
            'font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
            f"{''.join(panels)}{legend}</svg>"
        )

    def __repr__(self) -> str:
        return f"<Map of {self.grid!r}; .save('x.svg') writes it>"

    def _repr_html_(self) -> Safe:
        return Safe(f'<div style="overflow-x: auto">{self}</div>')

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the map as an SVG file, on white.

        Args:
            path: of the file; it ends in .svg.
        """
        return save_svg(str(self), path)

    def _labels_are_turned(self) -> bool:
        """Whether the names of columns are too long to stand side by side."""
        names = [len(label(value)) for value in self._plane.columns.values]
        return LETTER * max(names) + 4 > self._w

    def _panel(self, i: int) -> str:
        """One panel, with the upper left corner of its squares at the origin."""
        plane = self._plane
        width = self._w * len(plane.columns.values)
        height = self._h * len(plane.rows.values)
        parts: list[str] = []
        if plane.panels.axis:
            title = escape(f"{plane.panels.axis} = {label(plane.panels.values[i])}")
            parts.append(f'<text x="{width / 2:.1f}" y="-8" {_MIDDLE}>{title}</text>')
        marks: list[str] = []
        for r, row in enumerate(plane.cells[i]):
            for c, cell in enumerate(row):
                if cell is not None:
                    share = cell_share(cell, self.level)
                    parts.append(self._square(cell, share, c * self._w, r * self._h))
                    marks.append(self._marks(share, c * self._w, r * self._h))
        parts.append(
            f'<rect width="{width:.1f}" height="{height:.1f}" fill="none" stroke="currentColor" '
            'stroke-opacity=".35"/>'
        )
        parts.extend(self._column_names(width, height))
        parts.extend(self._row_names(height))
        if self.boundary is not None:
            parts.append(self._boundary(i))
        return "".join([*parts, *marks])

    def _square(self, cell: Cell, share: Share, x: float, y: float) -> str:
        """The color of one cell, and in words what it says."""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{self._w:.1f}" height="{self._h:.1f}"'
        strength = FAINTEST + (FULLEST - FAINTEST) * share.value
        said = escape(f"{cell.name}: {share}")
        return (
            f'<rect {place} fill="{FILL}" fill-opacity="{strength:.3f}" stroke="currentColor" '
            f'stroke-opacity=".12" stroke-width=".5"><title>{said}</title></rect>'
        )

    def _marks(self, share: Share, x: float, y: float) -> str:
        """What is written over one cell, and over the boundary."""
        w = self._w
        h = self._h
        parts: list[str] = []
        middle = x + w / 2
        if w >= ROOM and h >= 24:
            text = f"{share.value:g}" if share.value in (0, 1) else f"{share.value:.2f}"[1:]
            parts.append(f'<text x="{middle:.1f}" y="{y + h / 2:.1f}" {_MIDDLE}>{text}</text>')
            parts.append(self._interval(share.low, share.high, share.value, x, y))
        if share.is_open:
            at = (x + w - 4.5, y + 4.5, 2.2) if w >= ROOM and h >= 24 else _center(x, y, w, h)
            parts.append(
                f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{at[2]:.1f}" fill="none" '
                'stroke="currentColor" stroke-opacity=".8"/>'
            )
        return "".join(parts)

    def _interval(self, low: float, high: float, value: float, x: float, y: float) -> str:
        """The interval at the foot of a square: a line from 0 at the left to 1 at the right."""
        start = x + 5
        length = self._w - 10
        at = y + self._h - 6
        half = start + length / 2
        return (
            f'<path d="M{half:.1f} {at - 3:.1f}v6" stroke="currentColor" stroke-opacity=".45"/>'
            f'<path d="M{start + low * length:.1f} {at:.1f}H{start + high * length:.1f}" '
            'stroke="currentColor" stroke-width="1.4"/>'
            f'<circle cx="{start + value * length:.1f}" cy="{at:.1f}" r="1.9"/>'
        )

    def _column_names(self, width: float, height: float) -> list[str]:
        """The values below the columns, as many as have room, and the axis."""
        laid = self._plane.columns
        if not laid.axis:
            return []
        turned = self._labels_are_turned()
        every = max(1, math.ceil(13 / self._w)) if turned else 1
        parts: list[str] = []
        lowest = height + 14.0
        for c in range(0, len(laid.values), every):
            text = escape(label(laid.values[c]))
            x = (c + 0.5) * self._w
            if turned:
                move = f'transform="translate({x + 4:.1f} {height + 6:.1f}) rotate(-90)"'
                parts.append(f'<text {move} text-anchor="end">{text}</text>')
                lowest = max(lowest, height + 8 + LETTER * len(label(laid.values[c])))
            else:
                parts.append(f'<text x="{x:.1f}" y="{height + 14:.1f}" {_MIDDLE}>{text}</text>')
        name = escape(laid.axis)
        parts.append(f'<text x="{width / 2:.1f}" y="{lowest + 15:.1f}" {_NAME}>{name}</text>')
        return parts

    def _row_names(self, height: float) -> list[str]:
        """The values beside the rows, as many as have room, and the axis."""
        laid = self._plane.rows
        if not laid.axis:
            return []
        every = max(1, math.ceil(12 / self._h))
        parts: list[str] = []
        # counted from the bottom: the lowest number has its name
        for r in range(len(laid.values) - 1, -1, -every):
            y = (r + 0.5) * self._h + 4
            text = escape(label(laid.values[r]))
            parts.append(f'<text x="-5" y="{y:.1f}" text-anchor="end">{text}</text>')
        longest = max(len(label(value)) for value in laid.values)
        move = f'transform="translate({-12 - LETTER * longest:.1f} {height / 2:.1f}) rotate(-90)"'
        parts.append(f"<text {move} {_NAME}>{escape(laid.axis)}</text>")
        return parts

    def _boundary(self, i: int) -> str:
        """The boundary of one panel and its band."""
        marks = boundary_marks(self.grid, self._plane, self.boundary or "", i, self.level)
        bands = "".join(self._band(mark) for mark in marks if mark.is_band)
        lines = "".join(self._line(mark) for mark in marks if not mark.is_band)
        return (
            f'<g stroke="{LINE}" fill="{LINE}" fill-opacity=".08">{bands}</g>'
            f'<g stroke="{LINE}" stroke-width="2.5" fill="none">{lines}</g>'
        )

    def _band(self, mark: Mark) -> str:
        """The interval of the boundary in one row, or in one column, half a pixel inside it."""
        x = mark.left * self._w + 0.5
        y = mark.top * self._h + 0.5
        w = max((mark.right - mark.left) * self._w - 1, 0.5)
        h = max((mark.bottom - mark.top) * self._h - 1, 0.5)
        return f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}"/>'

    def _line(self, mark: Mark) -> str:
        """The boundary in one row, or in one column."""
        begin = f"M{mark.left * self._w:.1f} {mark.top * self._h:.1f}"
        end = f"L{mark.right * self._w:.1f} {mark.bottom * self._h:.1f}"
        return f'<path d="{begin}{end}"/>'

    def _legend(self) -> str:
        """The scale of the squares, and what the marks are."""
        parts: list[str] = []
        for i in range(11):
            strength = FAINTEST + (FULLEST - FAINTEST) * i / 10
            parts.append(
                f'<rect x="{22 + 9 * i}" y="0" width="9" height="12" fill="{FILL}" '
                f'fill-opacity="{strength:.3f}"/>'
            )
        event = self.grid.event or "the event"
        what = escape(f"share of seeds that reach {event}")
        parts.append('<text x="16" y="10" text-anchor="end">0</text><text x="126" y="10">1</text>')
        parts.append(f'<text x="140" y="10">{what}</text>')
        parts.append('<circle cx="16" cy="26" r="2.5" fill="none" stroke="currentColor"/>')
        marks = f"its {self.level:.0%} interval contains one half"
        parts.append(f'<text x="26" y="30">{marks}</text>')
        if self.boundary is not None:
            x = 40 + LETTER * len(marks)
            parts.append(
                f'<rect x="{x:.0f}" y="20" width="22" height="12" fill="{LINE}" '
                f'fill-opacity=".08" stroke="{LINE}"/>'
                f'<path d="M{x + 11:.0f} 20v12" stroke="{LINE}" stroke-width="2.5"/>'
                f'<text x="{x + 28:.0f}" y="30">boundary, {self.level:.0%}</text>'
            )
        return "".join(parts)


def _center(x: float, y: float, w: float, h: float) -> Sequence[float]:
    """A ring in the middle of a square."""
    return x + w / 2, y + h / 2, max(1.0, min(w, h) / 5)


def save_svg(text: str, path: str | os.PathLike[str]) -> Path:
    """Write an SVG as a file of its own, in black on white.

    Args:
        text: the SVG.
        path: of the file; it ends in .svg.
    """
    where = Path(path)
    if where.suffix != ".svg":
        raise UserError(f"figures of a sweep are written as .svg, got {str(where)!r}")
    # a file has no page around it whose color it could take
    text = text.replace('fill="currentColor"', f'color="{INK}" fill="currentColor"', 1)
    begins = text.index(">") + 1
    paper = f'<rect width="100%" height="100%" fill="{COLORS["paper"].light}"/>'
    text = f"{text[:begins]}{paper}{text[begins:]}\n"
    try:
        where.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {str(where)!r} ({error.strerror})") from error
    return where


_MIDDLE = 'text-anchor="middle"'
_NAME = 'text-anchor="middle" font-weight="600"'
