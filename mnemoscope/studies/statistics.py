"""What the values of units are made of: exponents of power laws."""

from collections.abc import Sequence

import numpy as np


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> float:
    """The exponent b of the power law y = c x^b that fits best in logarithms.

    Args:
        x: where it was measured.
        y: what was measured there.
    """
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])
