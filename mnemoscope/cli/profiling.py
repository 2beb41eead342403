"""The command `profile`: where the time of a training step goes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mnemoscope.cli.console import make_console
from mnemoscope.cli.options import TrainedScale
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.limits import MAX_SEEDS
from mnemoscope.studies.scales import Scale

if TYPE_CHECKING:
    from mnemoscope.studies.study import Condition


def profile(
    study: Annotated[str, tyro.conf.Positional],
    /,
    condition: str = "",
    scale: TrainedScale = "quick",
    seeds: int = 0,
    trace: Path | None = None,
) -> None:
    """Say where the time of a training step goes: drawing the batch, loss, gradient, optimizer.

    Args:
        study: The study whose training is timed, by its name or folder.
        condition: One of the study's conditions. Nothing: its largest at this scale.
        seeds: Seeds trained together. 0: one for each device, or the condition's own number on an
            accelerator.
        trace: Also write a trace of 20 steps into this folder, for Perfetto or TensorBoard.
    """
    name, chosen = _choose_condition(study, condition, scale)
    if not 0 <= seeds <= MAX_SEEDS:
        raise UserError(f"--seeds must be 1 to {MAX_SEEDS:,} (or 0 for the default), got {seeds}")

    from mnemoscope.execution.machine import use_all_devices

    use_all_devices()  # before anything asks JAX for its devices
    from mnemoscope.core.working import Working
    from mnemoscope.report.profile_table import print_profile
    from mnemoscope.training.profile import profile as measure
    from mnemoscope.training.profile import write_trace

    n_seeds = seeds or _default_seeds(chosen)
    console = make_console()
    with Working(console, "compiling") as working:
        found = measure(chosen.spec, n_seeds, tell=working.doing)
        if trace:
            working.doing("tracing 20 steps")
            write_trace(chosen.spec, n_seeds, trace)
    print_profile(console, f"{study}, {name} ({scale})", found)
    if trace:
        console.print(
            f"Written: {trace} (open it at ui.perfetto.dev or with TensorBoard)", markup=False
        )


def _choose_condition(study: str, name: str, scale: Scale) -> "tuple[str, Condition]":
    """The condition of this name, or else the one with the widest model."""
    from mnemoscope.studies.discover import find_study

    conditions = find_study(study).list_conditions(scale)
    if not conditions:
        raise UserError(f"study {study!r} trains no transformer, so there is no step to profile")
    if name and name not in conditions:
        raise UserError(unknown("condition", name, conditions))
    chosen = name or max(conditions, key=lambda name: conditions[name].spec.model.relative_cost)
    return chosen, conditions[chosen]


def _default_seeds(condition: "Condition") -> int:
    """As many seeds as a training would take at once: one a core, or all on an accelerator."""
    import jax

    return jax.device_count() if jax.default_backend() == "cpu" else condition.seeds
