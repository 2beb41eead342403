"""The scales of a study: quick takes minutes on a laptop, full is the paper's own budget."""

from typing import Literal

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")

FRESH_SEED = 10_000
"""Where seeds begin that were not seen when a criterion was stated."""
