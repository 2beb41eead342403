"""What is measured of each seed: how many queries it answers."""

import jax
import numpy as np
from jaxtyping import Array, Float

import mnemoscope as ms
from mqar.layers.study import CELLS, WIDEST, WIDTHS
from mqar.recall import MultiQueryRecall

SAMPLE = 1024  # sequences, the same for every model
SAMPLE_KEY = 7
SOLVED = 0.99


def answered(task: MultiQueryRecall, model: ms.HookedModel, world: object) -> Float[Array, ""]:
    """The share of queries that are answered with the right value.

    Args:
        task: What is asked.
        model: One seed's.
        world: Nothing is hidden.
    """

    def of_sequence(key: Array) -> Array:
        example = task.sample((), key=key)
        right = model(example.tokens).argmax(axis=-1) == example.targets
        return (right * example.weights).sum() / example.weights.sum()

    keys = jax.random.split(jax.random.key(SAMPLE_KEY), SAMPLE)
    # one after another: logits of thousands of tokens at all positions do not fit side by side
    return jax.lax.map(of_sequence, keys, batch_size=16).mean()


def measure_two_layers(evidence: ms.Evidence) -> ms.Measurement:
    """B1: at the greatest width, whether each seed answers 99% of the queries.

    Args:
        evidence: What was trained.
    """
    found = {
        pairs: np.asarray(evidence.measure(f"2-layers-{pairs}-pairs-d{WIDEST}", answered), float)
        for _, pairs in CELLS[evidence.scale]
    }
    return ms.Measurement(
        {f"{pairs} pairs": (found[pairs] >= SOLVED).astype(float) for pairs in found},
        by_seed={f"{pairs} pairs": found[pairs] for pairs in found},
    )


def measure_one_layer(evidence: ms.Evidence) -> ms.Measurement:
    """B4: how many queries one layer answers, in units of what a guess from the row gets.

    Args:
        evidence: What was trained.
    """
    parts: dict[str, np.ndarray] = {}
    for _, pairs in CELLS[evidence.scale]:
        for width in WIDTHS:
            name = f"1-layers-{pairs}-pairs-d{width}"
            parts[f"{pairs} pairs, d={width}"] = pairs * np.asarray(
                evidence.measure(name, answered), float
            )
    return ms.Measurement(parts, by_seed=parts)
