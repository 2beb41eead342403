"""RESULTS.md: every claim with its verdict, from the published full-scale ledgers."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from mnemoscope.core.theme import VERDICTS

HERE = Path(__file__).parent
LEDGERS = HERE.parent / "results" / "full"
PAGE = HERE.parent / "RESULTS.md"

# the order of the page, and the papers as CITATION.cff has them
STUDIES = {
    "remember": "Can a Tiny Transformer Learn to Remember? (permutation study)",
    "walk": "A walk through a two-dimensional transformer on the pattern ABC",
    "birth": (
        "Birth of a Transformer: A Memory Viewpoint (Bietti, Cabannes, Bouchacourt, Jegou, Bottou; "
        "2023, [arXiv:2306.00802](https://arxiv.org/abs/2306.00802))"
    ),
    "memories": (
        "Scaling Laws for Associative Memories (Cabannes, Dohmatob, Bietti; 2023, "
        "[arXiv:2310.02984](https://arxiv.org/abs/2310.02984)) and slides on memory in transformers"
    ),
    "facts": (
        "Understanding Factual Recall in Transformers via Associative Memories "
        "(Nichani, Lee, Bietti; 2024, [arXiv:2412.06538](https://arxiv.org/abs/2412.06538))"
    ),
    "noise": (
        "Distributional Associations vs In-Context Reasoning (Chen, Bruna, Bietti; 2024, "
        "[arXiv:2406.03068](https://arxiv.org/abs/2406.03068))"
    ),
    "hops": (
        "Learning Compositional Functions with Transformers from Easy-to-Hard Data "
        "(Wang and others; 2025, [arXiv:2505.23683](https://arxiv.org/abs/2505.23683))"
    ),
    "language": "N4: the paper of `noise`. L1 to L3 are ours, asked of a real language model",
}
INTRODUCTION = """\
# Results

Written by `python docs/results.py` from [`results/full/`](results/full); do not edit.

`measured` is the claim's main value with its 95% interval; the last column says what it is ("the
source" in it is the paper). A dash under seeds: the ledger counts no seeds for this claim. Criteria
are in each study's `claims.toml`, written before the runs; [FINDINGS.md](FINDINGS.md) says what was
changed after looking, and what surprised us. One claim with its criterion and every seed:
`.venv/bin/mnemoscope show R13`.
"""
HEAD = (
    "| | claim | verdict | measured [95%] | the paper says | seeds | in words |",
    "|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Write RESULTS.md."""
    PAGE.write_text(page(read_ledgers()), encoding="utf-8")


def read_ledgers() -> list[dict[str, Any]]:
    """The full-scale ledgers, in the order of the page."""
    return [json.loads((LEDGERS / f"{study}.json").read_text("utf-8")) for study in STUDIES]


def page(ledgers: list[dict[str, Any]]) -> str:
    """The whole page as Markdown."""
    claims = [claim for ledger in ledgers for claim in ledger["claims"]]
    total = f"All {len(claims)} claims: {count_verdicts(claims)}.\n"
    return "\n".join([INTRODUCTION, total, *map(section, ledgers)])


def section(ledger: dict[str, Any]) -> str:
    """One study: its paper, how it was measured, and a row for each claim."""
    study = ledger["study"]
    failed = sum(claim["failed_seeds"] for claim in ledger["claims"])
    diverged = f"{failed} seeds diverged" if failed else "no seed diverged"
    lines = [
        f"## `{study}`",
        "",
        f"Paper: {STUDIES[study]}.",
        "",
        f"**{count_verdicts(ledger['claims'])}.** Scale: {ledger['scale']}; {diverged}. "
        f"Hardware: {ledger['hardware']}. Finished: {ledger['finished'][:10]}. "
        f"Command: `{ledger['command']}`. "
        f"Data: [`results/full/{study}.json`](results/full/{study}.json).",
        "",
        *HEAD,
        *map(row, ledger["claims"]),
        "",
    ]
    return "\n".join(lines)


def row(claim: dict[str, Any]) -> str:
    """One claim as a row of the table."""
    cells = (
        claim["id"],
        claim["statement"],
        f"**{claim['verdict']}**",
        measured(claim),
        claim["source_figure"],
        str(claim["seeds"] or "-"),
        claim["sentence"],
    )
    return "| " + " | ".join(map(escape, cells)) + " |"


def measured(claim: dict[str, Any]) -> str:
    """The value with its interval, four digits of each; no interval where it has no width."""
    if claim["value"] is None or claim["interval"] is None:
        return "not measured"
    value = number(claim["value"])
    low = number(claim["interval"][0])
    high = number(claim["interval"][1])
    return value if low == high else f"{value} [{low}, {high}]"


def number(value: float) -> str:
    """A number in four digits, a large one in whole numbers with commas."""
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def count_verdicts(claims: list[dict[str, Any]]) -> str:
    """How many claims got which verdict, in words."""
    counts = Counter(claim["verdict"] for claim in claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def escape(text: str) -> str:
    """Text for a cell: no bar, no line break, no tag."""
    plain = text.replace("|", "\\|").replace("\n", " ")
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", plain)


if __name__ == "__main__":
    main()
