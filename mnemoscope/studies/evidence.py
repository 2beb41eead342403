"""What a judge has before it: the trained settings of one study at one scale, and probes run on them once."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from mnemoscope.model import Transformer
from mnemoscope.probes.skills import over_seeds
from mnemoscope.studies.claims import Finding, Outcome, Scale, Setting
from mnemoscope.train import Run

MIN_SEEDS = 8  # fewer seeds than this settle nothing
MAX_FAILED = 0.1  # nor does a setting in which more than this share of seeds diverged


class Evidence:
    """Runs by setting name. `measure` runs a probe on the seeds that finished, once, and remembers the result."""

    def __init__(self, scale: Scale, settings: Mapping[str, Setting], obtain: Callable[[str], Run]):
        self.scale, self.settings, self._obtain = scale, settings, obtain
        self._runs: dict[str, Run] = {}
        self._measured: dict[tuple[str, str], Any] = {}

    def run(self, name: str) -> Run:
        """The run of a setting, with all its seeds, the diverged ones too."""
        if name not in self._runs:
            self._runs[name] = self._obtain(name)
        return self._runs[name]

    def measure(self, name: str, probe: Callable[..., Any]) -> Any:
        """`probe(task, model, world)` for every finished seed of a setting; arrays get a leading seed axis."""
        key = (name, probe.__name__)
        if key not in self._measured:
            run = self.run(name)
            models, worlds = jax.tree.map(lambda x: x[run.finished], (run.models(), run.worlds()))
            task = run.spec.task

            def one(model: Transformer, world: Any) -> Any:
                return probe(task, model, world)

            self._measured[key] = over_seeds(one)(models, worlds)
        return self._measured[key]

    def finding(self, names: tuple[str, ...], judge: Callable[["Evidence"], Outcome]) -> Finding:
        """Judge on these settings, unless they cannot settle anything: too few seeds, or too many diverged."""
        runs = {name: self.run(name) for name in names}
        seeds = min((len(run.seeds) for run in runs.values()), default=0)
        failed = {name: int((~run.finished).sum()) for name, run in runs.items()}
        total = {"seeds": seeds, "failed_seeds": sum(failed.values())}
        for name, run in runs.items():
            if len(run.seeds) - failed[name] < MIN_SEEDS or failed[name] > MAX_FAILED * len(run.seeds):
                sentence = (f"Undecided: {failed[name]} of {len(run.seeds)} seeds of {name} diverged, and a verdict needs "
                            f"{MIN_SEEDS} finished seeds and at most {MAX_FAILED:.0%} diverged.")  # fmt: skip
                return Finding(verdict="undecided", value=None, interval=None, sentence=sentence, **total)
        outcome = judge(self)
        if not np.isfinite([outcome.value, *outcome.interval]).all():
            raise ValueError(f"a judge measured {outcome.value} {outcome.interval}, which is not a finite number")
        by_seed = {k: tuple(float(f"{x:.6g}") for x in np.asarray(v, float)) for k, v in outcome.by_seed.items()}
        return Finding(**outcome._asdict() | {"by_seed": by_seed}, **total)
