"""How often answers to so many hops are right, and when a model knows them.

All of it is read off the evaluations of a training, by seed, of the seeds that finished.
"""

import numpy as np

from mnemoscope.core.axes import Bool, Float
from mnemoscope.studies.plot_data import Curve
from mnemoscope.tasks import Hops
from mnemoscope.training.run import Run

KNOWN = 0.9  # so many hops are known when this share of the answers is right
NEAR = 0.1  # so far from chance is no better than guessing


def named(hops: int) -> str:
    """So many hops, as a person writes it."""
    return "1 hop" if hops == 1 else f"{hops} hops"


def task_of(run: Run) -> Hops:
    """The run's task, which must be hops."""
    if not isinstance(run.spec.task, Hops):
        raise ValueError(f"this reads runs of the task 'hops', got {run.spec.task.kind_name()!r}")
    return run.spec.task


def read_accuracy(run: Run, hops: int) -> Float[np.ndarray, "seed eval"]:
    """Accuracy on so many hops at every evaluation, for the seeds that finished."""
    return run.metrics[f"{hops} hops"][run.finished]


def at_end(run: Run, hops: int) -> Float[np.ndarray, "seed"]:
    """The same after the last step."""
    return read_accuracy(run, hops)[:, -1]


def at_chance(run: Run, hops: int) -> Bool[np.ndarray, "seed"]:
    """Which seeds end within .1 of guessing."""
    return np.abs(at_end(run, hops) - 1 / task_of(run).n) <= NEAR


def steps_to_know(run: Run, hops: int) -> Float[np.ndarray, "seed"]:
    """The first evaluation at which so many hops are known; infinite where they never are."""
    known = read_accuracy(run, hops) >= KNOWN
    steps = np.array(run.spec.eval_steps(), float)
    first = steps[known.argmax(axis=1)]
    return np.where(known.any(axis=1), first, np.inf)


def knows(run: Run, hops: int) -> Bool[np.ndarray, "seed"]:
    """Which seeds know so many hops after the last step."""
    return at_end(run, hops) >= KNOWN


def paired(*measured: tuple[Run, np.ndarray]) -> list[np.ndarray]:
    """What was measured in several runs, of the seeds that finished in all of them.

    Args:
        measured: a run, and an array by its finished seeds.
    """
    tables = []
    for run, values in measured:
        seeds = np.array(run.seeds)[run.finished].tolist()
        tables.append(dict(zip(seeds, values, strict=True)))
    common = [seed for seed in tables[0] if all(seed in table for table in tables)]
    return [np.array([table[seed] for seed in common]) for table in tables]


def curves(run: Run, name: str) -> dict[str, Curve]:
    """Every number of hops through training, named after the run.

    Args:
        run: what was trained.
        name: how its curves begin.
    """
    steps = np.array(run.spec.eval_steps())
    numbers = [2**level for level in range(task_of(run).levels)]
    return {
        f"{name}: {named(hops)}": Curve.over_seeds(steps, read_accuracy(run, hops))
        for hops in numbers
    }
