"""M6: how the error of a Zipf memory falls with dimensions and with samples.

Nothing is trained.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.memories.draws import for_draws, seeds_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Grid, Plots
from mnemoscope.theory.associative_memory import zipf

# a trial is a number of draws of embeddings whose errors are averaged, as the paper averages its
# hundred: the theorem is about the mean error, and the slope of a single draw is not its slope
TRIALS = {"quick": 8, "full": 16}
DRAWS = {"quick": 4, "full": 100}  # of a trial
WIDTHS = np.unique(np.rint(np.geomspace(10, 1000, 13)).astype(int))
# from which a memory is filled, at every second width
SAMPLES = (10, 32, 100, 316, 1000, 3162, 10_000)
MANY_SAMPLES = np.unique(np.rint(np.geomspace(10, 10_000, 13)).astype(int))
CLASSES = 5  # of a Zipf memory: y = x mod 5
ZIPF = 1000  # inputs of a Zipf memory
MANY = 1_000_000  # inputs where there is room for all
NAMES = ("most frequent kept", "weighted by frequency", "all alike")  # weightings of a Zipf memory


def _counts(n: int, seed: Array) -> Float[Array, "samples n"]:
    """How often each input was seen in the first T of one stream of draws."""
    keys = jax.random.split(jax.random.key(seed + 2**20))
    up_to = jnp.asarray(np.cumsum(zipf(n, 2.0))[:-1], float)
    stream = jnp.searchsorted(up_to, jax.random.uniform(keys[0], (SAMPLES[-1],)), side="right")
    seen = jnp.stack([jnp.bincount(stream[:t], length=n) for t in SAMPLES]).astype(float)
    # ties are broken by chance: the order of the inputs would tell which are frequent
    return jnp.where(seen > 0, seen + jax.random.uniform(keys[1], seen.shape), 0.0)


def _weightings(
    room: int, p: Float[Array, "x"], counts: Float[Array, "samples x"] | None
) -> Float[Array, "weighting x"]:
    """How strongly each input is written: one row for each of NAMES.

    With counts, one more for each number of samples: the inputs that were seen most often.
    """
    n = len(p)
    kept = (jnp.arange(n) < room).astype(p.dtype)
    known = jnp.stack([kept, p, jnp.ones(n)])
    if counts is None:
        return known
    least = jnp.sort(counts, axis=1)[:, -room]
    seen = (counts >= least[:, None]) & (counts > 0)
    return jnp.concatenate([known, seen.astype(p.dtype)])


def _errors(
    seed: Array,
) -> tuple[Float[Array, "weighting width"], Float[Array, "samples every_second_width"]]:
    """Error of each weighting at every width, and of memories that are filled from T draws.

    These keep the d / 8 inputs that were seen most often. Embeddings are drawn at the largest width
    and cut, as the paper does. Scores need no W: with K = E E^T and G = U U^T,
    u_y . W e_x = sum_x' q(x') G[y, f(x')] K[x, x'], and K grows with the width.
    """
    n = ZIPF
    keys = jax.random.split(jax.random.key(seed))
    e = jax.random.normal(keys[0], (n, WIDTHS[-1]))
    u = jax.random.normal(keys[1], (CLASSES, WIDTHS[-1]))
    p = jnp.asarray(zipf(n, 2.0), float)
    answer = jnp.arange(n) % CLASSES
    counts = _counts(n, seed)
    alike = jnp.zeros((n, n))
    before = 0
    known = []
    drawn = []
    for i, d in enumerate(WIDTHS.tolist()):
        unit = u[:, :d] / jnp.linalg.norm(u[:, :d], axis=1, keepdims=True)
        alike = alike + e[:, before:d] @ e[:, before:d].T
        before = d
        with_draws = i % 2 == 0
        q = _weightings(max(1, d // 8), p, counts if with_draws else None)
        written = q[:, :, None] * (unit @ unit.T)[answer][None]
        scores = jnp.einsum("xz,qzy->qxy", alike, written)
        error = jnp.where(scores.argmax(axis=2) != answer[None], p[None], 0.0).sum(axis=1)
        known.append(error[: len(NAMES)])
        if with_draws:
            drawn.append(error[len(NAMES) :])
    return jnp.stack(known, axis=1), jnp.stack(drawn, axis=1)


def _slopes(
    sizes: Float[np.ndarray, "size"], errors: Float[np.ndarray, "unit size"]
) -> Float[np.ndarray, "unit"]:
    """Each unit's exponent b of the power law error = c size^b that fits best in logarithms."""
    return np.polyfit(np.log(sizes), np.log(errors).T, 1)[0]


def _unseen(
    p: Float[np.ndarray, "x"], samples: Sequence[int] | np.ndarray
) -> Float[np.ndarray, "samples"]:
    """The mass of the inputs that T draws leave unseen: sum_x p(x) (1 - p(x))^T, exactly."""
    return np.array([(p * np.exp(t * np.log1p(-p))).sum() for t in samples])


def _filled(
    errors: Float[np.ndarray, "draw weighting width"],
    joint: Float[np.ndarray, "draw samples every_second_width"],
) -> tuple[dict[str, Grid], Float[np.ndarray, "samples every_second_width"]]:
    """Errors in d and T together beside the sum of what each loses alone, and their ratio."""
    measured = joint.mean(axis=0)
    # of the inputs that T draws left unseen a guess gets one in five
    lost = (1 - 1 / CLASSES) * _unseen(zipf(ZIPF, 2.0), SAMPLES)
    both = lost[:, None] + errors[:, 0, ::2].mean(axis=0)[None]
    columns = [f"{t:,}" for t in SAMPLES]
    grids = {
        "measured": Grid.of(WIDTHS[::2], columns, measured.T),
        "sum": Grid.of(WIDTHS[::2], columns, both.T),
    }
    return grids, measured / both


def measure_exponents(evidence: Evidence) -> Measurement:
    """M6: slopes of log error against log d, for each weighting, and against log T."""
    trials = TRIALS[evidence.scale]
    n_draws = trials * DRAWS[evidence.scale]
    # draw weighting width, draw samples width
    errors, joint = for_draws(_errors, seeds_of(evidence.scale, n_draws, n_draws))
    by_trial = errors.reshape(trials, -1, *errors.shape[1:]).mean(axis=1)
    # with room for everything, an input is answered wrongly if it was never drawn
    unseen = _unseen(zipf(MANY, 2.0), MANY_SAMPLES)
    grids, ratio = _filled(errors, joint)
    parts = {name: _slopes(WIDTHS.astype(float), by_trial[:, i]) for i, name in enumerate(NAMES)}
    parts |= {
        "samples": _slopes(MANY_SAMPLES.astype(float), unseen[None]),
        "least of the sum": ratio.min(),
        "most of the sum": ratio.max(),
    }
    curves = {name: Curve.over_seeds(WIDTHS, by_trial[:, i]) for i, name in enumerate(NAMES)}
    curves["samples"] = Curve.over_seeds(MANY_SAMPLES, unseen[None])
    by_seed = {}
    for i, name in enumerate(NAMES):
        for at in (0, -1):
            by_seed[f"{name}, d={WIDTHS[at]}"] = by_trial[:, i, at]
    return Measurement(parts, by_seed, Plots(curves=curves, grids=grids))
