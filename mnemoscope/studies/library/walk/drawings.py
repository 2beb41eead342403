"""The figures of the published numbers: sums of vectors, and which direction is read as what."""

from typing import Any

import numpy as np

from mnemoscope.core.theme import GREEN, INK, ORANGE, PUBLISHED, SEED
from mnemoscope.report.plots import panels_of
from mnemoscope.studies.library.walk import published


def sums() -> Any:
    """W3: embedding plus position, as published."""
    figure, [[ax]] = panels_of(1, 1, (4.2, 3.4))
    for i, name in enumerate(published.NAMES):
        token = published.W_E[i]
        place = published.W_POS[i]
        said = published.INPUTS[i]
        ax.annotate("", token, (0, 0), arrowprops={"arrowstyle": "->", "color": SEED})
        ax.annotate("", token + place, token, arrowprops={"arrowstyle": "->", "color": INK})
        ax.plot(*said, ls="", marker="x", ms=8, mew=2, color=PUBLISHED)
        ax.annotate(name, said, xytext=(8, 4), textcoords="offset points")
    ax.plot([], [], color=SEED, label="embedding")
    ax.plot([], [], color=INK, label="position")
    ax.plot([], [], ls="", marker="x", mew=2, color=PUBLISHED, label="published input")
    ax.legend(frameon=False, fontsize=8, loc="lower right")
    ax.set(aspect="equal", xlabel="first dimension", ylabel="second dimension")
    ax.set(xlim=(-3, 2.6), ylim=(-1.4, 2.9))
    return figure


def directions() -> Any:
    """W4: which token wins where under the published output matrix, and three directions."""
    figure, [[ax]] = panels_of(1, 1, (4.2, 3.4))
    angles = np.linspace(-np.pi, np.pi, 2000)
    winners = (published.W_U @ np.stack([np.cos(angles), np.sin(angles)])).argmax(axis=0)
    for token, color in enumerate((SEED, ORANGE, GREEN)):
        sector = angles[winners == token]
        turn = np.flatnonzero(np.diff(sector) > 0.1)
        for part in np.split(sector, turn + 1):
            ax.fill([0, *3 * np.cos(part)], [0, *3 * np.sin(part)], color=color, alpha=0.25, lw=0)
        middle = np.angle(np.exp(1j * sector).mean())
        label = f"read as {published.NAMES[token]}"
        ax.text(1.7 * np.cos(middle), 1.7 * np.sin(middle), label, ha="center", va="center")
    sides = {"A": "left", "B": "left", "C": "right"}  # the arrows of A and C are close
    for name, direction in zip(published.NAMES, published.DIRECTIONS, strict=True):
        end = 2.6 * np.array(direction) / np.hypot(*direction)
        ax.annotate("", end, (0, 0), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.5})
        ax.annotate(f"said: {name}", end * 1.04, ha=sides[name])
    ax.set(aspect="equal", xlabel="first dimension", ylabel="second dimension")
    ax.set(xlim=(-3.1, 3.1), ylim=(-3.1, 3.1))
    return figure


DRAWINGS = {"W3": sums, "W4": directions}
