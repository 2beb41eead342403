"""R16, R18 and R26: is it a second head, the width, or the training that a skill needs?"""

from typing import Any

import numpy as np

from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import (
    PLAIN_WIDE,
    SMALL,
    SMALL_FAST,
    SMALL_LONG,
    SMALL_SLOW,
    SMALL_TWO,
    SMALL_TWO_LONG,
    TWO,
    WIDE,
    WIDER,
)
from mnemoscope.studies.library.remember.mastery import (
    MASTERED,
    elimination_rate,
    full_only,
    in_other_readings,
    in_readings,
    masters,
    of_same_seeds,
    recall,
    that_master_both,
)
from mnemoscope.studies.measurement import Groups, Measurement

TRAININGS = {
    "rate 3e-4": SMALL_SLOW,
    "rate 1e-3": SMALL,
    "rate 3e-3": f"{SMALL}/lr3e-3",
    "rate 1e-2": SMALL_FAST,
    "five times the steps": SMALL_LONG,
    "two heads": SMALL_TWO,
    "two heads, rate 3e-3": f"{SMALL_TWO}/lr3e-3",
    "two heads, five times the steps": SMALL_TWO_LONG,
}
"""Every training of d=16 with repeats, without a norm."""
WITH_NORM = {"one head": f"{SMALL}/post", "two heads": f"{SMALL_TWO}/post"}
"""The same with a norm after each sum."""


def plain_names(evidence: Evidence, start: str, end: str = "") -> list[str]:
    """The conditions of the plain reading whose names begin and end so.

    Args:
        evidence: What there is.
        start: How the name begins.
        end: How it ends.
    """
    return [
        name
        for name in evidence.conditions
        if name.startswith(start) and name.endswith(end) and name.count("/") == 1
    ]


def measure_head_or_width(evidence: Evidence) -> Measurement:
    """R16: what a second head, and what twice the width, adds to the share of seeds that recall."""

    def learned(name: str) -> np.ndarray:
        return recall(evidence, name) >= MASTERED

    def compare(one: str, other: str) -> dict[str, Groups]:
        return in_readings(
            evidence, (one, other), lambda *names: Groups(*(learned(name) for name in names))
        )

    parts = {
        "second head": compare(TWO, WIDE),
        "head instead of width": compare(TWO, WIDER),
        "twice the width": Groups(learned(WIDER), learned(WIDE)),
        "masters both": that_master_both(evidence, TWO),
    }
    grid = plain_names(evidence, "repeat/d")
    for name in grid:
        parts[f"learn, {name.removeprefix('repeat/')}"] = learned(name)
    by_seed = {f"recall {name}": recall(evidence, name) for name in grid}
    return Measurement(parts, by_seed)


def smallest_width(evidence: Evidence, names: dict[int, str]) -> np.ndarray:
    """The smallest width at which each seed eliminates; infinite if it does at none.

    Args:
        evidence: What there is.
        names: Conditions by width.
    """
    rates = {name: evidence.measure(name, elimination_rate) for name in names.values()}
    aligned = of_same_seeds(evidence, rates)
    widths = np.array([[d] for d in names], float)
    works = np.stack([aligned[name] >= MASTERED for name in names.values()])
    return np.where(works, widths, np.inf).min(axis=0)


def measure_dimensions(evidence: Evidence) -> Measurement:
    """R18: the smallest width at which a seed eliminates, trained at every width."""
    ladder = {
        evidence.conditions[name].spec.model.d_model: name
        for name in plain_names(evidence, "plain/d", "h1")
    }
    parts = {
        "smallest width": in_readings(
            evidence,
            tuple(ladder.values()),
            lambda *names: smallest_width(evidence, dict(zip(ladder, names, strict=True))),
        )
    }
    # the widest of a ladder shows whether a reading learns at all
    parts["eliminates at d=32"] = (
        in_other_readings(
            evidence,
            (PLAIN_WIDE,),
            lambda name: evidence.measure(name, elimination_rate) >= MASTERED,
        )
        if PLAIN_WIDE in evidence.conditions
        else {}
    )
    rates = {d: evidence.measure(name, elimination_rate) for d, name in ladder.items()}
    for d, rate in rates.items():
        parts[f"d={d}"] = rate >= MASTERED
    return Measurement(parts, {f"step 5 accuracy, d={d}": rate for d, rate in rates.items()})


def measure_capacity(evidence: Evidence) -> Measurement:
    """R26: seeds of d=16 that master both skills in any of several trainings, and in each."""
    full_only(evidence, *TRAININGS.values())

    def able(trainings: dict[str, str]) -> dict[str, np.ndarray]:
        return of_same_seeds(
            evidence, {name: masters(evidence, name) for name in trainings.values()}
        )

    def in_none(trainings: dict[str, str]) -> np.ndarray:
        return ~np.any(list(able(trainings).values()), axis=0)

    parts: dict[str, Any] = {
        "in no training": {"plain": in_none(TRAININGS), "post": in_none(WITH_NORM)}
    }
    for what, name in TRAININGS.items():
        parts[what] = masters(evidence, name)
    by_seed = {f"recall, {what}": recall(evidence, name) for what, name in TRAININGS.items()}
    return Measurement(parts, by_seed)
