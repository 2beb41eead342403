"""The scales of a study: how much is trained and whose results are shown, in one table of words."""

from collections.abc import Collection
from typing import Literal, NamedTuple, get_args

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
# what was trained with more comes first where results are shown
LARGEST_FIRST: tuple[Scale, ...] = SCALES[::-1]

FRESH_SEED = 10_000
"""Where seeds begin that were not seen when a criterion was stated."""


class About(NamedTuple):
    """A scale in words."""

    budget: str
    """How much is trained."""
    shown: str
    """Whose ledgers are shown."""


ABOUT: dict[Scale, About] = {
    "quick": About("minutes on a laptop", "your own runs"),
    "full": About(
        "the paper's own budget, for a GPU",
        "yours, or else those published with Mnemoscope",
    ),
}


def pick_scale(known: Collection[Scale], asked: Scale | None = None) -> Scale:
    """The scale that was asked for, or else the largest of those that there are.

    Args:
        known: the scales that there is something of; with none it is the smallest.
        asked: what the user wants, whether there is anything of it or not.
    """
    if asked is not None:
        return asked
    for scale in LARGEST_FIRST:
        if scale in known:
            return scale
    return SCALES[0]
