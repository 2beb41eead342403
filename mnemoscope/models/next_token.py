r"""A model whose answers are its tokens, as a language model: its loss, and how it goes on.

loss = -mean_t log softmax(logits_t)[token_{t+1}]
"""

from functools import partial

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params, PRNGKeyArray
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.model import Model


def next_token_loss(
    logits: Float[Array, "*axes pos vocab"], tokens: Int[Array, "*batch pos"]
) -> Float[Array, "*axes pos-1"]:
    """What each token costs after those before it, in nats.

    Args:
        logits: After every token.
        tokens: The prompts, which may lack a seed axis that the logits have.
    """
    log_probs = jax.nn.log_softmax(logits[..., :-1, :], axis=-1)
    asked = jnp.broadcast_to(tokens, logits.shape[:-1]) if tokens.ndim else tokens
    return -jnp.take_along_axis(log_probs, asked[..., 1:, None], axis=-1)[..., 0]


def continued(
    config: Model,
    params: Params,
    tokens: Int[Array, "pos"],
    n_new: int,
    samples: bool,
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
) -> Int[Array, "longer"]:
    """One prompt with what a causal model says next.

    The row has its full length from the start: what stands after a position does not reach it.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: The prompt.
        n_new: How many tokens are added.
        samples: Whether they are drawn, instead of being the likeliest.
        temperature: What logits are divided by before they are drawn from.
        key: What draws are made from.
    """
    # the code of a model from outside is part of the key under which jit keeps a program
    return _continued(config, config.code(), params, tokens, n_new, samples, temperature, key)


@partial(jax.jit, static_argnames=("config", "code", "n_new", "samples"))
def _continued(
    config: Model,
    code: str,
    params: Params,
    tokens: Int[Array, "pos"],
    n_new: int,
    samples: bool,
    temperature: Float[Array, ""],
    key: PRNGKeyArray,
) -> Int[Array, "longer"]:
    n_given = tokens.shape[0]

    def step(i: Array, row: Array) -> Array:
        logits = forward(config, params, row)[0][n_given + i - 1]
        drawn = jax.random.categorical(jax.random.fold_in(key, i), logits / temperature)
        token = drawn if samples else logits.argmax()
        return row.at[n_given + i].set(token.astype(row.dtype))

    row = jnp.concatenate([tokens, jnp.zeros(n_new, tokens.dtype)])
    return jax.lax.fori_loop(0, n_new, step, row)
