"""Survival curves as one SVG: of each cell, the share of seeds that have not reached the event yet.

A curve ends at the last step that was looked at, with a tick if seeds are left there; a dot stands
where it passes one half. Each curve has its band.
"""

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mnemoscope.core.errors import UserError
from mnemoscope.core.notebook import Safe
from mnemoscope.core.theme import GREEN, ORANGE, PINK, PUBLISHED, SEED
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.draw import save_svg
from mnemoscope.sweeps.shares import HALF, USUAL
from mnemoscope.sweeps.survival import Survival, cell_survival

LEFT = 44
TOP = 10
WIDTH = 460
HEIGHT = 200
LETTER = 6.2  # pixels of a letter
LINE = 16  # pixels of a line of the legend
COLORS = (f"var(--seed, {SEED})", f"var(--published, {PUBLISHED})", GREEN, PINK, ORANGE)


class SurvivalCurves:
    """The survival of some cells; `str` is an SVG, and a notebook shows it.

    Args:
        cells: by name, at most five.
        event: what is waited for, in words.
        level: of the bands.
    """

    def __init__(self, cells: Mapping[str, Cell], event: str = "", level: float = USUAL):
        if not 1 <= len(cells) <= len(COLORS):
            raise UserError(
                f"1 to {len(COLORS)} survival curves are drawn at once, got {len(cells)}"
            )
        self.curves = {name: cell_survival(cell, level) for name, cell in cells.items()}
        self.event = event
        self.level = level
        self._end = max(curve.median.followed for curve in self.curves.values()) or 1.0

    def __str__(self) -> str:
        tall = TOP + HEIGHT + 46 + LINE * len(self.curves)
        names = [f"{name}: median step {curve.median}" for name, curve in self.curves.items()]
        wide = LEFT + max(WIDTH + 20, 30 + LETTER * max(map(len, names)))
        parts = [self._axes()]
        for color, curve in zip(COLORS, self.curves.values(), strict=False):
            parts.append(self._curve(curve, color))
        for i, name in enumerate(names):
            y = TOP + HEIGHT + 50 + LINE * i
            parts.append(
                f'<path d="M{LEFT} {y - 4}h18" stroke="{COLORS[i]}" stroke-width="2"/>'
                f'<text x="{LEFT + 24}" y="{y}">{escape(name)}</text>'
            )
        said = escape(
            f"share of seeds that have not reached {self.event or 'the event'}", quote=True
        )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:.0f} {tall}" '
            f'width="{wide:.0f}" height="{tall}" role="img" aria-label="{said}" '
            'font-family="system-ui, sans-serif" font-size="11" fill="currentColor">'
            f"{''.join(parts)}</svg>"
        )

    def __repr__(self) -> str:
        return f"<Survival of {len(self.curves)} cells; .save('x.svg') writes it>"

    def _repr_html_(self) -> Safe:
        return Safe(f'<div style="overflow-x: auto">{self}</div>')

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the curves as an SVG file, on white.

        Args:
            path: of the file; it ends in .svg.
        """
        return save_svg(str(self), path)

    def _x(self, step: float) -> float:
        return LEFT + WIDTH * step / self._end

    def _y(self, share: float) -> float:
        return TOP + HEIGHT * (1 - share)

    def _axes(self) -> str:
        """The frame, with names of steps and shares."""
        parts = [
            f'<path d="M{LEFT} {TOP}V{TOP + HEIGHT}H{LEFT + WIDTH}" fill="none" '
            'stroke="currentColor" stroke-opacity=".5"/>',
            f'<path d="M{LEFT} {self._y(HALF)}H{LEFT + WIDTH}" stroke="currentColor" '
            'stroke-opacity=".35" stroke-dasharray="3 3"/>',
        ]
        for share in (0.0, HALF, 1.0):
            y = self._y(share) + 4
            parts.append(f'<text x="{LEFT - 6}" y="{y:.1f}" text-anchor="end">{share:g}</text>')
        for part in (0.0, 0.25, 0.5, 0.75, 1.0):
            x = self._x(part * self._end)
            step = f"{part * self._end:,.0f}"
            parts.append(
                f'<text x="{x:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{step}</text>'
            )
        event = escape(self.event or "the event")
        parts.append(
            f'<text x="{LEFT + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 30}" text-anchor="middle" '
            f'font-weight="600">step; share of seeds without {event} yet</text>'
        )
        return "".join(parts)

    def _curve(self, curve: Survival, color: str) -> str:
        """A curve of steps, its band, and where it passes one half."""
        upper = self._stairs(curve, curve.high)
        lower = self._stairs(curve, curve.low)
        band = " ".join([*upper, *reversed(lower)])
        line = " ".join(self._stairs(curve, curve.values))
        parts = [
            f'<polygon points="{band}" fill="{color}" fill-opacity=".12"/>',
            f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>',
        ]
        if curve.median.value is not None:
            x = self._x(curve.median.value)
            parts.append(f'<circle cx="{x:.1f}" cy="{self._y(HALF):.1f}" r="3" fill="{color}"/>')
        if curve.values[-1] > 0:
            x = self._x(curve.median.followed)
            y = self._y(float(curve.values[-1]))
            parts.append(f'<path d="M{x:.1f} {y - 5:.1f}v10" stroke="{color}" stroke-width="2"/>')
        return "".join(parts)

    def _stairs(self, curve: Survival, shares: Float[np.ndarray, "change"]) -> list[str]:
        """The corners of a curve that stays where it is until the next step."""
        points: list[str] = []
        for i, step in enumerate(curve.steps):
            if i:
                points.append(f"{self._x(step):.1f},{self._y(shares[i - 1]):.1f}")
            points.append(f"{self._x(step):.1f},{self._y(shares[i]):.1f}")
        return points
