"""R12-R15, R28 and R29: what heads and feed-forward layer do, by where they look and by what is
lost or said when something is put in their place."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer, replace_site
from mnemoscope.probes.ablation import forced_patterns, knock_outs, list_cases
from mnemoscope.probes.attention import mean_pattern, roles
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import PLAIN_TWO, SMALL_TWO, TWO
from mnemoscope.studies.library.remember.mastery import full_only, masters, that_master_both
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.tasks import Permutation, Split

# a skill after a knock-out
DAMAGED = 0.6  # at most
INTACT = 0.9  # at least
ATTN_OUT = "blocks.0.hook_attn_out"


# ---- where heads look


def where_heads_look(
    task: Permutation, model: Transformer, split: Split
) -> dict[str, dict[str, Array]]:
    """Where the heads look when the last pair is new, and when it is the first one again.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    found: dict[str, dict[str, Array]] = {}
    for name, last_pair in (("new", task.n_symbols - 1), ("again", 0)):
        tokens = task.list_tokens(split.held_out, (last_pair,))
        found[name] = roles(task, mean_pattern(task, model, tokens))
    return found


def averaging_and_local(evidence: Evidence, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Which heads of a condition's seeds average earlier outputs, and which are local.

    A head averages if it gives outputs 90% of a query's mass within .15 of even; it is local if it
    gives .9 of an output to itself and .5 of a query to the output before.

    Args:
        evidence: What there is.
        name: The condition.
    """
    seen = evidence.measure(name, where_heads_look)["new"]
    averages = (seen["x_to_outputs"] >= 0.9) & (seen["unevenness"] <= 0.15)
    local = (seen["y_to_self"] >= 0.9) & (seen["x_to_preceding_output"] >= 0.5)
    return averages, local


def specialized(evidence: Evidence, name: str) -> np.ndarray:
    """Seeds in which one head averages and the other one is local.

    Args:
        evidence: What there is.
        name: The condition.
    """
    averages, local = averaging_and_local(evidence, name)
    return np.any(averages & local[:, ::-1], axis=1)


def measure_roles(evidence: Evidence) -> Measurement:
    """R12: where each of the two heads looks."""
    averages, local = averaging_and_local(evidence, TWO)
    both = evidence.measure(TWO, where_heads_look)
    before = both["new"]["x_to_preceding_output"].max(axis=1)
    to_self = both["new"]["y_to_self"].max(axis=1)
    parts = {
        "both roles": evidence.by_reading(TWO, lambda name: specialized(evidence, name)),
        "averaging head": averages.any(axis=1),
        "local head": local.any(axis=1),
        "x to preceding output": before,
        "y to self": to_self,
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "averaging head": averages.any(axis=1),
        "local head": local.any(axis=1),
        "x to preceding output": before,
        "y to self": to_self,
        "repeated x to first x": both["again"]["last_x_to_first_x"].max(axis=1),
        "repeated x to first output": both["again"]["last_x_to_first_output"].max(axis=1),
    }
    return Measurement(parts, by_seed)


def measure_specialization(evidence: Evidence) -> Measurement:
    """R28: both roles in heads of d=16, of d=32, and of d=32 trained without repeats."""
    full_only(evidence, SMALL_TWO, PLAIN_TWO)
    names = {"at d=16": SMALL_TWO, "at d=32": TWO, "without repeats": PLAIN_TWO}
    parts: dict[str, Any] = {
        what: evidence.by_reading(name, lambda each: specialized(evidence, each))
        for what, name in names.items()
    }
    for what, name in names.items():
        parts[f"local head, {what}"] = averaging_and_local(evidence, name)[1].any(axis=1)
    by_seed = {
        f"x to preceding output, {what}": evidence.measure(name, where_heads_look)["new"][
            "x_to_preceding_output"
        ].max(axis=1)
        for what, name in names.items()
    }
    parts["masters both"] = that_master_both(evidence, TWO)
    return Measurement(parts, by_seed)


# ---- what is lost without a part, by seeds that master both skills


def skills_without_heads(evidence: Evidence, name: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Elimination and recall without each of two heads: (seed, head).

    Args:
        evidence: What there is.
        name: The condition.
        kind: What stands in the head's place, "mean" or "zero".
    """
    out = evidence.measure(name, knock_outs)[kind]
    return out["elimination"][:, 1:3], out["recall"][:, 1:3]


def divides(elimination: np.ndarray, recall: np.ndarray) -> np.ndarray:
    """Seeds in which one head's loss takes elimination alone, and the other's recall alone.

    Args:
        elimination: Without each head: (seed, head).
        recall: The same.
    """
    only_elimination = (elimination <= DAMAGED) & (recall >= INTACT)
    only_recall = (recall <= DAMAGED) & (elimination >= INTACT)
    return np.any(only_elimination & only_recall[:, ::-1], axis=1)


def measure_division(evidence: Evidence) -> Measurement:
    """R13: both skills without each head, set to its mean, by seeds that master both."""

    def divided(name: str, kind: str) -> np.ma.MaskedArray:
        return among(masters(evidence, name), divides(*skills_without_heads(evidence, name, kind)))

    able = masters(evidence, TWO)
    elimination, recall = skills_without_heads(evidence, TWO, "mean")
    both_fall = np.any((elimination <= DAMAGED) & (recall <= DAMAGED), axis=1)
    idle = np.any((elimination >= INTACT) & (recall >= INTACT), axis=1)
    parts = {
        "divides": evidence.by_reading(TWO, lambda name: divided(name, "mean")),
        "divides, set to zero": divided(TWO, "zero"),
        "one head for both": among(able, both_fall),
        "idle head": among(able, idle),
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "masters both": able,
        "divided": divides(elimination, recall),
        "elimination without head 0": elimination[:, 0],
        "elimination without head 1": elimination[:, 1],
        "recall without head 0": recall[:, 0],
        "recall without head 1": recall[:, 1],
    }
    return Measurement(parts, by_seed)


def measure_attention_and_mlp(evidence: Evidence) -> Measurement:
    """R14: recall with attention, and with the feed-forward layer, at its mean."""

    def without(name: str, part: str) -> np.ndarray:
        recall = evidence.measure(name, knock_outs)["mean"]["recall"]
        return recall[:, list_cases(evidence.conditions[name].spec.model).index(part)]

    def needs_both(name: str) -> np.ma.MaskedArray:
        lost = np.maximum(without(name, "L0 attention"), without(name, "L0 mlp"))
        return among(masters(evidence, name), lost <= 0.5)

    able = masters(evidence, TWO)
    attention = without(TWO, "L0 attention")
    mlp = without(TWO, "L0 mlp")
    parts = {
        "needs both": evidence.by_reading(TWO, needs_both),
        "recall without attention": among(able, attention),
        "recall without mlp": among(able, mlp),
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "masters both": able,
        "recall without attention": attention,
        "recall without mlp": mlp,
    }
    return Measurement(parts, by_seed)


def of_recall_head(evidence: Evidence, name: str, values: np.ndarray) -> np.ndarray:
    """What was read of the head that recall needs most, by seed.

    Args:
        evidence: What there is.
        name: The condition.
        values: Of each head: (seed, head).
    """
    needed_most = skills_without_heads(evidence, name, "mean")[1].argmin(axis=1)
    return values[np.arange(len(values)), needed_most]


def measure_local_pattern(evidence: Evidence) -> Measurement:
    """R15: where the head that recall needs most looks, and recall with an even pattern forced."""

    def preceding(name: str) -> np.ndarray:
        seen = evidence.measure(name, where_heads_look)["again"]
        return of_recall_head(evidence, name, seen["x_to_preceding_output"])

    def forced(name: str, pattern: str) -> np.ndarray:
        recall = evidence.measure(name, forced_patterns)[pattern]["recall"]
        return of_recall_head(evidence, name, recall)

    def necessary(name: str) -> np.ma.MaskedArray:
        found = (preceding(name) >= 0.5) & (forced(name, "even") <= 0.5)
        return among(masters(evidence, name), found)

    able = masters(evidence, TWO)
    even = forced(TWO, "even")
    kept = forced(TWO, "local")
    parts = {
        "local and necessary": evidence.by_reading(TWO, necessary),
        "local": among(able, preceding(TWO) >= 0.5),
        "recall, even pattern": among(able, even),
        "recall, local pattern": among(able, kept),
        "masters both": that_master_both(evidence, TWO),
    }
    places = {
        "to x1": "last_x_to_first_x",
        "to y1": "last_x_to_first_output",
        "to the output before": "last_x_to_preceding_output",
    }
    seen = evidence.measure(TWO, where_heads_look)["again"]
    for what, role in places.items():
        parts[what] = among(able, of_recall_head(evidence, TWO, seen[role]))
    by_seed = {
        "masters both": able,
        "mass on preceding output": preceding(TWO),
        "recall, even pattern": even,
        "recall, local pattern": kept,
    }
    return Measurement(parts, by_seed)


# ---- what the feed-forward layer goes by


def recall_by_halves(task: Permutation, model: Transformer, split: Split) -> dict[str, Array]:
    """How often y1 is the answer if only one half of the last position is that of x1 asked again.

    The feed-forward layer receives the embedding of the last token and what attention adds to it.
    In held-out sequences with a new last pair, one of the two is put in from the same sequence with
    x1 asked again; the other stays.

    Args:
        task: The permutation task.
        model: One seed's.
        split: Its trained and held-out mappings.
    """
    new = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    again = task.list_tokens(split.held_out, (0,))
    last = (jnp.arange(task.n_ctx) == task.n_ctx - 1)[:, None]

    def of_sequence(new: Array, again: Array) -> dict[str, Array]:
        before, after = (model.run_with_trace(row[: task.n_ctx])[1] for row in (new, again))
        # added to what attention adds, a change of the embedding is seen by all but attention
        embedding = after["hook_embed"] - before["hook_embed"]
        put_in = {"embedding": before[ATTN_OUT] + embedding, "attention": after[ATTN_OUT]}

        def recalls(value: Array) -> Array:
            edit = replace_site(ATTN_OUT, value, last)
            return model.run_with_trace(new[: task.n_ctx], (edit,))[0][-1].argmax() == again[1]

        return {name: recalls(value) for name, value in put_in.items()}

    return {name: said.mean() for name, said in jax.vmap(of_sequence)(new, again).items()}


def measure_recognition(evidence: Evidence) -> Measurement:
    """R29: recall from the repeated embedding alone, and from attention's output alone."""

    def half(name: str, what: str) -> np.ndarray:
        return evidence.measure(name, recall_by_halves)[what]

    able = masters(evidence, TWO)

    def suffices(name: str) -> np.ma.MaskedArray:
        return among(masters(evidence, name), half(name, "embedding") >= 0.5)

    def does_not(name: str) -> np.ma.MaskedArray:
        return among(masters(evidence, name), half(name, "attention") <= 0.5)

    parts = {
        "embedding is enough": evidence.by_reading(TWO, suffices),
        "attention is not": evidence.by_reading(TWO, does_not),
        "recall from the embedding": among(able, half(TWO, "embedding")),
        "recall from attention": among(able, half(TWO, "attention")),
        "masters both": that_master_both(evidence, TWO),
    }
    by_seed = {
        "masters both": able,
        "recall from the embedding alone": half(TWO, "embedding"),
        "recall from attention's output alone": half(TWO, "attention"),
    }
    return Measurement(parts, by_seed)
