"""Evidence that nobody trained: runs with planted curves, weights and losses,
and what probes would have read.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np
import pytest
from compiled import init

from mnemoscope.models import parameter_shapes
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.runner import measure_claim
from mnemoscope.studies.study import Condition, Study
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.ledger import Entry, make_entry
from mnemoscope.verdicts.record import Provenance

SEEDS = 10
NOWHERE = Provenance(
    date="2026-11-19T00:00:00Z",
    command="mnemoscope run",
    hardware="none",
    versions={},
    code="planted",
    criterion="planted",
)


def planted(
    spec: Spec,
    seeds: int = SEEDS,
    *,
    metrics: Mapping[str, Any] | None = None,
    params: Any = None,
    losses: float = 0.0,
    finite_steps: Mapping[int, int] | None = None,
) -> Run:
    """A run of a Spec whose every seed finished, with what is asked for planted in it.

    `metrics` has what each evaluation of the Spec says: a row for all seeds, or a row for each.
    `params` are the weights of one model, which all seeds and snapshots then share, or a list with
    a model for each seed. `losses` is the mean loss at the last stop. `finite_steps` says after how
    many steps some seeds diverged.
    """
    done = np.full(seeds, spec.steps)
    for seed, steps in (finite_steps or {}).items():
        done[seed] = steps
    return Run(
        spec,
        tuple(range(seeds)),
        _snapshots(spec, seeds, params),
        np.array([spec.steps]),
        np.full((seeds, 1), losses),
        done,
        {name: _evals(spec, seeds, value) for name, value in (metrics or {}).items()},
    )


def _evals(spec: Spec, seeds: int, value: Any) -> np.ndarray:
    """What was observed, with its seed axis."""
    rows = np.asarray(value, float)
    evals = len(spec.eval_steps())
    if rows.shape[:2] == (seeds, evals):
        return rows
    if rows.shape[:1] != (evals,):
        raise ValueError(
            f"planted curves need {evals} evals, after an axis of {seeds} seeds or none, "
            f"got {rows.shape}"
        )
    return np.broadcast_to(rows, (seeds, *rows.shape))


def _snapshots(spec: Spec, seeds: int, params: Any) -> dict[str, np.ndarray]:
    """The same weights at every snapshot."""
    if params is None:
        return {}
    models = params if isinstance(params, list) else [params] * seeds
    if len(models) != seeds:
        raise ValueError(f"planted models need one for each of {seeds} seeds, got {len(models)}")
    stacked = {
        name: np.stack([np.asarray(model[name], np.float32) for model in models])
        for name in models[0]
    }
    snaps = len(spec.snapshot_steps())
    return {name: np.repeat(x[:, None], snaps, axis=1) for name, x in stacked.items()}


def silent(spec: Spec) -> dict[str, np.ndarray]:
    """The weights of a model that says the same to everything: all of them zero."""
    task = spec.task
    shapes = parameter_shapes(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out)
    return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}


def untrained(spec: Spec, seed: int = 0) -> dict[str, Any]:
    """The weights of a model as it is drawn."""
    task = spec.task
    return dict(
        init(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out, key=jax.random.key(seed))
    )


# what a probe read in every seed of a condition
Measured = Mapping[tuple[str, Callable[..., Any]], Any]


class PlantedEvidence(Evidence):
    """Evidence over planted runs; what `measured` has of a condition and a probe
    is not measured again.
    """

    def __init__(
        self,
        scale: Any,
        conditions: Mapping[str, Condition],
        runs: Mapping[str, Run],
        measured: Measured,
    ):
        def load_or_train(name: str) -> Run:
            return runs[name] if name in runs else pytest.fail(f"{name} would have been trained")

        super().__init__(scale, conditions, load_or_train)
        self.planted = dict(measured)

    def measure(self, name: str, probe: Callable[..., Any]) -> Any:
        """What was planted, or else what the probe reads in the planted models."""
        if (name, probe) in self.planted:
            return self.planted[name, probe]
        return super().measure(name, probe)


def evidence_of(
    runs: Mapping[str, Run] | None = None,
    scale: str = "full",
    *,
    measured: Measured | None = None,
    conditions: Mapping[str, Condition] | None = None,
) -> PlantedEvidence:
    """Evidence over planted runs and measurements;
    its conditions are those of the runs unless others are given.
    """
    runs = runs or {}
    if conditions is None:
        conditions = {name: Condition(run.spec, len(run.seeds)) for name, run in runs.items()}
    return PlantedEvidence(scale, conditions, runs, measured or {})


def rows_of(measured: Any, rows: Iterable[int]) -> Any:
    """What was measured in some models, as if these were the seeds:
    each named as often as there are seeds like it.

    In double precision: judges hand single numbers on to functions of a `float`,
    which a NumPy number of 32 bits is not.
    """
    chosen = np.array(list(rows))
    return jax.tree.map(lambda x: np.asarray(x, float)[chosen], measured)


def entry_of(study: Study, claim_id: str, evidence: Evidence) -> Entry:
    """What a claim comes to on this evidence, by its own function and the one rule."""
    (test,) = study.pick((claim_id,))
    finding = measure_claim(test, evidence, NOWHERE)
    return make_entry(test.claim, finding.record)
