r"""Who says the noise token, and who the right one: feed-forward layers and attention, read apart.

At a trigger seen before, in sequences without noise, each part of the model adds a vector to the stream, and the read-out makes
of it

    margin of feed-forward = sum over layers of mlp_out . (u_noise - u_right)
    margin of attention    = attn_out of the last layer . (u_right - u_noise)

In sequences with noise the last layer's attention is split by what followed the trigger there: `to right` and `to noise`.
Positions at which the right answer is the noise token itself are left out.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import Transformer
from mnemoscope.tasks import Bigrams

KEY = 2**31 - 3


def distraction(task: Bigrams, model: Transformer, sample: int) -> dict[str, Float[Array, ""]]:
    """P(right), P(noise), share of right answers, both margins, and attention on what is right and on noise."""
    clean, config = task.model_copy(update={"noise": 0.0}), model.config
    keys, last = jax.random.split(jax.random.key(KEY), sample), config.n_layers - 1
    w_u = jnp.asarray(model.params["unembed.W_U"])

    def drawn(task: Bigrams) -> tuple[Array, Array, Array]:
        """Sequences, the right answer at every position, and where it is asked for: at triggers that were seen before."""
        tokens, triggers, outputs = jax.vmap(lambda key: task.draw(key=key))(keys)
        inputs = tokens[:, :-1]
        right = jnp.einsum("bpk,bk->bp", (inputs[:, :, None] == triggers[:, None]).astype(int), outputs)
        asked = (jax.vmap(task.roles)(inputs, triggers) >= 2) & (right != task.noise_token)
        return inputs, right, asked

    def mean(x: Array, asked: Array) -> Array:
        return jnp.where(asked, x, 0.0).sum() / jnp.maximum(asked.sum(), 1)

    def picked(scores: Float[Array, "batch pos vocab"], answer: Array) -> Array:
        return jnp.take_along_axis(scores, answer[:, :, None], axis=2)[:, :, 0]

    inputs, right, asked = drawn(clean)

    def parts(row: Array) -> tuple[Array, Array, Array]:
        logits, trace = model.run_with_trace(row)
        fed = [trace[f"blocks.{n}.hook_mlp_out"] for n in range(config.n_layers) if config.has_mlp(n)]
        return logits, sum(fed, jnp.zeros_like(trace["hook_embed"])) @ w_u, trace[f"blocks.{last}.hook_attn_out"] @ w_u

    logits, fed, attended = jax.vmap(parts)(inputs)
    told = jax.nn.softmax(logits, axis=-1)
    by_fed, by_attention = (picked(x, right) - x[:, :, task.noise_token] for x in (fed, attended))
    found = {
        "P(right)": mean(picked(told, right), asked), "P(noise)": mean(told[:, :, task.noise_token], asked),
        "right": mean(logits.argmax(axis=-1) == right, asked), "margin of feed-forward": -mean(by_fed, asked),
        "margin of attention": mean(by_attention, asked),
    }  # fmt: skip
    if not task.noise:
        return found
    inputs, right, asked = drawn(task)
    pattern = jax.vmap(lambda row: model.run_with_trace(row)[1][f"blocks.{last}.attn.hook_pattern"].mean(axis=0))(
        inputs
    )
    before = jnp.concatenate([jnp.full_like(inputs[:, :1], -1), inputs[:, :-1]], axis=1)
    followed = before[:, None, :] == inputs[:, :, None]  # row asks, column comes after the same token
    for name, answer in (("to right", right), ("to noise", jnp.full_like(right, task.noise_token))):
        there = followed & (inputs[:, None, :] == answer[:, :, None])
        found[name] = mean((pattern * there).sum(axis=2), asked)
    return found
