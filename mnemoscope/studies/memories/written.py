"""M1 and M3-M6: memories that are written down, by hand or by one gradient step. Nothing is trained."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.arrays import Array, Float
from mnemoscope.seeds import on_devices
from mnemoscope.studies.claims import Curve, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval, share_verdict
from mnemoscope.theory.memory import on_the_sphere, recalled, store, zipf
from mnemoscope.theory.one_step import cross_entropy, population_gradient, step_from_zero

D = 256
SEEDS = {"quick": 8, "full": 64}
DRAWS = {"quick": 32, "full": 100}  # of embeddings for the exponents; the source has 100
WIDTHS = np.unique(np.rint(np.geomspace(10, 1000, 13)).astype(int))
MEMORIES = 5  # of random size, whose gradients are compared
LANES = 4  # draws at once on an accelerator


def for_draws(f: Callable[[Array], Array], n: int) -> np.ndarray:
    """f(seed) for the seeds 0 .. n - 1, on all devices."""
    return on_devices(f, n, LANES)(np.arange(n))


def _embeddings(n: int, d: int, seed: Array) -> tuple[Float[Array, "n d"], Float[Array, "n d"]]:
    """Inputs and outputs on the sphere, one output for each input."""
    keys = jax.random.split(jax.random.key(seed))
    return on_the_sphere(n, d, key=keys[0]), on_the_sphere(n, d, key=keys[1])


def outer_products(evidence: Evidence) -> Outcome:
    """M1."""
    sizes = (64, 256, 1024, 4096, 16384)

    def one(n: int, seed: Array) -> Array:
        e, u = _embeddings(n, D, seed)
        w, every = store(e, u, jnp.arange(n), jnp.ones(n)), jnp.arange(n)
        # some rows at a time: all scores of 16,384 pairs are a gigabyte
        rows = min(n, 1024)
        right = jax.lax.map(lambda x: recalled(w, e[x], u, x), every.reshape(-1, rows))
        return right.mean()

    right = {n: for_draws(lambda seed, n=n: one(n, seed), SEEDS[evidence.scale]) for n in sizes}
    share, interval = share_interval(right[D] >= 0.99)
    verdict: Verdict = "reproduced" if share >= MOST and right[D**2 // 4].mean() < 0.5 else "refuted"
    if verdict == "refuted" and (right[D // 4] >= 0.99).mean() >= MOST:
        verdict = "partly"
    table = ", ".join(f"{right[n].mean():.1%} of {n:,}" for n in sizes)
    sentence = f"Random directions in {D} dimensions, a sum of outer products recalls {table} pairs."
    return Outcome(verdict, share, interval, sentence, {f"N={n}": x for n, x in right.items()})


def gradient_formula(evidence: Evidence) -> Outcome:
    """M3."""
    worst, rng = 0.0, np.random.default_rng(0)
    with jax.enable_x64(True):
        for _ in range(MEMORIES):
            n, m, d = rng.integers(1, 30, 3)
            e, u, w = (jnp.array(rng.normal(size=shape)) for shape in ((n, d), (m, d), (d, d)))
            f, p = jnp.array(rng.integers(0, m, n)), jnp.array(rng.dirichlet(np.ones(n)))
            formula, true = population_gradient(w, e, u, f, p), jax.grad(cross_entropy)(w, e, u, f, p)
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


def _errors(seed: Array) -> Float[Array, "weighting width"]:
    """Error of each weighting at every width: drawn at the largest width and cut, as the source does.

    Scores need no W: with K = E E^T and G = U U^T,  u_y . W e_x = sum_x' q(x') G[y, f(x')] K[x, x'].
    """
    n, classes = 1000, 5
    keys = jax.random.split(jax.random.key(seed))
    e, u = jax.random.normal(keys[0], (n, WIDTHS[-1])), jax.random.normal(keys[1], (classes, WIDTHS[-1]))
    p, answer = jnp.asarray(zipf(n, 2.0), float), jnp.arange(n) % classes
    rows = []
    for d in WIDTHS.tolist():
        unit = u[:, :d] / jnp.linalg.norm(u[:, :d], axis=1, keepdims=True)
        alike, told = e[:, :d] @ e[:, :d].T, (unit @ unit.T)[answer]
        kept = (jnp.arange(n) < max(1, d // 8)).astype(p.dtype)
        rows.append([(alike @ (q[:, None] * told)).argmax(axis=1) != answer for q in (kept, p, jnp.ones(n))])
    wrong = jnp.stack([jnp.stack(row) for row in rows], axis=1)
    return jnp.where(wrong, p[None, None], 0.0).sum(axis=-1)


def _slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def _slope_interval(errors: Float[np.ndarray, "draw width"]) -> tuple[float, tuple[float, float]]:
    """The slope of the mean error, and its interval when draws are drawn again."""
    rng = np.random.default_rng(0)
    again = [_slope(WIDTHS, errors[rng.integers(0, len(errors), len(errors))].mean(axis=0)) for _ in range(999)]
    low, high = np.quantile(again, [0.025, 0.975])
    return _slope(WIDTHS, errors.mean(axis=0)), (float(low), float(high))


def exponents(evidence: Evidence) -> Outcome:
    """M6."""
    errors = for_draws(_errors, DRAWS[evidence.scale])  # draw weighting width
    names = ("most frequent kept", "weighted by frequency", "all alike")
    slopes = {name: _slope_interval(errors[:, i]) for i, name in enumerate(names)}
    # with room for everything, an input is answered wrongly if it was never drawn: sum_x p(x) (1 - p(x))^T, exactly
    samples = np.unique(np.rint(np.geomspace(10, 10_000, 13)).astype(int))
    p = zipf(1_000_000, 2.0)
    unseen = np.array([(p * np.exp(t * np.log1p(-p))).sum() for t in samples])
    in_samples = _slope(samples, unseen)
    published = {names[0]: -1.0, names[1]: -1 / 4}
    holds = [slopes[name][1][0] - 0.1 <= x <= slopes[name][1][1] + 0.1 for name, x in published.items()]
    holds.append(abs(in_samples + 1 / 2) <= 0.1)
    verdict: Verdict = "reproduced" if all(holds) else "refuted" if not any(holds) else "partly"
    table = "; ".join(f"{name} {slope:.2f} [{low:.2f}, {high:.2f}]" for name, (slope, (low, high)) in slopes.items())
    first, last = (", ".join(f"{errors[:, i, at].mean():.3g}" for i in range(3)) for at in (0, -1))
    sentence = (
        f"Slopes of log error against log d: {table}; against log T {in_samples:.2f}. Errors at d=10 are {first}, at d=1000 "
        f"{last}."
    )
    curves = {name: Curve.over_seeds(WIDTHS, errors[:, i]) for i, name in enumerate(names)}
    curves["samples"] = Curve.over_seeds(samples, unseen[None])
    seeds = {f"{name}, d={WIDTHS[at]}": errors[:, i, at] for i, name in enumerate(names) for at in (0, -1)}
    value, interval = slopes[names[0]]
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves))
