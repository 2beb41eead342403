r"""The same logits, faster: an exact rewrite of `forward` for a bag of tokens that is asked at its end.

Without positions, one layer that is read at the last token alone sees of a sequence only how often each token is in it. If that
last token is always the same one, its queries and therefore all scores are numbers of the vocabulary, not of the batch:

    s_h(v) = q_h . k_h(v)                                    one score for each token of the vocabulary
    softmax:   z_h = sum_v c(v) exp s_h(v) v_h(v) / sum_v c(v) exp s_h(v)      c(v): how often v is in the sequence
    linear:    z_h = sum_v c(v) s_h(v) v_h(v)

then read-out and feed-forward at one position. Numerator and denominator are products of the counts with tables of the vocabulary,
so that no array has an axis for sequences, heads and tokens at once. exp s_h(v) is taken relative to the head's largest score and
not below exp(-80): the rewrite is exact unless every token of a sequence is further than that below the best one of the vocabulary.

Axes: `v` are tokens of the vocabulary. `applies` says for which models this is used.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.forward import ACTS

LEAST = -80.0  # nats: exp of it, and one over that, are floats


def applies(config: ModelConfig, asks_from: int | None) -> bool:
    """Whether the rewrite covers this model, asked from a token that ends every sequence."""
    return asks_from is not None and config.n_layers == 1 and config.norm == "none" and not config.positions


def counts(tokens: Int[Array, "batch pos"], d_vocab: int) -> Float[Array, "batch v"]:
    """How often each token is in each sequence."""
    return (tokens[:, :, None] == jnp.arange(d_vocab)[None, None]).sum(axis=1).astype(float)


def last_logits(
    config: ModelConfig, params: Params, tokens: Int[Array, "batch pos"], asks_from: int
) -> Float[Array, "batch answer"]:
    """`forward`'s logits at the last position of every sequence; the last token must be `asks_from`."""
    p = {name: jnp.asarray(value) for name, value in params.items()}
    attn, mlp, embedded = "blocks.0.attn", "blocks.0.mlp", p["embed.W_E"]
    c = counts(tokens, embedded.shape[0])

    def bias(name: str) -> Array | float:
        return p[name][None] if name in p else 0.0

    q = jnp.einsum("d,hde->he", embedded[asks_from], p[f"{attn}.W_Q"]) + (p[f"{attn}.b_Q"] if config.bias else 0.0)
    k, v = (jnp.einsum("vd,hde->vhe", embedded, p[f"{attn}.W_{n}"]) + bias(f"{attn}.b_{n}") for n in "KV")
    scores = jnp.einsum("he,vhe->hv", q, k)
    around = embedded[asks_from][None] if config.attn_residual else 0.0
    read_out = embedded.T if config.tied else p["unembed.W_U"]
    if config.attention == "linear":
        # nothing but sums: what a token adds to the stream is a number of the vocabulary too
        adds = jnp.einsum("hv,vhe,hed->vd", scores, v, p[f"{attn}.W_O"])
        if not config.has_mlp(0):
            beside = around + bias(f"{attn}.b_O")  # 0.0 where there is nothing
            constant = (beside @ read_out if isinstance(beside, Array) else 0.0) + bias("unembed.b_U")
            return c @ (adds @ read_out) + constant
        x = c @ adds
    else:
        scores = scores * config.d_head**-0.5
        weight = jnp.exp(jnp.maximum(scores - scores.max(axis=1, keepdims=True), LEAST))
        total = c @ weight.T
        # dividing both by what the total is keeps its square, which can be too small for a float, out of the gradient
        unit = jax.lax.stop_gradient(1 / total)[:, :, None]
        z = jnp.einsum("bv,vhe->bhe", c, weight.T[:, :, None] * v) * unit / (total[:, :, None] * unit)
        x = jnp.einsum("bhe,hed->bd", z, p[f"{attn}.W_O"])
    x = x + around + bias(f"{attn}.b_O")
    if config.has_mlp(0):
        hidden = ACTS[config.act](x @ p[f"{mlp}.W_in"] + bias(f"{mlp}.b_in"))
        x = x + hidden @ p[f"{mlp}.W_out"] + bias(f"{mlp}.b_out")
    return x @ read_out + bias("unembed.b_U")
