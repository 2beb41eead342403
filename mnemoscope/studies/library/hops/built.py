"""What H1 measures: weights that are written down. Nothing is trained."""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import early_logits
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement
from mnemoscope.tasks import Hops
from mnemoscope.theory.hop_transformer import hop_model, write_hops

# k and N
SIZES = {
    "quick": ((2, 4), (4, 4), (8, 4)),
    "full": ((2, 4), (2, 16), (4, 4), (4, 16), (8, 4), (8, 16)),
}
DRAWS = {"quick": 8, "full": 32}  # of the hidden permutations
CONTEXTS = 256  # on which each draw is asked


def written(task: Hops, draws: int) -> Float[np.ndarray, "draw layer"]:
    """Accuracy on k hops, read after every layer.

    Each draw has its own hidden permutations.

    Args:
        task: says k and N.
        draws: how many there are.
    """
    config = hop_model(task)

    def one(seed: Array) -> Array:
        for_world, for_contexts = jax.random.split(jax.random.key(seed))
        world = task.world(key=for_world)
        params = write_hops(task, world.hidden)

        def share(key: Array) -> Array:
            context = task.context(key=key)
            said = early_logits(config, params, context.reshape(-1)).argmax(axis=-1)
            return (said == task.answers(world, context)[None, -1]).mean(axis=-1)

        return jax.vmap(share)(jax.random.split(for_contexts, CONTEXTS)).mean(axis=0)

    return map_over_seeds(one, draws, 8)(np.arange(draws))


def measure_written(evidence: Evidence) -> Measurement:
    """H1: accuracy on k hops of weights written by hand, k hops from everywhere.

    The same weights read after one layer fewer stand beside it, and how wide they are.
    """
    by_seed: dict[str, np.ndarray] = {}
    whole: list[float] = []
    widths: list[float] = []
    fewer: dict[int, list[float]] = {}
    for k, n in SIZES[evidence.scale]:
        task = Hops(n=n, k=k)
        shares = written(task, DRAWS[evidence.scale])
        whole.append(shares[:, -1].min())
        widths.append(hop_model(task).d_model / (n * k))
        fewer.setdefault(k, []).append(float(np.abs(shares[:, -2] - 1 / n).max()))
        for layers in (task.levels, task.levels - 1):
            name = f"k = {k}, N = {n}, {layers} of {task.levels} layers"
            by_seed[name] = shares[:, layers - 1]
    parts = {"right answers": min(whole), "width": max(widths)}
    parts |= {f"one layer fewer, k = {k}": max(each) for k, each in fewer.items()}
    return Measurement(parts, by_seed)
