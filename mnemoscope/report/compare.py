"""Two ledgers of one study side by side.

Does another machine, device or version come to the same verdicts?

Trainings on two devices round differently and part, as any two trainings do that differ in a last
digit. What must be the same is what they say, the verdict of every claim; how near their values and
single seeds are stands beside it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.report.ledger_tables import styled
from mnemoscope.studies.claims import Entry, Ledger

# two outcomes of a seed are the same when they differ by less, absolutely or relatively
CLOSE = 1e-2
BySeed = Mapping[str, Sequence[float]]


class Pair(NamedTuple):
    """One claim in both ledgers."""

    one: Entry
    other: Entry
    near: int
    """Outcomes of single seeds that are the same in both."""
    outcomes: int
    """Of single seeds, that both have."""

    @property
    def same(self) -> bool:
        """Whether both come to the same verdict."""
        return self.one.verdict == self.other.verdict

    @property
    def values(self) -> str:
        """How the two values lie to each other."""
        a = self.one.value
        b = self.other.value
        one = self.one.interval
        other = self.other.interval
        if a is None or b is None or one is None or other is None:
            return "not measured twice"
        if max(abs(a), abs(b)) < 1e-9:
            return "both zero but for rounding"
        if np.isclose(a, b, rtol=1e-4):
            return "the same to four digits"
        overlap = one[0] <= other[1] and other[0] <= one[1]
        return "intervals overlap" if overlap else "intervals apart"


def _shared(one: Entry, other: Entry, mine: BySeed, theirs: BySeed) -> list[tuple[float, float]]:
    """The outcomes of seeds that both ledgers have, of one claim."""
    if one.failed_seeds or other.failed_seeds:
        return []
    shared = []
    for name, values in mine.items():
        others = theirs.get(name, ())
        # outcomes are those of seeds 0, 1, ... only where no seed is left out
        if len(values) == one.seeds and len(others) == other.seeds:
            shared += zip(values, others, strict=False)
    return shared


def pairs(
    one: Ledger,
    other: Ledger,
    by_seed: Mapping[str, BySeed],
    other_by_seed: Mapping[str, BySeed],
) -> list[Pair]:
    """Every claim that both ledgers have, in order.

    Args:
        one: The first ledger.
        other: The second.
        by_seed: Each seed's outcomes in the first, by claim.
        other_by_seed: The same in the second.
    """
    known = {entry.id: entry for entry in other.claims}
    found = []
    for entry in one.claims:
        if entry.id not in known:
            continue
        match = known[entry.id]
        mine = by_seed.get(entry.id, {})
        theirs = other_by_seed.get(entry.id, {})
        both = _shared(entry, match, mine, theirs)
        near = sum(bool(np.isclose(a, b, rtol=CLOSE, atol=CLOSE)) for a, b in both)
        found.append(Pair(entry, match, near, len(both)))
    return found


def print_pairs(console: Console, one: Ledger, other: Ledger, found: Sequence[Pair]) -> None:
    """Both ledgers as one table.

    Args:
        console: Where it is printed.
        one: The first ledger.
        other: The second.
        found: Their claims, side by side.
    """
    differ = [pair.one.id for pair in found if not pair.same]
    said = f"the same verdict on all {len(found)} claims"
    if differ:
        said = f"verdicts differ: {', '.join(differ)}"
    table = Table(
        title=escape(f"{one.study} ({one.scale})"),
        title_justify="left",
        caption=escape(said),
        caption_justify="left",
    )
    headings = (
        "claim",
        one.hardware,
        other.hardware,
        "value [95%]",
        "value [95%]",
        "values",
        f"outcomes within {CLOSE:.0%}",
    )
    for heading in headings:
        table.add_column(escape(heading))
    for pair in found:
        table.add_row(
            escape(pair.one.id),
            styled(pair.one.verdict),
            styled(pair.other.verdict),
            pair.one.number(),
            pair.other.number(),
            pair.values,
            f"{pair.near:,} of {pair.outcomes:,}" if pair.outcomes else "-",
        )
    console.print(table)
