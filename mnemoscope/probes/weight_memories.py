r"""What the matrices of a two-layer model remember, read from the weights, and what its heads do,
read from sequences.

With rows as vectors, tokens e, positions p and read-out directions u (columns of W_U):

    output memory    argmax_j  e_i W_V1 W_O1 . u_j  =  i         over all tokens
    layer-1 keys     argmax_j  e_i . e_j W_V0 W_O0 W_K1  =  i    over some tokens: the triggers, or
                                                                 all
    layer-0 keys     argmax_s  p_t . p_s W_K0  =  t - 1          over positions t from 1 up to some
                                                                 last one

Each is an accuracy; chance is one over the number of candidates. Layers are counted
from 0.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError
from mnemoscope.models import HookedModel, Model, ModelConfig
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.consumer_support import ANY, Support, as_transformer, why_foreign
from mnemoscope.models.forward_pass import unembedding

# the products above are what a model computes where nothing else stands between two matrices
SUPPORT = Support(
    "the reader of memories in weights",
    {
        "bias": (False,),
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ANY,
        "mlp_layers": ANY,
        "d_head": ANY,
    },
)


def has_two_heads(config: Model) -> bool:
    """Whether this is a model of two layers of one head, as those that have such memories."""
    return why_foreign(config) is None and config.n_layers == 2 and config.n_heads == 1


def require_two_heads(config: Model) -> None:
    """Raise unless the first two layers have one head each."""
    if config.n_layers < 2 or config.n_heads != 1:
        raise UserError(
            "memories are read in two layers of one head, "
            f"got {config.n_layers} of {config.n_heads}"
        )
    if not (config.has_attn(0) and config.has_attn(1)):
        raise UserError(
            f"memories are read in two layers of one head, got attn_layers={config.attn_layers}"
        )


def require_memories(config: Model) -> ModelConfig:
    """The model, if its memories are the products that are read here; else raise."""
    require_two_heads(as_transformer(config, SUPPORT.consumer))
    return SUPPORT.require(config)


def _parts(model: HookedModel) -> dict[str, Array]:
    """The parameters of a model that has such memories, the unembedding too where it is tied."""
    config = require_memories(model.config)
    found = {name: jnp.asarray(value) for name, value in model.params.items()}
    return found | {"unembed.W_U": unembedding(config, model.params)}


def output_memory(model: HookedModel) -> Float[Array, ""]:
    """Share of tokens whose value, carried by layer 1, is read out as themselves."""
    p = _parts(model)
    carried = p["embed.W_E"] @ p["blocks.1.attn.W_V"][0] @ p["blocks.1.attn.W_O"][0]
    read = carried @ p["unembed.W_U"]
    return (read.argmax(axis=1) == jnp.arange(read.shape[0])).mean()


def second_keys(model: HookedModel, tokens: Sequence[int] | None = None) -> Float[Array, ""]:
    """Share of tokens whose query in layer 1 finds the key of the position after them, among
    `tokens` (None: all)."""
    p = _parts(model)
    e = p["embed.W_E"] if tokens is None else p["embed.W_E"][jnp.array(list(tokens))]
    keys = e @ p["blocks.0.attn.W_V"][0] @ p["blocks.0.attn.W_O"][0] @ p["blocks.1.attn.W_K"][0]
    queries = e @ p["blocks.1.attn.W_Q"][0]
    found = (queries @ keys.T).argmax(axis=1)
    return (found == jnp.arange(e.shape[0])).mean()


def first_keys(model: HookedModel, first: int = 1, last: int | None = None) -> Float[Array, ""]:
    """Share of positions whose query in layer 0 finds the key of the position before.

    Args:
        model: what is read.
        first: the first position that counts.
        last: the first one that no longer does (None: to the end).
    """
    p = _parts(model)
    places = p["pos_embed.W_pos"]
    queries = places @ p["blocks.0.attn.W_Q"][0]
    keys = places @ p["blocks.0.attn.W_K"][0]
    found = (queries @ keys.T).argmax(axis=1)
    return (found == jnp.arange(places.shape[0]) - 1)[first:last].mean()


def early_keys(model: HookedModel, end: int) -> Float[Array, ""]:
    """Share of early positions whose query in layer 0 finds the key of the position before, among
    the keys of early positions alone.

    Args:
        model: what is read.
        end: the first position that is no longer early.
    """
    p = _parts(model)
    places = p["pos_embed.W_pos"][:end]
    queries = places[1:] @ p["blocks.0.attn.W_Q"][0]
    keys = places[:-1] @ p["blocks.0.attn.W_K"][0]
    found = (queries @ keys.T).argmax(axis=1)
    return (found == jnp.arange(keys.shape[0])).mean()


def bigram_memory(
    model: HookedModel,
    bigrams: Float[np.ndarray | Array, "vocab next"],
    leave_out: Sequence[int] = (),
) -> Float[Array, ""]:
    """Mean of KL(pi_b(. | i) || softmax(W_U W_F e_i)) over the tokens i: 0 is a perfect memory.

    Args:
        model: what is read; W_F is its last feed-forward layer.
        bigrams: pi_b, a row for each i.
        leave_out: the tokens i that do not count.
    """
    config = model.config
    p = _parts(model)
    with_mlp = [n for n in range(config.n_layers) if config.has_mlp(n)]
    if not with_mlp:
        raise UserError("this model has no feed-forward layer that could remember bigrams")
    mlp = f"blocks.{with_mlp[-1]}.mlp"
    hidden = ACTIVATIONS[config.act](p["embed.W_E"] @ p[f"{mlp}.W_in"])
    log_p = jax.nn.log_softmax(hidden @ p[f"{mlp}.W_out"] @ p["unembed.W_U"], axis=1)
    true = jnp.asarray(bigrams)
    log_true = jnp.log(jnp.where(true > 0, true, 1.0))
    divergence = jnp.where(true > 0, true * (log_true - log_p), 0.0).sum(axis=1)
    kept = np.setdiff1d(np.arange(true.shape[0]), np.array(leave_out, int))
    return divergence[kept].mean()


def head_scores(
    model: HookedModel,
    tokens: Int[Array, "batch length"],
    weights: Float[Array, "batch length"],
    early: int | None = None,
) -> dict[str, Float[Array, ""]]:
    """What the two heads do on sequences, as means over the positions that `weights` counts.

    `previous` is layer 0's attention on the position before, at every position from 1 on (below
    `early`). At the counted positions, `induction` is layer 1's attention on positions whose token
    before is the one asked about, and `to answer` its attention on positions that hold the token
    which followed it there.

    Args:
        model: what is read.
        tokens: the sequences.
        weights: how much each position counts.
        early: where `previous` ends (None: at the end).
    """
    require_two_heads(model.config)

    def one(row: Array, weight: Array) -> Array:
        trace = model.run_with_trace(row)[1]
        first = trace["blocks.0.attn.hook_pattern"][0]
        second = trace["blocks.1.attn.hook_pattern"][0]
        n = row.shape[0]
        before = jnp.concatenate([jnp.array([-1], row.dtype), row[:-1]])
        followed = (before[None, :] == row[:, None]) & jnp.tril(jnp.ones((n, n), bool))
        # the token that followed the first earlier occurrence; where there was none, nothing counts
        answer = row[followed.argmax(axis=1)]
        is_answer = (row[None, :] == answer[:, None]) & followed.any(axis=1, keepdims=True)
        induction = (second * followed.astype(float)).sum(axis=1) @ weight
        to_answer = (second * is_answer.astype(float)).sum(axis=1) @ weight
        previous = jnp.diagonal(first, -1)[: early and early - 1].mean()
        return jnp.stack([previous, induction, to_answer])

    found = jax.vmap(one)(tokens, weights)
    counted = weights.sum()
    return {
        "previous": found[:, 0].mean(),
        "induction": found[:, 1].sum() / counted,
        "to answer": found[:, 2].sum() / counted,
    }
