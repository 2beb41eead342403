"""The ledger for eyes: as a table in the terminal, and as Markdown.

And one claim with all its seeds.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from statistics import fmean, quantiles
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.core.theme import VERDICTS, Verdict
from mnemoscope.verdicts.ledger import Entry, Ledger

WIDE = 120  # columns from which a ledger is a table
FEW = 16  # seeds that are shown one by one without being asked for
COLUMNS = {  # of a ledger in the terminal, and how wide each may be
    "claim": {"no_wrap": True},
    "verdict": {"no_wrap": True},
    "what was found": {"ratio": 1},
    "value [95%]": {"no_wrap": True},
    "paper": {"max_width": 24},
    "rests on": {"max_width": 12},
}


def styled(verdict: Verdict, text: str = "") -> str:
    """A verdict in its color, in Rich's markup; or a text that begins with it."""
    return f"[{VERDICTS[verdict].terminal}]{text or verdict}[/]"


def summary(entries: Sequence[Entry]) -> str:
    """How many claims got which verdict, in words; what nobody claimed but us is counted apart."""
    theirs = _counts([entry for entry in entries if not entry.ours])
    ours = _counts([entry for entry in entries if entry.ours])
    own = f"of our own: {ours}" if ours else ""
    return "; ".join(filter(None, (theirs, own)))


def _counts(entries: Sequence[Entry]) -> str:
    counts = Counter(entry.verdict for entry in entries)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def print_ledger(console: Console, ledger: Ledger) -> None:
    """The ledger: a table, or on a narrow terminal one claim below the other."""
    title = escape(f"{ledger.study} ({ledger.scale})")
    caption = escape(f"{summary(ledger.claims)} · {ledger.hardware} · {ledger.finished}")
    if console.width < WIDE:
        _print_below_each_other(console, ledger, title, caption)
        return
    table = Table(
        title=title,
        caption=caption,
        title_justify="left",
        caption_justify="left",
        show_lines=True,
    )
    for heading, options in COLUMNS.items():
        table.add_column(heading, **options)  # pyright: ignore[reportArgumentType]
    for entry in ledger.claims:
        table.add_row(
            escape(entry.id),
            styled(entry.verdict, entry.verdict_in_words()),
            escape(entry.sentence),
            entry.number(),
            escape(entry.published),
            entry.units_in_words(),
        )
    console.print(table)


def _print_below_each_other(console: Console, ledger: Ledger, title: str, caption: str) -> None:
    """A claim's id and verdict beside its value and its sentence."""
    console.print(f"[italic]{title}[/]")
    table = Table(show_lines=True, expand=True)
    table.add_column("claim", no_wrap=True)
    table.add_column("what was found", ratio=1)
    for entry in ledger.claims:
        units = entry.units_in_words()
        numbers = [
            f"{entry.number()}, {units}" if units == "exact" else f"{entry.number()} on {units}"
        ]
        if entry.published not in ("", "-"):
            numbers.append(f"paper: {escape(entry.published)}")
        verdict, *firm = entry.verdict_in_words().split(", ")
        begin = [escape(entry.id), styled(entry.verdict, verdict), *firm]
        table.add_row("\n".join(begin), f"[bold]{'; '.join(numbers)}[/]\n{escape(entry.sentence)}")
    console.print(table)
    console.print(caption, highlight=False)


def escape_cell(text: str) -> str:
    """Text inside a Markdown table."""
    one_line = text.replace("|", "\\|").replace("\n", " ")
    # a tag is markup in Markdown too; "<" before a space or a number is none
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", one_line)


def _row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def markdown(ledger: Ledger) -> str:
    """The ledger as a Markdown file."""
    made = escape_cell(f"Measured on {ledger.hardware}, finished {ledger.finished}, with ")
    command = ledger.command.replace("`", " ")
    headings = (
        "claim",
        "what is claimed",
        "paper",
        "verdict",
        "value [95%]",
        "rests on",
        "what was found",
        "criterion",
    )
    lines = [
        escape_cell(f"# {ledger.study} ({ledger.scale})"),
        "",
        f"{summary(ledger.claims)}. {made}`{command}`.",
        "",
        _row(headings),
        "|" + "---|" * len(headings),
    ]
    for entry in ledger.claims:
        cells = (
            entry.id,
            entry.statement,
            entry.published,
            f"**{entry.verdict_in_words()}**",
            entry.number(),
            entry.units_in_words(),
            entry.sentence,
            entry.criterion,
        )
        lines.append(_row([escape_cell(each) for each in cells]))
    versions = ", ".join(f"{name} {version}" for name, version in ledger.versions.items())
    return "\n".join([*lines, "", f"Versions: {escape_cell(versions)}.", ""])


def describe_origin(ledger: Ledger, entry: Entry) -> str:
    """When and where a claim was measured, and by which rule it was judged."""
    if ledger.format == 1:
        return f"{ledger.finished} on {ledger.hardware}, judged by the rules of 0.1"
    origin = entry.provenance
    if origin is None:
        return "-"
    commit = f", commit {origin.commit[:10]}" if origin.commit else ""
    return f"{origin.date} on {origin.hardware}{commit}, code {origin.code}"


def print_claim(
    console: Console,
    ledger: Ledger,
    entry: Entry,
    by_seed: Mapping[str, Sequence[float | None]],
    advice: str = "",
    *,
    all_seeds: bool = False,
) -> None:
    """One claim: criterion, value, interval, sentence, and how its seeds' outcomes are spread.

    Args:
        console: Where it is printed.
        ledger: Whose claim it is.
        entry: The claim.
        by_seed: Each seed's outcomes, by series.
        advice: What would decide it, if that is known.
        all_seeds: Whether every seed has a row, however many there are.
    """
    rows = {
        "claim": escape(entry.statement),
        "paper": escape(entry.published),
        "criterion": escape(entry.criterion),
        "verdict": styled(entry.verdict, f"{entry.verdict_in_words()} ({ledger.scale} scale)"),
        "value": escape(entry.number()),
        "rests on": escape(entry.units_in_words()),
        "found": escape(entry.sentence),
        "measured": escape(describe_origin(ledger, entry)),
    }
    if advice:
        rows["to decide"] = escape(advice)
    grid = Table.grid(padding=(0, 2))
    for name, text in rows.items():
        grid.add_row(f"[bold]{name}[/]", text)
    console.print(f"[bold]{escape(entry.id)}[/] of {escape(ledger.study)}")
    console.print(grid)
    if not by_seed:
        return
    longest = max(len(values) for values in by_seed.values())
    first = _SeedColumn("#" if entry.failed else entry.unit, list(map(str, range(longest))))
    columns = [
        _SeedColumn(name, [_number_at(values, row) for row in range(longest)])
        for name, values in by_seed.items()
    ]
    sheets = _side_by_side(first, columns, console.width)
    # not what would be hard to read
    if all_seeds or (longest <= FEW and len(sheets) == 1):
        for sheet in sheets:
            console.print(_outcomes(sheet))
    else:
        console.print(_spread(by_seed, longest, console.width >= WIDE))


class _SeedColumn(NamedTuple):
    """One series as a column of a table."""

    heading: str
    cells: list[str]

    @property
    def width(self) -> int:
        """The least width at which nothing is cut off, borders included."""
        words = [*self.heading.split(), *self.cells]
        return max(map(len, words), default=0) + 3


def _side_by_side(
    first: _SeedColumn, columns: Sequence[_SeedColumn], width: int
) -> list[list[_SeedColumn]]:
    """The columns that fit beside each other, each time after the first one: that of the seeds."""
    sheets = [[first]]
    for column in columns:
        taken = sum(each.width for each in sheets[-1]) + 1
        if len(sheets[-1]) > 1 and taken + column.width > width:
            sheets.append([first])
        sheets[-1].append(column)
    return sheets


def _outcomes(columns: Sequence[_SeedColumn]) -> Table:
    """Every seed's outcomes, one seed a row; where some diverged, the first that finished need not
    be seed 0."""
    table = Table(title="every seed that finished, in order", title_justify="left")
    for column in columns:
        widest = max(map(len, column.cells), default=0)
        table.add_column(escape(column.heading), justify="right", min_width=widest)
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _spread(by_seed: Mapping[str, Sequence[float | None]], longest: int, is_wide: bool) -> Table:
    """How the outcomes of many seeds are spread, one series a row."""
    table = Table(
        title="over the seeds that finished",
        title_justify="left",
        caption=f"--seeds shows each of them ({longest:,})",
        caption_justify="left",
    )
    headings = ("mean", "lowest", "25%", "median", "75%", "highest")
    shown = range(6) if is_wide else (0, 1, 3, 5)
    table.add_column("", overflow="fold")
    for heading in ("seeds", *(headings[i] for i in shown)):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, values in by_seed.items():
        numbers = sorted(x for x in values if x is not None and isfinite(x))
        found: list[float] = []
        if len(numbers) > 1:
            quarters = quantiles(numbers, n=4, method="inclusive")
            found = [fmean(numbers), numbers[0], *quarters, numbers[-1]]
        cells = [_short(found[i]) for i in shown] if found else []
        table.add_row(escape(name), f"{len(numbers):,}", *cells)
    return table


def _number_at(values: Sequence[float | None], row: int) -> str:
    """One outcome as a person writes it; empty where there is none."""
    value = values[row] if row < len(values) else None
    return "" if value is None else _short(value)


def _short(number: float) -> str:
    """A number with four digits; what was rounded to nothing has no sign."""
    return f"{number + 0.0:.4g}"
