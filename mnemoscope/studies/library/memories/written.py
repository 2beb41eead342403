"""M1, M3-M5 and M9: memories that are written down, by hand or by one gradient step.

Nothing is trained.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.memories.draws import for_draws, seeds_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.scales import Scale
from mnemoscope.theory.associative_memory import check_recall, random_unit_vectors, write_pairs
from mnemoscope.theory.one_step import cross_entropy, population_gradient, step_from_zero

D = 256
SIZES = (64, 256, 1024, 4096, 16_384)  # numbers of pairs in one sum
# pairs at most that are asked for, of as many as are stored
ASKED = {"quick": 1024, "full": 16_384}
NEARLY_ALL = 0.99  # of the pairs
DISTRACTORS = (3, 15)  # in every input of M5
MEMORIES = 5  # of random size, whose gradients are compared
HIDDEN = 4 * D  # units of the later feed-forward layer of M9


def _draws(scale: Scale) -> range:
    """The seeds of all draws."""
    return seeds_of(scale, 8, 128)


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
    correct = jax.lax.map(lambda x: check_recall(w, e[x], u, x), asked.reshape(-1, min(n, 1024)))
    return correct.mean()


def measure_outer_products(evidence: Evidence) -> Measurement:
    """M1: the share of pairs that a sum of outer products recalls, for numbers of pairs N."""
    most = ASKED[evidence.scale]
    draws = _draws(evidence.scale)
    share = {n: for_draws(lambda seed, n=n: _recalled_share(n, most, seed), draws) for n in SIZES}
    parts = {
        "a quarter as many": share[SIZES[0]] >= NEARLY_ALL,
        "as many as dimensions": share[SIZES[1]] >= NEARLY_ALL,
        "far too many": share[SIZES[-1]] < 0.5,
    }
    parts |= {f"recalled, N = {n:,}": each for n, each in share.items()}
    return Measurement(parts, {f"N={n}": each for n, each in share.items()})


def _random_memory(rng: np.random.Generator) -> tuple[Array, ...]:
    """W, E, U, answers and probabilities of a memory of random size."""
    n, m, d = rng.integers(1, 30, 3)
    e = jnp.array(rng.normal(size=(n, d)))
    u = jnp.array(rng.normal(size=(m, d)))
    w = jnp.array(rng.normal(size=(d, d)))
    answer = jnp.array(rng.integers(0, m, n))
    p = jnp.array(rng.dirichlet(np.ones(n)))
    return w, e, u, answer, p


def measure_gradient(evidence: Evidence) -> Measurement:
    """M3: how far the formula of the gradient is from the automatic derivative, in float64."""
    worst = 0.0
    rng = np.random.default_rng(0)
    both = jax.jit(lambda *memory: (population_gradient(*memory), jax.grad(cross_entropy)(*memory)))
    with jax.enable_x64(True):
        for _ in range(MEMORIES):
            formula, true = both(*_random_memory(rng))
            size = jnp.maximum(jnp.abs(true).max(), 1e-300)
            worst = max(worst, float(jnp.abs(formula - true).max() / size))
    return Measurement({"difference": worst})


def _after_one_step(n: int, distractors: int, seed: Array) -> Array:
    """Recall from the right embedding alone, and from whole sums such as were trained on."""
    e, u = _embeddings(n, D, seed)
    every = jnp.arange(n)
    p = jnp.full(n, 1 / n)
    w = step_from_zero(e, u, every, p, distractors)
    noise = jax.random.randint(jax.random.key(seed + 2**20), (n, distractors), 0, n)
    shown = e + e[noise].sum(axis=1)
    return jnp.stack([check_recall(w, e, u, every).mean(), check_recall(w, shown, u, every).mean()])


def measure_one_step(evidence: Evidence) -> Measurement:
    """M4: the share of pairs that are recalled after one population step from zero."""
    share = for_draws(lambda seed: _after_one_step(D, 0, seed)[0], _draws(evidence.scale))
    return Measurement({"recalls": share >= NEARLY_ALL, "recalled": share}, {"recalled": share})


def measure_sums(evidence: Evidence) -> Measurement:
    """M5: recall from the right embedding alone, after one step on sums with n distractors.

    Distractors do not know the answer, so the step writes their mean only; read out of a sum, they
    are still in the way.
    """
    draws = _draws(evidence.scale)
    parts = {}
    by_seed = {}
    for n in DISTRACTORS:
        # draw, (alone, whole sum)
        found = for_draws(lambda seed, n=n: _after_one_step(D, n, seed), draws)
        alone, whole = found.T
        parts[f"{n} distractors"] = alone >= NEARLY_ALL
        parts[f"{n} distractors, whole sum"] = whole
        by_seed[f"{n} distractors, alone"] = alone
        by_seed[f"{n} distractors, whole sum"] = whole
    return Measurement(parts, by_seed)


Layer = Callable[[Array], Array]


def _recall_below(layer: Layer, e: Float[Array, "x d"], u: Float[Array, "x d"]) -> Array:
    """Recall after one population step from W = 0 below a later layer, scores u_y . layer(W e).

    The step is the automatic derivative, so that what is written is the gradient that comes through
    the layer.
    """

    def scores(w: Array) -> Array:
        return layer(e @ w.T) @ u.T

    def loss(w: Array) -> Array:
        return -jnp.diagonal(jax.nn.log_softmax(scores(w), axis=1)).mean()

    n, d = e.shape
    step = -n * jax.grad(loss)(jnp.zeros((d, d)))  # of length N: own scores are of order 1
    return (scores(step).argmax(axis=1) == jnp.arange(n)).mean()


def _through_layers(seed: Array) -> Float[Array, "way"]:
    """Recall after one step below a linear layer, below a feed-forward layer, and below the linear
    layer if the outputs' own vectors are written."""
    e, u = _embeddings(D, D, seed)
    for_linear, for_in, for_out = jax.random.split(jax.random.key(seed + 2**20), 3)
    v = jax.random.normal(for_linear, (D, D)) * D**-0.5
    v_in = jax.random.normal(for_in, (HIDDEN, D)) * D**-0.5
    v_out = jax.random.normal(for_out, (D, HIDDEN)) * HIDDEN**-0.5
    linear = _recall_below(lambda x: x @ v.T, e, u)
    feed_forward = _recall_below(lambda x: jax.nn.gelu(x @ v_in.T) @ v_out.T, e, u)
    every = jnp.arange(D)
    own = step_from_zero(e, u, every, jnp.full(D, 1 / D))
    return jnp.stack([linear, feed_forward, check_recall(own, e, u @ v, every).mean()])


def measure_backward_step(evidence: Evidence) -> Measurement:
    """M9: recall through a fixed later layer after one population step below it."""
    found = for_draws(_through_layers, _draws(evidence.scale)).T
    linear, feed_forward, own = found
    parts = {
        "a linear layer": linear >= NEARLY_ALL,
        "a feed-forward layer": feed_forward >= NEARLY_ALL,
        "recalled through a linear layer": linear,
        "recalled through a feed-forward layer": feed_forward,
        "outputs in place of backward vectors": own,
    }
    by_seed = {
        "through a linear layer": linear,
        "through a feed-forward layer": feed_forward,
        "outputs below a linear layer": own,
    }
    return Measurement(parts, by_seed)
