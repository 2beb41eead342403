"""The four closed-form readers: those that retrieve know the chains, those that infer do not.

    retrieve unigrams   sum_n p(n | counts of states) pi_n
    retrieve bigrams    sum_n p(n | transitions) T_n(s_t, .)          the task's own posterior
    infer unigrams      the stationary law of the matrix of the next reader, at every position
    infer bigrams       (transitions i -> j so far + 1) / (transitions from i + k),  i = s_t

Infer bigrams is the exact answer for a chain that nobody has seen, as every row of it is uniform
among all distributions.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mixtures.markov_mixture import Chains, MarkovMixture, stationary_law


def retrieve_unigrams(
    task: MarkovMixture, tokens: Int[Array, "pos"], world: Chains
) -> Float[Array, "pos next_state"]:
    """The mean stationary law of the chains, weighed by how often each state was seen.

    Args:
        task: What is read.
        tokens: States.
        world: The chains.
    """
    seen = jnp.cumsum(jnp.log(world.stationary[:, tokens]), axis=1)
    weights = jax.nn.softmax((jnp.log(world.weights)[:, None] + seen).T, axis=-1)
    return weights @ world.stationary


def retrieve_bigrams(
    task: MarkovMixture, tokens: Int[Array, "pos"], world: Chains
) -> Float[Array, "pos next_state"]:
    """The best answer of whoever knows the chains.

    Args:
        task: What is read.
        tokens: States.
        world: The chains.
    """
    return task.posterior(tokens, world)


def infer_bigrams(
    task: MarkovMixture, tokens: Int[Array, "pos"], world: Chains
) -> Float[Array, "pos next_state"]:
    """What followed the last state so far, each state counted once more.

    Args:
        task: What is read.
        tokens: States.
        world: Not looked at.
    """
    rows = inferred_chains(tokens, task.n_states)
    return rows[jnp.arange(len(tokens)), tokens]


def infer_unigrams(
    task: MarkovMixture, tokens: Int[Array, "pos"], world: Chains
) -> Float[Array, "pos next_state"]:
    """The stationary law of the inferred chain, as the authors' code has it.

    Args:
        task: What is read.
        tokens: States.
        world: Not looked at.
    """
    return stationary_law(inferred_chains(tokens, task.n_states))


def inferred_chains(
    tokens: Int[Array, "pos"], n_states: int
) -> Float[Array, "pos state next_state"]:
    """The mean chain given the transitions up to each position, if all rows were alike before.

    Args:
        tokens: States.
        n_states: How many there are.
    """
    before = jax.nn.one_hot(tokens[:-1], n_states)
    after = jax.nn.one_hot(tokens[1:], n_states)
    steps = before[:, :, None] * after[:, None, :]
    none = jnp.zeros((1, n_states, n_states))
    counts = jnp.concatenate([none, jnp.cumsum(steps, axis=0)]) + 1
    return counts / counts.sum(axis=-1, keepdims=True)
