"""docs/since-0.1.md: what each claim came to in 0.1 and now, and why they differ."""

from pathlib import Path

from mnemoscope.report.ledger_tables import escape_cell
from mnemoscope.studies.discover import all_claims
from mnemoscope.studies.ledger_files import read_ledger
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.ledger import Entry, Ledger

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results"
PAGE = HERE / "since-0.1.md"
INTRODUCTION = """\
# What changed since 0.1

Written by `python docs/changes.py` from [`results/0.1/`](../results/0.1),
[`results/full/`](../results/full) and each study's `claims.toml`; do not edit. Version 0.1 judged
62 claims by rules that each judge had of its own. Now criteria are data and one rule decides
([verdicts.md](verdicts.md)); some criteria tested another thing than the paper says and were
corrected, and statements without a claim got one. A claim whose full-scale ledger is still that of
0.1 has not been measured again.
"""
HEAD = (
    "| | claim | 0.1 | now | criterion |",
    "|---|---|---|---|---|",
)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page as Markdown."""
    return "\n".join([INTRODUCTION, *map(section, all_claims())])


def section(study: str) -> str:
    """One study: a row for each claim."""
    before = _entries(read_ledger(RESULTS / "0.1", study, "full"))
    ledger = read_ledger(RESULTS / "full", study, "full")
    now = _entries(ledger) if ledger and ledger.format > 1 else {}
    claims = all_claims()[study]
    rows = [row(claim, before.get(name), now.get(name)) for name, claim in claims.items()]
    return "\n".join([f"## `{study}`", "", *HEAD, *rows, ""])


def _entries(ledger: Ledger | None) -> dict[str, Entry]:
    """A ledger's entries by claim."""
    return {entry.id: entry for entry in ledger.claims} if ledger else {}


def row(claim: Claim, before: Entry | None, now: Entry | None) -> str:
    """One claim as a row of the table.

    Args:
        claim: As it is stated now.
        before: What 0.1 found.
        now: What the published ledger says, if it was measured again.
    """
    cells = (
        claim.id,
        claim.statement,
        _found(before) if before else "-",
        _found(now) if now else "not measured again",
        _what_changed(claim, before),
    )
    return "| " + " | ".join(map(escape_cell, cells)) + " |"


def _found(entry: Entry) -> str:
    """A verdict with its number."""
    return f"**{entry.verdict_in_words()}** {entry.number()}"


def _what_changed(claim: Claim, before: Entry | None) -> str:
    """How the criterion differs from 0.1's."""
    if before is None:
        return f"new, stated {claim.stated}{', ours' if claim.ours else ''}"
    reasons = [f"revised {each.date}: {each.why}" for each in claim.revised]
    if before.statement != claim.statement:
        reasons.append(f"0.1 tested: {before.statement}")
    return ". ".join(reasons) or "the same statement, judged by the one rule"


if __name__ == "__main__":
    main()
