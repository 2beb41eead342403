"""M1 and M3-M6: memories that are written down, by hand or by one gradient step. Nothing is trained."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.seeds import on_devices
from mnemoscope.studies.claims import Curve, Grid, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval, share_verdict, slope
from mnemoscope.theory.memory import on_the_sphere, recalled, store, zipf
from mnemoscope.theory.one_step import cross_entropy, population_gradient, step_from_zero

D = 256
SIZES = (64, 256, 1024, 4096, 16_384)  # numbers of pairs in one sum
SEEDS = {"quick": 8, "full": 64}
ASKED = {"quick": 1024, "full": 16_384}  # pairs at most that are asked for, of as many as are stored
DRAWS = {"quick": 32, "full": 100}  # of embeddings for the exponents; the source has 100
WIDTHS = np.unique(np.rint(np.geomspace(10, 1000, 13)).astype(int))
SAMPLES = (10, 32, 100, 316, 1000, 3162, 10_000)  # from which a memory is filled, at every second width
CLASSES = 5  # of a Zipf memory: y = x mod 5
MEMORIES = 5  # of random size, whose gradients are compared
LANES = 4  # draws at once on an accelerator


def for_draws(f: Callable[[Array], Any], n: int) -> Any:
    """f(seed) for the seeds 0 .. n - 1, on all devices."""
    return on_devices(f, n, LANES)(np.arange(n))


def _embeddings(n: int, d: int, seed: Array) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Inputs and outputs on the sphere, one output for each input."""
    keys = jax.random.split(jax.random.key(seed))
    return on_the_sphere(n, d, key=keys[0]), on_the_sphere(n, d, key=keys[1])


def outer_products(evidence: Evidence) -> Outcome:
    """M1."""

    def one(n: int, seed: Array) -> Array:
        e, u = _embeddings(n, D, seed)
        w, asked = store(e, u, jnp.arange(n), jnp.ones(n)), jnp.arange(min(n, ASKED[evidence.scale]))
        # some rows at a time: all scores of 16,384 pairs are a gigabyte
        right = jax.lax.map(lambda x: recalled(w, e[x], u, x), asked.reshape(-1, min(n, 1024)))
        return right.mean()

    right = {n: for_draws(lambda seed, n=n: one(n, seed), SEEDS[evidence.scale]) for n in SIZES}
    share, interval = share_interval(right[D] >= 0.99)
    verdict: Verdict = "reproduced" if share >= MOST and right[D**2 // 4].mean() < 0.5 else "refuted"
    if verdict == "refuted" and (right[D // 4] >= 0.99).mean() >= MOST:
        verdict = "partly"
    table = ", ".join(f"{right[n].mean():.1%} of {n:,}" for n in SIZES)
    sentence = f"Random directions in {D} dimensions, a sum of outer products recalls {table} pairs."
    return Outcome(verdict, share, interval, sentence, {f"N={n}": x for n, x in right.items()})


def gradient_formula(evidence: Evidence) -> Outcome:
    """M3."""
    worst, rng = 0.0, np.random.default_rng(0)
    both = jax.jit(lambda *memory: (population_gradient(*memory), jax.grad(cross_entropy)(*memory)))
    with jax.enable_x64(True):
        for _ in range(MEMORIES):
            n, m, d = rng.integers(1, 30, 3)
            e, u, w = (jnp.array(rng.normal(size=shape)) for shape in ((n, d), (m, d), (d, d)))
            f, p = jnp.array(rng.integers(0, m, n)), jnp.array(rng.dirichlet(np.ones(n)))
            formula, true = both(w, e, u, f, p)
            worst = max(worst, float(jnp.abs(formula - true).max() / jnp.maximum(jnp.abs(true).max(), 1e-300)))
    verdict: Verdict = "reproduced" if worst <= 1e-12 else "refuted"
    sentence = f"In {MEMORIES} memories of random size, formula and derivative differ by at most {worst:.1g}, relative, in float64."
    return Outcome(verdict, worst, (worst, worst), sentence)


def _after_one_step(n: int, distractors: int, seed: Array) -> Array:
    """Recall from the right embedding alone, and from whole sums such as were trained on."""
    e, u = _embeddings(n, D, seed)
    every, p = jnp.arange(n), jnp.full(n, 1 / n)
    w = step_from_zero(e, u, every, p, distractors)
    noise = jax.random.randint(jax.random.key(seed + 2**20), (n, distractors), 0, n)
    shown = e + e[noise].sum(axis=1)
    return jnp.stack([recalled(w, e, u, every).mean(), recalled(w, shown, u, every).mean()])


def one_step(evidence: Evidence) -> Outcome:
    """M4."""
    right = for_draws(lambda seed: _after_one_step(D, 0, seed)[0], SEEDS[evidence.scale])
    verdict, share, interval = share_verdict(right >= 0.99)
    sentence = (
        f"One population step from zero, {D} pairs in {D} dimensions: {right.mean():.2%} are recalled, at least 99% in "
        f"{share:.0%} of draws."
    )
    return Outcome(verdict, share, interval, sentence, {"recalled": right})


def sums_of_embeddings(evidence: Evidence) -> Outcome:
    """M5."""
    found = {n: for_draws(lambda seed, n=n: _after_one_step(D, n, seed), SEEDS[evidence.scale]) for n in (3, 15)}
    shares = {n: (x[:, 0] >= 0.99).mean() for n, x in found.items()}
    verdict: Verdict = "reproduced" if shares[15] >= MOST else "partly" if shares[3] >= MOST else "refuted"
    value, interval = mean_interval(found[15][:, 0])
    table = "; ".join(f"{n} distractors {x[:, 0].mean():.1%} and {x[:, 1].mean():.1%}" for n, x in found.items())
    sentence = (
        f"After one population step on sums, recall from the right embedding alone and from whole sums: {table}. Distractors "
        "do not know the answer, so the step writes their mean only; read out of a sum, they are still in the way."
    )
    seeds = {
        f"{n} distractors, {what}": x[:, i] for n, x in found.items() for i, what in enumerate(("alone", "whole sum"))
    }
    return Outcome(verdict, value, interval, sentence, seeds)


def _counts(n: int, seed: Array) -> Float[Array, "samples n"]:
    """How often each input was seen in the first T of one stream of draws."""
    keys = jax.random.split(jax.random.key(seed + 2**20))
    up_to = jnp.asarray(np.cumsum(zipf(n, 2.0))[:-1], float)
    stream = jnp.searchsorted(up_to, jax.random.uniform(keys[0], (SAMPLES[-1],)), side="right")
    seen = jnp.stack([jnp.bincount(stream[:t], length=n) for t in SAMPLES]).astype(float)
    # ties are broken by chance: the order of the inputs would tell which are frequent
    return jnp.where(seen > 0, seen + jax.random.uniform(keys[1], seen.shape), 0.0)


def _errors(seed: Array) -> tuple[Float[Array, "weighting width"], Float[Array, "samples every_second_width"]]:
    """Error of each weighting at every width, and with the d / 8 inputs kept that were seen most often in T draws.

    Drawn at the largest width and cut, as the source does. Scores need no W: with K = E E^T and G = U U^T,
    u_y . W e_x = sum_x' q(x') G[y, f(x')] K[x, x'], and K grows with the width.
    """
    n = 1000
    keys = jax.random.split(jax.random.key(seed))
    e, u = jax.random.normal(keys[0], (n, WIDTHS[-1])), jax.random.normal(keys[1], (CLASSES, WIDTHS[-1]))
    p, answer, counts = jnp.asarray(zipf(n, 2.0), float), jnp.arange(n) % CLASSES, _counts(n, seed)
    alike, before, known, drawn = jnp.zeros((n, n)), 0, [], []
    for i, d in enumerate(WIDTHS.tolist()):
        unit = u[:, :d] / jnp.linalg.norm(u[:, :d], axis=1, keepdims=True)
        alike, before = alike + e[:, before:d] @ e[:, before:d].T, d
        room = max(1, d // 8)
        q = jnp.stack([(jnp.arange(n) < room).astype(p.dtype), p, jnp.ones(n)])
        if i % 2 == 0:
            least = jnp.sort(counts, axis=1)[:, -room]
            q = jnp.concatenate([q, ((counts >= least[:, None]) & (counts > 0)).astype(p.dtype)])
        written = q[:, :, None] * (unit @ unit.T)[answer][None]
        told = jnp.einsum("xz,qzy->qxy", alike, written)
        error = jnp.where(told.argmax(axis=2) != answer[None], p[None], 0.0).sum(axis=1)
        known.append(error[:3])
        drawn += [error[3:]] if i % 2 == 0 else []
    return jnp.stack(known, axis=1), jnp.stack(drawn, axis=1)


def _slope_interval(errors: Float[np.ndarray, "draw width"]) -> tuple[float, tuple[float, float]]:
    """The slope of the mean error, and its interval when draws are drawn again."""
    rng = np.random.default_rng(0)
    again = [slope(WIDTHS, errors[rng.integers(0, len(errors), len(errors))].mean(axis=0)) for _ in range(999)]
    low, high = np.quantile(again, [0.025, 0.975])
    return slope(WIDTHS, errors.mean(axis=0)), (float(low), float(high))


def exponents(evidence: Evidence) -> Outcome:
    """M6."""
    errors, joint = for_draws(_errors, DRAWS[evidence.scale])  # draw weighting width, draw samples width
    names = ("most frequent kept", "weighted by frequency", "all alike")
    slopes = {name: _slope_interval(errors[:, i]) for i, name in enumerate(names)}
    # with room for everything, an input is answered wrongly if it was never drawn: sum_x p(x) (1 - p(x))^T, exactly
    samples = np.unique(np.rint(np.geomspace(10, 10_000, 13)).astype(int))
    p = zipf(1_000_000, 2.0)
    unseen = np.array([(p * np.exp(t * np.log1p(-p))).sum() for t in samples])
    in_samples = slope(samples, unseen)
    published = {names[0]: -1.0, names[1]: -1 / 4}
    holds = [slopes[name][1][0] - 0.1 <= x <= slopes[name][1][1] + 0.1 for name, x in published.items()]
    holds.append(abs(in_samples + 1 / 2) <= 0.1)
    verdict: Verdict = "reproduced" if all(holds) else "refuted" if not any(holds) else "partly"
    table = "; ".join(f"{name} {slope:.2f} [{low:.2f}, {high:.2f}]" for name, (slope, (low, high)) in slopes.items())
    first, last = (", ".join(f"{errors[:, i, at].mean():.3g}" for i in range(3)) for at in (0, -1))
    # both at once: what d dimensions lose, and the inputs that T draws left unseen, of which a guess gets one in five
    p = zipf(1000, 2.0)
    lost = np.array([(1 - 1 / CLASSES) * (p * np.exp(t * np.log1p(-p))).sum() for t in SAMPLES])
    measured, both = joint.mean(axis=0), lost[:, None] + errors[:, 0, ::2].mean(axis=0)[None]  # samples width
    ratio = measured / both
    ends = ", ".join(
        f"{x:.2g} at T={t:,}" for t, x in zip(SAMPLES, measured[:, -1], strict=True) if t in (10, 100, 1000, 10_000)
    )
    sentence = (
        f"Slopes of log error against log d: {table}; against log T {in_samples:.2f}. Errors at d=10 are {first}, at d=1000 "
        f"{last}. Filled from T draws, at d=1000: {ends}; over all d and T the error is {ratio.min():.2f} to "
        f"{ratio.max():.2f} times the sum of what d and T lose alone."
    )
    grids = {
        name: Grid.of(WIDTHS[::2], [f"{t:,}" for t in SAMPLES], values.T)
        for name, values in (("measured", measured), ("sum", both))
    }
    curves = {name: Curve.over_seeds(WIDTHS, errors[:, i]) for i, name in enumerate(names)}
    curves["samples"] = Curve.over_seeds(samples, unseen[None])
    seeds = {f"{name}, d={WIDTHS[at]}": errors[:, i, at] for i, name in enumerate(names) for at in (0, -1)}
    value, interval = slopes[names[0]]
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves, grids=grids))
