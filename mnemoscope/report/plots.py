"""Figures of what was followed or laid out.

Curves with the band of nineteen seeds in twenty, attention maps, and grids.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.theme import INK, SERIES
from mnemoscope.studies.plot_data import AttentionMap, Curve, Grid
from mnemoscope.studies.presentation import Panel

COLUMNS = 3  # panels beside each other
POINTS = 50  # of a curve: more would weigh on the page and not be seen
FEW = 10  # points of a curve, below which each is marked
SHADES = 8  # of a grid's scale
FULLEST = 0.65  # opacity of a grid's largest value: ink can be read on it in light and in dark
LEGIBLE = 16  # cells beside each other across a figure, up to which each has its value printed
Point = tuple[float | int, float | int]


def panels_of(
    rows: int, columns: int, inches: tuple[float, float], **gridspec: Any
) -> tuple[Any, Any]:
    """A figure that nobody but its holder keeps, and its axes as rows of columns.

    Args:
        rows: Of panels.
        columns: Of panels.
        inches: Width and height of the figure.
        gridspec: What Matplotlib's grid of panels takes besides.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=inches, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, gridspec_kw=gridspec)


def _label(name: str) -> str:
    """The series of `condition: series`: the panel of the condition says the rest."""
    return name.rsplit(": ", 1)[-1]


def _short(x: float) -> str:
    """A number as short as a cell needs it: .25, 3.1, 120."""
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


def _legend(figure: Any, colors: Mapping[str, str]) -> None:
    """One legend for all panels."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, lw=2, label=name) for name, color in colors.items()]
    figure.legend(
        handles=handles,
        loc="outside upper right",
        ncols=len(colors),
        frameon=False,
        fontsize=8,
    )


def curves_figure(panels: Sequence[Panel], curves: Mapping[str, Curve]) -> Any:
    """A panel for each, one line for each series.

    The same series has the same color in all of them. With more series than colors, each panel
    has its own legend and begins with the first color.
    """
    chosen = [(panel, panel.chosen(tuple(curves))) for panel in panels]
    shown = [(panel, names) for panel, names in chosen if names]
    if not shown:
        raise UserError(f"none of the curves {', '.join(curves)[:200]} has a panel")
    columns = 2 if len(shown) == 4 else min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = panels_of(rows, columns, (7.0, 0.5 + 2.1 * rows))
    labels = list(dict.fromkeys(_label(name) for _, names in shown for name in names))
    colors = {label: SERIES[i % len(SERIES)] for i, label in enumerate(labels)}
    together = len(labels) <= len(SERIES)
    for ax, (panel, names) in zip(axes.flat, shown, strict=False):
        for i, name in enumerate(names):
            color = colors[_label(name)] if together else SERIES[i % len(SERIES)]
            _line(ax, curves[name], _label(name), color)
        _curve_axes(ax, panel)
        if not together and len(names) > 1:
            ax.legend(frameon=False, fontsize=7)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    if together:
        _legend(figure, colors)
    return figure


def _line(ax: Any, curve: Curve, label: str, color: str) -> None:
    """A curve and its band."""
    every = slice(None, None, max(1, len(curve.steps) // POINTS))
    steps = curve.steps[every]
    ax.fill_between(steps, curve.low[every], curve.high[every], color=color, alpha=0.2, lw=0)
    dots = {"marker": "o", "ms": 3} if len(steps) < FEW else {}
    ax.plot(steps, curve.mean[every], color=color, lw=1.5, label=label, **dots)


def _curve_axes(ax: Any, panel: Panel) -> None:
    """Names, limits and scales of a panel of curves."""
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
    ax.grid(color=INK, alpha=0.15, lw=0.8)


def maps_figure(maps: Mapping[str, AttentionMap]) -> Any:
    """Attention of each head on one sequence: rows ask, columns are seen.

    The darker, the more attention.
    """
    from matplotlib.colors import to_rgb

    figure, axes = panels_of(1, len(maps), (7.0, 3.9))
    for ax, (name, found) in zip(axes[0], maps.items(), strict=True):
        cells = []
        faces = []
        for row, weights in enumerate(found.weights):
            for column, weight in enumerate(weights[: row + 1]):
                if weight >= 0.02:
                    cells.append((column, row))
                    faces.append((*to_rgb(SERIES[0]), min(weight, 1.0)))
        _add_squares(ax, cells, facecolors=faces, lw=0)
        n = len(found.tokens)
        ends = [-0.5, n - 0.5]
        ax.set_xticks(range(n), found.tokens, fontsize=7)
        ax.set_yticks(range(n), found.tokens, fontsize=7)
        ax.plot(ends, ends, color=INK, lw=0.6, alpha=0.5)
        ax.set(xlim=ends, ylim=ends[::-1], aspect="equal")
        ax.set(title=name, xlabel="seen", ylabel="asking")
        ax.title.set_fontsize(9)
        ax.tick_params(length=0, pad=1)
    return figure


def _add_squares(ax: Any, cells: Sequence[Point], **style: Any) -> None:
    """A square of size 1 around each point."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    squares = [Rectangle((x - 0.5, y - 0.5), 1, 1) for x, y in cells]
    ax.add_collection(PatchCollection(squares, **style))


def grids_figure(panels: Sequence[Panel], grids: Mapping[str, Grid]) -> Any:
    """A square for each row and column: the fuller its color, the larger its value.

    The first row is at the bottom.
    """
    shown = [(panel, name) for panel in panels for name in panel.chosen(tuple(grids))]
    if not shown:
        raise UserError(f"none of the grids {', '.join(grids)[:200]} has a panel")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    tallest = max(len(grids[name].rows) for _, name in shown)
    figure, axes = panels_of(rows, columns, (7.0, rows * (1.1 + 0.24 * tallest)))
    labels = list(dict.fromkeys(label for _, name in shown for label in grids[name].lines))
    # the first color is that of the squares
    colors = {label: SERIES[1 + i % (len(SERIES) - 1)] for i, label in enumerate(labels)}
    for ax, (panel, name) in zip(axes.flat, shown, strict=False):
        grid = grids[name]
        _squares(ax, panel, grid, write=columns * len(grid.columns) <= LEGIBLE)
        for label, points in grid.lines.items():
            ax.plot(*zip(*points, strict=True), color=colors[label], lw=1.5)
        crowded = columns * sum(map(len, grid.columns)) > 60
        alone = len(panel.chosen(tuple(grids))) == 1
        _grid_axes(ax, panel, grid, turn_labels=crowded)
        ax.set_title(panel.title if alone and panel.title else name, fontsize=9)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    if labels:
        _legend(figure, colors)
    return figure


def _grid_axes(ax: Any, panel: Panel, grid: Grid, *, turn_labels: bool) -> None:
    """Names of a grid's rows and columns; where these are many, they are turned."""
    n_rows = len(grid.rows)
    n_columns = len(grid.columns)
    ax.set(xlim=(-0.5, n_columns - 0.5), ylim=(-0.5, n_rows - 0.5), xlabel=panel.x, ylabel=panel.y)
    ax.set_xticks(range(n_columns), grid.columns, fontsize=7, rotation=90 if turn_labels else 0)
    ax.set_yticks(range(n_rows), grid.rows, fontsize=7)
    ax.tick_params(length=0, pad=2)
    ax.spines[:].set_visible(False)


def _squares(ax: Any, panel: Panel, grid: Grid, *, write: bool) -> None:
    """The cells of a grid and, beside them, the scale of their colors."""
    from matplotlib.colors import to_rgb

    cells = [(c, r, v) for r, row in enumerate(grid.values) for c, v in enumerate(row)]
    known = [v for *_, v in cells if v is not None and (v > 0 or not panel.log)]
    low, high = panel.limits or (min(known, default=0.0), max(known, default=1.0))
    scale = np.log if panel.log else float

    def color(v: float) -> tuple[float, ...]:
        part = 0.0  # what is below the scale (zero on a logarithmic one) has its lowest color
        if low < v and low < high:
            part = min(1.0, (scale(v) - scale(low)) / (scale(high) - scale(low)))
        return (*to_rgb(SERIES[0]), 0.04 + (FULLEST - 0.04) * float(part))

    faces = [(0.0, 0.0, 0.0, 0.0) if v is None else color(v) for *_, v in cells]
    edge = (*to_rgb(INK), 0.12)
    _add_squares(ax, [(c, r) for c, r, _ in cells], facecolors=faces, edgecolors=edge, lw=0.5)
    for c, r, v in cells:
        if write or v is None:
            text = "-" if v is None else _short(v)
            ax.text(c, r, text, ha="center", va="center", fontsize=6.5)
    if high > low:
        between = np.geomspace if panel.log else np.linspace
        _scale(ax, between(low, high, SHADES), color, panel.axis)


def _scale(
    ax: Any, values: np.ndarray, color: Callable[[float], tuple[float, ...]], name: str
) -> None:
    """The scale of a grid's colors, beside it."""
    beside = ax.inset_axes((1.03, 0, 0.05, 1))
    shades = [(0.5, i + 0.5) for i in range(SHADES)]
    _add_squares(beside, shades, facecolors=[*map(color, values)], lw=0)
    beside.set(xlim=(0, 1), ylim=(0, SHADES), xticks=[])
    beside.yaxis.tick_right()
    beside.yaxis.set_label_position("right")
    marks = (0, SHADES // 2, SHADES - 1)
    labels = [_short(values[i]) for i in marks]
    beside.set_yticks([i + 0.5 for i in marks], labels, fontsize=7)
    beside.set_ylabel(name, fontsize=8)
    beside.tick_params(length=0, pad=2)
    beside.spines[:].set_visible(False)
