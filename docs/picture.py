"""The picture of the README: recall of every seed against model size, from the published run."""

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

from mnemoscope.core.theme import INK, PUBLISHED, SEED
from mnemoscope.verdicts.evidence_file import read_series

HERE = Path(__file__).parent
SIZES = ("d16h1", "d16h2", "d32h1", "d32h2", "d64h1", "d64h2")
SOURCE = {"d16h1": 0.0001, "d32h2": 1.0}  # "partial" for d32h1 has no figure


def main() -> None:
    """Draw docs/recall.svg."""
    path = HERE.parent / "results/full/remember.evidence.json"
    evidence = read_series(path.read_text(), path.name)["R16"].by_seed
    plt.rcParams |= {
        "svg.hashsalt": "mnemoscope",
        "font.size": 10,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
    }
    figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
    figure.patch.set_facecolor("white")
    rng = np.random.default_rng(0)
    for x, size in enumerate(SIZES):
        recall = np.array(evidence[f"recall repeat/{size}"])
        axes.scatter(
            x + rng.uniform(-0.28, 0.28, len(recall)),
            recall,
            s=9,
            color=SEED,
            alpha=0.45,
            lw=0,
        )
        share = (recall >= 0.99).mean()
        axes.text(x, 1.08, f"{share:.0%} of {len(recall)}", ha="center", va="bottom", color=INK)
        if size in SOURCE:
            axes.plot([x - 0.36, x + 0.36], [SOURCE[size]] * 2, color=PUBLISHED, lw=2.5, zorder=3)
    axes.plot([], [], color=PUBLISHED, lw=2.5, label="the paper's figure")
    axes.scatter([], [], s=14, color=SEED, label="one seed of ours")
    labels = [
        s.replace("d", "d=").replace("h1", "\none head").replace("h2", "\ntwo heads") for s in SIZES
    ]
    axes.set_xticks(range(len(SIZES)), labels)
    axes.set_ylim(-0.05, 1.05)
    axes.set_ylabel("recall of the first pair,\nheld-out mappings")
    axes.set_title("Seeds that learn to recall (at least 99% right)", pad=24, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(HERE / "recall.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
