"""F1: models that are written down, at every width of a ladder. Nothing is trained."""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.seeds import on_devices
from mnemoscope.models.rewrites import token_counts
from mnemoscope.studies.claims import Curve, NotSettledError, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST
from mnemoscope.tasks import Facts
from mnemoscope.theory.facts import counted, recall_model, write_facts

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
    """The share of facts that each draw's model answers right, at every width; as many hidden units as dimensions."""
    widths, task = ladder(size), Facts(subjects=size, relations=size)
    config = recall_model(task, int(widths[-1]), int(widths[-1]) if mlp else 0)

    def one(each: tuple[Array, Array]) -> Array:
        for_world, for_weights, for_noise = jax.random.split(jax.random.key(each[0]), 3)
        world = task.world(key=for_world)
        params = write_facts(config, task, world, each[1], key=for_weights)
        tokens, answer = task.every_fact(world, key=for_noise)
        return (token_counts.last_logits(config, params, tokens, task.asks_from).argmax(axis=1) == answer).mean()

    seeds, each_width = (x.reshape(-1) for x in np.meshgrid(np.arange(draws), widths, indexing="ij"))
    return on_devices(one, len(seeds), LANES)((seeds, each_width)).reshape(draws, len(widths))


def needed(right: Float[np.ndarray, "draw width"], widths: Int[np.ndarray, "width"]) -> int | None:
    """The smallest width from which on nearly every draw recalls everything; None if even the widest does not."""
    whole = (right == 1).mean(axis=0) >= MOST
    if not whole[-1]:
        return None
    return int(widths[len(whole) - np.argmin(whole[::-1])]) if not whole.all() else int(widths[0])


def slope(rights: list[Float[np.ndarray, "draw _"]], sizes: tuple[int, ...], mlp: bool) -> tuple[float, list[int]]:
    """The slope of log parameters against log facts, and the parameters; infinite where a size is never recalled."""
    widths = [needed(right, ladder(size)) for right, size in zip(rights, sizes, strict=True)]
    counts = [counted(2 * s, d, d if mlp else 0) for s, d in zip(sizes, widths, strict=True) if d is not None]
    if len(counts) < len(sizes):
        return np.inf, counts
    return float(np.polyfit(np.log(np.square(sizes)), np.log(counts), 1)[0]), counts


def hand_built(evidence: Evidence) -> Outcome:
    """F1."""
    sizes, draws = SIZES[evidence.scale], DRAWS[evidence.scale]
    curves, seeds, found, sentences = {}, {}, {}, []
    for kind, mlp in KINDS.items():
        rights = [recall(size, mlp, draws) for size in sizes]
        steep, counts = slope(rights, sizes, mlp)
        rng = np.random.default_rng(0)
        again = (rng.integers(0, draws, draws) for _ in range(RESAMPLES))
        each = [slope([right[rows] for right in rights], sizes, mlp)[0] for rows in again]
        # a resample of the draws may never recall everything: its slope is infinite, and nothing may be averaged with it
        low, high = np.quantile(each, (0.025, 0.975), method="inverted_cdf").tolist()
        found[kind] = steep, (low, high)
        for right, size in zip(rights, sizes, strict=True):
            curves[f"{kind}: S = R = {size}"] = Curve.over_seeds(ladder(size), right)
            seeds[f"{kind}, S = {size}, d = {ladder(size)[-1]}"] = right[:, -1]
        table = ", ".join(f"{n:,} for {s * s:,}" for s, n in zip(sizes, counts, strict=False))
        sentences.append(f"{kind}: {table} facts, slope {steep:.2f} [{low:.2f}, {high:.2f}]")
    keeps = [0.85 <= steep <= 1.25 for steep, _ in found.values()]
    verdict: Verdict = "reproduced" if all(keeps) else "partly" if any(keeps) else "refuted"
    if evidence.scale == "quick" and verdict != "reproduced":
        verdict = "undecided"  # a ladder's rung is a fifth, and these sizes span a factor of 16 in facts only
    sentence = f"Parameters of the smallest model that recalls every fact: {'; '.join(sentences)}."
    value, interval = found["attention only"]
    if not np.isfinite([value, *interval]).all():
        raise NotSettledError(f"{sentence} Some size is not recalled even at {ROOM} dimensions for each subject.")
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves))
