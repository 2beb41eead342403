"""H1: weights that are written down. Nothing is trained."""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import early_logits
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import share_interval
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


def hand_built(evidence: Evidence) -> Outcome:
    """H1: accuracy on k hops of weights written by hand, k hops from everywhere.

    Reproduced if every answer is right for every draw of the hidden permutations and every size,
    refuted otherwise; the same weights read after one layer fewer are reported beside it.
    """
    seeds = {}
    exact = []
    sentences = []
    for k, n in SIZES[evidence.scale]:
        task = Hops(n=n, k=k)
        shares = written(task, DRAWS[evidence.scale])
        exact.append(shares[:, -1] == 1)
        for layers in (task.levels, task.levels - 1):
            seeds[f"k = {k}, N = {n}, {layers} of {task.levels} layers"] = shares[:, layers - 1]
        sentences.append(
            f"{shares[:, -1].mean():.1%} for k = {k}, N = {n} "
            f"({task.levels} layers of width {hop_model(task).d_model}; one layer "
            f"fewer {shares[:, -2].mean():.0%})"
        )
    whole = np.all(exact, axis=0)
    verdict: Verdict = "reproduced" if whole.all() else "refuted"
    share, interval = share_interval(whole)
    sentence = f"Right answers to k hops: {'; '.join(sentences)}."
    return Outcome(verdict, share, interval, sentence, seeds)
