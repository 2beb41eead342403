r"""What gradients write into a memory: the population gradient of the cross-entropy, and the first
step from nothing.

    gradient at W:   sum_x p(x) (E_{y ~ softmax(u . W e_x)} u_y - u_{f(x)}) e_x^T
    step from 0:     sum_x p(x) (u_{f(x)} - ubar) (e_x + n zbar)^T         the input is e_x plus n
                                                                           others, zbar their mean

So each is a sum of outer products, a memory as in `theory/associative_memory.py`, whose conventions
hold here.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.theory.associative_memory import scores


def cross_entropy(
    w: Float[Array, "d_out d_in"],
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
    p: Float[Array, "x"],
) -> Float[Array, ""]:
    """sum_x p(x) -log softmax(u . W e_x)[f(x)].

    Args:
        w: W.
        inputs: e_x.
        outputs: u_y.
        answer: f(x).
        p: p(x).
    """
    log_p = jax.nn.log_softmax(scores(w, inputs, outputs), axis=1)
    log_p_answer = jnp.take_along_axis(log_p, answer[:, None], axis=1)[:, 0]
    return -(p * log_p_answer).sum()


def population_gradient(
    w: Float[Array, "d_out d_in"],
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
    p: Float[Array, "x"],
) -> Float[Array, "d_out d_in"]:
    """sum_x p(x) (E_{y ~ softmax(u . W e_x)} u_y - u_{f(x)}) e_x^T.

    Args:
        w: W, at which the gradient is taken.
        inputs: e_x.
        outputs: u_y.
        answer: f(x).
        p: p(x).
    """
    said = jax.nn.softmax(scores(w, inputs, outputs), axis=1)
    return jnp.einsum("x,xo,xi->oi", p, said @ outputs - outputs[answer], inputs)


def step_from_zero(
    inputs: Float[Array, "x d_in"],
    outputs: Float[Array, "y d_out"],
    answer: Int[Array, "x"],
    p: Float[Array, "x"],
    distractors: int = 0,
) -> Float[Array, "d_out d_in"]:
    r"""What one population step of length 1 writes from W = 0, when the input is e_x plus some e_z
    drawn from p.

    From zero every answer has the same probability, so with ubar the mean of u and
    zbar = sum_z p(z) e_z,

        W = sum_x p(x) (u_{f(x)} - ubar) (e_x + n zbar)^T

    exactly: distractors are independent of the answer, and only their mean is written.

    Args:
        inputs: e_x.
        outputs: u_y.
        answer: f(x).
        p: p(x), of inputs and of distractors.
        distractors: n, how many e_z are added to an input.
    """
    right = outputs[answer] - outputs.mean(axis=0, keepdims=True)
    shown = inputs + distractors * (p @ inputs)[None]
    return jnp.einsum("x,xo,xi->oi", p, right, shown)
