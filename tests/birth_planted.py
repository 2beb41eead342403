"""Evidence for the birth study that nobody trained: curves that rise where a test says."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from planted import PlantedEvidence, entry_of, evidence_of, planted

from mnemoscope.probes.threshold_steps import above_chance
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.birth.conditions import build_conditions
from mnemoscope.studies.library.birth.curves import EARLY, EARLY_AMONG_ALL, LATE
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.ledger import Entry

STUDY = find_study("birth")

N = 40  # seeds, enough for the rule to decide a share
STEPS = 100
UNFREEZE = 30
NEVER = 500.0
FULL = build_conditions("full")

Curves = Mapping[str, np.ndarray]


def ramp(at: float, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """A curve that rises from low to high between the steps at - 10 and at + 10:
    half of it is there at `at`.
    """
    evals = np.arange(STEPS + 1)
    return low + (high - low) * np.clip((evals - at + 10) / 20, 0, 1)


def flat(value: float) -> np.ndarray:
    """A curve that stays where it is."""
    return np.full(STEPS + 1, value)


def memories(
    output: float, second: float, first: float, late: float = NEVER, candidates: int = 5
) -> dict[str, np.ndarray]:
    """Recalls that start at chance and get half formed at the given steps."""
    return {
        "output memory": ramp(output, 1 / 65),
        "second keys": ramp(second, 1 / candidates),
        EARLY: ramp(first, 1 / 63),
        EARLY_AMONG_ALL: ramp(first, 1 / 256),
        LATE: ramp(late, 1 / 256),
        "accuracy": ramp(60, 0.02),
    }


def mixed(*groups: tuple[int, Curves]) -> dict[str, np.ndarray]:
    """So many seeds with these curves, so many with those."""
    names = groups[0][1]
    return {name: np.stack([g[name] for n, g in groups for _ in range(n)]) for name in names}


def watched_spec(name: str) -> Spec:
    """The Spec of a condition at full scale, with an evaluation at every one of few steps."""
    spec = FULL[name].spec
    unfreeze_at = tuple((each, UNFREEZE) for each, _ in spec.unfreeze_at)
    return spec.model_copy(update={"steps": STEPS, "n_evals": STEPS, "unfreeze_at": unfreeze_at})


def shown(
    curves: Mapping[str, Curves],
    measured: Mapping[Any, Any] | None = None,
    scale: str = "full",
    diverged: Mapping[str, int] | None = None,
) -> PlantedEvidence:
    """Evidence whose models were never trained: each seed shows the given curves, by condition."""
    runs = {
        name: planted(
            watched_spec(name),
            N,
            metrics=series,
            finite_steps=dict.fromkeys(range((diverged or {}).get(name, 0)), 1),
        )
        for name, series in curves.items()
    }
    return evidence_of(runs, scale, measured=measured)


def entry(claim: str, curves: Mapping[str, Curves], **other: Any) -> Entry:
    """What a claim comes to where models show these curves."""
    return entry_of(STUDY, claim, shown(curves, **other))


def states(found: Entry, reading: str = "plain") -> dict[str, str]:
    """Where every part is that decides something: a zone, or several."""
    return {
        part.name: " or ".join(part.state)
        for part in found.parts
        if part.role != "beside" and part.reading == reading
    }


def value_of(found: Entry, name: str, reading: str = "plain") -> float | None:
    """What was measured of a part."""
    (part,) = (each for each in found.parts if (each.name, each.reading) == (name, reading))
    return part.value


def above(recall: float, candidates: int) -> float:
    """A recall above chance."""
    return float(above_chance(np.array(recall), candidates))
