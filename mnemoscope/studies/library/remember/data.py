"""R21-R24: what becomes of a model if one thing is changed of what it is trained on, or told.

The order of the x's, the number of sequences, where the loss is, and positions.
"""

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import accuracy, answers
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import (
    ALL_LOSSES,
    ALL_LOSSES_TWO,
    FIXED,
    FIXED_TWO,
    NO_POSITIONS,
    ORDERED,
    PLAIN,
    TWO,
)
from mnemoscope.studies.library.remember.mastery import (
    MASTERED,
    card,
    eliminates,
    elimination_rate,
    full_only,
    in_readings,
    masters,
    of_same_seeds,
    recall,
    that_eliminate,
    that_master_both,
)
from mnemoscope.studies.measurement import Groups, Measurement
from mnemoscope.tasks import Permutation, Split


def accuracy_by_order(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """Accuracy at the last step on held-out mappings, with x's in order and in every order.

    Args:
        task: The permutation task, with x's in order.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    found: dict[str, Array] = {}
    for name, x_order in (("in order", "fixed"), ("shuffled", "shuffled")):
        asked = task.model_copy(update={"x_order": x_order})
        tokens = asked.list_tokens(split.held_out, (task.n_symbols - 1,))
        found[name] = accuracy(answers(task, model, tokens), tokens)[-1]
    return found


def measure_order(evidence: Evidence) -> Measurement:
    """R21: what models trained with x's in order make of them, and of other orders."""
    full_only(evidence, ORDERED)

    def at_most_half(what: str) -> dict[str, np.ndarray]:
        return evidence.by_reading(
            ORDERED, lambda name: evidence.measure(name, accuracy_by_order)[what] <= 0.5
        )

    found = evidence.measure(ORDERED, accuracy_by_order)
    parts = {
        "does not read": at_most_half("in order"),
        "learns positions": at_most_half("shuffled"),
        "accuracy in order": found["in order"],
        "accuracy shuffled": found["shuffled"],
        "eliminates": that_eliminate(evidence, PLAIN),
    }
    by_seed = {
        "trained and asked in order": found["in order"],
        "trained in order, asked shuffled": found["shuffled"],
        "trained and asked shuffled": evidence.measure(PLAIN, elimination_rate),
    }
    return Measurement(parts, by_seed)


def measure_repetition(evidence: Evidence) -> Measurement:
    """R22: seeds that learn from sequences drawn anew and from a fixed set, in as many steps."""
    full_only(evidence, FIXED, FIXED_TWO)

    def of_elimination(fresh: str, fixed: str) -> Groups:
        learned = (evidence.measure(name, elimination_rate) >= MASTERED for name in (fresh, fixed))
        return Groups(*learned)

    def of_both(fresh: str, fixed: str) -> Groups:
        return Groups(masters(evidence, fresh), masters(evidence, fixed))

    losses = of_same_seeds(
        evidence, {name: card(evidence, name)["loss"].mean(axis=1) for name in (PLAIN, FIXED)}
    )
    parts = {
        "elimination": in_readings(evidence, (PLAIN, FIXED), of_elimination),
        "both skills": in_readings(evidence, (TWO, FIXED_TWO), of_both),
        "learned from a fixed set": evidence.measure(FIXED, elimination_rate) >= MASTERED,
        "both learned from a fixed set": masters(evidence, FIXED_TWO),
        "held-out loss": losses[FIXED] - losses[PLAIN],
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "held-out loss, drawn anew": losses[PLAIN],
        "held-out loss, fixed set": losses[FIXED],
        "recall, drawn anew": recall(evidence, TWO),
        "recall, fixed set": recall(evidence, FIXED_TWO),
    }
    return Measurement(parts, by_seed)


def measure_loss_everywhere(evidence: Evidence) -> Measurement:
    """R23: what is learned in as many steps if the loss is at every position."""
    full_only(evidence, ALL_LOSSES, ALL_LOSSES_TWO)

    def distances(usual: str, everywhere: str) -> dict[str, np.ndarray]:
        names = {"usual": usual, "everywhere": everywhere}
        values = {name: card(evidence, name)["mae"].mean(axis=1) for name in names.values()}
        aligned = of_same_seeds(evidence, values)
        return {what: aligned[name] for what, name in names.items()}

    def of_both(usual: str, everywhere: str) -> Groups:
        return Groups(masters(evidence, usual), masters(evidence, everywhere))

    found = in_readings(evidence, (PLAIN, ALL_LOSSES), distances)
    parts = {
        "noise": {reading: each["everywhere"] - each["usual"] for reading, each in found.items()},
        "dilution": in_readings(evidence, (TWO, ALL_LOSSES_TWO), of_both),
        "MAE, usual": found["plain"]["usual"],
        "MAE, everywhere": found["plain"]["everywhere"],
        "both learned": masters(evidence, ALL_LOSSES_TWO),
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "MAE, loss on answers": found["plain"]["usual"],
        "MAE, loss everywhere": found["plain"]["everywhere"],
        "recall, loss on answers": recall(evidence, TWO),
        "recall, loss everywhere": recall(evidence, ALL_LOSSES_TWO),
    }
    return Measurement(parts, by_seed)


def change_by_order(task: Permutation, model: Transformer, split: Split) -> Array:
    """The largest change of any probability of the last answer if all earlier tokens come in
    reverse, over held-out sequences with a new last pair and with the first one again.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    tokens = task.list_tokens(split.held_out, (0, task.n_symbols - 1))[:, : task.n_ctx]
    in_reverse = jnp.concatenate([tokens[:, -2::-1], tokens[:, -1:]], axis=1)

    def last(row: Array) -> Array:
        return jax.nn.softmax(model(row)[-1])

    return jnp.abs(jax.vmap(last)(tokens) - jax.vmap(last)(in_reverse)).max()


def measure_blindness(evidence: Evidence) -> Measurement:
    """R24: whether the order of earlier tokens changes an answer without positional embeddings."""
    full_only(evidence, NO_POSITIONS)

    def change(name: str) -> np.ndarray:
        return evidence.measure(name, change_by_order)

    parts = {
        "blind": evidence.by_reading(NO_POSITIONS, lambda name: change(name) <= 1e-3),
        "sees": change(TWO) > 1e-3,
        "change": change(NO_POSITIONS),
        "recall": recall(evidence, NO_POSITIONS),
        "elimination": eliminates(evidence, NO_POSITIONS),
    }
    by_seed = {
        "recall without positions": recall(evidence, NO_POSITIONS),
        "elimination without positions": eliminates(evidence, NO_POSITIONS),
        "recall with positions": recall(evidence, TWO),
    }
    return Measurement(parts, by_seed)
