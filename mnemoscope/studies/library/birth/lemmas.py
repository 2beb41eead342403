r"""B19 and B20: what gradients write into the keys of the two attention layers, in closed form.

Rows are vectors. A sequence x_1..x_T (of T rows) is answered at its end,

    loss = -log softmax(sum_t a_t x_t V U)_y        p = softmax(..),   r = p - onehot(y)

where V is what a head's values and output do, U reads out, and a is attention.

*The second layer's keys* (Lemma 4). With a = softmax_t(x_t W x_T^T), at W = 0 every a_t is 1/T. The
loss changes with a_t by g_t = x_t V U r^T, with the score s_t by a_t (g_t - sum a g) =
(g_t - mean g) / T, and s_t with W by x_t^T x_T. Since the sum of g_t - mean g is zero,

    dloss/dW = 1/T sum_t g_t (x_t - mean x)^T x_T

an associative memory of what deserves attention, centered, and the query.

*The first layer's keys* (Lemma 5). The second layer's keys are now z_t, what the first layer
gathers by position, z_t = sum_{s<=t} softmax_s(p_s W p_t^T) x_s C, and its scores are
u_t = z_t K x_T^T with a fixed K. At W = 0, z_t is the mean of x_s C up to t. As before the loss
changes with u_t by h_t = a_t (g_t - sum a g), and u_t with W through z_t by
1/t sum_{s<=t} c_s (p_s - mean_{r<=t} p_r)^T p_t with c_s = x_s C K x_T^T, so that

    dloss/dW = sum_t h_t 1/t sum_{s<=t} c_s (p_s - mean_{r<=t} p_r)^T p_t

The paper takes the second layer's attention to first order in its scores, a_t =
(1 + u_t - mean u) / T, where h_t = (g_t - mean g) / T. Both forms are compared.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement

DRAWS = 20  # of all vectors and matrices
SEQUENCES = 8  # over which a loss is averaged
LENGTH = 9
WIDTH = 7
TOKENS = 5


class Drawn(NamedTuple):
    """Random vectors and matrices, by the names of the module's docstring."""

    x: np.ndarray
    """Of each sequence, a row for each position."""
    y: np.ndarray
    """The answer of each sequence."""
    v: np.ndarray
    u: np.ndarray
    places: np.ndarray
    c: np.ndarray
    k: np.ndarray


def draw(seed: int) -> Drawn:
    """Draw everything, entries of matrices about 1/sqrt(d).

    Args:
        seed: of the draw.
    """
    rng = np.random.default_rng(seed)
    root = np.sqrt(WIDTH)
    return Drawn(
        x=rng.normal(size=(SEQUENCES, LENGTH, WIDTH)),
        y=rng.integers(0, TOKENS, SEQUENCES),
        v=rng.normal(size=(WIDTH, WIDTH)) / root,
        u=rng.normal(size=(WIDTH, TOKENS)) / root,
        places=rng.normal(size=(LENGTH, WIDTH)),
        c=rng.normal(size=(WIDTH, WIDTH)) / root,
        k=rng.normal(size=(WIDTH, WIDTH)) / root,
    )


# ---- losses, for the automatic derivative


def _answer_loss(attention: Array, x: Array, y: Array, d: Drawn) -> Array:
    logits = attention @ x @ d.v @ d.u
    return -jax.nn.log_softmax(logits)[y]


def second_layer_loss(w: Array, d: Drawn) -> Array:
    """The mean loss as a function of the second layer's keys.

    Args:
        w: the keys.
        d: everything else.
    """

    def one(x: Array, y: Array) -> Array:
        return _answer_loss(jax.nn.softmax(x @ w @ x[-1]), x, y, d)

    return jax.vmap(one)(jnp.asarray(d.x), jnp.asarray(d.y)).mean()


def first_layer_loss(w: Array, d: Drawn, linear: bool) -> Array:
    """The mean loss as a function of the first layer's keys.

    Args:
        w: the keys.
        d: everything else.
        linear: whether the second layer's attention is linear in its scores.
    """
    scores = (d.places @ w @ d.places.T).T
    allowed = jnp.tril(jnp.ones(scores.shape, bool))
    gather = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf), axis=1)

    def one(x: Array, y: Array) -> Array:
        u = gather @ x @ d.c @ d.k @ x[-1]
        attention = (1 + u - u.mean()) / u.shape[0] if linear else jax.nn.softmax(u)
        return _answer_loss(attention, x, y, d)

    return jax.vmap(one)(jnp.asarray(d.x), jnp.asarray(d.y)).mean()


# ---- closed forms


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def _pull(attention: np.ndarray, x: np.ndarray, y: int, d: Drawn) -> np.ndarray:
    """g: how the loss changes with the attention to each position."""
    r = _softmax(attention @ x @ d.v @ d.u)
    r[y] -= 1
    return x @ d.v @ d.u @ r


def second_layer_gradient(d: Drawn) -> np.ndarray:
    """Lemma 4: the gradient in the second layer's keys where they are zero.

    Args:
        d: everything else.
    """
    gradient = np.zeros((WIDTH, WIDTH))
    for x, y in zip(d.x, d.y, strict=True):
        g = _pull(np.full(LENGTH, 1 / LENGTH), x, int(y), d)
        gradient += np.outer(g @ (x - x.mean(axis=0)), x[-1]) / LENGTH
    return gradient / SEQUENCES


def first_layer_gradient(d: Drawn, linear: bool) -> np.ndarray:
    """Lemma 5: the gradient in the first layer's keys where they are zero.

    Args:
        d: everything else.
        linear: whether the second layer's attention is linear in its scores.
    """
    counts = np.arange(1, LENGTH + 1)[:, None]
    gradient = np.zeros((WIDTH, WIDTH))
    for x, y in zip(d.x, d.y, strict=True):
        c = x @ d.c @ d.k @ x[-1]
        u = np.cumsum(c) / counts[:, 0]
        attention = (1 + u - u.mean()) / LENGTH if linear else _softmax(u)
        g = _pull(attention, x, int(y), d)
        h = (g - g.mean()) / LENGTH if linear else attention * (g - attention @ g)
        for t in range(LENGTH):
            earlier = d.places[: t + 1]
            centered = earlier - earlier.mean(axis=0)
            gradient += h[t] / (t + 1) * np.outer(c[: t + 1] @ centered, d.places[t])
    return gradient / SEQUENCES


# ---- what B19 and B20 measure


def _largest_error(
    loss: Callable[[Array, Drawn], Array], closed_form: Callable[[Drawn], np.ndarray]
) -> float:
    """The largest distance of a closed form from the automatic derivative, of the largest entry."""
    with jax.enable_x64(True):
        derivative = jax.jit(jax.grad(loss))
        errors: list[float] = []
        for seed in range(DRAWS):
            drawn = draw(seed)
            automatic = np.asarray(derivative(jnp.zeros((WIDTH, WIDTH)), drawn))
            expected = closed_form(drawn)
            errors.append(float(np.abs(automatic - expected).max() / np.abs(expected).max()))
    return max(errors)


def measure_second_layer_gradient(_: Evidence) -> Measurement:
    """B19: Lemma 4 beside the automatic derivative."""
    return Measurement({"error": _largest_error(second_layer_loss, second_layer_gradient)})


def measure_first_layer_gradient(_: Evidence) -> Measurement:
    """B20: Lemma 5 beside the automatic derivative."""

    def error(linear: bool) -> float:
        return _largest_error(
            lambda w, d: first_layer_loss(w, d, linear), lambda d: first_layer_gradient(d, linear)
        )

    return Measurement({"error, first order": error(True), "error, softmax": error(False)})
