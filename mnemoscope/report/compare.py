"""Two ledgers of one study side by side.

Does another machine, device or version come to the same? Two answers stand beside each claim:
whether the verdicts are the same, and whether what was measured may be the same number, by a
two-sample comparison at 1% of the part that decides (`mnemoscope.verdicts.planning`). Trainings
on two devices round differently and part, as any two trainings do that differ in a last digit; how
near single seeds are stands beside it.

A quick ledger is put beside the published full one. It trains less, so its verdicts may differ; the
claims say where its numbers are no estimate of the published ones.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.core.errors import counted
from mnemoscope.core.theme import VERDICTS
from mnemoscope.report.ledger_tables import styled
from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.ledger import Entry, Ledger
from mnemoscope.verdicts.planning import compare_records
from mnemoscope.verdicts.record import Record, Series

# two outcomes of a seed are the same when they differ by less, absolutely or relatively
CLOSE = 1e-2
Answer = Literal["agrees", "differs", "not comparable", "not measured"]
ANSWERS: tuple[Answer, ...] = ("agrees", "differs", "not comparable", "not measured")


class Results(NamedTuple):
    """A ledger with what lies beside it."""

    ledger: Ledger
    records: Mapping[str, Record]
    """By claim; none of a ledger of 0.1."""
    series: Mapping[str, Series]
    """What figures show, by claim."""


class Pair(NamedTuple):
    """One claim in both ledgers."""

    one: Entry
    other: Entry
    answer: Answer
    """Whether both may have measured the same number."""
    why: str
    """Why they cannot be compared, where they cannot."""
    near: int
    """Outcomes of single seeds that are the same in both."""
    outcomes: int
    """Of single seeds, that both have."""

    @property
    def same(self) -> bool:
        """Whether both come to the same verdict."""
        return self.one.verdict == self.other.verdict


def pair_entries(one: Results, other: Results, claims: Mapping[str, Claim]) -> list[Pair]:
    """Every claim that both ledgers have, in order.

    Args:
        one: the first ledger.
        other: the second.
        claims: of the study, by id.
    """
    known = {entry.id: entry for entry in other.ledger.claims}
    found: list[Pair] = []
    for entry in one.ledger.claims:
        if entry.id not in known:
            continue
        match = known[entry.id]
        answer, why = _compare(one, other, claims.get(entry.id), entry.id)
        both = _shared(one, other, entry, match)
        near = sum(bool(np.isclose(a, b, rtol=CLOSE, atol=CLOSE)) for a, b in both)
        found.append(Pair(entry, match, answer, why, near, len(both)))
    return found


def _compare(one: Results, other: Results, claim: Claim | None, name: str) -> tuple[Answer, str]:
    """Whether two measurements of a claim may be of the same number, and why nobody can say."""
    if 1 in (one.ledger.format, other.ledger.format):
        return "not comparable", "0.1 kept too little of what it measured"
    if claim is None:
        return "not comparable", "this version does not know the claim"
    if one.ledger.scale != other.ledger.scale and claim.not_comparable:
        return "not comparable", claim.not_comparable
    if name not in one.records or name not in other.records:
        return "not measured", "its evidence is missing"
    agrees = compare_records(claim, one.records[name], other.records[name])
    if agrees is None:
        return "not measured", "one of them has no number"
    return ("agrees" if agrees else "differs"), ""


def _shared(one: Results, other: Results, entry: Entry, match: Entry) -> list[tuple[float, float]]:
    """The outcomes of seeds that both ledgers have, of one claim."""
    starts = [
        {condition.first_seed for condition in each.conditions.values()} for each in (entry, match)
    ]
    if entry.failed or match.failed or starts[0] != starts[1]:
        return []  # the same place in both is not the same seed
    mine = one.series.get(entry.id, Series()).by_seed
    theirs = other.series.get(entry.id, Series()).by_seed
    return [
        (a, b)
        for name, values in mine.items()
        for a, b in zip(values, theirs.get(name, ()), strict=False)
        if a is not None and b is not None
    ]


def count_answers(found: Sequence[Pair], not_judged: int = 0) -> str:
    """How many claims agree, in words.

    Args:
        found: the claims that both ledgers have.
        not_judged: how many the first one lacks.
    """
    counts = Counter(pair.answer for pair in found)
    words = {"agrees": "agree", "differs": "differ"}
    parts = [f"{counts[answer]} {words.get(answer, answer)}" for answer in ANSWERS[:3]]
    return f"{', '.join(parts)}, {counts['not measured'] + not_judged} not measured"


def print_pairs(console: Console, one: Ledger, other: Ledger, found: Sequence[Pair]) -> None:
    """Both ledgers as one table.

    Args:
        console: Where it is printed.
        one: The first ledger.
        other: The second.
        found: Their claims, side by side.
    """
    differ = [pair.one.id for pair in found if not pair.same]
    # of one claim "all" would be odd
    said = f"the same verdict on {'all ' * (len(found) > 1)}{counted(len(found), 'claim')}"
    if differ:
        said = f"verdicts differ: {', '.join(differ)}"
    if one.scale != other.scale:
        said = count_answers(found)
    table = Table(
        title=escape(f"{one.study} ({one.scale}) beside {other.scale} of {other.finished[:10]}"),
        title_justify="left",
        caption=escape(said),
        caption_justify="left",
    )
    for heading in ("", "this", "measured [95%]", "that", "measured [95%]", "", "seeds"):
        is_verdict = heading in ("this", "that")
        table.add_column(heading, min_width=max(map(len, VERDICTS)) + 1 if is_verdict else None)
    for pair in found:
        table.add_row(
            escape(pair.one.id),
            styled(pair.one.verdict, pair.one.verdict_in_words()),
            pair.one.number(),
            styled(pair.other.verdict, pair.other.verdict_in_words()),
            pair.other.number(),
            pair.answer,
            f"{pair.near:,} of {pair.outcomes:,}" if pair.outcomes else "-",
        )
    console.print(table)
    console.print(
        f"this: {one.hardware}; that: {other.hardware}; seeds: outcomes within {CLOSE:.0%}",
        markup=False,
        highlight=False,
    )
    for why in dict.fromkeys(pair.why for pair in found if pair.why):
        names = ", ".join(pair.one.id for pair in found if pair.why == why)
        console.print(f"{names}: {why}", markup=False, highlight=False)
