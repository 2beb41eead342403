"""The scales of a study: quick takes minutes on a laptop, full is the paper's own budget."""

from typing import Literal

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")
