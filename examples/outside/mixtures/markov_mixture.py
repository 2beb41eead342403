r"""Sequences of one of N Markov chains, which are drawn once for a seed.

    T_n(i, .) ~ Dirichlet(1, .., 1)      every row of every chain
    w         u_n / sum u, u_n ~ U(0, 1), or 1 / N
    n ~ w,  s_1 ~ pi_n,  s_{t+1} ~ T_n(s_t, .)      pi_n the stationary law of T_n

The best answer weighs the chains by what was seen: with the world known it is

    p(s_{t+1} | s_1 .. s_t) = sum_n p(n | s_1 .. s_t) T_n(s_t, s_{t+1})
    p(n | s_1 .. s_t)  proportional to  w_n pi_n(s_1) prod_{j < t} T_n(s_j, s_{j+1})
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray
from pydantic import Field

import mnemoscope as ms


class Chains(NamedTuple):
    """The chains of one seed."""

    transitions: Float[Array, "chain state next_state"]
    """Each row is the distribution of the next state."""

    stationary: Float[Array, "chain state"]
    """How often a chain is in each state in the long run."""

    weights: Float[Array, "chain"]
    """How often each chain is drawn."""


class MarkovMixture(ms.Task):
    """Say the next state of a chain that is one of N."""

    kind: Literal["mixtures/markov-mixture"] = "mixtures/markov-mixture"
    """The name of this task in files."""

    n_chains: Annotated[int, Field(ge=1, le=4096)] = 64
    """N, how many chains there are."""

    n_states: Annotated[int, Field(ge=2, le=64)] = 10
    """k, how many states a chain has."""

    length: Annotated[int, Field(ge=1, le=2048)] = 512
    """How many states the model reads."""

    weights: Literal["drawn", "equal"] = "drawn"
    """Whether some chains are more frequent than others, as in the authors' code."""

    @property
    def d_vocab(self) -> int:
        return self.n_states

    @property
    def n_ctx(self) -> int:
        return self.length

    def world(self, *, key: PRNGKeyArray) -> Chains:
        """Draw the chains of a seed.

        Args:
            key: Of the world.
        """
        for_chains, for_weights = jax.random.split(key)
        transitions = draw_chains(for_chains, self.n_chains, self.n_states)
        drawn = jax.random.uniform(for_weights, (self.n_chains,), minval=1e-6)
        weights = drawn if self.weights == "drawn" else jnp.ones(self.n_chains)
        return Chains(transitions, stationary_law(transitions), weights / weights.sum())

    def sample(self, world: Chains, *, key: PRNGKeyArray) -> ms.Example:
        """Draw a chain, and a sequence of its states.

        Args:
            world: The chains.
            key: Of the sequence.
        """
        for_chain, for_states = jax.random.split(key)
        chain = jax.random.categorical(for_chain, jnp.log(world.weights))
        states = draw_states(
            world.transitions[chain], world.stationary[chain], self.length + 1, key=for_states
        )
        return ms.Example(states[:-1], states[1:], jnp.ones(self.length))

    def posterior(self, tokens: Int[Array, "pos"], world: Chains) -> Float[Array, "pos next_state"]:
        """p(next state | states so far, chains).

        Args:
            tokens: States.
            world: The chains.
        """
        seen = chain_posterior(tokens, world)
        return jnp.einsum("tn,ntv->tv", seen, world.transitions[:, tokens])


def draw_chains(
    key: PRNGKeyArray, n_chains: int, n_states: int
) -> Float[Array, "chain state next_state"]:
    """Chains whose rows are uniform among all distributions.

    Args:
        key: Of the chains.
        n_chains: How many.
        n_states: Of each.
    """
    # exponential numbers, each divided by their sum; none is so small that a state never comes
    arrivals = jax.random.exponential(key, (n_chains, n_states, n_states)) + 1e-6
    return arrivals / arrivals.sum(axis=-1, keepdims=True)


def stationary_law(
    transitions: Float[Array, "*chains state next_state"],
) -> Float[Array, "*chains state"]:
    """The distribution that a chain leaves as it is: pi T = pi, and pi sums to 1.

    Args:
        transitions: Each row is the distribution of the next state.
    """
    n = transitions.shape[-1]
    flow = jnp.swapaxes(transitions, -1, -2) - jnp.eye(n)
    # one equation of pi (T - 1) = 0 follows from the others: the sum takes its place
    system = flow.at[..., -1, :].set(1.0)
    wanted = jnp.broadcast_to(jnp.eye(n)[-1][:, None], (*transitions.shape[:-2], n, 1))
    return jnp.linalg.solve(system, wanted)[..., 0]


def draw_states(
    transitions: Float[Array, "state next_state"],
    first: Float[Array, "state"],
    length: int,
    *,
    key: PRNGKeyArray,
) -> Int[Array, "pos"]:
    """A sequence of states of one chain.

    Args:
        transitions: Of the chain.
        first: The distribution of the first state.
        length: How many states.
        key: Of the sequence.
    """
    # a state is the first whose cumulative share exceeds a uniform number
    shares = jnp.cumsum(transitions, axis=-1)
    chances = jax.random.uniform(key, (length,))
    n_states = transitions.shape[0]

    def choose(cumulative: Array, chance: Array) -> Array:
        return jnp.minimum((cumulative <= chance * cumulative[-1]).sum(), n_states - 1)

    def follow(state: Array, chance: Array) -> tuple[Array, Array]:
        after = choose(shares[state], chance)
        return after, after

    start = choose(jnp.cumsum(first), chances[0])
    _, rest = jax.lax.scan(follow, start, chances[1:])
    return jnp.concatenate([start[None], rest])


def chain_posterior(tokens: Int[Array, "pos"], world: Chains) -> Float[Array, "pos chain"]:
    """How probable each chain is after each state.

    Args:
        tokens: States.
        world: The chains.
    """
    first = jnp.log(world.weights) + jnp.log(world.stationary[:, tokens[0]])
    steps = jnp.log(world.transitions[:, tokens[:-1], tokens[1:]])
    evidence = jnp.cumsum(jnp.concatenate([first[:, None], steps], axis=1), axis=1)
    return jax.nn.softmax(evidence.T, axis=-1)
