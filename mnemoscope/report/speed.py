"""A profile as a table: each stage's time and share, and what they add up to."""

from rich.console import Console
from rich.table import Table

from mnemoscope.execution.local import hardware
from mnemoscope.training.profile import Profile

BAR = 24  # characters of a full bar


def print_profile(console: Console, title: str, found: Profile) -> None:
    """The stages of a step, in the order in which they run."""
    model = found.spec.model
    shape = f"d_model {model.d_model}, heads {model.n_heads}, layers {model.n_layers}, norm {model.norm}"
    table = Table("stage", "time a step", "share", "", title=title, title_justify="left", caption_justify="left",
                  caption=f"{shape}; batch {found.spec.batch}, {found.seeds} seeds; {hardware()}")  # fmt: skip
    for stage, seconds in found.seconds.items():
        share = seconds / found.step
        bar = "█" * max(0, round(BAR * share))
        table.add_row(stage, f"{1e6 * seconds:,.0f} µs", f"{share:.0%}", bar)
    table.add_section()
    table.add_row("one step", f"{1e6 * found.step:,.0f} µs", "100%", f"{found.rate:,.0f} samples/s")
    console.print(table)
    slowest = max(found.spread.values())
    console.print(f"Compilation took {sum(found.compile_seconds.values()):.1f} s; repeats differ by up to "
                  f"{1e6 * slowest:,.0f} µs a step.")  # fmt: skip
