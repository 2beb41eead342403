"""How fast a training step is, as a table: each stage's time and share, and what they add up to."""

from rich.console import Console
from rich.table import Table

from mnemoscope.execution.machine import hardware
from mnemoscope.models.rewrites import gpu_kernel
from mnemoscope.models.rewrites.choose import REWRITES, choose_rewrite
from mnemoscope.training.profile import Profile

BAR = 24  # characters of a full bar


def print_profile(console: Console, title: str, found: Profile) -> None:
    """The stages of a step, in the order in which they run.

    Args:
        console: Where it is printed.
        title: What was profiled, in words.
        found: The times of its stages.
    """
    shape = found.spec.model.describe()
    if found.spec.precision != "default":
        shape = f"{shape}, precision {found.spec.precision}"
    table = Table(
        "stage",
        "time a step",
        "share",
        "",
        title=title,
        title_justify="left",
        caption_justify="left",
        caption=f"{shape}; batch {found.spec.batch}, {found.seeds} seeds; {hardware()}",
    )
    for stage, seconds in found.seconds.items():
        share = seconds / found.step
        bar = "█" * max(0, round(BAR * share))
        table.add_row(stage, f"{1e6 * seconds:,.0f} µs", f"{share:.0%}", bar)
    table.add_section()
    rate = f"{found.rate:,.0f} samples/s"
    table.add_row("one step", f"{1e6 * found.step:,.0f} µs", "100%", rate)
    console.print(table)
    for line in _passes(found):
        console.print(line, markup=False)
    compiling = sum(found.compile_seconds.values())
    slowest = max(found.spread.values())
    console.print(
        f"Compilation took {compiling:.1f} s; repeats differ by up to "
        f"{1e6 * slowest:,.0f} µs a step."
    )


def _passes(found: Profile) -> list[str]:
    """Which forward pass the training takes, and why it takes none of the others."""
    model = found.spec.model
    task = found.spec.task
    precision = found.spec.precision
    reads_trace = found.spec.loss.reads_trace
    taken = choose_rewrite(model, task, precision, reads_trace)
    plain = "plain, read after each layer" if task.reads_early else "plain"
    lines = [f"Forward pass: {taken.name if taken else plain}."]
    for rewrite in REWRITES:
        if rewrite is taken:
            lines += _attention_of_pair_tables(found) if rewrite.name == "pair tables" else []
            continue
        why_not = rewrite.why_not(model, task, precision, reads_trace)
        if why_not is None and taken is not None:
            why_not = f"{taken.name} come first"
        lines.append(f"Not {rewrite.name}: {why_not}.")
    return lines


def _attention_of_pair_tables(found: Profile) -> list[str]:
    """Whether the first layer's attention is one kernel."""
    task = found.spec.task
    n_pairs = task.n_ctx * task.d_vocab
    why_not = gpu_kernel.why_not(n_pairs, found.spec.model.d_head, found.spec.batch)
    if why_not is None:
        return ["Attention in the first layer: the GPU kernel."]
    return [f"Attention in the first layer: not the GPU kernel: {why_not}."]
