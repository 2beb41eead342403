r"""A memory that is optimized on a stream of draws, as the published grid has it, cell by cell.

x is drawn from p(x) ~ x^-a over N inputs and has the answer f(x) = x mod 5 (numbered from 0). E, U
and W start as N(0, 1/d). Each of `samples` draws is used once, in batches, to follow the gradient
of the mean cross-entropy of scores u_y . W e_x:

    SGD:                         W <- W - rate g
    Adam, with both betas zero:  W <- W - (rate / d) g / (|g| + 1e-8), entry by entry

`norm` divides W e_x by its Euclidean length, sqrt(sum of squares + 1e-6), before it is read out, as
the authors do: no mean is subtracted and nothing is multiplied by sqrt(d). `learned` trains E and U
as well. The error is the probability mass of the inputs that the last W answers wrongly.
"""

from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.core.strict import Strict
from mnemoscope.theory.associative_memory import error_mass, zipf

Size = Annotated[int, Field(ge=1, le=2**24)]
SEEDS = tuple(range(42, 52))  # the published ones
EPS = 1e-8
NORM_EPS = 1e-6  # added to the squared length by which W e_x is divided
LANES = 16  # matrices advanced together on an accelerator


class Cell(Strict):
    """One cell of the grid."""

    d: Annotated[int, Field(ge=1, le=2**14)] = 100
    """Width of the embeddings."""
    lr: Annotated[float, Field(gt=0)] = 1.0
    """The rate; Adam's is divided by d."""
    batch: Size = 64
    """Draws in a step."""
    samples: Size = 10_240
    """Draws in all, each used once: a multiple of `batch`."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    norm: bool = False
    """Whether W e_x is divided by its length before it is read out."""
    learned: bool = False
    """Whether E and U are trained as well."""
    n_inputs: Size = 100
    n_outputs: Size = 5
    """Answers: x has the answer x mod n_outputs."""
    a: Annotated[float, Field(ge=0)] = 2.0
    """Exponent of the inputs' distribution, p(x) ~ x^-a."""

    @model_validator(mode="after")
    def _check(self) -> "Cell":
        if self.samples % self.batch:
            raise ValueError(f"samples={self.samples} is no multiple of batch={self.batch}")
        return self


def scores(cell: Cell, params: dict[str, Array], x: Int[Array, "batch"]) -> Float[Array, "batch y"]:
    """u_y . W e_x, with W e_x divided by its length if the cell says so.

    Args:
        cell: The cell.
        params: E, U and W.
        x: The inputs.
    """
    if not cell.norm:
        # few outputs: (U W) e costs 5 d^2 where U (W e) costs batch d^2, and so does its gradient
        return params["E"][x] @ (params["U"] @ params["W"]).T
    carried = params["E"][x] @ params["W"].T
    squared = jnp.square(carried).sum(axis=1, keepdims=True)
    return carried * jax.lax.rsqrt(squared + NORM_EPS) @ params["U"].T


def stream(cell: Cell, seed: int | Int[Array, ""]) -> Int[Array, "step batch"]:
    """Every draw, in the order in which they are used."""
    up_to = jnp.asarray(np.cumsum(zipf(cell.n_inputs, cell.a))[:-1], float)
    key = jax.random.split(jax.random.key(seed), 4)[3]
    uniform = jax.random.uniform(key, (cell.samples // cell.batch, cell.batch))
    return jnp.searchsorted(up_to, uniform, side="right")


def start(
    cell: Cell, seed: int | Int[Array, ""]
) -> tuple[dict[str, Array], Int[Array, "step batch"]]:
    """The parameters before the first step, and the stream."""
    keys = jax.random.split(jax.random.key(seed), 4)
    shapes = {"E": (cell.n_inputs, cell.d), "U": (cell.n_outputs, cell.d), "W": (cell.d, cell.d)}
    params = {}
    for key, (name, shape) in zip(
        keys, shapes.items(), strict=False
    ):  # the last key is the stream's
        params[name] = jax.random.normal(key, shape) * cell.d**-0.5
    return params, stream(cell, seed)


def optimize(
    cell: Cell, seed: int | Int[Array, ""], lr: float | Float[Array, ""] | None = None
) -> Float[Array, ""]:
    """The error after one pass over the stream, at the cell's rate or at another.

    Args:
        cell: The cell.
        seed: Of the first parameters and of the stream.
        lr: The rate; None takes the cell's own.
    """
    rate = cell.lr if lr is None else lr
    params, draws = start(cell, seed)
    moving = ("E", "U", "W") if cell.learned else ("W",)

    def loss(free: dict[str, Array], x: Array) -> Array:
        log_p = jax.nn.log_softmax(scores(cell, params | free, x), axis=1)
        return -jnp.take_along_axis(log_p, (x % cell.n_outputs)[:, None], axis=1).mean()

    def step(free: dict[str, Array], x: Array) -> tuple[dict[str, Array], None]:
        gradient = jax.grad(loss)(free, x)
        if cell.optimizer == "adam":
            gradient = {name: g / (jnp.abs(g) + EPS) / cell.d for name, g in gradient.items()}
        return {name: free[name] - rate * g for name, g in gradient.items()}, None

    free, _ = jax.lax.scan(step, {name: params[name] for name in moving}, draws)
    return _error(cell, scores(cell, params | free, jnp.arange(cell.n_inputs)))


def _error(cell: Cell, scores_of_inputs: Float[Array, "x y"]) -> Float[Array, ""]:
    right = scores_of_inputs.argmax(axis=1) == jnp.arange(cell.n_inputs) % cell.n_outputs
    mass = error_mass(right, jnp.asarray(zipf(cell.n_inputs, cell.a), float))
    # of scores that are no numbers none is the largest, whatever argmax says
    return jnp.where(jnp.isfinite(scores_of_inputs).all(), mass, jnp.nan)


def overlaps(
    cell: Cell, seed: Int[Array, ""]
) -> tuple[Float[Array, "x x"], Float[Array, "y y"], Float[Array, "x y"]]:
    """E E^T, U U^T, and the scores before the first step."""
    params, _ = start(cell, seed)
    e = params["E"]
    u = params["U"]
    w = params["W"]
    with jax.default_matmul_precision("highest"):
        return e @ e.T, u @ u.T, e @ (u @ w).T


def optimize_scores(
    cell: Cell,
    seed: Int[Array, ""],
    rate: Float[Array, ""],
    alike: Float[Array, "x x"],
    answers_alike: Float[Array, "y y"],
    begin: Float[Array, "x y"],
) -> Float[Array, ""]:
    r"""`optimize` for SGD in W alone, without W.

    Its scores S = E W^T U^T follow a recursion of their own, of any d: W <- W - rate U^T D^T
    E_batch, with D = (softmax - onehot) / batch, is  S <- S - rate (E E_batch^T) D (U U^T).

    Args:
        cell: The cell.
        seed: Of the stream.
        rate: The rate.
        alike: E E^T.
        answers_alike: U U^T.
        begin: The scores before the first step.
    """

    def step(s: Array, x: Array) -> tuple[Array, None]:
        right = jax.nn.one_hot(x % cell.n_outputs, cell.n_outputs)
        wrong = jax.nn.softmax(s[x], axis=1) - right
        return s - rate / cell.batch * (alike[:, x] @ wrong @ answers_alike), None

    with jax.default_matmul_precision("highest"):
        scores, _ = jax.lax.scan(step, begin, stream(cell, seed))
        return _error(cell, scores)


def errors_by_rate(
    cell: Cell, rates: tuple[float, ...], seeds: tuple[int, ...] = SEEDS
) -> Float[np.ndarray, "rate seed"]:
    """The error of every seed at every rate, on all devices; one compilation.

    NaN where the memory diverged.

    Args:
        cell: The cell, but for its rate.
        rates: The rates.
        seeds: The seeds.
    """
    each = (np.tile(seeds, len(rates)), np.repeat(np.array(rates, np.float32), len(seeds)))
    one = optimize
    if cell.optimizer == "sgd" and not cell.norm and not cell.learned:
        one = optimize_scores
        known = map_over_seeds(lambda seed: overlaps(cell, seed), len(seeds), LANES)(
            np.array(seeds)
        )
        each += tuple(np.tile(x, (len(rates), 1, 1)) for x in known)
    found = map_over_seeds(lambda args: one(cell, *args), len(each[0]), LANES)(each)
    return found.reshape(len(rates), len(seeds))


def errors(cell: Cell, seeds: tuple[int, ...] = SEEDS) -> Float[np.ndarray, "seed"]:
    """The error of every seed at the cell's rate."""
    return errors_by_rate(cell, (cell.lr,), seeds)[0]
