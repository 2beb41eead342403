r"""The same logits, faster: an exact rewrite for a bag of tokens that is asked at its end.

Without positions, one layer that is read at the last token alone sees of a sequence only how often
each token is in it. If that last token is always the same one, its queries and therefore all scores
are numbers of the vocabulary, not of the batch:

    s_h(v) = q_h . k_h(v)                             one score for each token of the vocabulary
    softmax:   z_h = sum_v c(v) exp s_h(v) v_h(v) / sum_v c(v) exp s_h(v)
    linear:    z_h = sum_v c(v) s_h(v) v_h(v)         c(v): how often v is in the sequence

then feed-forward and unembedding at one position. Numerator and denominator are products of the
counts with tables of the vocabulary, so that no array has an axis for sequences, heads and tokens
at once. exp s_h(v) is taken relative to the head's largest score and not below exp(-80): the
rewrite is exact unless every token of a sequence is further than that below the best one of the
vocabulary.

Axes: `v` are tokens of the vocabulary. `why_not` says for which models this is used.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.tasks import Task

LEAST = -80.0  # nats: exp of it, and one over that, are floats


SUPPORT = Support(
    "token counts",
    {
        "norm": ("none",),
        "positions": ("none",),
        "attention": ("softmax", "linear"),
        "causal": ANY,  # the last token sees every other anyway
        "attn_residual": ANY,
        "d_head": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "mlp_layers": ANY,
    },
)


def why_not(config: ModelConfig, task: Task) -> str | None:
    """Why the rewrite is not used; None if it covers this model, asked by one token at the end.

    Args:
        config: The model.
        task: What it is trained on.
    """
    if task.reads_early:
        return "answers are read after earlier layers too"
    if task.query_token is None:
        return "no one token ends every sequence and asks"
    if config.n_layers != 1:
        return f"n_layers={config.n_layers} (allowed: 1)"
    return SUPPORT.why_not(config)


def counts(tokens: Int[Array, "batch pos"], d_vocab: int) -> Float[Array, "batch v"]:
    """How often each token is in each sequence."""
    is_token = tokens[:, :, None] == jnp.arange(d_vocab)[None, None]
    return is_token.sum(axis=1).astype(float)


def last_logits(
    config: ModelConfig, params: Params, tokens: Int[Array, "batch pos"], query_token: int
) -> Float[Array, "batch answer"]:
    """`forward`'s logits at the last position of every sequence.

    Args:
        config: The model, of a shape that `why_not` has nothing against.
        params: Its parameters by name.
        tokens: A batch of sequences; the last token of each must be `query_token`.
        query_token: The token that asks.
    """
    p = {name: jnp.asarray(value) for name, value in params.items()}
    embedding = p["embed.W_E"]
    b_o = "blocks.0.attn.b_O"
    count = counts(tokens, embedding.shape[0])
    scores, v = _scores_and_values(config, p, query_token)
    around = embedding[query_token][None] if config.attn_residual else 0.0
    w_u = embedding.T if config.tied else p["unembed.W_U"]
    if config.attention == "linear":
        # nothing but sums: what a token adds to the stream is a number of the vocabulary too
        adds = jnp.einsum("hv,vhe,hed->vd", scores, v, p["blocks.0.attn.W_O"])
        if not config.has_mlp(0):
            beside = around + _bias(p, b_o)  # 0.0 where there is nothing
            constant = beside @ w_u if isinstance(beside, Array) else 0.0
            constant = constant + _bias(p, "unembed.b_U")
            return count @ (adds @ w_u) + constant
        x = count @ adds
    else:
        z = _softmax_mix(scores * config.d_head**-0.5, v, count)
        x = jnp.einsum("bhe,hed->bd", z, p["blocks.0.attn.W_O"])
    x = x + around + _bias(p, b_o)
    if config.has_mlp(0):
        x = _feed_forward(config, p, x)
    return x @ w_u + _bias(p, "unembed.b_U")


def _bias(p: dict[str, Array], name: str) -> Array | float:
    """A bias with an axis in front; 0 where the model has none of this name."""
    return p[name][None] if name in p else 0.0


def _scores_and_values(
    config: ModelConfig, p: dict[str, Array], query_token: int
) -> tuple[Float[Array, "head v"], Float[Array, "v head d_head"]]:
    """Each token's score, before any division, and its values."""
    attn = "blocks.0.attn"
    embedding = p["embed.W_E"]

    def table(name: str) -> Array:
        mapped = jnp.einsum("vd,hde->vhe", embedding, p[f"{attn}.W_{name}"])
        return mapped + _bias(p, f"{attn}.b_{name}")

    q = jnp.einsum("d,hde->he", embedding[query_token], p[f"{attn}.W_Q"])
    q = q + (p[f"{attn}.b_Q"] if config.bias else 0.0)
    k = table("K")
    v = table("V")
    return jnp.einsum("he,vhe->hv", q, k), v


def _softmax_mix(
    scores: Float[Array, "head v"],
    v: Float[Array, "v head d_head"],
    count: Float[Array, "batch v"],
) -> Float[Array, "batch head d_head"]:
    """The values of a sequence's tokens, mixed by the softmax of their scores."""
    weight = jnp.exp(jnp.maximum(scores - scores.max(axis=1, keepdims=True), LEAST))
    total = count @ weight.T
    # dividing both by what the total is keeps its square, which can be too small for a float, out
    # of the gradient
    unit = jax.lax.stop_gradient(1 / total)[:, :, None]
    weighted = jnp.einsum("bv,vhe->bhe", count, weight.T[:, :, None] * v)
    return weighted * unit / (total[:, :, None] * unit)


def _feed_forward(
    config: ModelConfig, p: dict[str, Array], x: Float[Array, "batch d_model"]
) -> Float[Array, "batch d_model"]:
    mlp = "blocks.0.mlp"
    hidden = ACTIVATIONS[config.act](x @ p[f"{mlp}.W_in"] + _bias(p, f"{mlp}.b_in"))
    return x + hidden @ p[f"{mlp}.W_out"] + _bias(p, f"{mlp}.b_out")
