r"""How many pairs a memory holds: the largest N that training stores, found by bisection for many seeds at once.

    linear      scores u_y . W e_x                          d^2 parameters
    two-layer   scores u_y . V relu(W e_x + b)              2 m d parameters (b is not counted)

E and U lie on the sphere and are frozen. Training is full-batch Adam on the mean cross-entropy; a memory stores its N pairs when
the share of right answers reaches `level` at some step. That is what the sources count (the best accuracy on the way), so to
stop there changes nothing but the time.

N is an argument and not a shape: arrays have room for `room` pairs, and those beyond N are asked nothing and answer nothing. So one
compilation serves a whole bisection.

A written memory, W = sum_x u_x e_x^T, needs no bisection: its scores grow by one outer product a pair, so every N is looked at.
"""

from typing import Annotated, Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import Field

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.core.config import Strict
from mnemoscope.core.seeds import on_devices
from mnemoscope.studies.search import largest
from mnemoscope.theory.memory import on_the_sphere

Size = Annotated[int, Field(ge=1)]
Training = tuple[Array, Array, dict[str, Array], optax.OptState]  # step, share right before it, parameters, optimiser


class Memory(Strict):
    """What is trained, for how long. `classes=None`: every pair has an output of its own; else x has the answer x mod classes."""

    kind: Literal["linear", "two-layer"] = "linear"
    d: Size = 16
    m: Size = 16  # hidden units of a two-layer memory
    classes: Size | None = None
    steps: Size = 4096
    lr: Annotated[float, Field(gt=0)] = 1000.0
    level: Annotated[float, Field(gt=0, le=1)] = 0.99

    @property
    def parameters(self) -> int:
        """As the sources count them."""
        return self.d**2 if self.kind == "linear" else 2 * self.m * self.d


def answered(scores: Float[Array, "x y"], answer: Int[Array, "x"]) -> Bool[Array, "x"]:
    """Whose right answer has a higher score than every other. (On a CPU, argmax would take half the time of a training step.)"""
    own = jnp.arange(scores.shape[1])[None] == answer[:, None]
    others = jnp.where(own, -jnp.inf, scores).max(axis=1)
    return jnp.take_along_axis(scores, answer[:, None], axis=1)[:, 0] > others


def stores(memory: Memory, room: int, seed: Int[Array, ""], n: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether one seed's memory stores the first n of its pairs."""
    for_inputs, for_outputs, for_w, for_v = jax.random.split(jax.random.key(seed), 4)
    n_outputs = memory.classes or room
    e, u = on_the_sphere(room, memory.d, key=for_inputs), on_the_sphere(n_outputs, memory.d, key=for_outputs)
    answer = jnp.arange(room) % n_outputs
    asked, offered = jnp.arange(room) < n, jnp.arange(n_outputs) < (n if memory.classes is None else n_outputs)

    def told(p: dict[str, Array]) -> Float[Array, "x y"]:
        hidden = e @ p["W"].T if memory.kind == "linear" else jax.nn.relu(e @ p["W"].T + p["b"][None]) @ p["V"].T
        return jnp.where(offered[None], hidden @ u.T, -jnp.inf)

    def loss(p: dict[str, Array]) -> tuple[Array, Array]:
        given = told(p)
        each = optax.losses.softmax_cross_entropy_with_integer_labels(given, answer)
        right = (asked & answered(given, answer)).sum() / n
        return jnp.where(asked, each, 0.0).sum() / n, right

    if memory.kind == "linear":
        params = {"W": jnp.zeros((memory.d, memory.d))}
    else:
        params = {
            "W": jax.random.normal(for_w, (memory.m, memory.d)) * memory.d**-0.5, "b": jnp.zeros(memory.m),
            "V": jax.random.normal(for_v, (memory.d, memory.m)) * memory.m**-0.5,
        }  # fmt: skip
    optimiser = optax.adam(memory.lr)

    def unfinished(state: Training) -> Array:
        return (state[0] <= memory.steps) & (state[1] < memory.level)

    def turn(state: Training) -> Training:
        step, _, p, inner = state
        (_, right), gradient = jax.value_and_grad(loss, has_aux=True)(p)
        updates, inner = optimiser.update(gradient, inner)
        return step + 1, right, cast(dict[str, Array], optax.apply_updates(p, updates)), inner

    # `right` belongs to the parameters before the update, so the last turn looks at what the last step left
    begin: Training = (jnp.zeros((), int), jnp.zeros(()), params, optimiser.init(params))
    return jax.lax.while_loop(unfinished, turn, begin)[1] >= memory.level


def capacity(memory: Memory, seeds: int, guess: int, room: int, resolution: float = 0.02) -> Int[np.ndarray, "seed"]:
    """The largest N that each seed's memory stores; where one fills the room, all are taught again with twice as much."""
    train = on_devices(lambda each: stores(memory, room, *each), seeds)
    found = largest(lambda n: train((np.arange(seeds), n)), seeds, guess, room, resolution)
    return found if found.max() < room else capacity(memory, seeds, room, 2 * room, resolution)


def written(d: int, room: int, seed: Int[Array, ""]) -> Int[Array, ""]:
    """The last N, up to `room`, before a sum of outer products of the first N pairs loses one of them.

    With K = E E^T and G = U U^T, the scores S[x, y] = u_y . W e_x grow by K[x, n] G[n, y] with pair n. A right answer scores 1 and
    the others 0, both with noise of variance N / d^2. Over N pairs the worst own score and the best other one are each off
    by sqrt(2 ln N) deviations: if noises are independent, a pair is lost where 2 sqrt(2 ln N) sqrt(N) / d = 1, d^2 = 8 N ln N.
    """
    for_inputs, for_outputs, *_ = jax.random.split(jax.random.key(seed), 4)
    e, u = on_the_sphere(room, d, key=for_inputs), on_the_sphere(room, d, key=for_outputs)
    k, g = (jnp.matmul(x, x.T, precision="highest") for x in (e, u))
    every = jnp.arange(room)

    def add(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        n, given, _ = state
        given = given + k[n][:, None] * g[n][None]
        right = answered(jnp.where(every[None] <= n, given, -jnp.inf), every)
        return n + 1, given, (right | (every > n)).all()

    begin = jnp.zeros((), int), jnp.zeros((room, room)), jnp.ones((), bool)
    n, _, whole = jax.lax.while_loop(lambda state: state[2] & (state[0] < room), add, begin)
    return jnp.where(whole, n, n - 1)


def written_capacity(d: int, seeds: int, room: int) -> Int[np.ndarray, "seed"]:
    """The same for every seed, of the pairs that `capacity` teaches it."""
    return on_devices(lambda seed: written(d, room, seed), seeds)(np.arange(seeds))
