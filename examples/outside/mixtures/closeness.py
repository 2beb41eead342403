"""How far a model is from the chain that it reads: of a known chain, and of one never seen.

    KL = sum_i pi(i) KL(model's row i || T(i, .))

The model's row i is its answer after a context of c states that ends in the chain's last visit to
i. A state that is not visited late enough has no row, and the others share its weight.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import mnemoscope as ms
from mixtures.markov_mixture import (
    Chains,
    MarkovMixture,
    draw_chains,
    draw_states,
    stationary_law,
)

DRAWS = 30  # chains of each sort, as the authors have it
KEY = 11  # the same chains at every evaluation


@ms.metric(kind="mixtures/closeness")
def closeness(
    task: MarkovMixture, model: ms.HookedModel, world: Chains
) -> dict[str, Float[Array, ""]]:
    """KL to the truth on chains of the mixture (`id`) and on fresh ones (`ood`).

    Args:
        task: What is read.
        model: What is asked.
        world: The chains of the seed.
    """
    for_known, for_fresh, for_states = jax.random.split(jax.random.key(KEY), 3)
    drawn = jax.random.categorical(for_known, jnp.log(world.weights), shape=(DRAWS,))
    fresh = draw_chains(for_fresh, DRAWS, task.n_states)
    keys = jax.random.split(for_states, DRAWS)
    known = world.transitions[drawn]
    return {
        "id": mean_divergence(task, model, known, keys),
        "ood": mean_divergence(task, model, fresh, keys),
    }


def mean_divergence(
    task: MarkovMixture,
    model: ms.HookedModel,
    chains: Float[Array, "chain state next_state"],
    keys: Array,
) -> Float[Array, ""]:
    """The mean over chains of the KL between model and truth.

    Args:
        task: What is read.
        model: What is asked.
        chains: The truth.
        keys: Of one sequence of each chain.
    """
    # 400 of 512 states, as published
    context = max(1, task.length * 25 // 32)
    laws = stationary_law(chains)

    def of_chain(transitions: Array, law: Array, key: Array) -> Array:
        states = draw_states(transitions, law, task.length, key=key)
        places = jnp.arange(task.length)
        last = jax.vmap(lambda i: jnp.where(states == i, places, -1).max())(
            jnp.arange(task.n_states)
        )
        is_late = last >= context - 1
        starts = jnp.maximum(last - context + 1, 0)
        windows = jax.vmap(lambda at: jax.lax.dynamic_slice(states, (at,), (context,)))(starts)
        said = jax.nn.log_softmax(jax.vmap(model)(windows)[:, -1])
        divergence = (jnp.exp(said) * (said - jnp.log(transitions))).sum(axis=-1)
        weights = jnp.where(is_late, law, 0.0)
        return (weights * divergence).sum() / weights.sum()

    return jax.lax.map(lambda each: of_chain(*each), (chains, laws, keys)).mean()
