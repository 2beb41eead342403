"""What N3 and N5 measure: how many samples each memory needs, against the vocabulary.

Nothing is trained: one gradient step from zero, in the theory's one-layer model.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Float, Int
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.theory.noise import draw, margins_after, population_margins

VOCABULARIES = (16, 32, 64, 128, 256, 512, 1024)
RANGES = {  # of N: the one before it was changed, and the one after
    "N = 16 to 256": (16, 256),
    "N = 64 to 1,024": (64, 1024),
}
# draws may well agree in a slope of 0, and such need 35
DRAWS: dict[Scale, range] = {"quick": range(8), "full": range(FRESH_SEED, FRESH_SEED + 40)}
MOST_SAMPLES = 2**16
STEP = 1.25  # numbers of samples grow by a quarter
MOST_TOKENS = 0.9  # of the vocabulary must be read as themselves


class Needed(NamedTuple):
    """From how many samples on each draw has its memories."""

    feed_forward: Float[np.ndarray, "draw size"]
    """By vocabulary; infinite where the most samples are not enough."""
    attention: Float[np.ndarray, "draw size"]
    """The same of attention's value memory."""


def ladder(most: int) -> Int[np.ndarray, "size"]:
    """Numbers of samples from 1 on, each a quarter larger than the one before.

    Args:
        most: the largest that there may be.
    """
    grow = np.arange(int(np.log(most) / np.log(STEP)) + 1)
    return np.unique(np.rint(STEP**grow).astype(int))


def first_enough(
    sizes: Int[np.ndarray, "size"], there: Bool[np.ndarray, "size"] | np.ndarray
) -> float:
    """The smallest number of samples from which on the memory is there; infinite if it never is.

    Args:
        sizes: numbers of samples, rising.
        there: whether the memory is there after each.
    """
    if not there[-1]:
        return float(np.inf)
    missing = np.flatnonzero(~np.asarray(there, bool))
    return float(sizes[missing[-1] + 1]) if missing.size else float(sizes[0])


def samples_needed(n: int, seed: int, most: int = MOST_SAMPLES) -> tuple[float, float]:
    """The samples that the feed-forward memory and attention's need in one stream of them.

    A stream has the same noise at every N that is a power of two, so that what differs between
    vocabularies is not the luck of the first samples.

    Args:
        n: tokens of the vocabulary.
        seed: of the stream.
        most: how long it is at most.
    """
    sizes = ladder(most)
    counts, y = draw(n, int(sizes[-1]), np.random.default_rng(seed))
    by_fed, by_value = margins_after(n, counts, y, sizes)
    fed, valued = population_margins(n)
    attended = (by_value >= valued / 2).mean(axis=1) >= MOST_TOKENS
    return first_enough(sizes, by_fed >= fed / 2), first_enough(sizes, attended)


@cache
def measure_needed(scale: Scale) -> Needed:
    """What every draw needs at every vocabulary.

    Args:
        scale: says the draws.
    """
    found = np.array([[samples_needed(n, seed) for n in VOCABULARIES] for seed in DRAWS[scale]])
    return Needed(found[..., 0], found[..., 1])


def slopes(needed: Float[np.ndarray, "draw size"], ends: tuple[int, int]) -> np.ndarray:
    """Each draw's slope of log samples against log N; infinite where some N was not reached.

    Args:
        needed: samples by draw and vocabulary.
        ends: the smallest and the largest N.
    """
    sizes = np.array(VOCABULARIES)
    chosen = (sizes >= ends[0]) & (sizes <= ends[1])
    samples = needed[:, chosen]
    reached = np.isfinite(samples).all(axis=1)
    found = np.full(len(samples), np.inf)
    if reached.any():
        logs = np.log(samples[reached]).T
        found[reached] = np.polyfit(np.log(sizes[chosen]), logs, 1)[0]
    return found


def measure_bounds(evidence: Evidence) -> Measurement:
    """N3: the slope of log samples against log N, of both memories in both ranges of N."""
    needed = measure_needed(evidence.scale)
    memories = {"feed-forward": needed.feed_forward, "attention": needed.attention}
    parts = {
        f"{name}, {each}": slopes(samples, ends)
        for name, samples in memories.items()
        for each, ends in RANGES.items()
    }
    by_seed = {
        f"{name}, N = {n}": samples[:, i]
        for name, samples in memories.items()
        for i, n in enumerate(VOCABULARIES)
        if np.isfinite(samples[:, i]).all()
    }
    curves = {
        name: Curve.over_seeds(np.array(VOCABULARIES), samples)
        for name, samples in memories.items()
        if np.isfinite(samples).all()
    }
    return Measurement(parts, by_seed, Plots(curves=curves))


def measure_tightness(evidence: Evidence) -> Measurement:
    """N5: the same slopes of attention, and its samples at four vocabularies."""
    samples = measure_needed(evidence.scale).attention
    parts = {f"attention, {each}": slopes(samples, ends) for each, ends in RANGES.items()}
    by_size = dict(zip(VOCABULARIES, samples.T, strict=True))
    parts |= {f"samples at N = {n}": by_size[n] for n in (16, 64, 256, 1024)}
    return Measurement(parts, {f"slope, {each}": parts[f"attention, {each}"] for each in RANGES})
