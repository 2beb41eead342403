"""Figures of training: curves with the band in which nineteen seeds in twenty lie, and what heads attend to."""

from collections.abc import Mapping, Sequence
from typing import Any

from mnemoscope.studies.about import Panel
from mnemoscope.studies.claims import Curve, Map

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
COLUMNS = 3  # panels beside each other
POINTS = 50  # of a curve: more would weigh on the page and not be seen


def _label(name: str) -> str:
    """`setting: series` is drawn in a panel of its setting, so the legend says the series alone."""
    return name.rsplit(": ", 1)[-1]


def curves_figure(plt: Any, panels: Sequence[Panel], curves: Mapping[str, Curve]) -> Any:
    """A panel for each, one line for each series; the same series has the same colour in all of them."""
    shown = [(panel, names) for panel in panels if (names := panel.chosen(tuple(curves)))]
    if not shown:
        raise ValueError(f"none of the curves {', '.join(curves)} has a panel")
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(7, 0.5 + 2.1 * rows), squeeze=False, layout="constrained")
    labels = list(dict.fromkeys(_label(name) for _, names in shown for name in names))
    colours = {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}
    for ax, (panel, names) in zip(axes.flat, shown, strict=False):
        for name in names:
            curve, colour = curves[name], colours[_label(name)]
            every = slice(None, None, max(1, len(curve.steps) // POINTS))
            steps = curve.steps[every]
            ax.fill_between(steps, curve.low[every], curve.high[every], color=colour, alpha=0.2, lw=0)
            ax.plot(steps, curve.mean[every], color=colour, lw=1.5)
        ax.set(xlabel=panel.x, ylabel=panel.axis, title=panel.title)
        ax.title.set_fontsize(9)
        if panel.limits:
            ax.set_ylim(*panel.limits)
        if panel.log:
            ax.set_yscale("log")
        if panel.log_x:
            ax.set_xscale("log")
        ax.grid(color="#1c1e21", alpha=0.15, lw=0.8)
    for ax in axes.flat[len(shown) :]:
        ax.set_axis_off()
    handles = [plt.Line2D([], [], color=colours[label], lw=2, label=label) for label in labels]
    figure.legend(handles=handles, loc="outside upper right", ncols=len(labels), frameon=False, fontsize=8)
    return figure


def maps_figure(plt: Any, maps: Mapping[str, Map]) -> Any:
    """Attention of each head on one sequence: rows ask, columns are seen; the darker, the more attention."""
    from matplotlib.collections import PatchCollection
    from matplotlib.colors import to_rgb
    from matplotlib.patches import Rectangle

    figure, axes = plt.subplots(1, len(maps), figsize=(7, 3.9), squeeze=False, layout="constrained")
    for ax, (name, found) in zip(axes[0], maps.items(), strict=True):
        cells = [(r, c, w) for r, row in enumerate(found.weights) for c, w in enumerate(row[: r + 1]) if w >= 0.02]
        squares = [Rectangle((c - 0.5, r - 0.5), 1, 1) for r, c, _ in cells]
        ax.add_collection(
            PatchCollection(squares, facecolors=[(*to_rgb(COLOURS[0]), min(w, 1.0)) for *_, w in cells], lw=0)
        )
        n = len(found.tokens)
        ax.set_xticks(range(n), found.tokens, fontsize=7)
        ax.set_yticks(range(n), found.tokens, fontsize=7)
        ax.plot([-0.5, n - 0.5], [-0.5, n - 0.5], color="#1c1e21", lw=0.6, alpha=0.5)
        ax.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal", title=name, xlabel="seen", ylabel="asking")
        ax.title.set_fontsize(9)
        ax.tick_params(length=0, pad=1)
    return figure
