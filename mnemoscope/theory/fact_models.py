r"""Models of factual recall that are written down: no training, only sums of outer products of
random embeddings.

Each subject and each relation x has a head of its own, of size 1, that attends to x if it is there
and to EOS if not:

    score of a token y = b (x + x_EOS / 2) . y     b for x, b/2 for EOS, about 0 for the rest
    z = x . y                                      1 if x is there, else 0
                                                   (x has the direction of EOS taken out)

*Attention only.* A subject writes all of its answers, a relation all of its block; only the right
answer is written twice:

    s -> sum_r u_{a(s, r)}        r -> sum_{a in block r} u_a        argmax = a(s, r)

*Attention and MLP.* Subject and relation write codes c_s and c_r into two halves of the stream, and
the feed-forward layer stores S R pairs. Four hidden units make one feature that is odd in both
codes, so that facts with the same subject or relation do not overlap:

    psi_i(s, r) = |a + b| - |a - b|,   a = w_i . c_s,  b = v_i . c_r
    W_out = sum_{s, r} psi(s, r) u_{a(s, r)}

Wrong answers score of the order of sqrt(R / d) in the first and sqrt(4 S R / (m d)) in the second,
against 1: d has to grow as R, and m d as S R, up to a logarithm. With H d_h = S + R heads there are
4 (S + R) d + 2 m d parameters.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int, Params, PRNGKeyArray
from mnemoscope.core.errors import UserError
from mnemoscope.models import Init, ModelConfig, init
from mnemoscope.tasks import Facts, FactWorld

STRENGTH = 40.0  # nats between a head's own token and noise; EOS is half way between


def recall_model(task: Facts, d: int, d_mlp: int = 0) -> ModelConfig:
    """The shape of a hand-built model.

    Args:
        task: says how many subjects and relations there are: one head each.
        d: the width of the stream.
        d_mlp: hidden units of the feed-forward layer; 0 is a model of attention only.
    """
    if d < 4:
        raise UserError(f"a hand-built model has a width of at least 4, got {d}")
    if d_mlp % 4:
        raise UserError(
            f"four hidden units make one feature, so d_mlp must be a multiple of 4, got {d_mlp}"
        )
    return ModelConfig(
        d_model=d,
        n_heads=task.subjects + task.relations,
        d_head=1,
        d_mlp=d_mlp,
        bias=False,
        positions="none",
        attn_residual=False,
        init=Init(embeddings="unit"),
    )


def parameter_count(heads: int, d: int, d_mlp: int) -> int:
    """Parameters as the paper counts them: 4 H d_h d + 2 m d.

    Args:
        heads: H d_h.
        d: the width of the stream.
        d_mlp: m, the hidden units of the feed-forward layer.
    """
    return (4 * heads + 2 * d_mlp) * d


def _dual(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Each vector over its squared length: its product with itself is 1."""
    return x / jnp.square(x).sum(axis=-1, keepdims=True)


def write_facts(
    config: ModelConfig,
    task: Facts,
    world: FactWorld,
    width: int | Int[Array, ""] | None = None,
    *,
    key: PRNGKeyArray,
) -> Params:
    """Random embeddings, and the weights that recall the facts of a world from them.

    Args:
        config: the model, as `recall_model` shapes it.
        task: says what the tokens are.
        world: the facts.
        width: uses only so many dimensions of the stream, and as large a share of the hidden units,
            and leaves the others at zero: the model of that width, in arrays of another size.
        key: draws embeddings, codes and features.
    """
    d = config.d_model
    width = jnp.asarray(d if width is None else width)
    for_embeddings, for_codes, for_features = jax.random.split(key, 3)
    p = init(config, task.d_vocab, task.n_ctx, task.d_vocab_out, key=for_embeddings)
    in_use = (jnp.arange(d) < width)[None]
    tokens = jnp.where(in_use, jnp.asarray(p["embed.W_E"]), 0.0)
    answers = jnp.where(in_use, jnp.asarray(p["unembed.W_U"]).T, 0.0)
    read = _dual(answers)
    first_half = (jnp.arange(d) < width // 2)[None]
    is_subject = (jnp.arange(config.n_heads) < task.subjects)[:, None]
    codes = jax.random.normal(for_codes, (config.n_heads, d)) * (2 / width) ** 0.5
    codes = jnp.where((is_subject == first_half) & in_use, codes, 0.0)
    p |= {"embed.W_E": tokens, "unembed.W_U": answers.T}
    p |= _own_token_heads(config, tokens, tokens[task.query_token])
    if not config.d_mlp:
        p["blocks.0.attn.W_O"] = _all_answers(task, world, read)[:, None]
        return p
    p["blocks.0.attn.W_O"] = codes[:, None]
    w, v = jax.random.normal(for_features, (2, config.d_mlp // 4, d))
    w = jnp.where(first_half, w, 0.0)
    v = jnp.where(in_use & ~first_half, v, 0.0)
    return p | _stored_pairs(task, codes, w, v, read[world.answer], width)


def _own_token_heads(
    config: ModelConfig, tokens: Float[Array, "token d"], eos: Float[Array, "d"]
) -> Params:
    """Heads that say whether their own token is there, each asked from EOS."""
    own = _dual(tokens[: config.n_heads])
    to_eos = _dual(eos)[None]
    queries = jnp.broadcast_to(to_eos[:, :, None], (config.n_heads, config.d_model, 1))
    return {
        "blocks.0.attn.W_Q": queries,
        "blocks.0.attn.W_K": STRENGTH * (own + to_eos / 2)[:, :, None],
        "blocks.0.attn.W_V": (own - (own @ eos)[:, None] * to_eos)[:, :, None],
    }


def _all_answers(
    task: Facts, world: FactWorld, read: Float[Array, "answer d"]
) -> Float[Array, "head d"]:
    """What each head writes without a feed-forward layer: a subject all of its answers, a relation
    all of its block."""
    of_subjects = read[world.answer].sum(axis=1)
    blocks = read.reshape(task.relations, task.per_relation, read.shape[1])
    return jnp.concatenate([of_subjects, blocks.sum(axis=1)])


def _stored_pairs(
    task: Facts,
    codes: Float[Array, "head d"],
    w: Float[Array, "feature d"],
    v: Float[Array, "feature d"],
    answers: Float[Array, "subject relation d"],
    width: Int[Array, ""],
) -> Params:
    """The feed-forward layer that stores every fact under the codes of its subject and relation."""
    n_features, d = w.shape
    in_use = jnp.arange(n_features)[:, None] < n_features * width // d
    a = codes[: task.subjects] @ w.T
    b = codes[task.subjects :] @ v.T
    psi = jnp.abs(a[:, None] + b[None]) - jnp.abs(a[:, None] - b[None])  # subject relation feature
    stored = jnp.where(in_use, jnp.einsum("srf,srd->fd", psi, answers), 0.0)
    own_score = jnp.where(in_use.T[None], jnp.square(psi), 0.0).sum(axis=2).mean()
    stored = stored / own_score
    return {
        "blocks.0.mlp.W_in": jnp.concatenate([w + v, -w - v, w - v, v - w]).T,
        # codes are read out too, and this must outweigh them
        "blocks.0.mlp.W_out": STRENGTH * jnp.concatenate([stored, stored, -stored, -stored]),
    }
