"""Figures: every seed of a claim as a dot, the median as a line, the paper's figure as a diamond.

Figures are the same bytes for the same numbers. Inside a page their ink is the page's own color,
so that they can be read in light and dark; alone they are black on white. Colors are Okabe and
Ito's, told apart by color-blind readers.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import INK, PUBLISHED, SEED
from mnemoscope.report.plots import curves_figure, grids_figure, maps_figure, panels_of
from mnemoscope.report.requested_files import writing
from mnemoscope.studies.folder import load_part
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.presentation import Panel
from mnemoscope.studies.study import Study

FORMATS = ("svg", "pdf", "png")
# spreads dots evenly without chance: the fractional parts of its multiples
GOLDEN = (5**0.5 - 1) / 2
STYLE = {
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "ytick.left": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}
MARK = r'<use href="[^"]*" x="[^"]*" y="[^"]*"'  # one mark of a series in an SVG


Drawing = Callable[[], Any]  # makes a Matplotlib figure


def load_drawings(study: Study) -> Mapping[str, Drawing]:
    """The drawings of what is exact by claim, from the `drawings.py` in the study's folder."""
    part = load_part(study.package, "drawings")
    return part.DRAWINGS if part else {}


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings from scratch, for as long as it lasts.

    What was drawn before cannot change what is drawn now. Figures are made without pyplot,
    which would keep them open and choose a window system for the caller.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams |= STYLE
        yield


@style()
def seeds_figure(panels: Sequence[Panel], by_seed: Mapping[str, Sequence[float | None]]) -> Any:
    """One panel below another, one line of dots for each series."""
    from matplotlib.lines import Line2D

    chosen = [(panel, panel.chosen(tuple(by_seed))) for panel in panels]
    shown = [(panel, names) for panel, names in chosen if names]
    if not shown:
        raise UserError(f"none of the series {', '.join(by_seed)[:200]} has a panel")
    heights = [len(names) + 1.1 for _, names in shown]
    inches = (7.0, 0.34 * sum(heights) + 0.35)
    figure, axes = panels_of(len(shown), 1, inches, height_ratios=heights)
    for ax, (panel, names) in zip(axes[:, 0], shown, strict=True):
        _dots(ax, panel, {name: _finite(by_seed[name]) for name in names})
    handles = [
        Line2D([], [], ls="", marker="o", ms=4, color=SEED, alpha=0.6, label="one seed"),
        Line2D([], [], ls="", marker="|", ms=11, mew=2, color=INK, label="median"),
    ]
    if any(panel.published for panel in panels):
        handles.append(Line2D([], [], ls="", marker="D", ms=6, color=PUBLISHED, label="the paper"))
    figure.legend(
        handles=handles,
        loc="outside upper right",
        ncols=3,
        frameon=False,
        fontsize=8,
        handletextpad=0.3,
    )
    return figure


def _finite(values: Sequence[float | None]) -> np.ndarray:
    """The numbers of the units that have one."""
    numbers = np.array(values, float)
    return numbers[np.isfinite(numbers)]


def _dots(ax: Any, panel: Panel, series: Mapping[str, np.ndarray]) -> None:
    """Every seed of every series, their medians, and what the paper says."""
    every = np.concatenate([*series.values(), list(panel.published.values())])
    positive = every[every > 0]
    # a logarithmic axis has no zero: it is drawn at the left edge
    floor = min(positive.min(), 1e-3) / 2 if panel.log and len(positive) else 0.0
    for row, (name, values) in enumerate(series.items()):
        values = np.maximum(values, floor) if panel.log else values
        up = 0.56 * ((np.arange(len(values)) + 1) * GOLDEN % 1) - 0.28
        few = len(values) < 32
        ax.plot(
            values,
            row + up,
            ls="",
            marker="o",
            ms=4.5 if few else 3,
            mew=0,
            color=SEED,
            alpha=0.8 if few else 0.5,
            clip_on=False,
        )
        median = [np.median(values)]
        ax.plot(median, [row], ls="", marker="|", ms=16, mew=2, color=INK, clip_on=False)
        if name in panel.published:
            said = [panel.published[name]]
            ax.plot(said, [row], ls="", marker="D", ms=6, color=PUBLISHED, clip_on=False)
    if panel.log:
        ax.set_xscale("log")
    if panel.limits:
        low, high = panel.limits
        room = 0.02 * (high - low)
        ax.set_xlim(low - room, high + room)
    labels = [f"{name}  ({len(values)})" for name, values in series.items()]
    ax.set_yticks(range(len(series)), labels)
    ax.set_ylim(len(series) - 0.5, -0.5)
    has_zeros = panel.log and (every <= floor).any()
    ax.set_xlabel(panel.axis + (" (zero drawn at the left edge)" if has_zeros else ""))
    ax.grid(axis="x", color=INK, alpha=0.15, lw=0.8)


@style()
def claim_figures(
    panels: Sequence[Panel],
    by_seed: Mapping[str, Sequence[float | None]],
    plots: Plots,
    drawing: Drawing | None = None,
) -> dict[str, Any]:
    """A claim's figures by kind: its seeds, its curves, its attention maps, its grids.

    None where it was not judged.

    Args:
        panels: How its series are drawn.
        by_seed: Each seed's outcomes, by series.
        plots: Curves, maps and grids.
        drawing: Draws what is exact, in the place of seeds.
    """
    found: dict[str, Any] = {}
    # between two dollars Matplotlib reads a formula, and fails on one that is none
    by_seed = {name.replace("$", r"\$"): values for name, values in by_seed.items()}
    text = plots.model_dump_json()
    if "$" in text:
        plots = Plots.model_validate_json(text.replace("$", r"\\$"))

    def of(kind: str) -> list[Panel]:
        chosen = [panel for panel in panels if panel.kind == kind]
        return chosen or [Panel.model_validate({"kind": kind, "series": ("*",)})]

    if drawing:
        found["seeds"] = drawing()
    elif by_seed:
        found["seeds"] = seeds_figure(of("seeds"), by_seed)
    if plots.curves:
        found["curves"] = curves_figure(of("curves"), plots.curves)
    if plots.maps:
        found["maps"] = maps_figure(plots.maps)
    if plots.grids:
        found["grids"] = grids_figure(of("grid"), plots.grids)
    return found


def _rounded(found: re.Match[str]) -> str:
    """A number of an SVG to a tenth of a point."""
    x = float(found[0])
    if abs(x) < 1:  # small numbers are scales and opacities: these keep their digits
        return f"{x:.4g}"
    return f"{x:.1f}".removesuffix(".0")


def _packed_path(found: re.Match[str]) -> str:
    """A path without the spaces around its commands."""
    commands = found[1].replace("\n", " ")
    packed = re.sub(r"\s*([A-Za-z])\s*", r"\1", commands)
    return f' d="{packed}"'


def _grouped(found: re.Match[str]) -> str:
    """A run of marks that look alike, as a group that says once how they look."""
    look = found[2]
    return f"<g{look}>{found[0].replace(look, '')}</g>"


def _one_font(text: str) -> str:
    """The family of the font said once for the whole drawing, where there is only one."""
    families = set(re.findall(r"font-family: [^;\"]*; ", text))
    if len(families) != 1:
        return text
    family = families.pop()
    return text.replace(family, "").replace("<svg", f'<svg style="{family.strip()}"', 1)


def _short_ids(text: str, salt: str) -> str:
    """Short ids, which no figure with another salt has: two of a page must not name the same."""
    start = "f" + hashlib.sha256(salt.encode()).hexdigest()[:6]
    names = dict.fromkeys(re.findall(r' id="([^"]*)"', text))
    for i, name in enumerate(names):
        text = re.sub(rf'(?<=[#"]){re.escape(name)}(?=[)"])', f"{start}{i}", text)
    return text


def _lighter(text: str, salt: str) -> str:
    """The same drawing in fewer bytes.

    Tenths of a point are enough, marks that look alike say so once, and names are short.
    """
    text = re.sub(r"-?\d+\.\d{2,}", _rounded, text)
    text = re.sub(r' d="([^"]*)"', _packed_path, text)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", text)  # a turn by nothing
    text = text.replace("xlink:href", "href")
    text = _one_font(text)
    text = _short_ids(text, salt)
    return re.sub(rf'({MARK})( style="[^"]*")/>(?:{MARK}\2/>)+', _grouped, text)


@style()
def svg(figure: Any, salt: str, label: str) -> str:
    """A figure as SVG for the inside of a page.

    It has the page's ink, ids of its own, and a name for those who cannot see it.

    Args:
        figure: A Matplotlib figure.
        salt: What makes its ids its own: another one for each figure of a page.
        label: Its name.
    """
    from html import escape

    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = salt
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    text = out.getvalue()
    # ids of groups name nothing that is pointed at, and would come twice in a page with two figures
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = _lighter(text, salt)
    text = text.replace(INK, "currentColor")
    text = text.replace(SEED, f"var(--seed, {SEED})")
    text = text.replace(PUBLISHED, f"var(--published, {PUBLISHED})")
    name = escape(label, quote=True)
    return text.replace("<svg", f'<svg role="img" aria-label="{name}"', 1)


@style()
def write_figure(figure: Any, path: Path) -> None:
    """A figure as a file of its own; the ending of its name says which kind."""
    import matplotlib

    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        endings = ", ".join(f".{each}" for each in FORMATS)
        raise UserError(f"unknown kind of figure {path.name!r}; allowed endings: {endings}")
    matplotlib.rcParams["svg.hashsalt"] = path.stem.encode(errors="backslashreplace").decode()
    empty = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with writing(path):
        figure.savefig(path, format=kind, dpi=200, facecolor="white", metadata=empty[kind])
