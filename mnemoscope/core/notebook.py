"""How a model, a trace, a run, a ledger and a verdict show themselves in a notebook: small tables.

Nothing but HTML. Whatever comes from outside is escaped. Colors are the notebook's own, but for
verdicts and attention.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from mnemoscope.core.theme import SEED, VERDICTS, Verdict

CELL = "padding: .15em .9em .15em 0; text-align: left; vertical-align: top"
MOST = 24  # tokens of which attention is still drawn


class Safe(str):
    """Markup of ours, not to be escaped."""


def format_cell(value: Any) -> str:
    """Anything as the inside of a table's cell."""
    return value if isinstance(value, Safe) else escape(str(value))


def format_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Safe:
    """A table.

    Args:
        caption: What stands over it.
        head: The names of its columns.
        rows: Its cells, row by row.
    """
    top = "".join(f'<th style="{CELL}">{format_cell(x)}</th>' for x in head)
    body = ""
    for row in rows:
        cells = "".join(f'<td style="{CELL}">{format_cell(x)}</td>' for x in row)
        body += f"<tr>{cells}</tr>"
    title = f'<caption style="text-align: left; font-weight: 600">{format_cell(caption)}</caption>'
    return Safe(f'<table style="border-collapse: collapse">{title}<tr>{top}</tr>{body}</table>')


def format_verdict(name: Verdict, text: str = "") -> Safe:
    """A verdict in its color; or a text that begins with it."""
    return Safe(f'<b style="color: {VERDICTS[name].either}">{escape(text or name)}</b>')


def format_numbers(array: Any) -> str:
    """An array in words: its shape, and from where to where it goes."""
    array = np.asarray(array)
    shape = " x ".join(map(str, array.shape)) or "one number"
    return f"{shape}: {array.min():.3g} to {array.max():.3g}" if array.size else shape


def draw_attention(pattern: Any) -> Safe:
    """Attention of each head, rows ask and columns are seen; the darker, the more."""
    heads = []
    for head, rows in enumerate(np.asarray(pattern)):
        drawing = _attention_of_head(head, rows)
        style = "display: inline-block; margin-right: 1em"
        heads.append(f'<span style="{style}">head {head}<br>{drawing}</span>')
    return Safe("".join(heads))


def _attention_of_head(head: int, rows: np.ndarray) -> str:
    marks = ""
    for r, row in enumerate(rows):
        for c, weight in enumerate(row):
            if weight >= 0.005:
                marks += (
                    f'<rect x="{c * 10}" y="{r * 10}" width="10" height="10" '
                    f'fill="{SEED}" fill-opacity="{weight:.3f}"/>'
                )
    size = 10 * len(rows)
    frame = (
        f'<rect width="{size}" height="{size}" fill="none" '
        'stroke="currentColor" stroke-opacity=".3"/>'
    )
    label = f'role="img" aria-label="attention of head {head}"'
    return f'<svg width="{size}" height="{size}" {label}>{marks}{frame}</svg>'


def format_trace(sites: Mapping[str, Any], axes: Mapping[str, str]) -> Safe:
    """Every site's axes and range, and the attention patterns of a short prompt."""
    rows = [(name, axes.get(name, ""), format_numbers(value)) for name, value in sites.items()]
    drawn = ""
    for name, x in sites.items():
        is_short = name.endswith("hook_pattern") and np.shape(x)[-1] <= MOST
        if is_short and np.ndim(x) == 3:
            drawn += f"<p>{escape(name)}</p>{draw_attention(x)}"
    return Safe(
        format_table(f"Trace of {len(sites)} sites", ("site", "axes", "values"), rows) + drawn
    )


def draw_losses(steps: Sequence[int], by_seed: Any) -> Safe:
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
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{SEED}" stroke-opacity=".5"/>'
        )
    frame = (
        '<svg width="304" height="84" viewBox="-2 -2 304 84" role="img" '
        'aria-label="loss of each seed through training">'
    )
    return Safe(f"{frame}{''.join(lines)}</svg><br>loss, 0 to {top:.3g}, over {steps[-1]:,} steps")
