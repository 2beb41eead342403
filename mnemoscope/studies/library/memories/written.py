"""M1 and M3-M6: memories that are written down, by hand or by one gradient step.

Nothing is trained.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.studies.claims import Curve, Grid, Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import (
    MOST,
    Interval,
    mean_interval,
    share_interval,
    share_verdict,
    slope,
)
from mnemoscope.theory.associative_memory import (
    check_recall,
    random_unit_vectors,
    write_pairs,
    zipf,
)
from mnemoscope.theory.one_step import cross_entropy, population_gradient, step_from_zero

D = 256
SIZES = (64, 256, 1024, 4096, 16_384)  # numbers of pairs in one sum
SEEDS = {"quick": 8, "full": 64}
ASKED = {
    "quick": 1024,
    "full": 16_384,
}  # pairs at most that are asked for, of as many as are stored
DRAWS = {"quick": 32, "full": 100}  # of embeddings for the exponents; the paper has 100
WIDTHS = np.unique(np.rint(np.geomspace(10, 1000, 13)).astype(int))
SAMPLES = (
    10,
    32,
    100,
    316,
    1000,
    3162,
    10_000,
)  # from which a memory is filled, at every second width
CLASSES = 5  # of a Zipf memory: y = x mod 5
ZIPF = 1000  # inputs of a Zipf memory
NAMES = ("most frequent kept", "weighted by frequency", "all alike")  # weightings of a Zipf memory
MEMORIES = 5  # of random size, whose gradients are compared
LANES = 4  # draws at once on an accelerator


def for_draws(f: Callable[[Array], Any], n: int) -> Any:
    """f(seed) for the seeds 0 .. n - 1, on all devices."""
    return map_over_seeds(f, n, LANES)(np.arange(n))


def _embeddings(n: int, d: int, seed: Array) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Inputs and outputs on the sphere, one output for each input."""
    keys = jax.random.split(jax.random.key(seed))
    return random_unit_vectors(n, d, key=keys[0]), random_unit_vectors(n, d, key=keys[1])


def _recalled_share(n: int, n_asked: int, seed: Array) -> Float[Array, ""]:
    """The share of the first n_asked of n stored pairs that are recalled."""
    e, u = _embeddings(n, D, seed)
    w = write_pairs(e, u, jnp.arange(n), jnp.ones(n))
    asked = jnp.arange(min(n, n_asked))
    # some rows at a time: all scores of 16,384 pairs are a gigabyte
    right = jax.lax.map(lambda x: check_recall(w, e[x], u, x), asked.reshape(-1, min(n, 1024)))
    return right.mean()


def outer_products(evidence: Evidence) -> Outcome:
    """M1: the share of pairs that a sum of outer products recalls, for numbers of pairs N.

    Reproduced if at least 99% of N = d are recalled in 90% of seeds, while fewer than half of
    N = d^2 / 4 are, partly if at least 99% of N = d / 4 are in 90% of seeds, else refuted.
    """
    most = ASKED[evidence.scale]
    draws = SEEDS[evidence.scale]
    right = {n: for_draws(lambda seed, n=n: _recalled_share(n, most, seed), draws) for n in SIZES}
    share, interval = share_interval(right[D] >= 0.99)
    verdict: Verdict = "refuted"
    if share >= MOST and right[D**2 // 4].mean() < 0.5:
        verdict = "reproduced"
    elif (right[D // 4] >= 0.99).mean() >= MOST:
        verdict = "partly"
    table = ", ".join(f"{right[n].mean():.1%} of {n:,}" for n in SIZES)
    sentence = (
        f"Random directions in {D} dimensions, a sum of outer products recalls {table} pairs."
    )
    return Outcome(verdict, share, interval, sentence, {f"N={n}": x for n, x in right.items()})


def _random_memory(rng: np.random.Generator) -> tuple[Array, ...]:
    """W, E, U, answers and probabilities of a memory of random size."""
    n, m, d = rng.integers(1, 30, 3)
    e = jnp.array(rng.normal(size=(n, d)))
    u = jnp.array(rng.normal(size=(m, d)))
    w = jnp.array(rng.normal(size=(d, d)))
    answer = jnp.array(rng.integers(0, m, n))
    p = jnp.array(rng.dirichlet(np.ones(n)))
    return w, e, u, answer, p


def gradient_formula(evidence: Evidence) -> Outcome:
    """M3: how far the formula of the gradient is from the automatic derivative, in float64.

    Reproduced if they differ by at most 1e-12, relative, in every memory, else refuted.
    """
    worst = 0.0
    rng = np.random.default_rng(0)
    both = jax.jit(lambda *memory: (population_gradient(*memory), jax.grad(cross_entropy)(*memory)))
    with jax.enable_x64(True):
        for _ in range(MEMORIES):
            formula, true = both(*_random_memory(rng))
            size = jnp.maximum(jnp.abs(true).max(), 1e-300)
            worst = max(worst, float(jnp.abs(formula - true).max() / size))
    verdict: Verdict = "reproduced" if worst <= 1e-12 else "refuted"
    sentence = (
        f"In {MEMORIES} memories of random size, formula and derivative differ "
        f"by at most {worst:.1g}, relative, in float64."
    )
    return Outcome(verdict, worst, (worst, worst), sentence)


def _after_one_step(n: int, distractors: int, seed: Array) -> Array:
    """Recall from the right embedding alone, and from whole sums such as were trained on."""
    e, u = _embeddings(n, D, seed)
    every = jnp.arange(n)
    p = jnp.full(n, 1 / n)
    w = step_from_zero(e, u, every, p, distractors)
    noise = jax.random.randint(jax.random.key(seed + 2**20), (n, distractors), 0, n)
    shown = e + e[noise].sum(axis=1)
    return jnp.stack([check_recall(w, e, u, every).mean(), check_recall(w, shown, u, every).mean()])


def one_step(evidence: Evidence) -> Outcome:
    """M4: the share of pairs that are recalled after one population step from zero.

    Reproduced if at least 99% are in at least 90% of seeds, refuted if in at most 10%, partly in
    between.
    """
    right = for_draws(lambda seed: _after_one_step(D, 0, seed)[0], SEEDS[evidence.scale])
    verdict, share, interval = share_verdict(right >= 0.99)
    sentence = (
        f"One population step from zero, {D} pairs in {D} dimensions: {right.mean():.2%} are "
        f"recalled, at least 99% in {share:.0%} of draws."
    )
    return Outcome(verdict, share, interval, sentence, {"recalled": right})


def sums_of_embeddings(evidence: Evidence) -> Outcome:
    """M5: recall from the right embedding alone, after one step on sums with n distractors.

    Reproduced if at least 99% are recalled in 90% of seeds for n = 15, partly for n = 3 only, else
    refuted.
    """
    draws = SEEDS[evidence.scale]
    # draw, (alone, whole sum)
    found = {n: for_draws(lambda seed, n=n: _after_one_step(D, n, seed), draws) for n in (3, 15)}
    shares = {n: (x[:, 0] >= 0.99).mean() for n, x in found.items()}
    verdict: Verdict = "refuted"
    if shares[15] >= MOST:
        verdict = "reproduced"
    elif shares[3] >= MOST:
        verdict = "partly"
    value, interval = mean_interval(found[15][:, 0])
    table = "; ".join(
        f"{n} distractors {x[:, 0].mean():.1%} and {x[:, 1].mean():.1%}" for n, x in found.items()
    )
    sentence = (
        "After one population step on sums, recall from the right embedding alone and from whole "
        f"sums: {table}. Distractors do not know the answer, so the step writes their mean only; "
        "read out of a sum, they are still in the way."
    )
    by_seed = {}
    for n, x in found.items():
        by_seed[f"{n} distractors, alone"] = x[:, 0]
        by_seed[f"{n} distractors, whole sum"] = x[:, 1]
    return Outcome(verdict, value, interval, sentence, by_seed)


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


def _slope_interval(errors: Float[np.ndarray, "draw width"]) -> tuple[float, tuple[float, float]]:
    """The slope of the mean error, and its interval when draws are drawn again."""
    rng = np.random.default_rng(0)
    n = len(errors)
    again = [slope(WIDTHS, errors[rng.integers(0, n, n)].mean(axis=0)) for _ in range(999)]
    low, high = np.quantile(again, [0.025, 0.975])
    return slope(WIDTHS, errors.mean(axis=0)), (float(low), float(high))


def _unseen(
    p: Float[np.ndarray, "x"], samples: Sequence[int] | np.ndarray
) -> Float[np.ndarray, "samples"]:
    """The mass of the inputs that T draws leave unseen: sum_x p(x) (1 - p(x))^T, exactly."""
    return np.array([(p * np.exp(t * np.log1p(-p))).sum() for t in samples])


def _exponents_verdict(slopes: Mapping[str, tuple[float, Interval]], in_samples: float) -> Verdict:
    """The rule of M6: which of the three published exponents are met within .1."""
    published = {NAMES[0]: -1.0, NAMES[1]: -1 / 4}
    holds = [abs(in_samples + 1 / 2) <= 0.1]
    for name, exponent in published.items():
        _, (low, high) = slopes[name]
        holds.append(low - 0.1 <= exponent <= high + 0.1)
    if all(holds):
        return "reproduced"
    return "partly" if any(holds) else "refuted"


def _filled(
    errors: Float[np.ndarray, "draw weighting width"],
    joint: Float[np.ndarray, "draw samples every_second_width"],
) -> tuple[dict[str, Grid], str]:
    """Errors in d and T together, against the sum of what each loses alone; and in words."""
    measured = joint.mean(axis=0)
    # of the inputs that T draws left unseen a guess gets one in five
    lost = (1 - 1 / CLASSES) * _unseen(zipf(ZIPF, 2.0), SAMPLES)
    both = lost[:, None] + errors[:, 0, ::2].mean(axis=0)[None]
    ratio = measured / both
    at_full_width = zip(SAMPLES, measured[:, -1], strict=True)
    ends = [f"{x:.2g} at T={t:,}" for t, x in at_full_width if t in (10, 100, 1000, 10_000)]
    columns = [f"{t:,}" for t in SAMPLES]
    grids = {
        "measured": Grid.of(WIDTHS[::2], columns, measured.T),
        "sum": Grid.of(WIDTHS[::2], columns, both.T),
    }
    said = (
        f"{', '.join(ends)}; over all d and T the error is {ratio.min():.2f} to "
        f"{ratio.max():.2f} times the sum of what d and T lose alone"
    )
    return grids, said


def exponents(evidence: Evidence) -> Outcome:
    """M6: slopes of log error against log d, for two weightings, and against log T.

    An exponent holds if its interval over draws comes within .1 of the published one: reproduced if
    all three do, refuted if none does, partly in between.
    """
    # draw weighting width, draw samples width
    errors, joint = for_draws(_errors, DRAWS[evidence.scale])
    slopes = {name: _slope_interval(errors[:, i]) for i, name in enumerate(NAMES)}
    # with room for everything, an input is answered wrongly if it was never drawn
    samples = np.unique(np.rint(np.geomspace(10, 10_000, 13)).astype(int))
    unseen = _unseen(zipf(1_000_000, 2.0), samples)
    in_samples = slope(samples, unseen)
    grids, filled = _filled(errors, joint)
    table = "; ".join(
        f"{name} {mean:.2f} [{low:.2f}, {high:.2f}]" for name, (mean, (low, high)) in slopes.items()
    )
    weightings = range(len(NAMES))
    first = ", ".join(f"{errors[:, i, 0].mean():.3g}" for i in weightings)
    last = ", ".join(f"{errors[:, i, -1].mean():.3g}" for i in weightings)
    sentence = (
        f"Slopes of log error against log d: {table}; against log T {in_samples:.2f}. Errors at "
        f"d=10 are {first}, at d=1000 {last}. Filled from T draws, at d=1000: {filled}."
    )
    curves = {name: Curve.over_seeds(WIDTHS, errors[:, i]) for i, name in enumerate(NAMES)}
    curves["samples"] = Curve.over_seeds(samples, unseen[None])
    by_seed = {}
    for i, name in enumerate(NAMES):
        for at in (0, -1):
            by_seed[f"{name}, d={WIDTHS[at]}"] = errors[:, i, at]
    value, interval = slopes[NAMES[0]]
    plots = Plots(curves=curves, grids=grids)
    verdict = _exponents_verdict(slopes, in_samples)
    return Outcome(verdict, value, interval, sentence, by_seed, plots)
