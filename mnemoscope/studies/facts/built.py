"""F1: models that are written down, at every width of a ladder. Nothing is trained."""

import jax
import numpy as np

from mnemoscope.arrays import Array, Float, Int
from mnemoscope.model import bag
from mnemoscope.seeds import on_devices
from mnemoscope.studies.claims import Curve, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST
from mnemoscope.tasks import Facts
from mnemoscope.theory.facts import counted, recall_model, write_facts

SIZES = {"quick": (4, 8, 16), "full": (8, 16, 32, 64)}  # subjects, and as many relations
DRAWS = {"quick": 10, "full": 32}
ROOM = 64  # the widest model has so many dimensions for each subject
RUNG = 1.2  # each width of the ladder over the one before
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
        return (bag.last_logits(config, params, tokens, task.asks_from).argmax(axis=1) == answer).mean()

    seeds, each_width = (x.reshape(-1) for x in np.meshgrid(np.arange(draws), widths, indexing="ij"))
    return on_devices(one, len(seeds), LANES)((seeds, each_width)).reshape(draws, len(widths))


def needed(right: Float[np.ndarray, "draw width"], widths: Int[np.ndarray, "width"]) -> int | None:
    """The smallest width from which on nearly every draw recalls everything; None if even the widest does not."""
    whole = (right == 1).mean(axis=0) >= MOST
    if not whole[-1]:
        return None
    return int(widths[len(whole) - np.argmin(whole[::-1])]) if not whole.all() else int(widths[0])


def hand_built(evidence: Evidence) -> Outcome:
    """F1."""
    sizes, draws = SIZES[evidence.scale], DRAWS[evidence.scale]
    curves, seeds, slopes, sentences = {}, {}, {}, []
    for kind, mlp in KINDS.items():
        parameters = []
        for size in sizes:
            right, widths = recall(size, mlp, draws), ladder(size)
            d = needed(right, widths)
            parameters.append(None if d is None else counted(2 * size, d, d if mlp else 0))
            curves[f"{kind}: S = R = {size}"] = Curve.over_seeds(widths, right)
            at = len(widths) - 1 if d is None else int(np.flatnonzero(widths == d)[0])
            seeds[f"{kind}, S = {size}, d = {widths[at]}"] = right[:, at]
        if all(parameters):
            counts = np.array(parameters, float)
            slopes[kind] = float(np.polyfit(np.log(np.square(sizes)), np.log(counts), 1)[0])
            each = ", ".join(f"{int(n):,} for {s * s:,}" for s, n in zip(sizes, counts, strict=True))
            sentences.append(f"{kind}: {each} facts, slope {slopes[kind]:.2f}")
        else:
            sentences.append(f"{kind}: not every size is recalled at {ROOM} dimensions for each subject")
    keeps = [0.85 <= slopes.get(kind, np.inf) <= 1.25 for kind in KINDS]
    verdict: Verdict = "reproduced" if all(keeps) else "partly" if any(keeps) else "refuted"
    if evidence.scale == "quick" and verdict != "reproduced":
        verdict = "undecided"  # a ladder's rung is a fifth, and these sizes span a factor of 16 in facts only
    sentence = f"Parameters of the smallest model that recalls every fact: {'; '.join(sentences)}."
    value = slopes.get("attention only", float(ROOM))
    return Outcome(verdict, value, (value, value), sentence, seeds, Pictures(curves=curves))
