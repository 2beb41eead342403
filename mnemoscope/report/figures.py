"""Figures: every seed of a claim as a dot, the median as a line, the source's figure as a diamond.

Figures are the same bytes for the same numbers. Inside a page their ink is the page's own colour, so that they can be
read in light and dark; alone they are black on white. Colours are Okabe and Ito's, told apart by colour-blind readers.
"""

import hashlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.report.output import writing
from mnemoscope.report.plots import curves_figure, grids_figure, maps_figure, panels_of
from mnemoscope.studies.about import Panel
from mnemoscope.studies.claims import Pictures
from mnemoscope.studies.library.walk import published

INK, SEED, SOURCE = "#1c1e21", "#0072b2", "#d55e00"
FORMATS = ("svg", "pdf", "png")
GOLDEN = (
    5**0.5 - 1
) / 2  # spreads dots evenly without chance: the fractional parts of its multiples


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings from scratch, for as long as it lasts: what was drawn before cannot change what is drawn now.

    Figures are made without pyplot, which would keep them open and choose a window system for the caller.
    """
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams |= {
            "svg.fonttype": "none", "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 9,
            "axes.edgecolor": INK, "axes.labelcolor": INK, "text.color": INK, "xtick.color": INK, "ytick.color": INK,
            "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False, "ytick.left": False,
            "figure.facecolor": "none", "axes.facecolor": "none", "pdf.fonttype": 42,
        }  # fmt: skip
        yield


@style()
def seeds_figure(panels: Sequence[Panel], by_seed: Mapping[str, Sequence[float]]) -> Any:
    """One panel below another, one line of dots for each series."""
    from matplotlib.lines import Line2D

    shown = [(panel, names) for panel in panels if (names := panel.chosen(tuple(by_seed)))]
    if not shown:
        raise UserError(f"none of the series {', '.join(by_seed)[:200]} has a panel")
    heights = [len(names) + 1.1 for _, names in shown]
    figure, axes = panels_of(
        len(shown), 1, (7.0, 0.34 * sum(heights) + 0.35), height_ratios=heights
    )
    for ax, (panel, names) in zip(axes[:, 0], shown, strict=True):
        _dots(ax, panel, {name: np.asarray(by_seed[name], float) for name in names})
    handles = [
        Line2D([], [], ls="", marker="o", ms=4, color=SEED, alpha=0.6, label="one seed"),
        Line2D([], [], ls="", marker="|", ms=11, mew=2, color=INK, label="median"),
        *([Line2D([], [], ls="", marker="D", ms=6, color=SOURCE, label="the source")] if any(p.source for p in panels) else []),
    ]  # fmt: skip
    figure.legend(
        handles=handles,
        loc="outside upper right",
        ncols=3,
        frameon=False,
        fontsize=8,
        handletextpad=0.3,
    )
    return figure


def _dots(ax: Any, panel: Panel, series: Mapping[str, np.ndarray]) -> None:
    every = np.concatenate([*series.values(), list(panel.source.values())])
    floor = min(every[every > 0].min(), 1e-3) / 2 if panel.log and (every > 0).any() else 0.0
    for row, (name, values) in enumerate(series.items()):
        values = np.maximum(values, floor) if panel.log else values
        up = 0.56 * ((np.arange(len(values)) + 1) * GOLDEN % 1) - 0.28
        few = len(values) < 32
        ax.plot(values, row + up, ls="", marker="o", ms=4.5 if few else 3, mew=0, color=SEED, alpha=0.8 if few else 0.5,
                clip_on=False)  # fmt: skip
        ax.plot(
            [np.median(values)], [row], ls="", marker="|", ms=16, mew=2, color=INK, clip_on=False
        )
        if name in panel.source:
            ax.plot(
                [panel.source[name]], [row], ls="", marker="D", ms=6, color=SOURCE, clip_on=False
            )
    if panel.log:
        ax.set_xscale("log")
    if panel.limits:
        room = 0.02 * (panel.limits[1] - panel.limits[0])
        ax.set_xlim(panel.limits[0] - room, panel.limits[1] + room)
    ax.set_yticks(
        range(len(series)), [f"{name}  ({len(values)})" for name, values in series.items()]
    )
    ax.set_ylim(len(series) - 0.5, -0.5)
    ax.set_xlabel(
        panel.axis
        + (" (zero drawn at the left edge)" if panel.log and (every <= floor).any() else "")
    )
    ax.grid(axis="x", color=INK, alpha=0.15, lw=0.8)


def _eliminator() -> Any:
    """R1: what the eliminator pays at each step."""
    figure, [[ax]] = panels_of(1, 1, (7.0, 2.1))
    left = np.arange(5, 0, -1)
    ax.bar(range(1, 6), np.log(left), color=SEED, width=0.6)
    ax.axhline(np.log(left).mean(), color=INK, lw=1.2)
    ax.text(
        5.45, np.log(left).mean() + 0.04, f"mean {np.log(left).mean():.4f}", ha="right", va="bottom"
    )
    ax.axhline(np.log(5), color=INK, lw=1, ls=":")
    ax.text(5.45, np.log(5) + 0.04, f"guessing, ln 5 = {np.log(5):.4f}", ha="right", va="bottom")
    ax.set(xlabel="step", ylabel="nats", ylim=(0, 1.9))
    return figure


def _counts() -> Any:
    """R2: the sequences of trained and of held-out mappings."""
    figure, [[ax]] = panels_of(1, 1, (7.0, 1.1))
    ax.barh([0], [96 * 120], color=SEED)
    ax.barh([0], [24 * 120], left=[96 * 120], color=SOURCE)
    ax.text(96 * 60, 0, "96 trained mappings: 11,520", ha="center", va="center", color="white")
    ax.text(96 * 120 + 24 * 60, 0, "24 held out:\n2,880", ha="center", va="center", color="white")
    ax.set(xlabel="sequences", yticks=[], xlim=(0, 14400))
    return figure


def _published_sums() -> Any:
    """W3: embedding plus position, as published."""
    figure, [[ax]] = panels_of(1, 1, (4.2, 3.4))
    for name, token, place, said in zip(
        published.NAMES, published.W_E, published.W_POS, published.INPUTS, strict=True
    ):
        ax.annotate("", token, (0, 0), arrowprops={"arrowstyle": "->", "color": SEED})
        ax.annotate("", token + place, token, arrowprops={"arrowstyle": "->", "color": INK})
        ax.plot(*said, ls="", marker="x", ms=8, mew=2, color=SOURCE)
        ax.annotate(name, said, xytext=(8, 4), textcoords="offset points")
    ax.plot([], [], color=SEED, label="embedding")
    ax.plot([], [], color=INK, label="position")
    ax.plot([], [], ls="", marker="x", mew=2, color=SOURCE, label="published input")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.set(
        aspect="equal",
        xlabel="first dimension",
        ylabel="second dimension",
        xlim=(-3, 2.6),
        ylim=(-1.4, 2.9),
    )
    return figure


def _published_directions() -> Any:
    """W4: which token wins where under the published output matrix, and the three published directions."""
    figure, [[ax]] = panels_of(1, 1, (4.2, 3.4))
    angles = np.linspace(-np.pi, np.pi, 2000)
    winners = (published.W_U @ np.stack([np.cos(angles), np.sin(angles)])).argmax(axis=0)
    for token, colour in enumerate((SEED, "#e69f00", "#009e73")):
        sector = angles[winners == token]
        turn = np.flatnonzero(np.diff(sector) > 0.1)
        for part in np.split(sector, turn + 1):
            ax.fill([0, *3 * np.cos(part)], [0, *3 * np.sin(part)], color=colour, alpha=0.25, lw=0)
        middle = np.angle(np.exp(1j * sector).mean())
        ax.text(
            1.7 * np.cos(middle),
            1.7 * np.sin(middle),
            f"read as {published.NAMES[token]}",
            ha="center",
            va="center",
        )
    sides = {"A": "left", "B": "left", "C": "right"}  # the arrows of A and C are close
    for name, direction in zip(published.NAMES, published.DIRECTIONS, strict=True):
        end = 2.6 * np.array(direction) / np.hypot(*direction)
        ax.annotate("", end, (0, 0), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.5})
        ax.annotate(f"said: {name}", end * 1.04, ha=sides[name])
    ax.set(
        aspect="equal",
        xlim=(-3.1, 3.1),
        ylim=(-3.1, 3.1),
        xlabel="first dimension",
        ylabel="second dimension",
    )
    return figure


EXACT = {"R1": _eliminator, "R2": _counts, "W3": _published_sums, "W4": _published_directions}


@style()
def claim_figures(
    claim: str, panels: Sequence[Panel], by_seed: Mapping[str, Sequence[float]], pictures: Pictures
) -> dict[str, Any]:
    """A claim's figures by kind: its seeds, its curves, its attention maps, its grids; none where it was not judged."""
    found: dict[str, Any] = {}
    # between two dollars Matplotlib reads a formula, and fails on one that is none
    by_seed = {name.replace("$", r"\$"): values for name, values in by_seed.items()}
    if "$" in (text := pictures.model_dump_json()):
        pictures = Pictures.model_validate_json(text.replace("$", r"\\$"))
    if claim in EXACT:
        found["seeds"] = EXACT[claim]()
    elif by_seed:
        found["seeds"] = seeds_figure([panel for panel in panels if panel.kind == "seeds"], by_seed)
    if pictures.curves:
        chosen = [panel for panel in panels if panel.kind == "curves"]
        found["curves"] = curves_figure(chosen, pictures.curves)
    if pictures.maps:
        found["maps"] = maps_figure(pictures.maps)
    if pictures.grids:
        found["grids"] = grids_figure(
            [panel for panel in panels if panel.kind == "grid"], pictures.grids
        )
    return found


def _lighter(text: str, salt: str) -> str:
    """The same drawing in fewer bytes: tenths of a point are enough, marks that look alike say so once, and names are short."""

    def rounded(found: re.Match[str]) -> str:
        x = float(found[0])
        # small numbers are scales and opacities: these keep their digits
        return f"{x:.1f}".removesuffix(".0") if abs(x) >= 1 else f"{x:.4g}"

    def packed(found: re.Match[str]) -> str:
        return re.sub(r"\s*([A-Za-z])\s*", r"\1", found[0].replace("\n", " ")[4:-1]).join(
            (' d="', '"')
        )

    def grouped(found: re.Match[str]) -> str:
        return f"<g{found[2]}>" + found[0].replace(found[2], "") + "</g>"

    text = re.sub(r"-?\d+\.\d{2,}", rounded, text)
    text = re.sub(r' d="[^"]*"', packed, text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", re.sub(r">\s+<", "><", text)).replace(
        "xlink:href", "href"
    )
    families = set(re.findall(r"font-family: [^;\"]*; ", text))
    if len(families) == 1:  # said once for the whole drawing
        family = families.pop()
        text = text.replace(family, "").replace("<svg", f'<svg style="{family.strip()}"', 1)
    start = (
        "f" + hashlib.sha256(salt.encode()).hexdigest()[:6]
    )  # two figures of a page must not name the same
    for i, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]*)"', text))):
        text = re.sub(rf'(?<=[#"]){re.escape(name)}(?=[)"])', f"{start}{i}", text)
    mark = r'<use href="[^"]*" x="[^"]*" y="[^"]*"'
    return re.sub(rf'({mark})( style="[^"]*")/>(?:{mark}\2/>)+', grouped, text)


@style()
def svg(figure: Any, salt: str, label: str) -> str:
    """A figure as SVG for the inside of a page: the page's ink, ids of its own, and a name for those who cannot see it."""
    from html import escape

    import matplotlib

    matplotlib.rcParams["svg.hashsalt"] = salt
    out = io.StringIO()
    figure.savefig(
        out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = out.getvalue()
    # ids of groups name nothing that is pointed at, and would come twice in a page with two figures
    text = re.sub(r'<g id="[^"]*"', "<g", text[text.index("<svg") :])
    text = _lighter(text, salt)
    for colour, name in (
        (INK, "currentColor"),
        (SEED, f"var(--seed, {SEED})"),
        (SOURCE, f"var(--source, {SOURCE})"),
    ):
        text = text.replace(colour, name)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(label, quote=True)}"', 1)


@style()
def write_figure(figure: Any, path: Path) -> None:
    """A figure as a file of its own; the ending of its name says which kind."""
    import matplotlib

    kind = path.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise UserError(
            f"unknown kind of figure {path.name!r}; allowed endings: {', '.join('.' + f for f in FORMATS)}"
        )
    matplotlib.rcParams["svg.hashsalt"] = path.stem.encode(errors="backslashreplace").decode()
    empty = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    with writing(path):
        figure.savefig(path, format=kind, dpi=200, facecolor="white", metadata=empty[kind])
