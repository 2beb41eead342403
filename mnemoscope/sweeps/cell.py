"""One cell of a sweep: where it stands on the axes, and what became of each of its seeds.

    reached   whether the event was seen before the training ended
    times     after which step it was first seen; where it was not, the last step: the true time is
              longer, and nobody knows by how much (it is censored)
    diverged  whether the loss was no finite number at some step; such a seed has not reached

Nothing here needs JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Shaped

from mnemoscope.core.errors import UserError, short


@dataclass(frozen=True, eq=False)
class Cell:
    """What became of the seeds of one point on the axes."""

    at: Mapping[str, Any]
    """By axis, in the order of the axes: the value that it has here."""

    seeds: tuple[int, ...]
    """In the order of every array below."""

    times: Float[np.ndarray, "seed"]
    """After which step the event was first seen; the last step where it was not."""

    reached: Bool[np.ndarray, "seed"]
    """Whether the event was seen."""

    diverged: Bool[np.ndarray, "seed"]
    """Whether the seed diverged; it counts as one that has not reached."""

    metrics: Mapping[str, Shaped[np.ndarray, "seed ..."]] = field(
        default_factory=dict[str, np.ndarray]
    )
    """What was read at the end of training, by its name; NaN where a seed diverged."""

    def __post_init__(self) -> None:
        for name, array in {
            "times": self.times,
            "reached": self.reached,
            "diverged": self.diverged,
            **self.metrics,
        }.items():
            if array.shape[:1] != (len(self.seeds),):
                raise UserError(
                    f"cell {self.name}: {name} must have one entry for each of "
                    f"{len(self.seeds)} seeds, got {short(array)}"
                )
        if (self.reached & self.diverged).any():
            raise UserError(f"cell {self.name}: a seed that diverged has not reached the event")

    @property
    def name(self) -> str:
        """Where it stands, in words: `model.d_model=8, optimizer.lr=0.001`."""
        return ", ".join(f"{axis}={value}" for axis, value in self.at.items())

    def __repr__(self) -> str:
        lost = f", {self.diverged.sum()} diverged" if self.diverged.any() else ""
        return f"<Cell {self.name}: {self.reached.sum()} of {len(self.seeds)} reached{lost}>"
