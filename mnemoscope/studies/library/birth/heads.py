"""B1-B3 and B17: what one and two layers can do, what the two heads attend to, and whether weight
decay matters.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.weight_memories import head_scores
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, NO_DECAY, ONE, RANDOM, TWO
from mnemoscope.studies.library.birth.curves import (
    drawn,
    in_reading,
    of_seeds,
    require_trained,
    trained_readings,
)
from mnemoscope.studies.library.birth.sample import answers, sampled, task_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import AttentionMap, Plots
from mnemoscope.tasks import Bigrams

SHOWN = 28  # tokens of an attention map
HALF = 0.5  # of a head's attention
SOLVED = 0.95  # accuracy where the context knows


def measure_layers(evidence: Evidence) -> Measurement:
    """B1: accuracy at predictable positions with one layer and with two."""
    require_trained(evidence, ONE)
    one = evidence.measure(ONE, answers)["accuracy"]
    two = evidence.measure(TWO, answers)["accuracy"]
    parts = {
        "two layers solve it": two >= SOLVED,
        "one layer": one,
        "two layers": two,
    }
    curves = {
        "1 layer": drawn(evidence, ONE, "accuracy"),
        "2 layers": drawn(evidence, TWO, "accuracy"),
    }
    return Measurement(parts, {"one layer": one, "two layers": two}, Plots(curves=curves))


def _repeated(tokens: Array) -> Array:
    """Whether each token of a sequence was there before."""
    same = tokens[:, :, None] == tokens[:, None, :]
    before = jnp.tril(jnp.ones(same.shape[1:], bool), -1)[None]
    return (same & before).any(axis=2)


def attention(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Head scores at predictable positions, and at repeated tokens that are no triggers.

    Args:
        task: the text that the model was trained on.
        model: the model of one seed.
        _: the seed's world, of which bigram text has none.
    """
    tokens, triggers = sampled(task)
    inputs = tokens[:, :-1]
    roles = jax.vmap(task.roles)(inputs, triggers)
    predictable = (roles >= 2).astype(float)
    asked = head_scores(model, inputs, predictable, task.length // 4)
    repeated_others = (_repeated(inputs) & (roles == 0)).astype(float)
    others = head_scores(model, inputs, repeated_others)
    return asked | {"induction at others": others["induction"]}


def _attention_map(tokens: tuple[str, ...], pattern: np.ndarray) -> AttentionMap:
    """A head's pattern on named tokens, three decimals of it."""
    weights = tuple(tuple(round(float(x), 3) for x in row) for row in pattern)
    return AttentionMap(tokens=tokens, weights=weights)


def _maps(evidence: Evidence, name: str) -> dict[str, AttentionMap]:
    """Both heads of the first finished seed on one sequence of the sample."""
    run = evidence.run(name)
    task = task_of(evidence, name)
    seed = next(seed for seed in run.seeds if run.outcome(seed) == "finished")
    tokens = np.asarray(sampled(task, 1)[0][0])[:-1][:SHOWN]
    cache = run.model(seed).run_with_cache(tokens.tolist())[1]
    names = tuple(task.token_names[t] for t in tokens)
    return {
        f"layer {layer}": _attention_map(names, np.asarray(cache["pattern", layer][0]))
        for layer in (0, 1)
    }


def measure_heads(evidence: Evidence) -> Measurement:
    """B2: attention of layer 0 to the position before, and of layer 1 after an earlier
    occurrence."""
    readings = trained_readings(evidence, [ALL])
    found = {each: evidence.measure(in_reading(ALL, each), attention) for each in readings}
    seen = found["plain"]
    parts = {
        "both heads": {
            reading: (each["previous"] >= HALF) & (each["induction"] >= HALF)
            for reading, each in found.items()
        },
        "first layer": seen["previous"],
        "second layer": seen["induction"],
        "second layer, to the answer": seen["to answer"],
    }
    by_seed = {
        "layer 0 to the position before": seen["previous"],
        "layer 1 after an earlier occurrence": seen["induction"],
    }
    curves = {name: drawn(evidence, ALL, name) for name in ("previous", "induction", "to answer")}
    return Measurement(parts, by_seed, Plots(curves=curves, maps=_maps(evidence, ALL)))


def measure_other_tokens(evidence: Evidence) -> Measurement:
    """B3: layer 1's attention after an earlier occurrence, at repeated tokens that are no
    triggers."""
    readings = trained_readings(evidence, [RANDOM])
    found = {each: evidence.measure(in_reading(RANDOM, each), attention) for each in readings}
    seen = found["plain"]
    fixed = evidence.measure(ALL, attention)
    parts = {
        "any repeated token": {
            reading: each["induction at others"] >= HALF for reading, each in found.items()
        },
        "at other tokens": seen["induction at others"],
        "at triggers": seen["induction"],
        "fixed triggers, at other tokens": fixed["induction at others"],
    }
    by_seed = {
        "random triggers: at other tokens": seen["induction at others"],
        "random triggers: at triggers": seen["induction"],
        "fixed triggers: at other tokens": fixed["induction at others"],
        "fixed triggers: at triggers": fixed["induction"],
    }
    return Measurement(parts, by_seed, Plots(maps=_maps(evidence, RANDOM)))


def measure_decay(evidence: Evidence) -> Measurement:
    """B17: accuracy at predictable positions, trained with weight decay and without."""
    require_trained(evidence, NO_DECAY)
    with_decay = of_seeds(evidence, ALL, evidence.measure(ALL, answers)["accuracy"])
    without = of_seeds(evidence, NO_DECAY, evidence.measure(NO_DECAY, answers)["accuracy"])
    parts = {
        "solved with decay": with_decay >= SOLVED,
        "solved without decay": without >= SOLVED,
        "difference": without - with_decay,
    }
    by_seed = {
        "with weight decay": with_decay.compressed(),
        "without weight decay": without.compressed(),
    }
    curves = {
        "with weight decay": drawn(evidence, ALL, "accuracy"),
        "without weight decay": drawn(evidence, NO_DECAY, "accuracy"),
    }
    return Measurement(parts, by_seed, Plots(curves=curves))
