r"""The walk as a LaTeX document that compiles as it is, and as a PDF where a TeX engine is installed.

Needs only what every TeX distribution has: amsmath, geometry, graphicx and, for two dimensions, TikZ.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from mnemoscope.core.errors import UserError
from mnemoscope.probes.walk import Line, Walk
from mnemoscope.report.output import writing
from mnemoscope.report.walk.cells import GAP, cells, head, number
from mnemoscope.report.walk.plane import Plane, plane

ENGINES = (
    "tectonic",
    "pdflatex",
    "xelatex",
    "lualatex",
)  # the first that is installed makes the PDF
COLOURS = ("blue", "orange", "teal", "magenta", "cyan", "red", "olive", "gray")
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


def plain(text: str) -> str:
    """Text with everything escaped that LaTeX would read."""
    return "".join(ESCAPES.get(c, c) for c in text)


def equation(text: str) -> str:
    """A formula of the walk in LaTeX's words."""
    shown = re.sub(r"sqrt\((\d+)\)", r"\\sqrt{\1}", text)
    shown = re.sub(r"\b(softmax|relu|mask|norm|concat)\(", r"\\operatorname{\1}(", shown)
    shown = re.sub(r"\b(QKV|Pr)(?=\b|_)", r"\\mathit{\1}", shown)
    shown = re.sub(
        r"(\b[A-Za-z]\d?|\})_(\w+)",
        lambda m: f"{m[1]}_{{\\text{{{m[2].replace('_', ',')}}}}}",
        shown,
    )
    return shown.replace(" @ ", r"\,").replace(" * ", r"\odot ").replace("^T", r"^{\top}")


def _label(text: str) -> str:
    return rf"\text{{\scriptsize {plain(text)}}}"


def _matrix(line: Line, digits: int) -> str:
    entries = {GAP: r"\cdots", "-inf": r"-\infty"}
    table = cells(line, digits)
    rows_of = [[_label(row[0]), *(entries.get(x, x) for x in row[1:])] for row in table]
    if names := head(line):
        rows_of = [[entries.get(x, _label(x)) for x in names], *rows_of]
    body = r" \\ ".join(map(" & ".join, rows_of))
    name = (
        f"{equation(line.name)} = {equation(line.formula)}" if line.formula else equation(line.name)
    )
    rows, columns = line.values.shape
    array = rf"\left[\begin{{array}}{{r|{'r' * (len(table[0]) - 1)}}} {body} \end{{array}}\right]"
    return rf"\fit{{{name} = {array}_{{{rows}\times {columns}}}}}"


def _contributions(walk: Walk, digits: int) -> Iterator[str]:
    for i, token in enumerate(walk.prompt):
        head = " & ".join([f"after {i} {plain(token)}", *map(plain, walk.token_names)])
        rows = [
            " & ".join([plain(name), *(f"${number(x, digits)}$" for x in values)])
            for name, values in walk.contributions(i).items()
        ]
        body = r" \\ ".join([*rows[:-1], rf"\hline {rows[-1]}"])
        yield rf"\begin{{tabular}}{{l{'r' * len(walk.token_names)}}} {head} \\ \hline {body} \end{{tabular}}\par\medskip"


def _drawing(plane: Plane) -> Iterator[str]:
    size = 9 / (plane.high[0] - plane.low[0])  # centimetres
    styles = ("solid", "dashed", "dotted", "dash dot")

    def at(x: float, y: float) -> str:
        return f"({x:.4f},{y:.4f})"

    yield rf"\begin{{tikzpicture}}[x={size:.4f}cm,y={size:.4f}cm]"
    for i, (name, polygon) in enumerate(plane.regions.items()):
        colour = COLOURS[i % len(COLOURS)]
        if len(polygon):
            yield rf"\filldraw[{colour}!50,fill={colour}!12] {' -- '.join(at(x, y) for x, y in polygon)} -- cycle;"
            yield rf"\node[{colour}!60] at {at(*polygon.mean(axis=0))} {{\Large {plain(name)}}};"
        yield rf"\draw[{colour},dashed,thick] (0,0) -- {at(*plane.directions[name])};"
    for place, path in plane.paths.items():
        yield rf"\fill {at(*path[0])} circle[radius=1.5pt];"
        for j, (a, b) in enumerate(pairwise(path)):
            yield rf"\draw[->,{styles[j % 4]}] {at(*a)} -- {at(*b)};"
        yield rf"\node[above right] at {at(*path[-1])} {{\footnotesize {plain(place)}}};"
    yield r"\end{tikzpicture}\par\medskip"
    arrows = ", ".join(f"{stage} ({styles[j % 4]})" for j, stage in enumerate(plane.stages))
    yield plain(
        f"Coloured: where each token would be read out. A dot is an embedding; the arrows from it are: {arrows}."
    )


def latex(walk: Walk, title: str, digits: int) -> str:
    """The whole document."""
    lines = [HEAD, rf"\section*{{{plain(title)}}}"]
    if drawn := plane(walk):
        lines += [r"\subsection*{The way through the plane}", *_drawing(drawn)]
    for i, step in enumerate(walk.steps, 1):
        lines.append(rf"\subsection*{{{i}. {plain(step.title)}}}")
        lines += [_matrix(line, digits) for line in step.lines]
        lines.append(rf"\textit{{{plain(step.sentence)}}}")
    lines += [
        r"\subsection*{Direct logit attribution}",
        *_contributions(walk, digits),
        r"\end{document}",
        "",
    ]
    return "\n".join(lines)


def write_pdf(document: str, path: Path) -> None:
    """Make a PDF of a LaTeX document with the first TeX engine that is installed."""
    engine = next((name for name in ENGINES if shutil.which(name)), None)
    if engine is None:
        raise UserError(
            f"no TeX engine is installed (looked for {', '.join(ENGINES)}); install one, or take --format latex"
        )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "walk.tex")
        source.write_text(document, encoding="utf-8")
        options = [] if engine == "tectonic" else ["-interaction=nonstopmode", "-halt-on-error"]
        done = subprocess.run(
            [engine, *options, source.name], cwd=folder, capture_output=True, text=True
        )
        made = source.with_suffix(".pdf")
        if done.returncode or not made.is_file():
            reason = next(
                (line for line in done.stdout.splitlines() if line.startswith("!")), "see its log"
            )
            raise UserError(
                f"{engine} could not make the PDF ({reason}); --format latex writes the document itself"
            )
        with writing(path):
            path.write_bytes(made.read_bytes())
