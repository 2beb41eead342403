r"""Where snapshots are worth keeping: densely where a curve moves, and sparsely where nothing does.

A training is kept at many candidate steps first, with its curves there: losses and skills, by seed.
Curves tremble: a loss is one of fresh batches. So each is followed at a distance, by y, which stays
where it is until the curve is farther away than D = 0.15 of its range R. By step t all curves
together have moved by v(t):

    y_t = y_{t-1} clipped to [c_t - D R, c_t + D R]      v(t) = sum_{s <= t} |y_s - y_{s-1}| / R

Kept are the start and the end, and some log-spaced steps, for the beginning of a training is always
worth seeing. Then, again and again, the stretch between two kept steps over which v rises most is
cut in two where v has risen half of it.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from mnemoscope.core.axes import Float

N_SNAPSHOTS = 30
N_LOG_SPACED = 8  # of them, the start and the end among them
N_CANDIDATES = 256
TREMOR = 0.15  # of a curve's range


def list_candidates(steps: int) -> tuple[int, ...]:
    """Steps between the start and the end at which a training may be kept, for `snapshot_at`.

    Half of them are evenly spaced and half log-spaced; of a short training it is all.

    Args:
        steps: of the whole training.
    """
    if steps <= N_CANDIDATES:
        return tuple(range(1, steps))
    half = N_CANDIDATES // 2
    spaced = np.concatenate([np.geomspace(1, steps, half), np.linspace(0, steps, half)])
    return tuple(sorted({int(step) for step in np.rint(spaced)} - {0, steps}))


def choose_steps(
    steps: Sequence[int],
    curves: Sequence[Float[np.ndarray, "step"]],
    n_kept: int = N_SNAPSHOTS,
) -> tuple[int, ...]:
    """The steps that are kept, the first and the last among them.

    Args:
        steps: candidates, rising.
        curves: values of each curve at the candidates.
        n_kept: how many are kept; all candidates, if those are fewer.
    """
    last = len(steps) - 1
    moved = sum_variation(curves, len(steps))
    spaced = np.geomspace(1, steps[-1], N_LOG_SPACED - 1)
    kept = {0, last, *np.searchsorted(steps, np.rint(spaced)).tolist()}
    while len(kept) < min(n_kept, len(steps)):
        kept.add(_halve_largest(moved, sorted(kept)))
    return tuple(int(steps[at]) for at in sorted(kept))


def sum_variation(
    curves: Sequence[Float[np.ndarray, "step"]], n_steps: int
) -> Float[np.ndarray, "step"]:
    """How far all curves have moved by each step, each in units of its range.

    Args:
        curves: values of each curve; one that never moves adds nothing.
        n_steps: how many candidates there are.
    """
    moved = np.zeros(n_steps)
    for curve in curves:
        spread = float(np.ptp(curve))
        if spread > 0:
            followed = _follow(curve, TREMOR * spread)
            moved += np.cumsum(np.abs(np.diff(followed, prepend=followed[0]))) / spread
    return moved


def _follow(curve: Float[np.ndarray, "step"], distance: float) -> Float[np.ndarray, "step"]:
    """A curve without what it trembles: it moves as far as another one must, to stay that near."""
    followed = np.array(curve, float)
    for at in range(1, len(followed)):
        low = curve[at] - distance
        followed[at] = min(max(followed[at - 1], low), low + 2 * distance)
    return followed


def _halve_largest(moved: Float[np.ndarray, "step"], kept: list[int]) -> int:
    """The candidate that halves the stretch with the largest rise, or else the longest one."""
    stretches = [
        (moved[end] - moved[begin], end - begin, -begin)
        for begin, end in pairwise(kept)
        if end - begin > 1
    ]
    _, length, minus_begin = max(stretches)
    begin = -minus_begin
    between = np.arange(begin + 1, begin + length)
    middle = (moved[begin] + moved[begin + length]) / 2
    # of those equally near, the one in the middle of the stretch
    distance = np.abs(moved[between] - middle)
    nearest = between[distance <= distance.min()]
    return int(nearest[len(nearest) // 2])
