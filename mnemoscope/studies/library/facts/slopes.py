"""Powers of power laws, one for each unit: a draw or a seed that is measured at every size."""

import numpy as np

from mnemoscope.core.axes import Float


def fit_powers(
    sizes: Float[np.ndarray, "size"], amounts: Float[np.ndarray, "size unit"]
) -> Float[np.ndarray, "unit"]:
    """Each unit's power b in amount = c size^b, the best fit in logarithms.

    Infinite where an amount lies beyond what was tried, and so has no finite value.

    Args:
        sizes: at which the units were measured.
        amounts: of every unit at every size.
    """
    known = np.isfinite(amounts)
    logs = np.log(np.where(known, amounts, 1.0))
    return np.where(known.all(axis=0), np.polyfit(np.log(sizes), logs, 1)[0], np.inf)
