"""Two ledgers of one study side by side: does another machine, device or version come to the same verdicts?

Trainings on two devices round differently and part, as any two trainings do that differ in a last digit. What must be the same is
what they say, the verdict of every claim; how near their values and single seeds are stands beside it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.report.tables import VERDICT_STYLE
from mnemoscope.studies.claims import Entry, Ledger

CLOSE = 1e-2  # two outcomes of a seed are the same when they differ by less, absolutely or relatively
BySeed = Mapping[str, Sequence[float]]


class Pair(NamedTuple):
    """One claim in both ledgers."""

    one: Entry
    other: Entry
    near: int  # outcomes of single seeds that are the same in both
    outcomes: int  # of single seeds that both have

    @property
    def same(self) -> bool:
        """Whether both come to the same verdict."""
        return self.one.verdict == self.other.verdict

    @property
    def values(self) -> str:
        """How the two values lie to each other."""
        (a, one), (b, other) = ((entry.value, entry.interval) for entry in (self.one, self.other))
        if a is None or b is None or one is None or other is None:
            return "not measured twice"
        if max(abs(a), abs(b)) < 1e-9:
            return "both zero but for rounding"
        if np.isclose(a, b, rtol=1e-4):
            return "the same to four digits"
        return "intervals overlap" if one[0] <= other[1] and other[0] <= one[1] else "intervals apart"


def pairs(one: Ledger, other: Ledger, by_seed: Mapping[str, BySeed], other_by_seed: Mapping[str, BySeed]) -> list[Pair]:
    """Every claim that both ledgers have, in order."""
    known = {entry.id: entry for entry in other.claims}

    def pair(entry: Entry) -> Pair:
        mine, theirs, match = by_seed.get(entry.id, {}), other_by_seed.get(entry.id, {}), known[entry.id]
        # outcomes are those of seeds 0, 1, ... only where no seed is left out
        whole = [name for name in mine if len(mine[name]) == entry.seeds and len(theirs.get(name, ())) == match.seeds]
        if entry.failed_seeds or match.failed_seeds:
            whole = []
        both = [pair for name in whole for pair in zip(mine[name], theirs[name], strict=False)]
        return Pair(entry, match, sum(bool(np.isclose(*pair, rtol=CLOSE, atol=CLOSE)) for pair in both), len(both))

    return [pair(entry) for entry in one.claims if entry.id in known]


def print_pairs(console: Console, one: Ledger, other: Ledger, found: Sequence[Pair]) -> None:
    """Both ledgers as one table."""
    differ = [pair.one.id for pair in found if not pair.same]
    said = f"verdicts differ: {', '.join(differ)}" if differ else f"the same verdict on all {len(found)} claims"
    table = Table(
        title=escape(f"{one.study} ({one.scale})"), title_justify="left", caption=escape(said), caption_justify="left"
    )
    for heading in (
        "claim",
        one.hardware,
        other.hardware,
        "value [95%]",
        "value [95%]",
        "values",
        f"outcomes within {CLOSE:.0%}",
    ):
        table.add_column(escape(heading))
    for pair in found:
        style = [f"[{VERDICT_STYLE[entry.verdict]}]{entry.verdict}[/]" for entry in (pair.one, pair.other)]
        near = f"{pair.near:,} of {pair.outcomes:,}" if pair.outcomes else "-"
        table.add_row(escape(pair.one.id), *style, pair.one.number(), pair.other.number(), pair.values, near)
    console.print(table)
