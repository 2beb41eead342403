"""RESULTS.md: every claim with its verdict, from the published full-scale ledgers."""

from pathlib import Path

from mnemoscope.report.ledger_tables import escape_cell, summary
from mnemoscope.studies.ledger_files import read_ledger
from mnemoscope.verdicts.ledger import Entry, Ledger

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

`measured` is the number that the verdict is about with its 95% interval; the last column says what
it is. A verdict is **firm** if it is the same at 99.9%. `mnemoscope verify` derives every verdict
again from its evidence; those marked 0.1 were decided by judges of version 0.1, and their evidence
does not suffice for that. Criteria are in each study's `claims.toml`; [FINDINGS.md](FINDINGS.md)
says what was changed after looking, and what surprised us. One claim with its criterion and every
seed: `.venv/bin/mnemoscope show R13`.
"""
HEAD = (
    "| | claim | verdict | measured [95%] | the paper says | rests on | in words |",
    "|---|---|---|---|---|---|---|",
)


def main() -> None:
    """Write RESULTS.md."""
    PAGE.write_text(page(read_all()), encoding="utf-8")


def read_all() -> list[Ledger]:
    """The full-scale ledgers, in the order of the page."""
    found = [read_ledger(LEDGERS, study, "full") for study in STUDIES]
    return [ledger for ledger in found if ledger is not None]


def page(ledgers: list[Ledger]) -> str:
    """The whole page as Markdown."""
    everything = [entry for ledger in ledgers for entry in ledger.claims]
    total = f"All {len(everything)} claims: {summary(everything)}.\n"
    return "\n".join([INTRODUCTION, total, *map(section, ledgers)])


def section(ledger: Ledger) -> str:
    """One study: its paper, how it was measured, and a row for each claim."""
    failed = sum(entry.failed for entry in ledger.claims)
    diverged = f"{failed} seeds diverged" if failed else "no seed diverged"
    judged = " Judged by the rules of 0.1." if ledger.format == 1 else ""
    lines = [
        f"## `{ledger.study}`",
        "",
        f"Paper: {STUDIES[ledger.study]}.",
        "",
        f"**{summary(ledger.claims)}.** Scale: {ledger.scale}; {diverged}. "
        f"Hardware: {ledger.hardware}. Finished: {ledger.finished[:10]}. "
        f"Command: `{ledger.command}`.{judged} "
        f"Data: [`results/full/{ledger.study}.json`](results/full/{ledger.study}.json).",
        "",
        *HEAD,
        *map(row, ledger.claims),
        "",
    ]
    return "\n".join(lines)


def row(entry: Entry) -> str:
    """One claim as a row of the table."""
    cells = (
        entry.id,
        entry.statement,
        f"**{entry.verdict_in_words()}**",
        entry.number(),
        entry.published,
        entry.units_in_words(),
        entry.sentence,
    )
    return "| " + " | ".join(map(escape_cell, cells)) + " |"


if __name__ == "__main__":
    main()
