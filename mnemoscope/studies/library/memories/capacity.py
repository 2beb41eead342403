r"""How many pairs a memory holds: the largest N that training stores.

It is found by bisection, for many seeds at once.

    linear      scores u_y . W e_x                          d^2 parameters
    two-layer   scores u_y . V relu(W e_x + b)              2 m d parameters (b is not counted)

E and U lie on the sphere and are frozen. Training is full-batch Adam on the mean cross-entropy; a
memory stores its N pairs when the accuracy reaches `level` at some step. That is what
the papers count (the best accuracy on the way), so to stop there changes nothing but the time.

N is an argument and not a shape: arrays have room for `room` pairs, and those beyond N are asked
nothing and answer nothing. So one compilation serves a whole bisection.

A written memory, W = sum_x u_x e_x^T, needs no bisection: its scores grow by one outer product a
pair, so every N is looked at.
"""

from collections.abc import Callable
from typing import Annotated, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import Field

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.core.strict import Strict
from mnemoscope.studies.bisection import largest
from mnemoscope.theory.associative_memory import random_unit_vectors

Size = Annotated[int, Field(ge=1)]
Weights = dict[str, Array]
# step, accuracy before it, parameters, optimizer
Training = tuple[Array, Array, Weights, optax.OptState]


class Memory(Strict):
    """What is trained, for how long."""

    kind: Literal["linear", "two-layer"] = "linear"
    d: Size = 16
    """Width of the embeddings."""
    m: Size = 16
    """Hidden units of a two-layer memory."""
    classes: Size | None = None
    """None: every pair has an output of its own; else x has the answer x mod classes."""
    steps: Size = 4096
    """Of training, at most."""
    lr: Annotated[float, Field(gt=0)] = 1000.0
    """Adam's rate."""
    level: Annotated[float, Field(gt=0, le=1)] = 0.99
    """The accuracy from which on the pairs are stored."""

    @property
    def parameters(self) -> int:
        """As the papers count them."""
        return self.d**2 if self.kind == "linear" else 2 * self.m * self.d


def answered(scores: Float[Array, "x y"], answer: Int[Array, "x"]) -> Bool[Array, "x"]:
    """Whose right answer has a higher score than every other.

    (On a CPU, argmax would take half the time of a training step.)
    """
    own = jnp.arange(scores.shape[1])[None] == answer[:, None]
    others = jnp.where(own, -jnp.inf, scores).max(axis=1)
    return jnp.take_along_axis(scores, answer[:, None], axis=1)[:, 0] > others


def _start(memory: Memory, for_w: Array, for_v: Array) -> Weights:
    """The parameters before the first step."""
    if memory.kind == "linear":
        return {"W": jnp.zeros((memory.d, memory.d))}
    return {
        "W": jax.random.normal(for_w, (memory.m, memory.d)) * memory.d**-0.5,
        "b": jnp.zeros(memory.m),
        "V": jax.random.normal(for_v, (memory.d, memory.m)) * memory.m**-0.5,
    }


def _carried(memory: Memory, weights: Weights, e: Float[Array, "x d"]) -> Float[Array, "x d"]:
    """What the memory makes of every input: W e, or V relu(W e + b)."""
    if memory.kind == "linear":
        return e @ weights["W"].T
    return jax.nn.relu(e @ weights["W"].T + weights["b"][None]) @ weights["V"].T


def stores(memory: Memory, room: int, seed: Int[Array, ""], n: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether one seed's memory stores the first n of its pairs.

    Args:
        memory: What is trained.
        room: Pairs that the arrays have room for.
        seed: Of embeddings and first weights.
        n: Pairs that are asked for.
    """
    for_inputs, for_outputs, for_w, for_v = jax.random.split(jax.random.key(seed), 4)
    n_outputs = memory.classes or room
    e = random_unit_vectors(room, memory.d, key=for_inputs)
    u = random_unit_vectors(n_outputs, memory.d, key=for_outputs)
    answer = jnp.arange(room) % n_outputs
    asked = jnp.arange(room) < n
    offered = jnp.arange(n_outputs) < (n if memory.classes is None else n_outputs)

    def loss(weights: Weights) -> tuple[Array, Array]:
        scores = jnp.where(offered[None], _carried(memory, weights, e) @ u.T, -jnp.inf)
        each = optax.losses.softmax_cross_entropy_with_integer_labels(scores, answer)
        right = (asked & answered(scores, answer)).sum() / n
        return jnp.where(asked, each, 0.0).sum() / n, right

    return _reaches(memory, loss, _start(memory, for_w, for_v))


def _reaches(
    memory: Memory, loss: Callable[[Weights], tuple[Array, Array]], weights: Weights
) -> Bool[Array, ""]:
    """Whether training from these weights comes to the memory's level of accuracy."""
    optimizer = optax.adam(memory.lr)

    def unfinished(state: Training) -> Array:
        step, right, _, _ = state
        return (step <= memory.steps) & (right < memory.level)

    def turn(state: Training) -> Training:
        step, _, weights, inner = state
        (_, right), gradient = jax.value_and_grad(loss, has_aux=True)(weights)
        updates, inner = optimizer.update(gradient, inner)
        return step + 1, right, cast(Weights, optax.apply_updates(weights, updates)), inner

    # `right` belongs to the parameters before the update, so the last turn looks at what the last
    # step left
    begin: Training = (jnp.zeros((), int), jnp.zeros(()), weights, optimizer.init(weights))
    _, right, _, _ = jax.lax.while_loop(unfinished, turn, begin)
    return right >= memory.level


def capacity(
    memory: Memory, seeds: range, guess: int, room: int, resolution: float = 0.02
) -> Int[np.ndarray, "seed"]:
    """The largest N that each seed's memory stores.

    Where one fills the room, all are taught again with twice as much.

    Args:
        memory: What is trained.
        seeds: Of embeddings and first weights.
        guess: The N at which the search begins.
        room: The largest N that is looked at.
        resolution: Of the search, relative.
    """
    train = map_over_seeds(lambda each: stores(memory, room, *each), len(seeds))
    each_seed = np.array(seeds)
    found = largest(lambda n: train((each_seed, n)), len(seeds), guess, room, resolution)
    if found.max() < room:
        return found
    return capacity(memory, seeds, room, 2 * room, resolution)


def written(d: int, room: int, seed: Int[Array, ""]) -> Int[Array, ""]:
    """The last N, up to `room`, before a sum of outer products of the first N pairs loses one.

    With K = E E^T and G = U U^T, the scores S[x, y] = u_y . W e_x grow by K[x, n] G[n, y] with
    pair n. A right answer scores 1 and the others 0, both with noise of variance N / d^2. Over N
    pairs the worst own score and the best other one are each off by sqrt(2 ln N) deviations: if
    noises are independent, a pair is lost where 2 sqrt(2 ln N) sqrt(N) / d = 1, d^2 = 8 N ln N.

    Args:
        d: Width of the embeddings.
        room: Pairs that there are.
        seed: Of the embeddings.
    """
    for_inputs, for_outputs, *_ = jax.random.split(jax.random.key(seed), 4)
    e = random_unit_vectors(room, d, key=for_inputs)
    u = random_unit_vectors(room, d, key=for_outputs)
    k = jnp.matmul(e, e.T, precision="highest")
    g = jnp.matmul(u, u.T, precision="highest")
    every = jnp.arange(room)

    def add(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        n, given, _ = state
        given = given + k[n][:, None] * g[n][None]
        right = answered(jnp.where(every[None] <= n, given, -jnp.inf), every)
        return n + 1, given, (right | (every > n)).all()

    def unfinished(state: tuple[Array, Array, Array]) -> Array:
        n, _, whole = state
        return whole & (n < room)

    begin = (jnp.zeros((), int), jnp.zeros((room, room)), jnp.ones((), bool))
    n, _, whole = jax.lax.while_loop(unfinished, add, begin)
    return jnp.where(whole, n, n - 1)


def written_capacity(d: int, seeds: range, room: int) -> Int[np.ndarray, "seed"]:
    """The same for every seed, of the pairs that `capacity` teaches it.

    Args:
        d: Width of the embeddings.
        seeds: Of the embeddings.
        room: The largest N that is looked at.
    """
    return map_over_seeds(lambda seed: written(d, room, seed), len(seeds))(np.array(seeds))
