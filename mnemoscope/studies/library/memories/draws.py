"""Draws of embeddings: the units of what is written and not trained."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.studies.scales import FRESH_SEED, Scale

LANES = 4  # draws at once on an accelerator


def for_draws(f: Callable[[Array], Any], draws: range) -> Any:
    """What f finds for the seed of each draw, on all devices.

    Args:
        f: gets a seed.
        draws: the seeds.
    """
    return map_over_seeds(f, len(draws), LANES)(np.array(draws))


def seeds_of(scale: Scale, n_quick: int, n_full: int) -> range:
    """The seeds at a scale: from 0 at quick, and at full those that nobody has seen.

    Args:
        scale: quick or full.
        n_quick: how many at quick.
        n_full: how many at full.
    """
    return range(FRESH_SEED, FRESH_SEED + n_full) if scale == "full" else range(n_quick)
