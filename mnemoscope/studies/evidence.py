"""What a judge has before it: the trained conditions of one study at one scale.

Probes run on them once, and what they read is remembered.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from mnemoscope.core.fingerprint import describe_origins, trained_by
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import over_seeds
from mnemoscope.studies.claims import Condition, Finding, InconclusiveError, Outcome, Scale
from mnemoscope.training.run import Run

MIN_SEEDS = 8  # fewer seeds than this settle nothing
MAX_FAILED = 0.1  # nor does a condition in which more than this share of seeds diverged


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


class Evidence:
    """Runs by condition name. `measure` runs a probe once on the seeds that finished."""

    def __init__(
        self, scale: Scale, conditions: Mapping[str, Condition], load_or_train: Callable[[str], Run]
    ):
        """Nothing is trained or read before it is asked for.

        Args:
            scale: the scale at which the study runs.
            conditions: every condition of the scale, by name.
            load_or_train: trains a condition, or reads it from the store.
        """
        self.scale = scale
        self.conditions = conditions
        self._load_or_train = load_or_train
        self._runs: dict[str, Run] = {}
        self._measured: dict[tuple[str, Callable[..., Any]], Any] = {}

    def run(self, name: str) -> Run:
        """The run of a condition, with all its seeds, the diverged ones too."""
        if name not in self._runs:
            self._runs[name] = self._load_or_train(name)
        return self._runs[name]

    @fixed_numerics()
    def measure(self, name: str, probe: Callable[..., Any]) -> Any:
        """`probe(task, model, world)` for every finished seed of a condition.

        Arrays get a leading seed axis.
        """
        key = (name, probe)  # the function itself: two of them may have one name, or none
        if key not in self._measured:
            run = self.run(name)
            task = run.spec.task
            models, worlds = jax.tree.map(
                lambda x: np.asarray(x)[run.finished], (run.models(), run.worlds())
            )

            def one(model: Transformer, world: Any) -> Any:
                return probe(task, model, world)

            self._measured[key] = over_seeds(one, models, worlds)
        return self._measured[key]

    @fixed_numerics()
    def finding(self, names: tuple[str, ...], judge: Callable[["Evidence"], Outcome]) -> Finding:
        """Judge on these conditions, unless they cannot settle anything.

        They cannot if there are too few seeds, or too many diverged.
        """
        runs = {name: self.run(name) for name in names}
        left_out = _name_diverged(runs) + name_origins(runs)
        why_not = _too_few_seeds(runs)
        if why_not:
            return _undecided(runs, f"{why_not}{left_out}")
        try:
            outcome = judge(self)
        except InconclusiveError as why:
            return _undecided(runs, f"{why}{left_out}")
        why_not = _not_finite(outcome)
        if why_not:
            return _undecided(runs, f"{why_not}{left_out}")
        return _decided(runs, outcome, f"{outcome.sentence}{left_out}")


def _n_failed(run: Run) -> int:
    """How many seeds diverged."""
    return int((~run.finished).sum())


def _n_trained(runs: Mapping[str, Run]) -> int:
    """How many seeds every condition has; 0 where nothing is trained."""
    # other readings of a condition (task/shape/reading) back a verdict up;
    # its seeds are those of the plain reading
    plain = [run for name, run in runs.items() if name.count("/") < 2]
    return min((len(run.seeds) for run in plain), default=0)


def _name_diverged(runs: Mapping[str, Run]) -> str:
    """A sentence for each condition of which seeds diverged, and so are left out."""
    diverged = {name: run.diverged() for name, run in runs.items()}
    return "".join(f" Diverged in {name}: {seeds}." for name, seeds in diverged.items() if seeds)


def _too_few_seeds(runs: Mapping[str, Run]) -> str:
    """Why the first condition that cannot settle anything cannot; empty where all can."""
    for name, run in runs.items():
        n_seeds = len(run.seeds)
        n_failed = _n_failed(run)
        if n_seeds - n_failed >= MIN_SEEDS and n_failed <= MAX_FAILED * n_seeds:
            continue
        many = f"{name} has {n_seeds} seeds"
        if n_failed:
            many = f"{n_failed} of {n_seeds} seeds of {name} diverged"
        return (
            f"{many}; a verdict needs {MIN_SEEDS} that finished, "
            f"and at most {MAX_FAILED:.0%} that diverged."
        )
    return ""


def _not_finite(outcome: Outcome) -> str:
    """Why an outcome with a number that is not finite settles nothing; empty where all are."""
    whole = f", {outcome.value} {outcome.interval}"
    measured: list[tuple[str, Any]] = [(whole, [outcome.value, *outcome.interval])]
    measured += [(f" as {name!r}", values) for name, values in outcome.by_seed.items()]
    for what, values in measured:
        if not np.isfinite(np.asarray(values, float)).all():
            return f"What was measured{what} is not a finite number everywhere and settles nothing."
    return ""


def _undecided(runs: Mapping[str, Run], sentence: str) -> Finding:
    """The finding of a judgment that settled nothing: the sentence says why."""
    return Finding(
        verdict="undecided",
        value=None,
        interval=None,
        seeds=_n_trained(runs),
        failed_seeds=sum(map(_n_failed, runs.values())),
        sentence=sentence,
    )


def _decided(runs: Mapping[str, Run], outcome: Outcome, sentence: str) -> Finding:
    """The finding of a judge's outcome, six digits of every seed's."""
    by_seed = {
        name: tuple(float(f"{x:.6g}") for x in np.asarray(values, float))
        for name, values in outcome.by_seed.items()
    }
    # where nothing is trained, seeds are those of what was drawn and measured
    n_measured = max(map(len, by_seed.values()), default=0)
    return Finding(
        plots=outcome.plots,
        verdict=outcome.verdict,
        value=outcome.value,
        interval=outcome.interval,
        seeds=_n_trained(runs) or n_measured,
        failed_seeds=sum(map(_n_failed, runs.values())),
        sentence=sentence,
        by_seed=by_seed,
    )
