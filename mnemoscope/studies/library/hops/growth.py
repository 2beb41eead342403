"""How steps grow with k, seed by seed; and what H6 and H7 measure of it.

A seed that never comes to know k hops has taken at least its whole training. Where that settles
what is asked of the seed it counts, and elsewhere nothing is known of the seed, which leaves the
part open.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.hops.accuracy import curves, paired, steps_to_know, task_of
from mnemoscope.studies.measurement import InconclusiveError, Measurement, among
from mnemoscope.studies.plot_data import Plots
from mnemoscope.training.run import Run
from mnemoscope.verdicts.claim import PLAIN

MOST_POWER = 1.1  # of k: what a fit to a few k may be off is allowed for
FEWEST_K = 4  # by which an exponential can be told from a power


def _weights(numbers: Mapping[int, Any]) -> Float[np.ndarray, "k"]:
    """What each log t counts for in the slope of log t against log k."""
    logs = np.log(np.array(list(numbers), float))
    centered = logs - logs.mean()
    return centered / (centered**2).sum()


def powers_of_k(
    steps: Mapping[int, Float[np.ndarray, "seed"]],
) -> Float[np.ndarray, "seed"]:
    """Each seed's slope of log steps against log k; infinite where some k is never known.

    Args:
        steps: by k and seed, infinite where k hops are never known.
    """
    table = np.stack(list(steps.values()))
    known = np.isfinite(table).all(axis=0)
    found = np.full(table.shape[1], np.inf)
    found[known] = _weights(steps) @ np.log(table[:, known])
    return found


def grow_at_most_as_k(
    steps: Mapping[int, Float[np.ndarray, "seed"]],
    at_least: Mapping[int, Float[np.ndarray, "seed"]],
) -> Float[np.ndarray, "seed"]:
    """1 where steps grow with a power of k below 1.1, 0 where they do not, NaN where nobody knows.

    Args:
        steps: by k and seed, infinite where k hops are never known.
        at_least: the same, with the least that they can be where they are infinite.
    """
    weights = _weights(steps)
    table = np.stack(list(steps.values()))
    lowest = weights @ np.log(np.stack(list(at_least.values())))
    censored = ~np.isfinite(table)
    # more steps at a small k would flatten the slope
    is_bound = ~(censored & (weights[:, None] < 0)).any(axis=0)
    is_known = ~censored.any(axis=0) | (is_bound & (lowest >= MOST_POWER))
    return np.where(is_known, lowest < MOST_POWER, np.nan)


def grow_exponentially(
    steps: Mapping[int, Float[np.ndarray, "seed"]],
) -> Float[np.ndarray, "seed"]:
    """1 where each further hop costs at least as large a factor as the hop before, 0 where not, and
    NaN where steps are not known at four k.

    Args:
        steps: by k and seed, infinite where k hops are never known.
    """
    numbers = np.array(list(steps), float)
    table = np.stack(list(steps.values()))
    known = np.isfinite(table).all(axis=0) & (len(numbers) >= FEWEST_K)
    found = np.full(table.shape[1], np.nan)
    factors = np.diff(np.log(table[:, known]), axis=0) / np.diff(numbers)[:, None]
    found[known] = (np.diff(factors, axis=0) >= 0).all(axis=0)
    return found


# ---- two hops and one


def measure_two_hops(evidence: Evidence) -> Measurement:
    """H6: which seeds come to know 2 hops strictly later than 1, or never.

    Each trained alone, in a model of log2 k + 1 layers; and both in one mixture.
    """
    one = evidence.run("hard/k=1")
    two = evidence.run("hard/k=2")
    mixture = evidence.run("mixture/k=2")
    alone_one, alone_two = paired((one, steps_to_know(one, 1)), (two, steps_to_know(two, 2)))
    mixed_one = steps_to_know(mixture, 1)
    mixed_two = steps_to_know(mixture, 2)
    parts = {
        "each alone": alone_two > alone_one,
        "in one mixture": mixed_two > mixed_one,
        "steps of 1 hop alone": alone_one,
        "steps of 2 hops alone": alone_two,
        "steps of 1 hop in the mixture": mixed_one,
        "steps of 2 hops in the mixture": mixed_two,
    }
    shown = {name: x for name, x in parts.items() if name.startswith("steps")}
    by_seed = {name: x[np.isfinite(x)] for name, x in shown.items() if np.isfinite(x).any()}
    return Measurement(parts, by_seed, Plots(curves=curves(mixture, "mixture, k = 2")))


# ---- a curriculum


def steps_in_stages(run: Run) -> tuple[Float[np.ndarray, "seed"], Float[np.ndarray, "seed"]]:
    """The steps that a curriculum's stages needed, and the least that they can have needed.

    A stage needs what passes from its begin until its hops are known, and all of itself where they
    are not known by its end. Where the last stage's never are, nobody knows: the first is infinite.

    Args:
        run: trained by a curriculum.
    """
    task = task_of(run)
    begins = np.array([begin for begin, _ in task.schedule] + [run.spec.steps], float)
    known = np.stack([steps_to_know(run, 2**level) for level in range(task.levels)])
    lengths = np.diff(begins)[:, None]
    at_least = np.clip(known - begins[:-1, None], 0, lengths).sum(axis=0)
    return np.where(np.isfinite(known[-1]), at_least, np.inf), at_least


def measure_curriculum_growth(evidence: Evidence) -> Measurement:
    """H7: how the steps that a curriculum's stages need grow with k, pure and with replay."""
    if "curriculum/k=8/pure" not in evidence.conditions:
        raise InconclusiveError("Curricula of other k than 4 are trained at full scale only.")
    names = {PLAIN: "pure", "replay": "replay"}
    at_most: dict[str, Any] = {}
    power: dict[str, Any] = {}
    by_seed: dict[str, np.ndarray] = {}
    for reading, name in names.items():
        needed, at_least = _stages_by_k(evidence, name)
        powers = powers_of_k(needed)
        at_most[reading] = grow_at_most_as_k(needed, at_least)
        power[reading] = among(np.isfinite(powers), powers)
        for k, steps in needed.items():
            if np.isfinite(steps).any():
                by_seed[f"{name}, k = {k}"] = steps[np.isfinite(steps)]
    return Measurement({"at most as k": at_most, "power of k": power}, by_seed)


def _stages_by_k(
    evidence: Evidence, name: str
) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """`steps_in_stages` for every k, of the seeds that finished at all of them."""
    alone = evidence.run("hard/k=1")
    steps = steps_to_know(alone, 1)
    measured = [(alone, (steps, np.minimum(steps, alone.spec.steps)))]
    numbers = [1]
    for k in (2, 4, 8):
        run = evidence.run(f"curriculum/{name}" if k == 4 else f"curriculum/k={k}/{name}")
        measured.append((run, steps_in_stages(run)))
        numbers.append(k)
    needed = paired(*((run, both[0]) for run, both in measured))
    at_least = paired(*((run, both[1]) for run, both in measured))
    return dict(zip(numbers, needed, strict=True)), dict(zip(numbers, at_least, strict=True))
