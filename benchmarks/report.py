"""BENCHMARKS.md and its picture, written from the numbers in cpu.json and gpu.json."""

import json
import statistics
from pathlib import Path

from mnemoscope.core.theme import PUBLISHED, SEED

HERE = Path(__file__).parent
BATCH = 128
NAMES = {
    "source": "the paper's loop (PyTorch), one core",
    "one": "Mnemoscope, one core, one seed",
    "one core, many": "Mnemoscope, one core, 32 seeds",
    "two cores, many": "Mnemoscope, two cores, 32 seeds",
}
AXES = {
    "seeds": "seeds trained together",
    "width": "width d_model",
    "length": "sequence length",
    "vocabulary": "tokens in the vocabulary",
}
COLORS = {"cpu": SEED, "gpu": PUBLISHED}


def median(results: list[dict]) -> float:
    """The middle rate of some measurements."""
    return statistics.median(r["rate"] for r in results)


def saturation(points: list[list[float]], share: float = 0.9) -> tuple[int, float]:
    """The fewest seeds that reach this share of the best rate, and the best rate in samples/s."""
    rates = {int(n): n * BATCH / seconds for n, seconds in points}
    best = max(rates.values())
    return min(n for n, rate in rates.items() if rate >= share * best), best


def about(found: dict, part: str = "") -> str:
    """Hardware, versions and date in one sentence; those of a part that was measured apart."""
    found = found.get(f"{part} on", found)
    versions = ", ".join(f"{k} {v}" for k, v in found["versions"].items())
    return f"{found['hardware']}; {versions}; measured on {found['date']}."


def rivals(found: dict) -> list[str]:
    """The table against the paper's loop."""
    lines = [
        "| who | samples/s | ratio | spread of the ratio | loss after 256,000 samples |",
        "|---|---|---|---|---|",
    ]
    for norm, results in found["loop"].items():
        unit = median(results["source"])
        for name, each in results.items():
            ratios = [r["rate"] / unit for r in each]
            loss = statistics.mean(r["loss"] for r in each)
            lines.append(
                f"| {NAMES[name]}, {norm} | {median(each):,.0f} | {median(each) / unit:.1f} | "
                f"{min(ratios):.1f} to {max(ratios):.1f} | {loss:.3f} |"
            )
    for norm, results in found["loop"].items():
        pairs = zip(results["one core, many"], results["two cores, many"], strict=True)
        gains = [two["rate"] / one["rate"] for one, two in pairs]
        lines += [
            "",
            f"Two cores against one, 32 seeds, {norm}: {statistics.median(gains):.2f} times "
            f"({min(gains):.2f} to {max(gains):.2f}).",
        ]
    return lines


def birth(found: dict) -> list[str]:
    """The induction model against a plain program."""
    results, reached = found["birth"], found["birth"]["losses"]
    ours, source, drawing = (
        [each[what] for each in results[name]]
        for name, what in (("ours", "seconds"), ("source", "seconds"), ("source", "drawing"))
    )
    ratios = [a / b for a, b in zip(source, ours, strict=True)]
    middle = {
        name: statistics.median(x)
        for name, x in (("ours", ours), ("source", source), ("drawing", drawing))
    }
    low, high = min(reached["ours"]["loss"]), max(reached["ours"]["loss"])
    return [
        "| who | a step | ratio | spread of the ratio |",
        "|---|---|---|---|",
        f"| PyTorch, text drawn in NumPy, one core | {middle['source']:.2f} s "
        f"({middle['drawing']:.2f} s of it drawing) | 1.0 | |",
        f"| Mnemoscope, one core | {middle['ours']:.2f} s | "
        f"{middle['source'] / middle['ours']:.1f} | {min(ratios):.1f} to {max(ratios):.1f} |",
        "",
        "Both learn the same: at d=64, 64 tokens and batch 64 the loss of steps 361 to 400 is "
        f"{reached['source']['loss']:.3f} in PyTorch (one seed) and {low:.3f} to {high:.3f} here "
        "(eight seeds).",
    ]


def waiting(found: dict) -> list[str]:
    """Start-up, and evaluation against training."""
    start = found["start"]
    return [
        f"- `mnemoscope --help`: {start['help']:.2f} s.",
        "- From starting Python to the end of the first training steps: "
        f"{start['first_step_cold']:.1f} s the first time, {start['first_step_known']:.1f} s for "
        "a Spec that was trained before (compiled programs are kept).",
        f"- {evaluation(found, 'quick')}",
    ]


def evaluation(found: dict, scale: str) -> str:
    """Training against all probes on it."""
    probes = {name: seconds for name, seconds in found["evaluation"].items() if name != "train"}
    parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in probes.items())
    return (
        f"64 seeds of the two-head condition at `{scale}`: training "
        f"{found['evaluation']['train']:.1f} s, all probes on every held-out sequence "
        f"{sum(probes.values()):.1f} s ({parts}), compilation included."
    )


PEER_WORDS = {
    "remember": "`remember` (one layer, d=32, T=9), no norm",
    "remember-norm": "the same, post-norm",
    "t64": "two layers, d=64, 4 heads, MLP 256, pre-norm, T=64, batch 64",
    "t256": "two layers, d=128, 4 heads, MLP 512, pre-norm, T=256, batch 64",
    "gelu": "the last with GELU",
    "rotary": "the last with rotary positions",
    "rms": "the last with RMS norms",
    "birth": "`birth`, simplified, d=256, T=256, batch 512",
}


def _rate(rate: float | None) -> str:
    return "not measured" if rate is None else f"{rate:,.0f}"


def peers(found: dict) -> list[str]:
    """Ours beside plain JAX and PyTorch."""
    lines = [
        "| model | seeds | precision | Mnemoscope | JAX | PyTorch | to JAX | to PyTorch | losses |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found["peers"]:
        ratios = []
        for who in ("jax", "torch"):
            low, middle, high = row["ratio"].get(who, (None,) * 3)
            told = "" if low is None else f"**{middle:.2f}** ({low:.2f} to {high:.2f})"
            ratios.append(told)
        losses = ", ".join(f"{row['losses'][who]:.3f}" for who in row["losses"])
        cores = row.get("cores")
        seeds = f"{row['seeds']:,}" + ("" if cores in (None, 1) else f", {cores} cores")
        lines.append(
            f"| {PEER_WORDS[row['model']]} | {seeds} | {row['precision']} | {_rate(row['ours'])} | "
            f"{_rate(row['jax'])} | {_rate(row['torch'])} | {ratios[0]} | {ratios[1]} | {losses} |"
        )
    return lines


def beside_peers(found: dict) -> list[str]:
    """The section of one machine's peers."""
    return [
        "Samples a second, all seeds together, data included: *JAX* is `benchmarks/peer_jax.py` "
        "(`vmap` over seeds, `scan`",
        "over steps, Optax), *PyTorch* `benchmarks/peer_torch.py` (stacked parameters, "
        "`scaled_dot_product_attention`, fused",
        "optimizer, `torch.compile`; on a CPU the faster of eager and compiled). Ours draws every "
        "sequence anew, the peers take",
        "rows of 8,192 that lie on the device. Medians of windows in turns; ratios with the least "
        "and the most of neighboring",
        "windows; losses after equal samples, in the order of the columns.",
        "",
        *peers(found),
        "",
    ]


def accelerator(found: dict) -> list[str]:
    """What one GPU does."""
    points = {int(n): seconds for n, seconds in found["growth"]["seeds"]}
    rates = {n: n * BATCH / seconds / 1e6 for n, seconds in points.items()}
    budget, blocks, memory = found["budget"], found["blocks"], found["growth"]["memory"]
    largest = max(points)
    return [
        "| seeds | step | million samples/s |",
        "|---|---|---|",
        *(f"| {n:,} | {1e6 * seconds:,.0f} µs | {rates[n]:.1f} |" for n, seconds in points.items()),
        "",
        f"- With norm, 1,024 seeds: {found['norm']['1024'] / 1e6:.1f} million samples/s.",
        "- 1,000 seeds of the paper's full budget (5 million samples each): "
        f"{budget['seconds']:.0f} s, of which the first {budget['first_stretch']:.0f} s are "
        f"compilation and the first stretch; {budget['finished']:,} seeds finished.",
        "- The induction model of `birth` at the paper's sizes (d=256, batch 512, 256 tokens), "
        f"its text included: {1e3 * found['birth']['1']:.1f} ms a step; "
        f"{1e3 * found['birth']['16']:.0f} ms for 16 seeds together.",
        f"- {evaluation(found, 'full')}",
        f"- Memory: {largest:,} seeds train in one block; the most in use in this run was "
        f"{memory['peak_bytes_in_use'] / 1e9:.1f} of {memory['bytes_limit'] / 1e9:.0f} GB.",
        "- 1,024 seeds with 0.3% of the memory: "
        f"{'; '.join(blocks['0.003']['told']) or 'nothing had to be cut'}. Losses of the first "
        f"100 steps differ from those of the uncut block by at most {blocks['apart']:.1g}.",
        "- Loss and gradient of the training's path against the plain forward pass on this "
        "device, at full float32 precision: "
        + "; ".join(
            f"norm {norm}: {each['loss']:.1g} and {each['gradient']:.1g} relative"
            for norm, each in found["agreement"].items()
        )
        + ". Training itself takes the device's default precision for products "
        "(TF32 on this GPU), as the plain pass does.",
    ]


def picture(all_found: dict[str, dict]) -> None:
    """Time of a step against each axis, both machines, with a line of slope one."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams |= {"svg.hashsalt": "mnemoscope", "font.size": 9, "svg.fonttype": "path"}
    figure, panels = plt.subplots(2, 2, figsize=(8.5, 6.4), layout="constrained")
    for panel, (axis, name) in zip(panels.flat, AXES.items(), strict=True):
        for kind, found in all_found.items():
            x, y = zip(*found["growth"][axis], strict=True)
            y = [1e6 * seconds for seconds in y]
            label = {"cpu": "2 CPU cores", "gpu": "one H200"}[kind]
            panel.loglog(x, y, "o-", color=COLORS[kind], label=label, markersize=4)
            panel.loglog(x, [y[-1] * n / x[-1] for n in x], ":", color=COLORS[kind], linewidth=1)
            if axis == "seeds":
                n, _ = saturation(found["growth"][axis])
                at = dict(found["growth"][axis])[n] * 1e6
                side = (
                    {"xytext": (6, -14), "ha": "left"}
                    if n < 64
                    else {"xytext": (-6, 8), "ha": "right"}
                )
                panel.annotate(
                    f"busy from {n}",
                    (n, at),
                    textcoords="offset points",
                    color=COLORS[kind],
                    **side,
                )
        panel.set_xlabel(name)
        panel.set_ylabel("µs a step")
        panel.grid(alpha=0.25)
        ticks: list[int] = []
        for n in sorted({int(n) for found in all_found.values() for n, _ in found["growth"][axis]}):
            if not ticks or n >= 1.4 * ticks[-1]:  # so that no two labels touch
                ticks.append(n)
        panel.set_xticks(ticks, [str(n) for n in ticks])
        panel.minorticks_off()
    panels[0, 0].legend(frameon=False)
    figure.suptitle("Time of a step (dotted: proportional to the axis)")
    figure.patch.set_facecolor("white")
    figure.savefig(HERE.parent / "docs" / "growth.svg", metadata={"Date": None})


def growth(all_found: dict[str, dict]) -> list[str]:
    """What the picture shows, in words."""
    lines = []
    for found in all_found.values():
        n, best = saturation(found["growth"]["seeds"])
        lines.append(
            f"- {found['hardware']}: busy (90% of its best rate, {best / 1e6:.2f} million "
            f"samples/s) from {n} seeds on; from there the time is proportional to the seeds."
        )
        width = found["growth"]["width"]
        (a, ta), (b, tb) = width[-2:]
        lines.append(
            f"  Doubling the width from {a} to {b} takes {tb / ta:.1f} times as long "
            "(the matrices have four times the entries)."
        )
    return lines


def write() -> None:
    """BENCHMARKS.md from what has been measured."""
    found = {
        kind: json.loads((HERE / f"{kind}.json").read_text())
        for kind in ("cpu", "gpu")
        if (HERE / f"{kind}.json").is_file()
    }
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench` from `benchmarks/cpu.json` and `benchmarks/gpu.json`; on a "
        "machine with a GPU the same command",
        "measures the second. The work: the `remember` model (V=5, one layer, d=32, two heads, "
        "feed-forward 64), batch 128, Adam,",
        "drawn, trained and read by the code that every study uses. Rates leave compilation out; "
        "seconds include it.",
        "",
    ]
    if "cpu" in found:
        lines += [
            "## Against the paper's loop",
            "",
            about(found["cpu"]),
            "",
            "The yardstick is `benchmarks/source_loop.py`, the study's training as people write "
            "it in PyTorch. Each measurement is",
            "a process of its own on the cores it may use; the rivals take turns. Medians of "
            "seven, ratios to the yardstick's.",
            "",
            *rivals(found["cpu"]),
            "",
            "## An induction model of long sequences",
            "",
            "The simplified model of `birth` at the paper's sizes: two layers, d=256, 256 tokens, "
            "batch 512. The yardstick is",
            "`benchmarks/birth_loop.py`. Medians of five, in turns.",
            "",
            *birth(found["cpu"]),
            "",
            "## Waiting",
            "",
            *waiting(found["cpu"]),
            "",
        ]
    if "peers" in found.get("cpu", {}):
        words = "## Beside plain JAX and PyTorch: one core"
        lines += [words, "", about(found["cpu"], "peers"), "", *beside_peers(found["cpu"])]
    if "gpu" in found:
        lines += ["## One GPU", "", about(found["gpu"]), "", *accelerator(found["gpu"]), ""]
    if "peers" in found.get("gpu", {}):
        words = "## Beside plain JAX and PyTorch: one GPU"
        lines += [words, "", about(found["gpu"], "peers"), "", *beside_peers(found["gpu"])]
    picture(found)
    lines += [
        "## Growth",
        "",
        "![Time of a step against seeds, width, length and vocabulary](docs/growth.svg)",
        "",
        *growth(found),
        "- Length and vocabulary: loss and gradient of random sequences, read at every second "
        "position (1 seed on the CPU, 256 on",
        "  the GPU). The fast rewrite covers up to 300 (position, token) pairs and its GPU kernel "
        "up to 64; beyond, the plain",
        "  pass takes over, where the curves bend.",
        "",
    ]
    (HERE.parent / "BENCHMARKS.md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))
