"""Attention maps as one SVG: a row of them for each layer, one for each head, tokens on the axes.

Rows ask, columns are seen; the darker a square, the more attention. Drawn as text: nothing but a
browser is needed to look at it.
"""

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.core.errors import UserError
from mnemoscope.core.notebook import Safe
from mnemoscope.core.theme import INK, SEED

CELL = 14  # pixels of a square
LETTER = 6.2  # pixels of a label's letter
GAP = 26  # pixels for a title, with room around it
LONGEST = 12  # letters of a label
WEAKEST = 0.005  # attention that is still drawn


class AttentionMaps:
    """The attention of every head on one prompt; `str` is an SVG, and a notebook shows it.

    Args:
        patterns: by layer, what each position of each head attends to.
        tokens: what stands at each position.
    """

    def __init__(
        self, patterns: Mapping[int, Float[np.ndarray, "head pos key_pos"]], tokens: Sequence[str]
    ):
        self.patterns = dict(patterns)
        self.tokens = [name if len(name) <= LONGEST else f"{name[:LONGEST]}…" for name in tokens]

    def __str__(self) -> str:
        side = CELL * len(self.tokens)
        margin = GAP + LETTER * max(map(len, self.tokens))
        n_heads = max(len(pattern) for pattern in self.patterns.values())
        step = margin + side + GAP / 2
        maps = []
        for row, (layer, pattern) in enumerate(self.patterns.items()):
            for head, weights in enumerate(np.asarray(pattern, float)):
                x = head * step + margin
                y = row * step + margin
                inside = self._map(f"L{layer}H{head}", weights, margin)
                maps.append(f'<g transform="translate({x:.1f} {y:.1f})">{inside}</g>')
        width = n_heads * step
        height = len(self.patterns) * step
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="attention maps" '
            'font-family="ui-monospace, monospace" font-size="10" fill="currentColor">'
            f"{''.join(maps)}</svg>"
        )

    def __repr__(self) -> str:
        n_heads = sum(len(pattern) for pattern in self.patterns.values())
        layers = len(self.patterns)
        return (
            f"<Attention of {n_heads} heads in {layers} layers on {len(self.tokens)} tokens; "
            ".save('x.svg') writes it>"
        )

    def _repr_html_(self) -> Safe:
        return Safe(f'<div style="overflow-x: auto">{self}</div>')

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the maps as an SVG file."""
        where = Path(path)
        if where.suffix != ".svg":
            raise UserError(f"attention maps are written as .svg, got {str(where)!r}")
        # a file has no page around it whose color it could take
        text = str(self).replace('fill="currentColor"', f'color="{INK}" fill="currentColor"', 1)
        try:
            where.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UserError(f"cannot write {str(where)!r} ({error.strerror})") from error
        return where

    def _map(self, title: str, weights: Float[np.ndarray, "pos key_pos"], margin: float) -> str:
        """One head's map, with its upper left corner at the origin."""
        side = CELL * len(self.tokens)
        parts = [f'<text x="{side / 2}" y="{12 - margin:.1f}" {_ANCHOR}>{title}</text>']
        for at, name in enumerate(self.tokens):
            middle = CELL * at + CELL / 2
            label = escape(name)
            parts.append(f'<text x="-4" y="{middle + 3.5}" text-anchor="end">{label}</text>')
            turned = f'transform="translate({middle + 3.5} -4) rotate(-90)"'
            parts.append(f"<text {turned}>{label}</text>")
        for row, column in zip(*np.nonzero(weights >= WEAKEST), strict=True):
            weight = float(weights[row, column])
            said = f"{escape(self.tokens[row])} to {escape(self.tokens[column])}: {weight:.3f}"
            parts.append(
                f'<rect x="{CELL * column}" y="{CELL * row}" width="{CELL}" height="{CELL}" '
                f'fill="{SEED}" fill-opacity="{min(weight, 1.0):.3f}"><title>{said}</title></rect>'
            )
        parts.append(
            f'<rect width="{side}" height="{side}" fill="none" stroke="currentColor" '
            'stroke-opacity=".35"/>'
        )
        return "".join(parts)


_ANCHOR = 'text-anchor="middle" font-weight="600"'
