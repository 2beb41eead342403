"""What heads do on a sequence that is repeated: n tokens, and the same n again.

    previous(head) = mean over t >= 1 of pattern[t, t - 1]         attention to the token before
    prefix(head)   = mean over t >= n of pattern[t, t - n + 1]     to the token AFTER this one's
                                                                   earlier occurrence

A head that copies what came next last time has a prefix-matching score near 1; one that attends
evenly has about 1 / t.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Logits, Tokens


def previous_score(pattern: Float[Array, "head pos key_pos"]) -> Float[Array, "head"]:
    """Mean attention to the position before."""
    return jnp.diagonal(pattern, -1, axis1=1, axis2=2).mean(axis=1)


def prefix_score(pattern: Float[Array, "head pos key_pos"]) -> Float[Array, "head"]:
    """Mean attention, in the second half of a repeated sequence, to the position after the token's
    earlier occurrence."""
    period = pattern.shape[1] // 2
    return jnp.diagonal(pattern, 1 - period, axis1=1, axis2=2)[:, 1:].mean(axis=1)


def token_losses(logits: Logits, tokens: Tokens) -> Float[Array, "pos-1"]:
    """What each token after the first costs, in nats."""
    log_p = jax.nn.log_softmax(logits[:-1])
    return -jnp.take_along_axis(log_p, tokens[1:, None], axis=1)[:, 0]
