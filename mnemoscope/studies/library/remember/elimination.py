"""R3-R5, R11, R20 and R27: the model that is trained without repeats eliminates. How exactly?

Where does it look, and what does its head write?
"""

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.attention import mean_pattern, roles
from mnemoscope.probes.skills import against_training
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import PLAIN
from mnemoscope.studies.library.remember.mastery import (
    card,
    eliminates,
    in_readings,
    named_by_condition,
    that_eliminate,
)
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.tasks import Permutation, Split

STEPS = (1, 2, 3, 4, 5)
GUESSED = STEPS[:-1]
"""The steps at which more than one value is left."""


def measure_last_step(evidence: Evidence) -> Measurement:
    """R3: accuracy at step 5 on every held-out sequence, and the largest error there."""

    def worst(name: str) -> np.ndarray:
        return card(evidence, name)["max_ae"][:, -1]

    parts = {
        "all right": evidence.by_reading(PLAIN, lambda name: eliminates(evidence, name) == 1),
        "Max-AE": evidence.by_reading(PLAIN, worst),
        "accuracy": eliminates(evidence, PLAIN),
    }
    by_seed = {"step 5 accuracy": eliminates(evidence, PLAIN), "Max-AE": worst(PLAIN)}
    return Measurement(parts, by_seed)


def measure_posterior_by_step(evidence: Evidence) -> Measurement:
    """R4: the distance of the output from the elimination posterior, step by step."""
    cards = evidence.by_reading(PLAIN, lambda name: card(evidence, name))
    parts = {
        f"MAE at step {k}": {reading: each["mae"][:, k - 1] for reading, each in cards.items()}
        for k in STEPS
    }
    largest = {reading: each["max_ae"].max(axis=1) for reading, each in cards.items()}
    parts["Max-AE"] = {reading: each <= 0.15 for reading, each in largest.items()}
    parts["eliminates"] = that_eliminate(evidence, PLAIN)
    for k in STEPS:
        parts[f"Max-AE at step {k}"] = cards["plain"]["max_ae"][:, k - 1]
    by_seed = {"MAE": cards["plain"]["mae"].mean(axis=1), "Max-AE": largest["plain"]}
    return Measurement(parts, by_seed)


def measure_below_chance(evidence: Evidence) -> Measurement:
    """R5: held-out accuracy minus chance at steps 1 to 4, with a split of its own for each seed."""
    chance = 1 / np.arange(5, 1, -1)

    def gap(name: str) -> np.ndarray:
        return card(evidence, name)["accuracy"][:, :4] - chance[None]

    gaps = evidence.by_reading(PLAIN, gap)
    by_seed = gaps["plain"].mean(axis=1)
    closer = evidence.measure(PLAIN, against_training)
    distance, by_heart = (closer[name][:, :4] for name in ("mae_all", "mae_training"))
    parts = {
        f"accuracy - chance at step {k}": {
            reading: each[:, k - 1] for reading, each in gaps.items()
        }
        for k in GUESSED
    }
    for k in GUESSED:
        parts[f"by heart at step {k}"] = closer["accuracy_training"][:, k - 1]
    parts["below chance"] = by_seed < 0
    parts["nearer to by heart"] = by_heart.mean(axis=1) < distance.mean(axis=1)
    parts["eliminates"] = that_eliminate(evidence, PLAIN)
    return Measurement(parts, {"accuracy - chance, steps 1-4": by_seed})


def measure_trap(evidence: Evidence) -> Measurement:
    """R20: what a model trained without repeats answers when it is asked again for x1."""

    def says(name: str) -> np.ndarray:
        return card(evidence, name)["says_unused"][:, 0]

    p_unused = card(evidence, PLAIN)["p_unused"][:, 0]
    parts = {
        "unused value": evidence.by_reading(PLAIN, lambda name: says(name) >= 0.99),
        "P(unused)": p_unused,
        "eliminates": that_eliminate(evidence, PLAIN),
    }
    return Measurement(parts, {"p(unused)": p_unused, "says unused": says(PLAIN)})


# ---- where the head looks, and what it writes


def look_at_new_pairs(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """Where heads look on held-out mappings, in which no pair repeats.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    tokens = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    return roles(task, mean_pattern(task, model, tokens))


def measure_even_attention(evidence: Evidence) -> Measurement:
    """R11: the largest distance of a mean weight, from a query to an earlier output, from 1/k."""

    def uneven(name: str) -> np.ndarray:
        return evidence.measure(name, look_at_new_pairs)["unevenness"][:, 0]

    mass = evidence.measure(PLAIN, look_at_new_pairs)["x_to_outputs"][:, 0]
    parts = {
        "even": evidence.by_reading(PLAIN, lambda name: uneven(name) <= 0.1),
        "unevenness": uneven(PLAIN),
        "mass on outputs": mass,
        "eliminates": that_eliminate(evidence, PLAIN),
    }
    return Measurement(parts, {"unevenness": uneven(PLAIN), "mass on outputs": mass})


def used_values(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """What a model gives to used values from the second step on, over held-out sequences.

    `p` is their probability in all. `gap` is how much higher the logits of unused values are on
    average than those of used ones, and `direct` the part of it that the heads' own output makes
    through the read-out, past the feed-forward layer (direct logit attribution). Linear in the
    heads' output only where no norm stands between.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    tokens = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    asked = jnp.array(task.asked_positions[1:])
    read_out = model.params["unembed.W_U"]

    def of_sequence(row: Array) -> tuple[Array, Array, Array]:
        logits, trace = model.run_with_trace(row[: task.n_ctx])
        heads = trace["blocks.0.attn.hook_result"].sum(axis=1)
        is_y = jax.nn.one_hot(row[1:-2:2] - 1, task.n_symbols)
        used = jnp.cumsum(is_y, axis=0)  # step, symbol
        unused = 1 - used

        def mean_gap(of_symbols: Array) -> Array:
            kept = (of_symbols * unused).sum(axis=1) / unused.sum(axis=1)
            ruled_out = (of_symbols * used).sum(axis=1) / used.sum(axis=1)
            return (kept - ruled_out).mean()

        p = jax.nn.softmax(logits[asked], axis=-1)[:, 1:]
        return (
            (p * used).sum(axis=1).mean(),
            mean_gap(logits[asked, 1:]),
            mean_gap((heads[asked] @ read_out)[:, 1:]),
        )

    p, gap, direct = jax.vmap(of_sequence)(tokens)
    return {"p": p.mean(), "gap": gap.mean(), "direct": direct.mean()}


def measure_read_out(evidence: Evidence) -> Measurement:
    """R27: the probability of used values, and how much of their distance from unused ones the
    averaging head makes through the read-out alone."""

    def share(name: str) -> np.ma.MaskedArray:
        found = evidence.measure(name, used_values)
        apart = found["gap"] > 0
        return among(apart, found["direct"] / np.where(apart, found["gap"], 1.0))

    def small(name: str) -> np.ndarray:
        return evidence.measure(name, used_values)["p"] <= 0.01

    # a norm after each sum stands between the heads and the read-out: there is no direct part
    linear = [reading for reading in evidence.readings(PLAIN) if reading != "post"]
    shares = in_readings(evidence, (PLAIN,), share)
    parts = {
        "to zero": evidence.by_reading(PLAIN, small),
        "by the read-out": {reading: shares[reading] for reading in linear},
        "p(used)": evidence.measure(PLAIN, used_values)["p"],
        "eliminates": that_eliminate(evidence, PLAIN),
    }
    by_seed = named_by_condition(
        evidence, "p(used)", PLAIN, lambda name: evidence.measure(name, used_values)["p"]
    )
    return Measurement(parts, by_seed | {"share of the read-out": shares["plain"].filled(np.nan)})
