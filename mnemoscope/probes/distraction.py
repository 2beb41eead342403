r"""Who says the noise token, and who the right one: feed-forward layers and attention, read apart.

At a trigger seen before, in sequences without noise, each part of the model adds a vector to the
stream, and the read-out makes of it

    margin of feed-forward = sum over layers of mlp_out . (u_noise - u_right)
    margin of attention    = attn_out of the last layer . (u_right - u_noise)

In sequences with noise the last layer's attention is split by what followed the trigger there: `to
right` and `to noise`. Positions at which the right answer is the noise token itself are left out.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Bool, Float, Int, Key, Shaped
from mnemoscope.core.errors import UserError
from mnemoscope.models import HookedModel, Model
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.models.forward_pass import unembedding
from mnemoscope.tasks import Bigrams

KEY = 2**31 - 3

# logits are the sum of what parts add where no norm stands before the unembedding
SUPPORT = Support(
    "the reader of noise",
    {
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "gated_mlp": ANY,
        "parallel_attn_mlp": ANY,
        "attn_layers": ANY,
        "mlp_layers": ANY,
        "attention": ANY,
        "causal": ANY,
        "d_head": ANY,
        "n_key_value_heads": ANY,
        "positions": ANY,
        "rotary_dim": ANY,
        "rotary_base": ANY,
        "rotary_adjacent_pairs": ANY,
    },
)


def require_parts(config: Model) -> None:
    """Raise unless the parts of a model can be read apart, its last layer's attention among them.

    Args:
        config: The model.
    """
    SUPPORT.require(config)
    last = config.n_layers - 1
    if not config.has_attn(last):
        raise UserError(
            f"the reader of noise reads attention in the last layer, {last}, got "
            f"attn_layers={config.attn_layers}"
        )


class _Asked(NamedTuple):
    """Sequences, and where something is asked of them: at triggers that were seen before."""

    inputs: Int[Array, "batch pos"]
    # the right answer at every position
    right: Int[Array, "batch pos"]
    # whether it is asked for
    asked: Bool[Array, "batch pos"]


def distraction(task: Bigrams, model: HookedModel, sample: int) -> dict[str, Float[Array, ""]]:
    """P(right), P(noise), accuracy, both margins, and attention on what is right and
    on noise.

    Args:
        task: from which sequences are drawn, with and without its noise.
        model: what is read.
        sample: how many sequences.
    """
    require_parts(model.config)
    keys = jax.random.split(jax.random.key(KEY), sample)
    clean = task.model_copy(update={"noise": 0.0})
    found = _answers_and_margins(task, model, _drawn(clean, keys))
    if task.noise:
        found |= _attention_split(task, model, _drawn(task, keys))
    return found


def _drawn(task: Bigrams, keys: Key[Array, "batch"]) -> _Asked:
    """One sequence a key."""
    tokens, triggers, outputs = jax.vmap(lambda key: task.draw(key=key))(keys)
    inputs = tokens[:, :-1]
    is_trigger = (inputs[:, :, None] == triggers[:, None]).astype(int)
    right = jnp.einsum("bpk,bk->bp", is_trigger, outputs)
    seen_before = jax.vmap(task.roles)(inputs, triggers) >= 2
    return _Asked(inputs, right, asked=seen_before & (right != task.noise_token))


def _mean(x: Shaped[Array, "batch pos"], asked: Bool[Array, "batch pos"]) -> Float[Array, ""]:
    """The mean over the positions that are asked."""
    return jnp.where(asked, x, 0.0).sum() / jnp.maximum(asked.sum(), 1)


def _answers_and_margins(
    task: Bigrams, model: HookedModel, drawn: _Asked
) -> dict[str, Float[Array, ""]]:
    """What is answered in sequences without noise, and what each part says to it."""
    config = SUPPORT.require(model.config)
    last = config.n_layers - 1
    w_u = unembedding(config, model.params)
    inputs, right, asked = drawn

    def picked(scores: Float[Array, "batch pos vocab"]) -> Float[Array, "batch pos"]:
        """The scores of the right answers."""
        return jnp.take_along_axis(scores, right[:, :, None], axis=2)[:, :, 0]

    def parts(row: Array) -> tuple[Array, Array, Array]:
        """The logits, and what the feed-forward layers and the last attention add to them."""
        logits, trace = model.run_with_trace(row)
        with_mlp = [n for n in range(config.n_layers) if config.has_mlp(n)]
        nothing = jnp.zeros_like(trace["hook_embed"])
        fed = sum([trace[f"blocks.{n}.hook_mlp_out"] for n in with_mlp], nothing)
        return logits, fed @ w_u, trace[f"blocks.{last}.hook_attn_out"] @ w_u

    logits, fed, attended = jax.vmap(parts)(inputs)
    p = jax.nn.softmax(logits, axis=-1)
    fed_margin = picked(fed) - fed[:, :, task.noise_token]
    attended_margin = picked(attended) - attended[:, :, task.noise_token]
    return {
        "P(right)": _mean(picked(p), asked),
        "P(noise)": _mean(p[:, :, task.noise_token], asked),
        "accuracy": _mean(logits.argmax(axis=-1) == right, asked),
        "margin of feed-forward": -_mean(fed_margin, asked),
        "margin of attention": _mean(attended_margin, asked),
    }


def _attention_split(
    task: Bigrams, model: HookedModel, drawn: _Asked
) -> dict[str, Float[Array, ""]]:
    """How much the last layer attends to what followed the trigger earlier: the right token, or
    noise."""
    last = model.config.n_layers - 1
    inputs, right, asked = drawn

    def mean_over_heads(row: Array) -> Array:
        trace = model.run_with_trace(row)[1]
        return trace[f"blocks.{last}.attn.hook_pattern"].mean(axis=0)

    pattern = jax.vmap(mean_over_heads)(inputs)
    before = jnp.concatenate([jnp.full_like(inputs[:, :1], -1), inputs[:, :-1]], axis=1)
    followed = before[:, None, :] == inputs[:, :, None]  # row asks, column comes after the same

    def attention_to(answer: Array) -> Array:
        there = followed & (inputs[:, None, :] == answer[:, :, None])
        return _mean((pattern * there).sum(axis=2), asked)

    noise = jnp.full_like(right, task.noise_token)
    return {"to right": attention_to(right), "to noise": attention_to(noise)}
