"""The walk as one HTML page: no script, no network, light and dark, and good on paper."""

import re
from collections.abc import Iterator
from html import escape
from itertools import pairwise

from mnemoscope.core.theme import TOKENS, css_variables
from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.walk.cells import column_names, format_cells, format_number, format_powers
from mnemoscope.report.walk.plane import Plane, find_plane

SIDE = 460  # pixels of the drawing

STYLE = """
body {
  font: 16px/1.5 system-ui, sans-serif;
  color: var(--ink);
  background: var(--paper);
  margin: 2rem auto;
  max-width: 60rem;
  padding: 0 1rem;
}

h1 {
  font-size: 1.6rem;
}

h2 {
  font-size: 1.15rem;
  margin: 2.2rem 0 .6rem;
  border-top: 1px solid var(--line);
  padding-top: 1rem;
}

.lines {
  display: flex;
  flex-wrap: wrap;
  gap: 1rem 2rem;
  align-items: flex-start;
}

.line,
.parts {
  max-width: 100%;
  overflow-x: auto;
}

table {
  border-collapse: collapse;
  font-variant-numeric: tabular-nums;
  font-size: .85rem;
}

caption {
  text-align: left;
  white-space: nowrap;
  padding-bottom: .2rem;
  font-family: Georgia, serif;
  font-style: italic;
}

caption span {
  font: .75rem system-ui, sans-serif;
  color: var(--quiet);
  margin-left: .5rem;
}

td {
  padding: .1rem .45rem;
  text-align: right;
}

th {
  padding: .1rem .6rem .1rem 0;
  text-align: left;
  font-weight: 500;
  color: var(--quiet);
}

thead th + th {
  text-align: right;
  padding: .1rem .45rem;
}

.line td:nth-child(2) {
  border-left: 1px solid var(--ink);
}

.line td:last-child {
  border-right: 1px solid var(--ink);
}

.line.given td {
  border-color: var(--line);
}

.said {
  background: var(--band);
  border-left: 3px solid var(--seed);
  padding: .5rem .8rem;
  margin: .9rem 0 0;
}

.who {
  margin-right: 2rem;
}

.who tbody tr:last-child td,
.who tbody tr:last-child th {
  border-top: 1px solid var(--ink);
  font-weight: 600;
  color: var(--ink);
}

.key {
  font-size: .85rem;
  color: var(--quiet);
}

svg {
  max-width: 100%;
  height: auto;
}

svg text {
  fill: var(--ink);
  paint-order: stroke;
  stroke: var(--paper);
  stroke-width: 3px;
}

a {
  color: inherit;
}

@media print {
  * {
    print-color-adjust: exact;
  }

  body {
    margin: 0;
    max-width: none;
    font-size: 11pt;
  }

  section {
    break-inside: avoid;
  }
}
"""


def format_equation(text: str) -> str:
    """A formula as a person writes it: products side by side, subscripts below."""
    shown = escape(text).replace(" @ ", " ").replace(" * ", " ⊙ ").replace("^T", "<sup>T</sup>")
    shown = re.sub(r"sqrt\((\d+)\)", r"√\1", shown)
    shown = re.sub(r"\bPhi\b", "Φ", shown)
    shown = format_powers(shown, " · ", "10<sup>%d</sup>")
    # not in the names of functions: layer_norm(
    return re.sub(
        r"([A-Za-z]\d?)_(\w+)\b(?!\()",
        lambda m: f"{m[1]}<sub>{m[2].replace('_', ',')}</sub>",
        shown,
    )


def _table(line: Line, digits: int) -> str:
    rows, columns = line.values.shape
    name = (
        f"{format_equation(line.name)} = {format_equation(line.formula)}"
        if line.formula
        else format_equation(line.name)
    )
    shape = f"{rows} by {columns}" + ("" if line.formula else ", learned")
    body = "".join(
        f"<tr><th>{escape(label)}</th>{''.join(f'<td>{escape(x)}</td>' for x in numbers)}</tr>"
        for label, *numbers in format_cells(line, digits)
    )
    kind = "line" if line.formula else "line given"
    names = "".join(f"<th>{escape(label)}</th>" for label in column_names(line))
    top = f"<thead><tr>{names}</tr></thead>" if names else ""
    table = (
        f"<table><caption>{name}<span>{shape}</span></caption>{top}<tbody>{body}</tbody></table>"
    )
    return f'<div class="{kind}">{table}</div>'


def _contributions(walk: Walk, digits: int) -> Iterator[str]:
    head = "".join(f"<th>{escape(name)}</th>" for name in walk.token_names)
    for i, token in enumerate(walk.prompt):
        rows = "".join(
            f"<tr><th>{escape(name)}</th>"
            f"{''.join(f'<td>{format_number(x, digits)}</td>' for x in values)}</tr>"
            for name, values in walk.contributions(i).items()
        )
        yield (
            f'<div class="parts"><table class="who"><caption>after {i} {escape(token)}</caption>'
            f"<thead><tr><th></th>{head}</tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )


def draw_plane(plane: Plane) -> str:
    """The plane as SVG: regions in which each token wins, unembedding directions dashed, paths."""
    width = plane.high[0] - plane.low[0]

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return SIDE * (point[0] - plane.low[0]) / width, SIDE * (plane.high[1] - point[1]) / width

    def xy(point: tuple[float, float]) -> str:
        return "{:.1f},{:.1f}".format(*at(point))

    parts = [
        f'<svg viewBox="0 0 {SIDE} {SIDE}" width="{SIDE}" height="{SIDE}" '
        'role="img" aria-label="Regions and paths">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="context-stroke"/></marker></defs>',
    ]
    for i, (name, polygon) in enumerate(plane.regions.items()):
        color = TOKENS[i % len(TOKENS)]
        if len(polygon):
            corners = " ".join(xy((float(x), float(y))) for x, y in polygon)
            parts.append(
                f'<polygon points="{corners}" fill="{color}" fill-opacity=".16" '
                f'stroke="{color}" stroke-opacity=".5"/>'
            )
            x, y = at((float(polygon[:, 0].mean()), float(polygon[:, 1].mean())))
            parts.append(
                f'<text x="{x:.1f}" y="{y:.1f}" font-size="26" opacity=".35" '
                f'text-anchor="middle">{escape(name)}</text>'
            )
        x, y = at(plane.directions[name])
        parts.append(
            f'<line x1="{SIDE / 2}" y1="{SIDE / 2}" x2="{x:.1f}" y2="{y:.1f}" '
            f'stroke="{color}" stroke-width="2" '
            'stroke-dasharray="5 4"/>'
        )
    dashes = ("", "6 3", "2 3", "8 3 2 3")
    for place, path in plane.paths.items():
        points = [(float(x), float(y)) for x, y in path]
        for j, (a, b) in enumerate(pairwise(points)):
            (x1, y1), (x2, y2) = at(a), at(b)
            dash = f' stroke-dasharray="{dashes[j % 4]}"' if j % 4 else ""
            parts.append(
                f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
                'stroke="currentColor" stroke-width="1.6"'
                f'{dash} marker-end="url(#tip)"/>'
            )
        (x, y), (u, v) = at(points[0]), at(points[-1])
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="currentColor"/>')
        parts.append(
            f'<text x="{u + 8:.1f}" y="{v - 8:.1f}" font-size="13" '
            f'font-weight="600">{escape(place)}</text>'
        )
    return "".join([*parts, "</svg>"])


def render_page(walk: Walk, title: str, digits: int, back: str = "") -> str:
    """The whole walk; `back` is the address of the page that leads here, if there is one."""
    drawn = find_plane(walk)
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title><style>{css_variables()}{STYLE}</style></head><body>",
        f'<p class="key"><a href="{escape(back)}">Back to the overview</a></p>' if back else "",
        f"<h1>{escape(title)}</h1>",
    ]
    if drawn:
        kinds = ("solid", "dashed", "dotted", "dash-dotted")
        arrows = ", ".join(f"{stage} ({kinds[j % 4]})" for j, stage in enumerate(drawn.stages))
        parts.append(
            f"<section><h2>The way through the plane</h2>{draw_plane(drawn)}"
            '<p class="key">Colored: where each token would '
            "be read out; dashed from the center: its unembedding direction. "
            "A dot is a token's embedding; the arrows from "
            f"it are, in order: {escape(arrows)}.</p></section>"
        )
    for i, step in enumerate(walk.steps, 1):
        lines = "".join(_table(line, digits) for line in step.lines)
        parts.append(
            f'<section><h2>{i}. {escape(step.title)}</h2><div class="lines">{lines}</div>'
            f'<p class="said">{escape(step.sentence)}</p></section>'
        )
    tables = "".join(_contributions(walk, digits))
    heading = "Direct logit attribution"
    parts.append(f'<section><h2>{heading}</h2><div class="lines">{tables}</div></section>')
    return "\n".join([*parts, "</body></html>", ""])
