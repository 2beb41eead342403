"""What is said of a sweep before it begins: cells, programs, time and disk."""

from collections.abc import Callable

from mnemoscope.store import Store
from mnemoscope.sweeps.engine import lacking
from mnemoscope.sweeps.estimate import Estimate, estimate, stored_bytes
from mnemoscope.sweeps.planned import Plan

Tell = Callable[[int, int], None]


def describe_plan(
    plan: Plan,
    store: Store | None,
    tell: Tell | None = None,
    is_estimated: bool = True,
    at_most: bool = False,
) -> list[str]:
    """The plan in lines of text; the time is measured, so this takes some seconds.

    Args:
        plan: of the sweep.
        store: where finished cells are.
        tell: hears how many programs are timed, and how many will be.
        is_estimated: whether the time is estimated, which is that of this machine.
        at_most: whether fewer seeds may be trained than there are.
    """
    wanted = [(cell, plan.seeds) for cell in plan.cells.values()]
    missing = lacking(plan, store, wanted)
    n_seeds = len(plan.seeds)
    size = " x ".join(f"{len(values)} {axis}" for axis, values in plan.axes.items())
    n_evals = len(plan.spec_of_first.eval_steps())
    lines = [
        f"{size} = {len(plan.cells):,} {_plural('cell', len(plan.cells))} of {n_seeds} "
        f"{_plural('seed', n_seeds)}",
        f"  event     {plan.event}, looked for at {n_evals} steps of each training",
    ]
    if store is not None:
        there = len(plan.cells) - len(missing)
        lines.append(f"  stored    {there:,} of {len(plan.cells):,} cells in {store.folder}")
    if not missing:
        return [*lines, "  time      nothing is to be trained"]
    chunks = list(plan.chunks(missing))
    n_programs = len({plan.program_of[cell.place] for cell, _ in missing})
    lines.append(
        f"  programs  {n_programs:,} by shape; what differs in numbers alone shares one, "
        f"{max(chunk.n_rows for chunk in chunks)} seeds at a time"
    )
    most = "at most " if at_most else ""
    if is_estimated:
        found = estimate(chunks, tell)
        assert found is not None
        lines.append(f"  time      {most}{_said(found)}")
    bytes_by_program = {
        plan.program_of[cell.place]: stored_bytes(cell.spec, n_seeds) for cell, _ in missing
    }
    n_bytes = sum(bytes_by_program[plan.program_of[cell.place]] for cell, _ in missing)
    where = "disk" if store is not None else "memory"
    lines.append(f"  {where:<8}  {most}about {size_in_words(n_bytes)}")
    return lines


def _said(found: Estimate) -> str:
    """An estimate in words, and on what it rests."""
    compiled = f"{found.programs} {_plural('compilation', found.programs)}"
    rests = f"timed on {found.timed} of them" if found.timed < found.programs else "timed on each"
    return f"about {seconds_in_words(found.seconds)} here ({compiled}, {rests})"


def seconds_in_words(seconds: float) -> str:
    """A time as a person would say it: 40 s, 12 min, 3.5 h.

    Args:
        seconds: how long.
    """
    if seconds < 90:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def size_in_words(n_bytes: int) -> str:
    """A size as a person would say it: 40 kB, 1.2 MB.

    Args:
        n_bytes: how many bytes.
    """
    for unit, name in ((10**9, "GB"), (10**6, "MB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:.1f} {name}"
    return f"{n_bytes / 1000:.0f} kB"


def _plural(noun: str, n: int) -> str:
    return noun if n == 1 else f"{noun}s"
