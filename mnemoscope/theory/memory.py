r"""Weights as associative memories: a matrix that answers x with argmax_y u_y . W e_x.

    W = sum_x q(x) u_{f(x)} e_x^T                                a weighting q of the pairs
    gradient of the cross-entropy at W:  sum_x p(x) (E_{y ~ softmax(u . W e_x)} u_y - u_{f(x)}) e_x^T

Rows are vectors: `inputs` are e_x, `outputs` are u_y, W is (d_out, d_in), scores are (x, y). Where p(x) falls as x^-a, the error is
the probability mass of the inputs that are answered wrongly.
"""

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.arrays import Array, Bool, Float, Int, PRNGKeyArray


def on_the_sphere(n: int, d: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
    """Random directions, evenly spread."""
    x = jax.random.normal(key, (n, d))
    return x / jnp.linalg.norm(x, axis=1, keepdims=True)


def zipf(n: int, a: float) -> Float[np.ndarray, "n"]:
    """p(x) proportional to x^-a for x = 1 .. n."""
    p = np.arange(1, n + 1, dtype=float) ** -a
    return p / p.sum()


def store(
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
    weights: Float[Array, "x"],
) -> Float[Array, "d_out d_in"]:
    """W = sum_x q(x) u_{f(x)} e_x^T."""
    return jnp.einsum("x,xo,xi->oi", weights, outputs[answer], inputs)


def scores(
    w: Float[Array, "d_out d_in"], inputs: Float[Array, "x d_in"], outputs: Float[Array, "y d_out"]
) -> Float[Array, "x y"]:
    """u_y . W e_x."""
    return inputs @ w.T @ outputs.T


def recalled(
    w: Float[Array, "d_out d_in"],
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
) -> Bool[Array, "x"]:
    """Which inputs are answered right."""
    return scores(w, inputs, outputs).argmax(axis=1) == answer


def error_mass(right: Bool[Array, "x"], p: Float[Array, "x"]) -> Float[Array, ""]:
    """The probability of a wrong answer."""
    return jnp.where(right, 0.0, p).sum()


def population_gradient(
    w: Float[Array, "d_out d_in"], inputs: Float[Array, "x d_in"], outputs: Float[Array, "y d_out"], answer: Int[Array, "x"],
    p: Float[Array, "x"],
) -> Float[Array, "d_out d_in"]:  # fmt: skip
    """The gradient of the expected cross-entropy, as the module's docstring writes it."""
    said = jax.nn.softmax(scores(w, inputs, outputs), axis=1)
    return jnp.einsum("x,xo,xi->oi", p, said @ outputs - outputs[answer], inputs)


def cross_entropy(
    w: Float[Array, "d_out d_in"], inputs: Float[Array, "x d_in"], outputs: Float[Array, "y d_out"], answer: Int[Array, "x"],
    p: Float[Array, "x"],
) -> Float[Array, ""]:  # fmt: skip
    """sum_x p(x) -log softmax(u . W e_x)[f(x)]."""
    told = jax.nn.log_softmax(scores(w, inputs, outputs), axis=1)
    return -(p * jnp.take_along_axis(told, answer[:, None], axis=1)[:, 0]).sum()


def step_from_zero(
    inputs: Float[Array, "x d_in"], outputs: Float[Array, "y d_out"], answer: Int[Array, "x"], p: Float[Array, "x"],
    distractors: int = 0,
) -> Float[Array, "d_out d_in"]:  # fmt: skip
    r"""What one population step of length 1 writes from W = 0, when the input is e_x plus some e_z drawn from p.

    From zero every answer has the same probability, so with ubar the mean of u and zbar = sum_z p(z) e_z,

        W = sum_x p(x) (u_{f(x)} - ubar) (e_x + n zbar)^T

    exactly: distractors are independent of the answer, and only their mean is written.
    """
    right = outputs[answer] - outputs.mean(axis=0, keepdims=True)
    shown = inputs + distractors * (p @ inputs)[None]
    return jnp.einsum("x,xo,xi->oi", p, right, shown)
