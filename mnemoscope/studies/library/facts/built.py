"""F1: models that are written down, at every width of a ladder. Nothing is trained."""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models.rewrites import token_counts
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.facts.slopes import fit_powers
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.studies.scales import FRESH_SEED
from mnemoscope.tasks import Facts
from mnemoscope.theory.fact_models import parameter_count, recall_model, write_facts

SIZES = {"quick": (4, 8, 16), "full": (8, 16, 32, 64)}  # subjects, and as many relations
DRAWS = {"quick": range(10), "full": range(FRESH_SEED, FRESH_SEED + 16)}
RUNG = 1.2  # each width of the ladder over the one before
ROOM = 64 * RUNG**2  # the widest model has so many dimensions for each subject
LANES = 2  # models at once on an accelerator: all scores of the largest are half a gigabyte
KINDS = {"attention only": False, "attention and MLP": True}


def ladder(size: int) -> Int[np.ndarray, "width"]:
    """Widths in steps of a fifth up to the room, multiples of 4."""
    steps = np.arange(int(np.log(ROOM) / np.log(RUNG)), -1, -1)
    return np.unique(4 * np.rint(ROOM * size / RUNG**steps / 4).astype(int))


def recall(size: int, mlp: bool, draws: range) -> Float[np.ndarray, "draw width"]:
    """Each draw's accuracy over the facts, at every width of the ladder.

    Args:
        size: how many subjects, and as many relations.
        mlp: whether there is a feed-forward layer, of as many hidden units as dimensions.
        draws: the seeds of embeddings and facts.
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
    pairs = np.meshgrid(np.array(draws), widths, indexing="ij")
    each_seed, each_width = (x.reshape(-1) for x in pairs)
    shares = map_over_seeds(one, len(each_seed), LANES)((each_seed, each_width))
    return shares.reshape(len(draws), len(widths))


def needed(
    accuracy: Float[np.ndarray, "draw width"], parameters: Int[np.ndarray, "width"]
) -> Float[np.ndarray, "draw"]:
    """The parameters at the smallest width from which on each draw recalls everything.

    Infinite if even the widest does not.

    Args:
        accuracy: over the facts, at every width of the ladder.
        parameters: at every width of the ladder.
    """
    # from the widest down, as long as all is recalled
    n_whole = np.logical_and.accumulate((accuracy == 1)[:, ::-1], axis=1).sum(axis=1)
    smallest = parameters[np.minimum(len(parameters) - n_whole, len(parameters) - 1)]
    return np.where(n_whole > 0, smallest.astype(float), np.inf)


def measure_built_models(evidence: Evidence) -> Measurement:
    """F1: the parameters of the smallest model that recalls everything, draw by draw, and how they
    grow with the number of facts."""
    sizes = SIZES[evidence.scale]
    draws = DRAWS[evidence.scale]
    parts = {}
    curves = {}
    by_seed = {}
    for kind, mlp in KINDS.items():
        counts = []
        for size in sizes:
            widths = ladder(size)
            accuracy = recall(size, mlp, draws)
            each = [parameter_count(2 * size, d, d if mlp else 0) for d in widths.tolist()]
            counts.append(needed(accuracy, np.array(each)))
            parts[f"{kind}: parameters, S = {size}"] = counts[-1]
            curves[f"{kind}: S = R = {size}"] = Curve.over_seeds(widths, accuracy)
            by_seed[f"{kind}, S = {size}, d = {widths[-1]}"] = accuracy[:, -1]
        parts[f"{kind}: power"] = fit_powers(np.square(sizes).astype(float), np.stack(counts))
    return Measurement(parts, by_seed, Plots(curves=curves))
