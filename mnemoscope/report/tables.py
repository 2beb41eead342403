"""The ledger for eyes: as a table in the terminal, as Markdown, and one claim with all its seeds."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mnemoscope.studies.claims import Entry, Ledger

VERDICT_STYLE = {"reproduced": "green", "partly": "yellow", "refuted": "red", "undecided": "dim"}


def none(entry: Entry) -> str:
    """What it means that a claim rests on no seeds."""
    return "-" if entry.value is None else "exact"


def summary(ledger: Ledger) -> str:
    """How many claims got which verdict, in words."""
    counts = Counter(entry.verdict for entry in ledger.claims)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICT_STYLE if counts[verdict])


def print_ledger(console: Console, ledger: Ledger) -> None:
    """The ledger as a table."""
    caption = f"{summary(ledger)} · {ledger.hardware} · {ledger.finished}"
    table = Table(title=escape(f"{ledger.study} ({ledger.scale})"), caption=escape(caption), title_justify="left",
                  caption_justify="left", show_lines=True)  # fmt: skip
    for heading, options in (
        ("claim", {"no_wrap": True}), ("verdict", {"no_wrap": True}), ("what was found", {"ratio": 1}),
        ("value [95%]", {"no_wrap": True}), ("source", {"max_width": 24}), ("seeds", {"justify": "right"}),
    ):  # fmt: skip
        table.add_column(heading, **options)  # pyright: ignore[reportArgumentType]
    for entry in ledger.claims:
        seeds = str(entry.seeds) if not entry.failed_seeds else f"{entry.seeds} ({entry.failed_seeds} failed)"
        table.add_row(
            escape(entry.id), f"[{VERDICT_STYLE[entry.verdict]}]{entry.verdict}[/]", escape(entry.sentence), entry.number(),
            escape(entry.source_figure), seeds if entry.seeds else none(entry),
        )  # fmt: skip
    console.print(table)


def markdown(ledger: Ledger) -> str:
    """The ledger as a Markdown file."""

    def cell(text: str) -> str:
        # a tag is markup in Markdown too; "<" before a space or a number is none
        return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text.replace("|", "\\|").replace("\n", " "))

    made = f"Measured on {ledger.hardware}, finished {ledger.finished}, with "
    lines = [
        cell(f"# {ledger.study} ({ledger.scale})"), "", f"{summary(ledger)}. {cell(made)}`{ledger.command.replace('`', ' ')}`.", "",
        "| claim | what is claimed | source | verdict | value [95%] | seeds | what was found | criterion |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for e in ledger.claims:
        cells = (e.id, e.statement, e.source_figure, f"**{e.verdict}**", e.number(), str(e.seeds or none(e)), e.sentence,
                 e.criterion)  # fmt: skip
        lines.append("| " + " | ".join(map(cell, cells)) + " |")
    versions = cell(", ".join(f"{name} {version}" for name, version in ledger.versions.items()))
    return "\n".join([*lines, "", f"Versions: {versions}.", ""])


def print_claim(console: Console, ledger: Ledger, entry: Entry, by_seed: Mapping[str, Sequence[float]]) -> None:
    """One claim whole: criterion, value, interval, sentence, and every seed's outcome."""
    rows = (
        ("claim", entry.statement), ("source", entry.source_figure), ("criterion", entry.criterion),
        ("verdict", f"{entry.verdict} ({ledger.scale} scale)"), ("value", entry.number()),
        ("seeds", f"{entry.seeds}, of which {entry.failed_seeds} diverged" if entry.seeds else f"none: {none(entry)}"),
        ("found", entry.sentence), ("measured", f"{ledger.finished} on {ledger.hardware}"),
    )  # fmt: skip
    grid = Table.grid(padding=(0, 2))
    for name, text in rows:
        style = VERDICT_STYLE[entry.verdict] if name == "verdict" else ""
        grid.add_row(f"[bold]{name}[/]", f"[{style}]{escape(text)}[/]" if style else escape(text))
    console.print(f"[bold]{escape(entry.id)}[/] of {escape(ledger.study)}")
    console.print(grid)
    if not by_seed:
        return
    columns = list(by_seed)
    length = max(len(values) for values in by_seed.values())
    table = Table(title="every seed that finished, in order", title_justify="left")
    for column in ("seed" if not entry.failed_seeds else "#", *columns):
        table.add_column(escape(column), justify="right")
    for row in range(length):
        table.add_row(str(row), *(f"{by_seed[c][row]:.4g}" if row < len(by_seed[c]) else "" for c in columns))
    console.print(table)
