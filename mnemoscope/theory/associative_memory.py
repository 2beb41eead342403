r"""Weights as associative memories: a matrix that answers x with argmax_y u_y . W e_x.

    W = sum_x q(x) u_{f(x)} e_x^T                                a weighting q of the pairs

Rows are vectors: `inputs` are e_x, `outputs` are u_y, W is (d_out, d_in), scores are (x, y). Where
p(x) falls as x^-a, the error is the probability mass of the inputs that are answered wrongly.
"""

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int, PRNGKeyArray


def random_unit_vectors(n: int, d: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
    """Random directions, evenly spread."""
    x = jax.random.normal(key, (n, d))
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def zipf(n: int, a: float) -> Float[np.ndarray, "n"]:
    """p(x) proportional to x^-a for x = 1 .. n."""
    p = np.arange(1, n + 1, dtype=float) ** -a
    return p / p.sum()


def write_pairs(
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
    weights: Float[Array, "x"],
) -> Float[Array, "d_out d_in"]:
    """W = sum_x q(x) u_{f(x)} e_x^T.

    Args:
        inputs: e_x.
        outputs: u_y.
        answer: f(x).
        weights: q(x).
    """
    return jnp.einsum("x,xo,xi->oi", weights, outputs[answer], inputs)


def scores(
    w: Float[Array, "d_out d_in"], inputs: Float[Array, "x d_in"], outputs: Float[Array, "y d_out"]
) -> Float[Array, "x y"]:
    """u_y . W e_x.

    Args:
        w: W.
        inputs: e_x.
        outputs: u_y.
    """
    return inputs @ w.T @ outputs.T


def check_recall(
    w: Float[Array, "d_out d_in"],
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
) -> Bool[Array, "x"]:
    """Which inputs are answered right.

    Args:
        w: W.
        inputs: e_x.
        outputs: u_y.
        answer: f(x).
    """
    return scores(w, inputs, outputs).argmax(axis=1) == answer


def error_mass(right: Bool[Array, "x"], p: Float[Array, "x"]) -> Float[Array, ""]:
    """The probability of a wrong answer."""
    return jnp.where(right, 0.0, p).sum()
