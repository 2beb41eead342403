"""The ledger for eyes: as a table in the terminal, and as Markdown.

And one claim with all its seeds.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.core.theme import VERDICTS, Verdict
from mnemoscope.verdicts.ledger import Entry, Ledger

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
    """The ledger as a table."""
    caption = f"{summary(ledger.claims)} · {ledger.hardware} · {ledger.finished}"
    table = Table(
        title=escape(f"{ledger.study} ({ledger.scale})"),
        caption=escape(caption),
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
) -> None:
    """One claim whole: criterion, value, interval, sentence, and every seed's outcome.

    Args:
        console: Where it is printed.
        ledger: Whose claim it is.
        entry: The claim.
        by_seed: Each seed's outcomes, by series.
        advice: What would decide it, if that is known.
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
    if by_seed:
        console.print(_outcomes(entry, by_seed))


def _outcomes(entry: Entry, by_seed: Mapping[str, Sequence[float | None]]) -> Table:
    """Every seed's outcomes, one seed a row."""
    table = Table(title="every seed that finished, in order", title_justify="left")
    # where some diverged, the first that finished need not be seed 0
    first = "#" if entry.failed else entry.unit
    for column in (first, *by_seed):
        table.add_column(escape(column), justify="right")
    longest = max(len(values) for values in by_seed.values())
    for row in range(longest):
        table.add_row(str(row), *(_number_at(values, row) for values in by_seed.values()))
    return table


def _number_at(values: Sequence[float | None], row: int) -> str:
    """One outcome as a person writes it; empty where there is none."""
    value = values[row] if row < len(values) else None
    return "" if value is None else f"{value:.4g}"
