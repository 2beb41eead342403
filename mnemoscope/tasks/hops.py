r"""Hops: compose functions of which one half is hidden in the world and the other half stands in
the context.

There are k hidden permutations pi_a of N values, the same for a whole run and without fixed points,
and k permutations sigma_a, drawn for each sequence. Position (a, b) of the N k positions shows
sigma_a(b). One hop at index a goes through both:

    f_a(b) = sigma_a(pi_a(b))    h hops from (a, b):  f_{a+h-1}( ... f_{a+1}(f_a(b)))  indices mod k

Every position is asked for the end of h hops that start there, and h is 1, 2, 4, .. or k (its
*level* is log2 h). Nothing in the sequence says h: the answer to 2^j hops is read after layer j
(counted from 0), where layers that double could have it.

How often a training sequence asks each level is the schedule: (first step, a weight for each
level), stage after stage. Without one, all levels are asked alike at every step.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from pydantic import Field, model_validator

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray
from mnemoscope.core.errors import in_one_line
from mnemoscope.tasks.base import Example, Task

FirstStep = Annotated[int, Field(ge=0, le=2**31 - 1)]
Weight = Annotated[float, Field(ge=0)]
Stage = tuple[FirstStep, tuple[Weight, ...]]  # a weight for each level


class HopWorld(NamedTuple):
    """What a seed hides, and what is asked."""

    hidden: Int[Array, "k n"]
    """The permutations pi_a."""

    asked: Float[Array, "level"]
    """How often each level is asked at this step: any positive multiple of a probability."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Hops(Task):
    """Functions to be composed, half of them hidden in the world and half in the context.

    There are any N of at least 2 values, and any k that is a power of two.
    """

    kind: Literal["hops"] = "hops"
    """The name of this task in files."""

    n: Annotated[int, Field(ge=2, le=4096)] = 4
    """N, the values that are permuted."""

    k: Annotated[int, Field(ge=1, le=4096)] = 4
    """How many permutations there are, and the largest number of hops."""

    schedule: tuple[Stage, ...] = ()
    """When each level is asked how often; none asks all alike."""

    @model_validator(mode="after")
    def _check(self) -> "Hops":
        if self.k & (self.k - 1):
            raise ValueError(f"k must be a power of two, got {self.k}")
        begins = [begin for begin, _ in self.schedule]
        if begins and (begins[0] != 0 or begins != sorted(set(begins))):
            raise ValueError(
                f"a schedule's stages begin at step 0 and later and later, got {begins}"
            )
        for _, weights in self.schedule:
            if len(weights) != self.levels or not sum(weights) > 0:
                raise ValueError(
                    f"a stage has a weight for each of {self.levels} levels, "
                    f"not all 0, got {weights}"
                )
        return self

    @property
    def levels(self) -> int:
        """How many numbers of hops there are: 1, 2, 4 .. k."""
        return self.k.bit_length()

    @property
    def d_vocab(self) -> int:
        return self.n

    @property
    def n_ctx(self) -> int:
        return self.n * self.k

    @property
    def reads_early(self) -> bool:
        return True

    def world(self, *, key: PRNGKeyArray) -> HopWorld:
        """Hidden permutations, uniform among those without a fixed point."""
        keys = jax.random.split(key, self.k)
        hidden = jax.vmap(self._derangement)(keys)
        world = HopWorld(hidden, asked=jnp.ones(self.levels))
        return self.at_step(world, jnp.zeros((), int))

    def _derangement(self, key: PRNGKeyArray) -> Int[Array, "n"]:
        """A permutation without a fixed point: drawn until there is none, about e times."""

        def draw(state: tuple[PRNGKeyArray, Array]) -> tuple[PRNGKeyArray, Array]:
            key, now = jax.random.split(state[0])
            return key, jax.random.permutation(now, self.n)

        def has_fixed_point(state: tuple[PRNGKeyArray, Array]) -> Array:
            return (state[1] == unmoved).any()

        unmoved = jnp.arange(self.n)
        return jax.lax.while_loop(has_fixed_point, draw, (key, unmoved))[1]

    def at_step(self, world: HopWorld, step: Int[Array, ""]) -> HopWorld:
        """The stage of the schedule that this step lies in."""
        if not self.schedule:
            return world
        begins = jnp.array([begin for begin, _ in self.schedule])
        weights = jnp.array([weights for _, weights in self.schedule])
        stage = (begins <= step).sum() - 1
        return world._replace(asked=weights.astype(float)[stage])

    def context(self, *, key: PRNGKeyArray) -> Int[Array, "k n"]:
        """The permutations of one sequence, each uniform."""
        # the order of random numbers is a uniform permutation, and quicker than shuffling
        return jnp.argsort(jax.random.uniform(key, (self.k, self.n)), axis=1)

    def answers(self, world: HopWorld, context: Int[Array, "k n"]) -> Int[Array, "level pos"]:
        """The end of 2^level hops from every position, exactly: composing a table with itself
        doubles the hops."""
        table = jnp.take_along_axis(context, world.hidden, axis=1)
        tables = [table]
        for level in range(self.levels - 1):
            # row a: as many hops again, from where the first half ends
            later = jnp.roll(table, -(2**level), axis=0)
            table = jnp.take_along_axis(later, table, axis=1)
            tables.append(table)
        return jnp.stack(tables).reshape(self.levels, self.n_ctx)

    def sample(self, world: HopWorld, *, key: PRNGKeyArray) -> Example:
        """Permutations and a level; every position is asked."""
        for_context, for_level = jax.random.split(key)
        context = self.context(key=for_context)
        level = jax.random.categorical(for_level, jnp.log(world.asked))
        return Example(
            tokens=context.reshape(-1),
            targets=self.answers(world, context)[level],
            weights=jnp.ones(self.n_ctx),
            layer=level,
        )

    def loss_floor(self, world: HopWorld) -> float:
        """The least mean loss of any predictor: where each answer is read it is certain."""
        return 0.0
