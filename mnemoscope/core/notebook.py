"""How a model, a trace, a run, a ledger and a verdict show themselves in a notebook: small tables, nothing but HTML.

Whatever comes from outside is escaped. Colours are the notebook's own, but for verdicts and attention.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

VERDICTS = {"reproduced": "#0a8a5a", "partly": "#a87400", "refuted": "#d0432c", "undecided": "#808894"}
CELL = "padding: .15em .9em .15em 0; text-align: left; vertical-align: top"
MOST = 24  # tokens of which attention is still drawn


class Safe(str):
    """Markup of ours, not to be escaped."""


def cell(value: Any) -> str:
    """Anything as the inside of a table's cell."""
    return value if isinstance(value, Safe) else escape(str(value))


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Safe:
    """A caption over rows under a head."""
    top = "".join(f'<th style="{CELL}">{cell(x)}</th>' for x in head)
    body = "".join(f'<tr>{"".join(f"""<td style="{CELL}">{cell(x)}</td>""" for x in row)}</tr>' for row in rows)
    title = f'<caption style="text-align: left; font-weight: 600">{cell(caption)}</caption>'
    return Safe(f'<table style="border-collapse: collapse">{title}<tr>{top}</tr>{body}</table>')


def verdict(name: str) -> Safe:
    """A verdict in its colour."""
    return Safe(f'<b style="color: {VERDICTS.get(name, "inherit")}">{escape(name)}</b>')


def numbers(array: Any) -> str:
    """An array in words: its shape, and from where to where it goes."""
    array = np.asarray(array)
    shape = " x ".join(map(str, array.shape)) or "one number"
    return f"{shape}: {array.min():.3g} to {array.max():.3g}" if array.size else shape


def attention(pattern: Any) -> Safe:
    """Attention of each head, rows ask and columns are seen; the darker, the more."""
    found = np.asarray(pattern)
    heads = []
    for head, rows in enumerate(found):
        marks = "".join(
            f'<rect x="{c * 10}" y="{r * 10}" width="10" height="10" fill="#0072b2" fill-opacity="{w:.3f}"/>'
            for r, row in enumerate(rows) for c, w in enumerate(row) if w >= 0.005
        )  # fmt: skip
        size = 10 * len(rows)
        frame = f'<rect width="{size}" height="{size}" fill="none" stroke="currentColor" stroke-opacity=".3"/>'
        drawing = (
            f'<svg width="{size}" height="{size}" role="img" aria-label="attention of head {head}">{marks}{frame}</svg>'
        )
        heads.append(f'<span style="display: inline-block; margin-right: 1em">head {head}<br>{drawing}</span>')
    return Safe("".join(heads))


def trace(sites: Mapping[str, Any], axes: Mapping[str, str]) -> Safe:
    """Every site's axes and range, and the attention patterns of a short prompt."""
    rows = [(name, axes.get(name, ""), numbers(value)) for name, value in sites.items()]
    shown = {name: x for name, x in sites.items() if name.endswith("hook_pattern") and np.shape(x)[-1] <= MOST}
    drawn = "".join(f"<p>{escape(name)}</p>{attention(x)}" for name, x in shown.items() if np.ndim(x) == 3)
    return Safe(table(f"Trace of {len(sites)} sites", ("site", "axes", "values"), rows) + drawn)


def losses(steps: Sequence[int], by_seed: Any) -> Safe:
    """Each seed's loss through training, as thin lines over one another."""
    curves = np.asarray(by_seed, float)
    top = float(np.nanmax(np.where(np.isfinite(curves), curves, np.nan), initial=0.0)) or 1.0
    lines = []
    for curve in curves[:256]:
        points = " ".join(
            f"{300 * s / steps[-1]:.1f},{80 * (1 - y / top):.1f}"
            for s, y in zip(steps, curve, strict=True)
            if np.isfinite(y)
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="#0072b2" stroke-opacity=".5"/>')
    frame = '<svg width="304" height="84" viewBox="-2 -2 304 84" role="img" aria-label="loss of each seed through training">'
    return Safe(f"{frame}{''.join(lines)}</svg><br>loss, 0 to {top:.3g}, over {steps[-1]:,} steps")
