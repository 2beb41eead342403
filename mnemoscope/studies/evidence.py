"""What measures a claim has before it: the trained conditions of one study at one scale.

Probes run on them once, and what they read is remembered.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np

from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.core.fingerprint import describe_origins, trained_by
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.probes.skills import over_seeds
from mnemoscope.studies.scales import Scale
from mnemoscope.studies.study import Condition
from mnemoscope.training.run import Run
from mnemoscope.verdicts.claim import PLAIN
from mnemoscope.verdicts.record import TrainedCondition


class Evidence:
    """Runs by condition name. `measure` runs a probe once on the seeds that finished."""

    def __init__(
        self, scale: Scale, conditions: Mapping[str, Condition], load_run: Callable[[str], Run]
    ):
        """Nothing is read before it is asked for.

        Args:
            scale: the scale at which the study runs.
            conditions: every condition of the scale, by name.
            load_run: the trained run of a condition.
        """
        self.scale: Scale = scale
        self.conditions = conditions
        self._load_run = load_run
        self._runs: dict[str, Run] = {}
        self._measured: dict[tuple[str, Callable[..., Any]], Any] = {}

    def __repr__(self) -> str:
        return f"<Evidence at {self.scale} scale: {short(tuple(self.conditions))}>"

    def run(self, name: str) -> Run:
        """The run of a condition, with all its seeds, the diverged ones too."""
        if name not in self.conditions:
            raise UserError(unknown("condition", name, self.conditions))
        if name not in self._runs:
            self._runs[name] = self._load_run(name)
        return self._runs[name]

    @fixed_numerics()
    def measure(self, name: str, probe: Callable[..., Any]) -> Any:
        """`probe(task, model, world)` for every finished seed of a condition.

        Arrays get a leading seed axis.
        """
        key = (name, probe)  # the function itself: two of them may have one name, or none
        if key not in self._measured:
            run = self.run(name)
            models, worlds = jax.tree.map(
                lambda x: np.asarray(x)[run.finished], (run.models(), run.worlds())
            )
            self._measured[key] = over_seeds(partial(probe, run.spec.task), models, worlds)
        return self._measured[key]

    def readings(self, name: str) -> dict[str, str]:
        """The conditions of each reading of the paper, by the reading: NAME, NAME/post, ..."""
        others = [other for other in self.conditions if other.startswith(f"{name}/")]
        return {PLAIN: name} | {other.removeprefix(f"{name}/"): other for other in others}

    def by_reading(self, name: str, measure: Callable[[str], Any]) -> dict[str, Any]:
        """What is measured of a condition, in every reading that was trained.

        Args:
            name: the condition of the plain reading.
            measure: of a condition's name.
        """
        return {reading: measure(other) for reading, other in self.readings(name).items()}

    def trained(self, names: tuple[str, ...]) -> dict[str, TrainedCondition]:
        """What was trained under these names, and how many seeds diverged."""
        return {name: _describe(self.run(name)) for name in names}

    def note(self, names: tuple[str, ...]) -> str:
        """What must be known of these conditions: which seeds diverged, and who else trained."""
        runs = {name: self.run(name) for name in names}
        diverged = {name: run.diverged() for name, run in runs.items()}
        left_out = "".join(
            f" Diverged in {name}: {each}." for name, each in diverged.items() if each
        )
        return (left_out + name_origins(runs)).strip()


def _describe(run: Run) -> TrainedCondition:
    return TrainedCondition(
        spec=run.spec.digest(),
        seeds=len(run.seeds),
        first_seed=min(run.seeds, default=0),
        failed=int((~run.finished).sum()),
    )


def name_origins(runs: Mapping[str, Run]) -> str:
    """A sentence on who trained these conditions.

    Empty where that is this program on one kind of device alone.
    """
    every_origin = (origin for run in runs.values() for origin in run.origins)
    origins = list(dict.fromkeys(every_origin))
    ours = trained_by().program()
    if len(origins) <= 1 and all(origin and origin.program() == ours for origin in origins):
        return ""
    names_by_origin = {text: _conditions_from(text, runs) for text in describe_origins(origins)}
    if len(names_by_origin) == 1:
        (text,) = names_by_origin
        return f" Trained by {text}, and judged by another."
    parts = [f"{text}: {', '.join(names)}" for text, names in names_by_origin.items()]
    return " Trained by " + "; ".join(parts) + "."


def _conditions_from(origin: str, runs: Mapping[str, Run]) -> list[str]:
    """The names of the conditions of which this origin, in words, trained at least a part."""
    return [name for name, run in runs.items() if origin in describe_origins(run.origins)]
