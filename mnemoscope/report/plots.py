"""Figures of what was followed or laid out: curves with the band of nineteen seeds in twenty, attention maps, and grids."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.studies.about import Panel
from mnemoscope.studies.claims import Curve, Grid, Map

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
COLUMNS = 3  # panels beside each other
POINTS = 50  # of a curve: more would weigh on the page and not be seen
FEW = 10  # points of a curve, below which each is marked
SHADES = 8  # of a grid's scale
FULLEST = 0.65  # opacity of a grid's largest value: ink can be read on it in light and in dark
LEGIBLE = 16  # cells beside each other across a figure, up to which each has its value printed


def panels_of(
    rows: int, columns: int, inches: tuple[float, float], **gridspec: Any
) -> tuple[Any, Any]:
    """A figure that nobody but its holder keeps, and its axes as rows of columns."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=gridspec)


def _label(name: str) -> str:
    """`setting: series` is drawn in a panel of its setting, so the legend says the series alone."""
    return name.rsplit(": ", 1)[-1]


def _short(x: float) -> str:
    text = f"{x:.2g}" if abs(x) < 100 else f"{x:.0f}"
    return text[1:] if text.startswith("0.") else text


def _plain(axis: Any) -> None:
    """Less than two decades of a logarithmic axis: 10, 20, 50 instead of powers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    if high < 100 * low:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axis.set_minor_locator(NullLocator())


def curves_figure(panels: Sequence[Panel], curves: Mapping[str, Curve]) -> Any:
    """A panel for each, one line for each series; the same series has the same colour in all of them.

    With more series than colours, each panel has its own legend and begins with the first colour.
    """
    from matplotlib.lines import Line2D

    shown = [(panel, names) for panel in panels if (names := panel.chosen(tuple(curves)))]
    if not shown:
        raise UserError(f"none of the curves {', '.join(curves)[:200]} has a panel")
    columns = 2 if len(shown) == 4 else min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = panels_of(rows, columns, (7.0, 0.5 + 2.1 * rows))
    labels = list(dict.fromkeys(_label(name) for _, names in shown for name in names))
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    together = len(labels) <= len(COLOURS)
    for ax, (panel, names) in zip(axes.flat, shown, strict=False):
        for i, name in enumerate(names):
            curve, colour = (
                curves[name],
                colours[_label(name)] if together else COLOURS[i % len(COLOURS)],
            )
            every = slice(None, None, max(1, len(curve.steps) // POINTS))
            steps = curve.steps[every]
            ax.fill_between(
                steps, curve.low[every], curve.high[every], color=colour, alpha=0.2, lw=0
            )
            dots = {"marker": "o", "ms": 3} if len(steps) < FEW else {}
            ax.plot(steps, curve.mean[every], color=colour, lw=1.5, label=_label(name), **dots)
        ax.set(xlabel=panel.x, ylabel=panel.axis, title=panel.title)
        ax.title.set_fontsize(9)
        if panel.limits:
            ax.set_ylim(*panel.limits)
        if panel.log:
            ax.set_yscale("log")
            _plain(ax.yaxis)
        if panel.log_x:
            ax.set_xscale("log")
            _plain(ax.xaxis)
        else:
            ax.locator_params(axis="x", nbins=5)  # numbers of five digits stand side by side
        ax.grid(color="#1c1e21", alpha=0.15, lw=0.8)
        if not together and len(names) > 1:
            ax.legend(frameon=False, fontsize=7)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    if not together:
        return figure
    handles = [Line2D([], [], color=colours[label], lw=2, label=label) for label in labels]
    figure.legend(
        handles=handles, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=8
    )
    return figure


def maps_figure(maps: Mapping[str, Map]) -> Any:
    """Attention of each head on one sequence: rows ask, columns are seen; the darker, the more attention."""
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    figure, axes = panels_of(1, len(maps), (7.0, 3.9))
    for ax, (name, found) in zip(axes[0], maps.items(), strict=True):
        cells = [
            (r, c, w)
            for r, row in enumerate(found.weights)
            for c, w in enumerate(row[: r + 1])
            if w >= 0.02
        ]
        squares = [Rectangle((c - 0.5, r - 0.5), 1, 1) for r, c, _ in cells]
        ax.add_collection(
            PatchCollection(
                squares, facecolors=[(*to_rgb(COLOURS[0]), min(w, 1.0)) for *_, w in cells], lw=0
            )
        )
        n = len(found.tokens)
        ax.set_xticks(range(n), found.tokens, fontsize=7)
        ax.set_yticks(range(n), found.tokens, fontsize=7)
        ax.plot([-0.5, n - 0.5], [-0.5, n - 0.5], color="#1c1e21", lw=0.6, alpha=0.5)
        ax.set(
            xlim=(-0.5, n - 0.5),
            ylim=(n - 0.5, -0.5),
            aspect="equal",
            title=name,
            xlabel="seen",
            ylabel="asking",
        )
        ax.title.set_fontsize(9)
        ax.tick_params(length=0, pad=1)
    return figure


def grids_figure(panels: Sequence[Panel], grids: Mapping[str, Grid]) -> Any:
    """A square for each row and column: the fuller its colour, the larger its value; the first row is at the bottom."""
    from matplotlib.lines import Line2D

    shown = [(panel, name) for panel in panels for name in panel.chosen(tuple(grids))]
    if not shown:
        raise UserError(f"none of the grids {', '.join(grids)[:200]} has a panel")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    tallest = max(len(grids[name].rows) for _, name in shown)
    figure, axes = panels_of(rows, columns, (7.0, rows * (1.1 + 0.24 * tallest)))
    labels = list(dict.fromkeys(label for _, name in shown for label in grids[name].lines))
    colours = {label: COLOURS[1 + i % (len(COLOURS) - 1)] for i, label in enumerate(labels)}
    for ax, (panel, name) in zip(axes.flat, shown, strict=False):
        grid = grids[name]
        _squares(ax, panel, grid, write=columns * len(grid.columns) <= LEGIBLE)
        for label, points in grid.lines.items():
            ax.plot(*zip(*points, strict=True), color=colours[label], lw=1.5)
        ax.set(
            xlim=(-0.5, len(grid.columns) - 0.5),
            ylim=(-0.5, len(grid.rows) - 0.5),
            xlabel=panel.x,
            ylabel=panel.y,
        )
        crowded = columns * sum(map(len, grid.columns)) > 60
        ax.set_xticks(
            range(len(grid.columns)), grid.columns, fontsize=7, rotation=90 if crowded else 0
        )
        ax.set_yticks(range(len(grid.rows)), grid.rows, fontsize=7)
        alone = len(panel.chosen(tuple(grids))) == 1
        ax.set_title(panel.title if alone and panel.title else name, fontsize=9)
        ax.tick_params(length=0, pad=2)
        ax.spines[:].set_visible(False)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    if labels:
        handles = [Line2D([], [], color=colours[label], lw=2, label=label) for label in labels]
        figure.legend(
            handles=handles, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=8
        )
    return figure


def _squares(ax: Any, panel: Panel, grid: Grid, *, write: bool) -> None:
    """The cells of a grid and, beside them, the scale of their colours."""
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    cells = [(r, c, v) for r, row in enumerate(grid.values) for c, v in enumerate(row)]
    known = [v for *_, v in cells if v is not None and (v > 0 or not panel.log)]
    low, high = panel.limits or (min(known, default=0.0), max(known, default=1.0))
    scale = np.log if panel.log else float

    def colour(v: float) -> tuple[float, ...]:
        # what is below the scale (zero on a logarithmic one) has its lowest colour
        part = (
            0.0
            if v <= low or high <= low
            else min(1.0, (scale(v) - scale(low)) / (scale(high) - scale(low)))
        )
        return (*to_rgb(COLOURS[0]), 0.04 + (FULLEST - 0.04) * float(part))

    squares = [Rectangle((c - 0.5, r - 0.5), 1, 1) for r, c, _ in cells]
    faces = [(0.0, 0.0, 0.0, 0.0) if v is None else colour(v) for *_, v in cells]
    ax.add_collection(
        PatchCollection(squares, facecolors=faces, edgecolors=(*to_rgb("#1c1e21"), 0.12), lw=0.5)
    )
    for r, c, v in cells:
        if write or v is None:
            ax.text(c, r, "-" if v is None else _short(v), ha="center", va="center", fontsize=6.5)
    if high <= low:
        return
    steps = np.geomspace(low, high, SHADES) if panel.log else np.linspace(low, high, SHADES)
    beside = ax.inset_axes((1.03, 0, 0.05, 1))
    beside.add_collection(
        PatchCollection(
            [Rectangle((0, i), 1, 1) for i in range(SHADES)], facecolors=[*map(colour, steps)], lw=0
        )
    )
    beside.set(xlim=(0, 1), ylim=(0, SHADES), xticks=[])
    beside.yaxis.tick_right()
    beside.yaxis.set_label_position("right")
    marks = (0, SHADES // 2, SHADES - 1)
    beside.set_yticks([i + 0.5 for i in marks], [_short(steps[i]) for i in marks], fontsize=7)
    beside.set_ylabel(panel.axis, fontsize=8)
    beside.tick_params(length=0, pad=2)
    beside.spines[:].set_visible(False)
