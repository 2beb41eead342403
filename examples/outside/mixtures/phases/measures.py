"""What is measured of each seed: when and where its answers on fresh chains become good."""

import numpy as np
from jaxtyping import Float

import mnemoscope as ms
from mixtures.phases.study import SWITCH, THRESHOLD

LEVEL = 0.30  # KL on fresh chains between that of unigrams (0.50) and that of bigrams (0.09)


def read_curve(
    evidence: ms.Evidence, name: str, what: str
) -> tuple[Float[np.ndarray, "eval"], Float[np.ndarray, "seed eval"]]:
    """Steps of the evaluations and a KL at each; NaN for a seed that diverged.

    Args:
        evidence: What was trained.
        name: Of the condition.
        what: `id` or `ood`.
    """
    run = evidence.run(name)
    values = np.array(run.metrics[f"mixtures/closeness/{what}"], float)
    values[~np.asarray(run.finished)] = np.nan
    return np.array(run.spec.eval_steps(), float), values


def crossing(
    sizes: Float[np.ndarray, "size"], values: Float[np.ndarray, "seed size"]
) -> Float[np.ndarray, "seed"]:
    """log2 of the size at which each seed first falls below the level, between two sizes.

    Infinite for a seed that never does, minus infinity for one that is below from the first.

    Args:
        sizes: In order.
        values: Of each seed at each size.
    """
    logs = np.log2(sizes)
    found = np.full(len(values), np.inf)
    for seed, row in enumerate(values):
        below = np.flatnonzero(row < LEVEL)
        if not len(below) or np.isnan(row).any():
            continue
        i = below[0]
        if i == 0:
            found[seed] = -np.inf
            continue
        part = (row[i - 1] - LEVEL) / (row[i - 1] - row[i])
        found[seed] = logs[i - 1] + part * (logs[i] - logs[i - 1])
    return found


def drop_times(
    steps: Float[np.ndarray, "eval"], values: Float[np.ndarray, "seed eval"], part: float
) -> Float[np.ndarray, "seed"]:
    """The first evaluation at which each seed has gone a part of the way from most to least.

    Args:
        steps: Of the evaluations.
        values: Of each seed, from the start on.
        part: Of the way.
    """
    # what a model says before training is no plateau: the way begins at the most after the start
    most = values[:, 1:].max(axis=1)
    least = values[:, 1:].min(axis=1)
    goal = most - part * (most - least)
    later = np.arange(values.shape[1])[None] > values[:, 1:].argmax(axis=1)[:, None]
    gone = later & (values <= goal[:, None])
    return np.where(gone.any(axis=1), steps[gone.argmax(axis=1)], np.inf)


def doublings(
    earlier: Float[np.ndarray, "seed"], later: Float[np.ndarray, "seed"]
) -> Float[np.ndarray, "seed"]:
    """log2 of how many times later; infinite where one of the two was never reached.

    Args:
        earlier: A time of each seed.
        later: Another.
    """
    known = np.isfinite(earlier) & np.isfinite(later)
    ratios = np.where(known, later, 1.0) / np.where(known, earlier, 1.0)
    return np.where(known, np.log2(ratios), np.inf)


def measure_threshold(evidence: ms.Evidence) -> ms.Measurement:
    """A1: log2 of the diversity at which fresh chains are read well, seed by seed.

    Args:
        evidence: What was trained.
    """
    sizes = np.array(THRESHOLD[evidence.scale], float)

    def of(reading: str) -> Float[np.ndarray, "seed"]:
        names = [f"threshold-{int(n)}{reading}" for n in sizes]
        last = [read_curve(evidence, name, "ood")[1][:, -1] for name in names]
        return crossing(sizes, np.stack(last, axis=1))

    found = {"plain": of(""), "equal": of("/equal")}
    return ms.Measurement({"threshold": found}, by_seed={"log2 N": found["plain"]})


def measure_switch(evidence: ms.Evidence) -> ms.Measurement:
    """A2: how the time of the drop differs from the fewest chains to the most, and its width.

    Args:
        evidence: What was trained.
    """
    sizes = SWITCH[evidence.scale]
    curves = {n: read_curve(evidence, f"switch-{n}", "ood") for n in sizes}
    half = {n: drop_times(*curves[n], 0.5) for n in sizes}
    done = drop_times(*curves[sizes[-1]], 0.9)
    begun = drop_times(*curves[sizes[-1]], 0.1)
    return ms.Measurement(
        {
            "later with more chains": doublings(half[sizes[0]], half[sizes[-1]]),
            "width": doublings(begun, done),
        },
        by_seed={f"half of the drop, N={n}": half[n] for n in sizes},
    )


def measure_transience(evidence: ms.Evidence) -> ms.Measurement:
    """A3: how much worse fresh chains are read at the end than at best, and known ones meanwhile.

    Args:
        evidence: What was trained.
    """
    _, fresh = read_curve(evidence, "transient", "ood")
    _, known = read_curve(evidence, "transient", "id")
    seeds = np.arange(len(fresh))
    diverged = np.isnan(fresh).any(axis=1)
    best = np.where(diverged, 0, np.where(np.isnan(fresh), np.inf, fresh).argmin(axis=1))
    return ms.Measurement(
        {
            "worse on fresh chains": fresh[:, -1] / fresh[seeds, best],
            "change on known chains": known[:, -1] - known[seeds, best],
        },
        by_seed={"at best": fresh[seeds, best], "at the end": fresh[:, -1]},
    )


def measure_delay(evidence: ms.Evidence) -> ms.Measurement:
    """A6: how many times later the drop comes with learned positions, seed by seed.

    Args:
        evidence: What was trained.
    """
    rotary = drop_times(*read_curve(evidence, "delay-rotary", "ood"), 0.5)
    learned = drop_times(*read_curve(evidence, "delay-learned", "ood"), 0.5)
    return ms.Measurement(
        {"doublings": doublings(rotary, learned)},
        by_seed={"rotary": rotary, "learned": learned},
    )
