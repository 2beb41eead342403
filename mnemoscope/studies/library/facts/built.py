"""F1: models that are written down, at every width of a ladder. Nothing is trained."""

from typing import NamedTuple

import jax
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models.rewrites import token_counts
from mnemoscope.studies.claims import Curve, InconclusiveError, Outcome, Plots
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST, Interval, parts_verdict
from mnemoscope.tasks import Facts
from mnemoscope.theory.fact_models import parameter_count, recall_model, write_facts

SIZES = {"quick": (4, 8, 16), "full": (8, 16, 32, 64)}  # subjects, and as many relations
DRAWS = {"quick": 10, "full": 32}
ROOM = 64  # the widest model has so many dimensions for each subject
RUNG = 1.2  # each width of the ladder over the one before
RESAMPLES = 499  # of the draws, for intervals
LANES = 2  # models at once on an accelerator: all scores of the largest are half a gigabyte
KINDS = {"attention only": False, "attention and MLP": True}


def ladder(size: int) -> Int[np.ndarray, "width"]:
    """Widths in steps of a fifth up to the room, multiples of 4."""
    steps = np.arange(int(np.log(ROOM) / np.log(RUNG)), -1, -1)
    return np.unique(4 * np.rint(ROOM * size / RUNG**steps / 4).astype(int))


def recall(size: int, mlp: bool, draws: int) -> Float[np.ndarray, "draw width"]:
    """Each draw's accuracy over the facts, at every width of the ladder.

    Args:
        size: how many subjects, and as many relations.
        mlp: whether there is a feed-forward layer, of as many hidden units as dimensions.
        draws: how many draws of embeddings and facts.
    """
    widths = ladder(size)
    widest = int(widths[-1])
    task = Facts(subjects=size, relations=size)
    config = recall_model(task, widest, widest if mlp else 0)

    def one(seed_and_width: tuple[Array, Array]) -> Array:
        seed, width = seed_and_width
        for_world, for_weights, for_noise = jax.random.split(jax.random.key(seed), 3)
        world = task.world(key=for_world)
        params = write_facts(config, task, world, width, key=for_weights)
        tokens, answer = task.every_fact(world, key=for_noise)
        logits = token_counts.last_logits(config, params, tokens, task.query_token)
        return (logits.argmax(axis=1) == answer).mean()

    # every pair of a draw and a width is a model of its own
    pairs = np.meshgrid(np.arange(draws), widths, indexing="ij")
    each_seed, each_width = (x.reshape(-1) for x in pairs)
    shares = map_over_seeds(one, len(each_seed), LANES)((each_seed, each_width))
    return shares.reshape(draws, len(widths))


def needed(
    accuracy: Float[np.ndarray, "draw width"], widths: Int[np.ndarray, "width"]
) -> int | None:
    """The smallest width from which on nearly every draw recalls everything.

    None if even the widest does not.
    """
    whole = (accuracy == 1).mean(axis=0) >= MOST
    if not whole[-1]:
        return None
    if whole.all():
        return int(widths[0])
    after_last_failure = len(whole) - np.argmin(whole[::-1])
    return int(widths[after_last_failure])


def slope(
    accuracies: list[Float[np.ndarray, "draw _"]], sizes: tuple[int, ...], mlp: bool
) -> tuple[float, list[int]]:
    """The slope of log parameters against log facts, and the parameters.

    Infinite where a size is never recalled.

    Args:
        accuracies: the accuracy over the facts, for each size.
        sizes: how many subjects, and as many relations.
        mlp: whether there is a feed-forward layer.
    """
    counts = []
    for accuracy, size in zip(accuracies, sizes, strict=True):
        width = needed(accuracy, ladder(size))
        if width is not None:
            counts.append(parameter_count(2 * size, width, width if mlp else 0))
    if len(counts) < len(sizes):
        return np.inf, counts
    facts = np.square(sizes)
    return float(np.polyfit(np.log(facts), np.log(counts), 1)[0]), counts


class Recalled(NamedTuple):
    """What was measured of one kind of model."""

    accuracies: list[Float[np.ndarray, "draw _"]]  # accuracy over the facts, for each size
    slope: float  # of log parameters against log facts
    interval: Interval  # of the slope, over draws
    counts: list[int]  # parameters that each size needs

    def sentence(self, kind: str, sizes: tuple[int, ...]) -> str:
        """What was measured, in words."""
        pairs = zip(sizes, self.counts, strict=False)  # a size that is never recalled has no count
        table = ", ".join(f"{n:,} for {s * s:,}" for s, n in pairs)
        low, high = self.interval
        return f"{kind}: {table} facts, slope {self.slope:.2f} [{low:.2f}, {high:.2f}]"


def _measure(sizes: tuple[int, ...], mlp: bool, draws: int) -> Recalled:
    """Recall at every size and width, and the slope with its interval over resampled draws."""
    accuracies = [recall(size, mlp, draws) for size in sizes]
    steep, counts = slope(accuracies, sizes, mlp)
    rng = np.random.default_rng(0)
    resampled = []
    for _ in range(RESAMPLES):
        rows = rng.integers(0, draws, draws)
        resampled.append(slope([accuracy[rows] for accuracy in accuracies], sizes, mlp)[0])
    # a resample of the draws may never recall everything: its slope is infinite, and nothing may be
    # averaged with it
    low, high = np.quantile(resampled, (0.025, 0.975), method="inverted_cdf").tolist()
    return Recalled(accuracies, steep, (low, high), counts)


def hand_built(evidence: Evidence) -> Outcome:
    """F1: the slope of log parameters against log facts, of the smallest models that recall all.

    A model, without or with MLP, keeps to the claim if its slope lies within .85 to 1.25:
    reproduced if both do, partly if one does, else refuted; the quick scale is undecided unless
    reproduced.
    """
    sizes = SIZES[evidence.scale]
    draws = DRAWS[evidence.scale]
    found = {kind: _measure(sizes, mlp, draws) for kind, mlp in KINDS.items()}
    curves = {}
    seeds = {}
    for kind, measured in found.items():
        for accuracy, size in zip(measured.accuracies, sizes, strict=True):
            widths = ladder(size)
            curves[f"{kind}: S = R = {size}"] = Curve.over_seeds(widths, accuracy)
            seeds[f"{kind}, S = {size}, d = {widths[-1]}"] = accuracy[:, -1]
    verdict = parts_verdict(0.85 <= measured.slope <= 1.25 for measured in found.values())
    if evidence.scale == "quick" and verdict != "reproduced":
        # a ladder's rung is a fifth, and these sizes span a factor of 16 in facts only
        verdict = "undecided"
    sentences = "; ".join(measured.sentence(kind, sizes) for kind, measured in found.items())
    sentence = f"Parameters of the smallest model that recalls every fact: {sentences}."
    value = found["attention only"].slope
    interval = found["attention only"].interval
    if not np.isfinite([value, *interval]).all():
        raise InconclusiveError(
            f"{sentence} Some size is not recalled even at {ROOM} dimensions for each subject."
        )
    return Outcome(verdict, value, interval, sentence, seeds, Plots(curves=curves))
