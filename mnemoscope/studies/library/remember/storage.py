"""R17: is a mapping stored in the weights, or found out from the sequence?

A model that has stored the trained mappings expects them: where several values are still possible,
it gives the right answer a higher probability on trained mappings than on held-out ones. A model
that follows a rule treats both alike. The scale is that of an ideal predictor which knows the
trained mappings by heart and nothing else:

    stored = (p(trained) - p(held out)) of the model / the same of that predictor

with p the mean probability of the right answer at steps 1 to V - 1. At the last step one value is
left, and a rule is enough for every mapping.
"""

from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import answers
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import FOUR, PLAIN_WIDE, SIX
from mnemoscope.studies.library.remember.mastery import (
    elimination_rate,
    full_only,
    that_eliminate,
)
from mnemoscope.studies.measurement import Measurement
from mnemoscope.tasks import Permutation, Split

AT_ONCE = 8  # mappings: with six symbols each is shown in 720 orders


def probability_by_model(
    task: Permutation, model: Transformer, mappings: Int[Array, "mapping symbol"]
) -> Float[Array, ""]:
    """The mean probability of the right answer at steps 1 to V - 1, in every order.

    Args:
        task: The permutation task.
        model: One seed's.
        mappings: Those that are shown.
    """

    def of_mapping(mapping: Array) -> Array:
        tokens = task.list_tokens(mapping[None], (task.n_symbols - 1,))
        p = answers(task, model, tokens)
        right = jnp.take_along_axis(p, tokens[:, 1::2, None], axis=-1)[..., 0]
        return right[:, :-1].mean()

    return jax.lax.map(of_mapping, mappings, batch_size=AT_ONCE).mean()


def probability_by_heart(
    task: Permutation,
    known: Int[Array, "known symbol"],
    mappings: Int[Array, "mapping symbol"],
) -> Float[Array, ""]:
    """The same of a predictor for which the mapping is one of those that it knows.

    What it answers depends on which pairs were shown and not on their order: of the known mappings
    that agree with the shown pairs, it is the share that agrees with the next one too; none if no
    known mapping fits.

    Args:
        task: The permutation task.
        known: The mappings that it knows.
        mappings: Those that are shown.
    """
    v = task.n_symbols
    agrees = mappings[:, None] == known[None]  # shown, known, symbol
    shown = jnp.asarray((np.arange(2**v)[:, None] >> np.arange(v)[None]) & 1 == 1)

    def n_fitting(symbols: Array) -> Array:
        """How many known mappings agree with each mapping on some symbols."""
        return (agrees | ~symbols[None, None]).all(axis=-1).sum(axis=1)

    fitting = jax.lax.map(n_fitting, shown).astype(float)  # set of symbols, mapping
    by_step = []
    for n_shown in range(v - 1):
        before, after = np.array(
            [
                (pairs := sum(1 << x for x in chosen), pairs | 1 << asked)
                for chosen in combinations(range(v), n_shown)
                for asked in set(range(v)) - set(chosen)
            ]
        ).T
        by_step.append((fitting[after] / jnp.maximum(fitting[before], 1)).mean())
    return jnp.stack(by_step).mean()


def probabilities(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """The mean probability of right answers on trained and on held-out mappings, by the model and
    by heart.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    return {
        "trained": probability_by_model(task, model, split.train),
        "held out": probability_by_model(task, model, split.held_out),
        "trained, by heart": probability_by_heart(task, split.train, split.train),
        "held out, by heart": probability_by_heart(task, split.train, split.held_out),
    }


def share_stored(found: dict[str, np.ndarray]) -> np.ndarray:
    """How much of what knowing by heart sets apart, a model sets apart.

    Args:
        found: What `probabilities` reads.
    """
    by_model = found["trained"] - found["held out"]
    by_heart = found["trained, by heart"] - found["held out, by heart"]
    return by_model / by_heart


def measure_storage(evidence: Evidence) -> Measurement:
    """R17: how much of the trained mappings is stored with 4, 5 and 6 symbols."""
    names = {"V=4": FOUR, "V=5": PLAIN_WIDE, "V=6": SIX}
    full_only(evidence, *names.values())
    parts = {
        what: evidence.by_reading(
            name, lambda each: share_stored(evidence.measure(each, probabilities))
        )
        for what, name in names.items()
    }
    for what, name in names.items():
        found = evidence.measure(name, probabilities)
        parts[f"trained - held out, {what}"] = found["trained"] - found["held out"]
        parts[f"last step, {what}"] = evidence.measure(name, elimination_rate)
    parts["eliminates"] = that_eliminate(evidence, PLAIN_WIDE)
    return Measurement(parts, {what: parts[what]["plain"] for what in names})
