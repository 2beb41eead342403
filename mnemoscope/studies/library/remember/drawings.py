"""The figures of what is exact: what the eliminator pays, and how many sequences there are."""

from typing import Any

import numpy as np

from mnemoscope.core.theme import INK, PUBLISHED, SEED
from mnemoscope.report.plots import panels_of


def eliminator() -> Any:
    """R1: what the eliminator pays at each step."""
    figure, [[ax]] = panels_of(1, 1, (7.0, 2.1))
    paid = np.log(np.arange(5, 0, -1))
    mean = paid.mean()
    guess = np.log(5)
    ax.bar(range(1, 6), paid, color=SEED, width=0.6)
    ax.axhline(mean, color=INK, lw=1.2)
    ax.text(5.45, mean + 0.04, f"mean {mean:.4f}", ha="right", va="bottom")
    ax.axhline(guess, color=INK, lw=1, ls=":")
    ax.text(5.45, guess + 0.04, f"guessing, ln 5 = {guess:.4f}", ha="right", va="bottom")
    ax.set(xlabel="step", ylabel="nats", ylim=(0, 1.9))
    return figure


def counts() -> Any:
    """R2: the sequences of trained and of held-out mappings."""
    figure, [[ax]] = panels_of(1, 1, (7.0, 1.1))
    trained = 96 * 120
    held = 24 * 120
    style = {"ha": "center", "va": "center", "color": "white"}
    ax.barh([0], [trained], color=SEED)
    ax.barh([0], [held], left=[trained], color=PUBLISHED)
    ax.text(trained // 2, 0, "96 trained mappings: 11,520", **style)
    ax.text(trained + held // 2, 0, "24 held out:\n2,880", **style)
    ax.set(xlabel="sequences", yticks=[], xlim=(0, 14400))
    return figure


DRAWINGS = {"R1": eliminator, "R2": counts}
