"""What H2, H3, H4 and H8 measure: what training on the hardest question, by a curriculum and on a
mixture does.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.hops.accuracy import (
    KNOWN,
    at_chance,
    at_end,
    curves,
    knows,
    named,
    paired,
    steps_to_know,
    task_of,
)
from mnemoscope.studies.library.hops.growth import (
    grow_at_most_as_k,
    grow_exponentially,
    powers_of_k,
)
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.studies.plot_data import Plots
from mnemoscope.training.run import Run
from mnemoscope.verdicts.claim import PLAIN

Steps = Mapping[int, Float[np.ndarray, "seed"]]  # by k; infinite where k hops are never known


def finite_steps(steps: Steps) -> dict[str, np.ndarray]:
    """For every k that some seed comes to know, the steps of the seeds that do.

    Args:
        steps: by k and seed.
    """
    known = {k: each_seed[np.isfinite(each_seed)] for k, each_seed in steps.items()}
    return {f"steps, k = {k}": each for k, each in known.items() if each.size}


def steps_by_k(runs: Mapping[int, Run]) -> dict[int, np.ndarray]:
    """Steps until k hops are known, of the seeds that finished at every k.

    Args:
        runs: what was trained, by k.
    """
    each = paired(*((run, steps_to_know(run, k)) for k, run in runs.items()))
    return dict(zip(runs, each, strict=True))


def measure_hard_training(evidence: Evidence) -> Measurement:
    """H2: how training on 4 hops alone ends, and how its steps grow with k.

    A seed fails if it ends within .1 of chance. Its growth is known where its steps are, at four k.
    """
    hard = evidence.by_reading("hard/k=4", evidence.run)
    mixture = evidence.by_reading("mixture/k=4", evidence.run)
    longest = evidence.run("long/k=4") if "long/k=4" in evidence.conditions else hard[PLAIN]
    runs = {1: evidence.run("hard/k=1"), 2: evidence.run("hard/k=2"), 4: longest}
    steps = steps_by_k(runs)
    # where 4 hops are never known, they take at least the longest training
    four = np.minimum(steps[4], longest.spec.steps)
    with np.errstate(invalid="ignore"):
        expected = steps[2] * (steps[2] / steps[1]) ** 2
    parts: dict[str, Any] = {
        "fails": {name: at_chance(run, 4) for name, run in hard.items()},
        "mixture": knows(mixture.pop(PLAIN), 4),
        "mixture of a reading": {name: knows(run, 4) for name, run in mixture.items()},
        "exponential": grow_exponentially(steps),
        "beyond two points": among(np.isfinite(expected), four >= expected),
        "knows after the longest training": knows(longest, 4),
    }
    for k in (1, 2):
        parts[f"steps, k = {k}"] = steps_to_know(runs[k], k)
    by_seed = {
        "hard only: 4 hops": at_end(hard[PLAIN], 4),
        "mixture: 4 hops": at_end(evidence.run("mixture/k=4"), 4),
    }
    plots = Plots(curves=curves(longest, "hard") | curves(runs[2], "k = 2"))
    return Measurement(parts, by_seed | finite_steps(steps), plots)


def _curricula(evidence: Evidence) -> dict[str, Run]:
    """The study's curriculum in every reading."""
    runs = evidence.by_reading("curriculum/pure", evidence.run)
    return runs | {"replay": evidence.run("curriculum/replay")}


def measure_curriculum(evidence: Evidence) -> Measurement:
    """H3: how many seeds know 4 hops after a curriculum from 1 to 2 to 4, pure and with replay."""
    runs = _curricula(evidence)
    parts = {
        "knows": {name: knows(run, 4) for name, run in runs.items()},
        "knew": {name: np.isfinite(steps_to_know(run, 4)) for name, run in runs.items()},
        "forgot 1 hop": {name: at_end(run, 1) < KNOWN for name, run in runs.items()},
    }
    by_seed: dict[str, np.ndarray] = {}
    drawn = {}
    for name, run in (("pure", runs[PLAIN]), ("replay", runs["replay"])):
        by_seed |= {f"{name}: {named(hops)}": at_end(run, hops) for hops in (1, 2, 4)}
        drawn |= curves(run, name)
    return Measurement(parts, by_seed, Plots(curves=drawn))


def measure_mixture(evidence: Evidence) -> Measurement:
    """H4: how many seeds know 4 hops after a mixture of 1, 2 and 4, and how its steps grow with k.

    A mixture of 1 hop is nothing but 1 hop.
    """
    mixtures = evidence.by_reading("mixture/k=4", evidence.run)
    runs = {1: evidence.run("hard/k=1")}
    for name in evidence.conditions:
        if name.startswith("mixture/") and name.count("/") == 1:
            runs[task_of(evidence.run(name)).k] = evidence.run(name)
    steps = steps_by_k(runs)
    at_least = {k: np.minimum(each, runs[k].spec.steps) for k, each in steps.items()}
    powers = powers_of_k(steps)
    parts: dict[str, Any] = {
        "knows": {name: knows(run, 4) for name, run in mixtures.items()},
        "at most as k": grow_at_most_as_k(steps, at_least),
        "power of k": among(np.isfinite(powers), powers),
    }
    for k, run in runs.items():
        parts[f"steps, k = {k}"] = steps_to_know(run, k)
    plain = mixtures[PLAIN]
    by_seed = {named(hops): at_end(plain, hops) for hops in (1, 2, 4)} | finite_steps(steps)
    return Measurement(parts, by_seed, Plots(curves=curves(plain, "mixture")))


def measure_only_by_curriculum(evidence: Evidence) -> Measurement:
    """H8: which seeds know 4 hops by a curriculum and not by the mixture.

    A seed hides the same permutations and starts from the same weights in both.
    """
    mixtures = evidence.by_reading("mixture/k=4", evidence.run)
    mixtures["replay"] = mixtures[PLAIN]
    only: dict[str, np.ndarray] = {}
    for name, run in _curricula(evidence).items():
        taught, mixed = paired((run, knows(run, 4)), (mixtures[name], knows(mixtures[name], 4)))
        only[name] = taught & ~mixed
    parts: dict[str, Any] = {
        "only by a curriculum": only,
        "by the mixture": {name: knows(run, 4) for name, run in mixtures.items()},
    }
    return Measurement(parts, {"mixture: 4 hops": at_end(mixtures[PLAIN], 4)})
