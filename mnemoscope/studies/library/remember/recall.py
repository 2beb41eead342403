"""R6-R10, R19 and R25: trained with repeats, what does a model answer when x1 is asked again?

And does its loss tell?
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import answers, unused_value
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import ANY, SMALL, TWO, WIDE
from mnemoscope.studies.library.remember.mastery import (
    card,
    eliminates,
    in_readings,
    masters,
    named_by_condition,
    of_same_seeds,
    recall,
    that_master_both,
)
from mnemoscope.studies.measurement import Measurement
from mnemoscope.tasks import Permutation, Split
from mnemoscope.theory.elimination_floors import used_set_loss

REPEATED = 0.3
"""The share of sequences that end with the first pair again."""


def asked_again(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """What a model answers to x1 asked again, on every held-out sequence: the shown value y1, or
    the unused one.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    tokens = task.list_tokens(split.held_out, (0,))
    p = answers(task, model, tokens)[:, -1]
    said = p.argmax(axis=-1)
    found: dict[str, Array] = {}
    for name, value in (("shown", tokens[:, 1]), ("unused", unused_value(task, tokens))):
        found[f"p({name})"] = jnp.take_along_axis(p, value[:, None], axis=-1).mean()
        found[f"says {name}"] = (said == value).mean()
    return found


def measure_unused_answer(evidence: Evidence) -> Measurement:
    """R6: what d=16 with one head, trained with repeats, answers when it is asked again for x1."""

    def says(name: str) -> np.ndarray:
        return evidence.measure(name, asked_again)["says unused"]

    found = evidence.measure(SMALL, asked_again)
    parts = {
        "unused value": evidence.by_reading(SMALL, lambda name: says(name) >= 0.99),
        "P(unused)": found["p(unused)"],
        "P(y1)": found["p(shown)"],
    }
    by_seed = {
        "p(unused)": found["p(unused)"],
        "p(y1)": found["p(shown)"],
        "says unused": found["says unused"],
    }
    return Measurement(parts, by_seed)


def measure_override(evidence: Evidence) -> Measurement:
    """R25: what d=32 with two heads, trained with repeats, answers to x1 asked again."""

    def of_probability(name: str) -> dict[str, np.ndarray]:
        found = evidence.by_reading(TWO, lambda each: evidence.measure(each, asked_again))
        return {reading: each[name] for reading, each in found.items()}

    shown = of_probability("p(shown)")
    unused = of_probability("p(unused)")
    parts = {
        "recalls": {reading: p >= 0.99 for reading, p in shown.items()},
        "does not eliminate": {reading: p <= 0.01 for reading, p in unused.items()},
        "P(y1)": shown["plain"],
        "P(unused)": unused["plain"],
        "masters both": that_master_both(evidence, TWO),
    }
    return Measurement(parts, {"p(y1)": shown["plain"], "p(unused)": unused["plain"]})


def measure_losses(evidence: Evidence) -> Measurement:
    """R7: held-out losses of the model that cannot recall and of the one that can, by seed."""

    def losses(small: str, two: str) -> dict[str, dict[str, np.ndarray]]:
        new = {name: card(evidence, name)["loss"].mean(axis=1) for name in (small, two)}
        again = {
            name: card(evidence, name)["repeat_loss"][:, 0].mean(axis=1) for name in (small, two)
        }
        found: dict[str, dict[str, np.ndarray]] = {}
        for what, each in (("nothing repeats", new), ("x1 repeats", again)):
            aligned = of_same_seeds(evidence, each)
            found[what] = {"small": aligned[small], "two": aligned[two]}
        return found

    found = in_readings(evidence, (SMALL, TWO), losses)
    parts: dict[str, Any] = {
        f"gap where {what}": {
            reading: each[what]["small"] - each[what]["two"] for reading, each in found.items()
        }
        for what in ("x1 repeats", "nothing repeats")
    }
    plain = found["plain"]
    for size in ("small", "two"):
        again = plain["x1 repeats"][size]
        new = plain["nothing repeats"][size]
        parts[f"{size}, as trained"] = REPEATED * again + (1 - REPEATED) * new
        parts[f"{size}, x1 repeats"] = again
        parts[f"{size}, nothing repeats"] = new
    parts["floor without recall"] = used_set_loss(5, REPEATED)
    parts["masters both"] = that_master_both(evidence, TWO)
    by_seed = {
        "loss gap where the first pair repeats": parts["gap where x1 repeats"]["plain"],
        "loss gap where nothing repeats": parts["gap where nothing repeats"]["plain"],
    }
    return Measurement(parts, by_seed)


def recall_series(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    """Recall of every seed, in the plain reading and in the others.

    Args:
        evidence: What there is.
        name: The condition of the plain reading.
    """
    return named_by_condition(evidence, "recall", name, lambda each: recall(evidence, each))


def measure_small_model(evidence: Evidence) -> Measurement:
    """R8: recall of d=16 with one head."""
    rates = evidence.by_reading(SMALL, lambda name: recall(evidence, name))
    parts = {
        "fails": {reading: each <= 0.1 for reading, each in rates.items()},
        "recall": rates["plain"],
        "learns": rates["plain"] >= 0.99,
    }
    return Measurement(parts, recall_series(evidence, SMALL))


def measure_wide_model(evidence: Evidence) -> Measurement:
    """R9: recall of d=32 with one head."""
    rates = evidence.by_reading(WIDE, lambda name: recall(evidence, name))
    parts = {
        "recall": rates,
        "learns": rates["plain"] >= 0.99,
        "fails": rates["plain"] <= 0.1,
    }
    return Measurement(parts, recall_series(evidence, WIDE))


def measure_two_heads(evidence: Evidence) -> Measurement:
    """R10: both skills of d=32 with two heads, and the errors of its probabilities."""

    def perfect(name: str) -> np.ndarray:
        return (recall(evidence, name) == 1) & (eliminates(evidence, name) == 1)

    errors = card(evidence, TWO)
    parts = {
        "no mistake": evidence.by_reading(TWO, perfect),
        "at most 1%": masters(evidence, TWO),
        "MAE of recall": errors["recall_mae"][:, 0],
        "MAE of elimination": errors["mae"][:, -1],
    }
    by_seed = recall_series(evidence, TWO) | {"elimination": eliminates(evidence, TWO)}
    return Measurement(parts, by_seed)


def measure_other_pairs(evidence: Evidence) -> Measurement:
    """R19: recall of every pair by models trained on repeats of the first, and of any."""

    def of_pairs(name: str) -> np.ndarray:
        return card(evidence, name)["recall"]

    first = evidence.by_reading(TWO, of_pairs)
    any_pair = of_pairs(ANY)
    others = {reading: each[:, 1:].mean(axis=1) for reading, each in first.items()}
    parts = {
        "others": others,
        "first": {reading: each[:, 0] for reading, each in first.items()},
        "any": any_pair.mean(axis=1),
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "others, trained on the first": others["plain"],
        "all, trained on any": any_pair.mean(axis=1),
    }
    return Measurement(parts, by_seed)
