"""R1 and R2: what needs no model. What the eliminator pays, and how many sequences there are."""

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement
from mnemoscope.tasks import Permutation
from mnemoscope.tasks.permutation import permutations
from mnemoscope.theory.elimination_floors import eliminator_loss, guessing_loss


def measure_eliminator(_: Evidence) -> Measurement:
    """R1: the eliminator's mean loss, by formula and by counting over all sequences."""
    task = Permutation()
    everything = task.sequences(permutations(5))
    posterior = jax.vmap(task.posterior)(jnp.asarray(everything.tokens[:, :-1]))
    exact = np.asarray(posterior, np.float64)
    given = np.take_along_axis(exact, everything.tokens[:, 1::2, None], axis=-1)
    counted = float(-np.log(given).mean())
    formula = eliminator_loss(5)
    parts = {
        "eliminator": formula,
        "guess": guessing_loss(5),
        "counted": abs(counted - formula),
    }
    return Measurement(parts)


def measure_counts(_: Evidence) -> Measurement:
    """R2: the numbers of distinct sequences, listed and counted."""
    task = Permutation()
    split = task.world(key=jax.random.key(0))
    mappings = {
        "sequences": permutations(5),
        "trained": split.train,
        "held out": split.held_out,
    }
    parts = {
        name: len(np.unique(task.sequences(each).tokens, axis=0)) for name, each in mappings.items()
    }
    train, held = ({tuple(row) for row in np.asarray(part).tolist()} for part in split)
    return Measurement(parts | {"in both": len(train & held)})
