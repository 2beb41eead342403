"""When something reaches a level: steps at which curves through training first get there to stay.

A probe over few candidates is sometimes right by luck, so a level counts as reached when it holds
at `STAYS` evals in a row (fewer at the end of the curve).
"""

import numpy as np

from mnemoscope.core.axes import Float, Int

STAYS = 3


def first_reach(
    steps: Int[np.ndarray, "eval"],
    values: Float[np.ndarray, "seed eval"],
    level: float | Float[np.ndarray, "seed"],
) -> Float[np.ndarray, "seed"]:
    """The first step at which each seed's curve is at the level or above, straight between evals;
    infinity if it never is.

    Args:
        steps: when the curves were read.
        values: the curves.
        level: what they should reach, the same for all seeds or one for each.
    """
    values = np.asarray(values, float)
    levels = np.broadcast_to(np.asarray(level, float), values.shape[:1])
    # the lowest of each evaluation and those after it
    shifted = [np.pad(values, ((0, 0), (0, i)), mode="edge")[:, i:] for i in range(STAYS)]
    there = np.stack(shifted).min(axis=0) >= levels[:, None]
    at = there.argmax(axis=1)
    before_at = np.maximum(at - 1, 0)
    rows = np.arange(len(values))
    before = values[rows, before_at]
    rise = values[rows, at] - before
    # how far between the two evals the level is reached
    share = np.where(at == 0, 1.0, (levels - before) / np.where(rise > 0, rise, 1.0))
    found = steps[before_at] + share * (steps[at] - steps[before_at])
    return np.where(there.any(axis=1), found, np.inf)


def first_fall(
    steps: Int[np.ndarray, "eval"],
    values: Float[np.ndarray, "seed eval"],
    level: float | Float[np.ndarray, "seed"],
) -> Float[np.ndarray, "seed"]:
    """The first step at which each seed's curve is at the level or below.

    Args:
        steps: when the curves were read.
        values: the curves.
        level: what they should fall to, the same for all seeds or one for each.
    """
    return first_reach(steps, -np.asarray(values, float), -np.asarray(level, float))


def above_chance(
    recall: Float[np.ndarray, "..."], candidates: int | Float[np.ndarray, "..."]
) -> Float[np.ndarray, "..."]:
    """Accuracy on a scale on which guessing among so many candidates is 0 and
    perfect is 1.

    Six digits, so that two of five (a quarter of the way) is no more than a quarter, whatever
    float32 makes of 2/5.
    """
    chance = 1 / np.asarray(candidates, float)
    return np.round((np.asarray(recall, float) - chance) / (1 - chance), 6)
