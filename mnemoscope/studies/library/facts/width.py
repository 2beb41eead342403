"""F6: which of three models with as many parameters store the same facts."""

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.facts.conditions import NARROW, NARROW_MLP, OTHER_RATES, WIDE
from mnemoscope.studies.library.facts.sweep import LEVEL
from mnemoscope.studies.measurement import InconclusiveError, Measurement, among
from mnemoscope.training.run import Run

MODELS = {  # the conditions of each; the best counts
    "narrow, attention only": (NARROW, *OTHER_RATES),
    "narrow, with MLP": (NARROW_MLP,),
    "wide, attention only": (WIDE,),
}


def _best_accuracy(run: Run) -> Float[np.ndarray, "seed"]:
    """The best accuracy of each seed at any evaluation; minus infinity for one that diverged."""
    return np.where(run.finished, run.metrics["accuracy"].max(axis=1), -np.inf)


def measure_width(evidence: Evidence) -> Measurement:
    """F6: whether each seed answers 99% of the facts at some evaluation."""
    if NARROW not in evidence.conditions:
        raise InconclusiveError("It is trained at full scale only.")
    parts = {}
    by_seed = {}
    for name, conditions in MODELS.items():
        best = np.max([_best_accuracy(evidence.run(each)) for each in conditions], axis=0)
        finished = np.isfinite(best)
        parts[name] = among(finished, best >= LEVEL)
        parts[f"best accuracy, {name}"] = among(finished, best)
        by_seed[name] = best[finished]
    return Measurement(parts, by_seed)
