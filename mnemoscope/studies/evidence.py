"""What a judge has before it: the trained settings of one study at one scale, and probes run on them once."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from mnemoscope.core.fingerprint import described, trained_by
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import over_seeds
from mnemoscope.studies.claims import Finding, NotSettledError, Outcome, Pictures, Scale, Setting, Verdict
from mnemoscope.training.run import Run

MIN_SEEDS = 8  # fewer seeds than this settle nothing
MAX_FAILED = 0.1  # nor does a setting in which more than this share of seeds diverged


def name_origins(runs: Mapping[str, Run]) -> str:
    """A sentence on who trained these settings, where that is not this program on one kind of device alone."""
    origins = list(dict.fromkeys(origin for run in runs.values() for origin in run.origins))
    ours = trained_by().program()
    if len(origins) <= 1 and all(origin and origin.program() == ours for origin in origins):
        return ""
    by = {text: [name for name, run in runs.items() if text in described(run.origins)] for text in described(origins)}
    if len(by) == 1:
        return f" Trained by {next(iter(by))}, and judged by another."
    return " Trained by " + "; ".join(f"{text}: {', '.join(names)}" for text, names in by.items()) + "."


class Evidence:
    """Runs by setting name. `measure` runs a probe on the seeds that finished, once, and remembers the result."""

    def __init__(self, scale: Scale, settings: Mapping[str, Setting], obtain: Callable[[str], Run]):
        self.scale, self.settings, self._obtain = scale, settings, obtain
        self._runs: dict[str, Run] = {}
        self._measured: dict[tuple[str, Callable[..., Any]], Any] = {}

    def run(self, name: str) -> Run:
        """The run of a setting, with all its seeds, the diverged ones too."""
        if name not in self._runs:
            self._runs[name] = self._obtain(name)
        return self._runs[name]

    @fixed_numerics()
    def measure(self, name: str, probe: Callable[..., Any]) -> Any:
        """`probe(task, model, world)` for every finished seed of a setting; arrays get a leading seed axis."""
        key = (name, probe)  # the function itself: two of them may have one name, or none
        if key not in self._measured:
            run = self.run(name)
            models, worlds = jax.tree.map(lambda x: np.asarray(x)[run.finished], (run.models(), run.worlds()))
            task = run.spec.task

            def one(model: Transformer, world: Any) -> Any:
                return probe(task, model, world)

            self._measured[key] = over_seeds(one, models, worlds)
        return self._measured[key]

    @fixed_numerics()
    def finding(self, names: tuple[str, ...], judge: Callable[["Evidence"], Outcome]) -> Finding:
        """Judge on these settings, unless they cannot settle anything: too few seeds, or too many diverged."""
        runs = {name: self.run(name) for name in names}
        # other readings of a setting (task/shape/reading) back a verdict up; its seeds are those of the plain reading
        trained = min((len(run.seeds) for name, run in runs.items() if name.count("/") < 2), default=0)
        failed = {name: int((~run.finished).sum()) for name, run in runs.items()}
        left_out = "".join(f" Diverged in {name}: {lost}." for name, run in runs.items() if (lost := run.diverged()))
        left_out += name_origins(runs)

        def found(outcome: Outcome | None, sentence: str, verdict: Verdict) -> Finding:
            by_seed = {} if outcome is None else outcome.by_seed
            # where nothing is trained, seeds are those of what was drawn and measured
            seeds = trained or max(map(len, by_seed.values()), default=0)
            return Finding(
                pictures=outcome.pictures if outcome else Pictures(), verdict=verdict,
                value=outcome and outcome.value, interval=outcome and outcome.interval, seeds=seeds,
                failed_seeds=sum(failed.values()), sentence=sentence,
                by_seed={k: tuple(float(f"{x:.6g}") for x in np.asarray(v, float)) for k, v in by_seed.items()},
            )  # fmt: skip

        for name, run in runs.items():
            if len(run.seeds) - failed[name] < MIN_SEEDS or failed[name] > MAX_FAILED * len(run.seeds):
                many = (
                    f"{failed[name]} of {len(run.seeds)} seeds of {name} diverged"
                    if failed[name]
                    else f"{name} has {len(run.seeds)} seeds"
                )
                why = f"{many}; a verdict needs {MIN_SEEDS} that finished, and at most {MAX_FAILED:.0%} that diverged."
                return found(None, f"{why}{left_out}", "undecided")
        try:
            outcome = judge(self)
        except NotSettledError as why:
            return found(None, f"{why}{left_out}", "undecided")
        measured = {"": [outcome.value, *outcome.interval], **outcome.by_seed}
        for name, values in measured.items():
            if not np.isfinite(np.asarray(values, float)).all():
                what = f" as {name!r}" if name else f", {outcome.value} {outcome.interval}"
                why = f"What was measured{what} is not a finite number everywhere and settles nothing."
                return found(None, f"{why}{left_out}", "undecided")
        return found(outcome, f"{outcome.sentence}{left_out}", outcome.verdict)
