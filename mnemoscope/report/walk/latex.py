r"""The walk as a LaTeX document that compiles as it is, and as a PDF.

That needs a TeX engine, and only what every TeX distribution has: amsmath, geometry, graphicx and,
for two dimensions, TikZ.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.requested_files import writing
from mnemoscope.report.walk.cells import (
    GAP,
    column_names,
    format_cells,
    format_number,
    format_powers,
)
from mnemoscope.report.walk.plane import Plane, find_plane

ENGINES = (
    "tectonic",
    "pdflatex",
    "xelatex",
    "lualatex",
)  # the first that is installed makes the PDF
COLORS = ("blue", "orange", "teal", "magenta", "cyan", "red", "olive", "gray")
ARROWS = ("solid", "dashed", "dotted", "dash dot")  # by stage
ESCAPES = {
    "\\": r"\textbackslash{}",
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}

HEAD = r"""\documentclass[10pt]{article}
\usepackage[margin=2cm]{geometry}
\usepackage{amsmath,graphicx,tikz}
\setlength{\parindent}{0pt}
% a display that is shrunk when it is wider than the page
\newsavebox{\wide}
\newcommand{\fit}[1]{\sbox{\wide}{$\displaystyle #1$}\par\smallskip
  \ifdim\wd\wide>\linewidth\resizebox{\linewidth}{!}{\usebox{\wide}}\else\usebox{\wide}\fi\par\smallskip}
\begin{document}
"""


def escape_text(text: str) -> str:
    """Text with everything escaped that LaTeX would read."""
    return "".join(ESCAPES.get(c, c) for c in text)


def format_equation(text: str) -> str:
    """A formula of the walk in LaTeX's words."""
    shown = re.sub(r"sqrt\((\d+)\)", r"\\sqrt{\1}", text)
    shown = re.sub(r"\b([a-z]\w*)\(", _function, shown)
    shown = format_powers(shown, r" \cdot ", "10^{%d}")
    shown = re.sub(r"\bPhi\b", r"\\Phi", shown)
    shown = re.sub(r"\b(QKV|Pr)(?=\b|_)", r"\\mathit{\1}", shown)
    shown = re.sub(r"(\b[A-Za-z]\d?|\})_(\w+)", _subscript, shown)
    shown = shown.replace(" @ ", r"\,")
    shown = shown.replace(" * ", r"\odot ")
    return shown.replace("^T", r"^{\top}")


def _function(found: re.Match[str]) -> str:
    """`layer_norm(` as the name of an operator."""
    name = found[1].replace("_", r"\_")
    return rf"\operatorname{{{name}}}("


def _subscript(found: re.Match[str]) -> str:
    """`W_Q_0` with what is below written as text: Q,0."""
    below = found[2].replace("_", ",")
    return rf"{found[1]}_{{\text{{{below}}}}}"


def _label(text: str) -> str:
    """The name of a row or a column."""
    return rf"\text{{\scriptsize {escape_text(text)}}}"


def _matrix(line: Line, digits: int) -> str:
    """A line of the walk as a display: its formula, and its numbers as a matrix with labels."""
    entries = {GAP: r"\cdots", "-inf": r"-\infty"}
    table = format_cells(line, digits)
    shown = []
    names = column_names(line)
    if names:
        shown.append([entries.get(x, _label(x)) for x in names])
    for label, *numbers in table:
        shown.append([_label(label), *(entries.get(x, x) for x in numbers)])
    body = r" \\ ".join(map(" & ".join, shown))
    name = format_equation(line.name)
    if line.formula:
        name = f"{name} = {format_equation(line.formula)}"
    rows, columns = line.values.shape
    layout = "r|" + "r" * (len(table[0]) - 1)
    array = rf"\left[\begin{{array}}{{{layout}}} {body} \end{{array}}\right]"
    return rf"\fit{{{name} = {array}_{{{rows}\times {columns}}}}}"


def _contributions(walk: Walk, digits: int) -> Iterator[str]:
    """What each part of the model adds to every logit, one table for each position."""
    layout = "l" + "r" * len(walk.token_names)
    for i, token in enumerate(walk.prompt):
        names = " & ".join([f"after {i} {escape_text(token)}", *map(escape_text, walk.token_names)])
        rows = []
        for name, values in walk.contributions(i).items():
            rows.append(
                " & ".join([escape_text(name), *(f"${format_number(x, digits)}$" for x in values)])
            )
        rows[-1] = rf"\hline {rows[-1]}"  # the sum
        body = r" \\ ".join(rows)
        yield (
            rf"\begin{{tabular}}{{{layout}}} {names} \\ \hline {body} "
            r"\end{tabular}\par\medskip"
        )


def _at(point: Sequence[float] | np.ndarray) -> str:
    """A point in TikZ's words."""
    x, y = point
    return f"({x:.4f},{y:.4f})"


def _drawing(plane: Plane) -> Iterator[str]:
    """The way through the plane in TikZ."""
    size = 9 / (plane.high[0] - plane.low[0])  # centimetres
    yield rf"\begin{{tikzpicture}}[x={size:.4f}cm,y={size:.4f}cm]"
    for i, (name, polygon) in enumerate(plane.regions.items()):
        color = COLORS[i % len(COLORS)]
        if len(polygon):
            corners = " -- ".join(map(_at, polygon))
            middle = _at(polygon.mean(axis=0))
            yield rf"\filldraw[{color}!50,fill={color}!12] {corners} -- cycle;"
            yield rf"\node[{color}!60] at {middle} {{\Large {escape_text(name)}}};"
        yield rf"\draw[{color},dashed,thick] (0,0) -- {_at(plane.directions[name])};"
    for place, path in plane.paths.items():
        yield rf"\fill {_at(path[0])} circle[radius=1.5pt];"
        for j, (start, end) in enumerate(pairwise(path)):
            yield rf"\draw[->,{_arrow(j)}] {_at(start)} -- {_at(end)};"
        yield rf"\node[above right] at {_at(path[-1])} {{\footnotesize {escape_text(place)}}};"
    yield r"\end{tikzpicture}\par\medskip"
    arrows = ", ".join(f"{stage} ({_arrow(j)})" for j, stage in enumerate(plane.stages))
    yield escape_text(
        "Colored: where each token would be read out. A dot is an embedding; "
        f"the arrows from it are: {arrows}."
    )


def _arrow(stage: int) -> str:
    """How the arrow of a stage is drawn."""
    return ARROWS[stage % len(ARROWS)]


def render_latex(walk: Walk, title: str, digits: int) -> str:
    """The whole document.

    Args:
        walk: The walk.
        title: What is walked, in words.
        digits: Of every number, after the point.
    """
    lines = [HEAD, rf"\section*{{{escape_text(title)}}}"]
    drawn = find_plane(walk)
    if drawn:
        lines += [r"\subsection*{The way through the plane}", *_drawing(drawn)]
    for i, step in enumerate(walk.steps, 1):
        lines.append(rf"\subsection*{{{i}. {escape_text(step.title)}}}")
        lines += [_matrix(line, digits) for line in step.lines]
        lines.append(rf"\textit{{{escape_text(step.sentence)}}}")
    lines += [r"\subsection*{Direct logit attribution}", *_contributions(walk, digits)]
    lines += [r"\end{document}", ""]
    return "\n".join(lines)


def write_pdf(document: str, path: Path) -> None:
    """Make a PDF of a LaTeX document with the first TeX engine that is installed."""
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        raise UserError(
            f"no TeX engine is installed (looked for {', '.join(ENGINES)}); "
            "install one, or take --format latex"
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "walk.tex")
        source.write_text(document, encoding="utf-8")
        options = [] if engine == "tectonic" else ["-interaction=nonstopmode", "-halt-on-error"]
        command = [engine, *options, source.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        made = source.with_suffix(".pdf")
        if done.returncode or not made.is_file():
            complaints = [line for line in done.stdout.splitlines() if line.startswith("!")]
            reason = complaints[0] if complaints else "see its log"
            raise UserError(
                f"{engine} could not make the PDF ({reason}); "
                "--format latex writes the document itself"
            )
        with writing(path):
            path.write_bytes(made.read_bytes())
