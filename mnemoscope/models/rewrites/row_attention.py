r"""Softmax attention of many short sequences on a CPU, with its derivative written out.

    e = exp(q k^T - highest),    z = (e v) / sum e

    dv = e^T y,    ds = e (y v^T - sum_key e y v^T / sum e),    dq = ds k,    dk = ds^T q

with y = dz / sum e. The division by the sum comes after the product with v, where it has a head's
width of terms instead of a key for each. A causal model's rows are taken some at a time, which see
only keys up to the last of them: with four such blocks, 5/8 of all scores are ever computed.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float
from mnemoscope.core.xla import materialize
from mnemoscope.models.precision import wide

# rows of a block. Loss and gradient of two layers (d=128, 4 heads, 256 tokens, batch 64) on one
# core of an EPYC: 317 ms with 32, 289 with 64, 313 with 128, 341 with all 256; with 64 tokens and
# d=64 two blocks of 32 gain nothing (20.3 ms against 20.0)
ROWS = 64
HIDDEN = -1e30  # finite, so that a row that sees nothing gets no NaN

Saved = tuple[Array, Array]  # of a block: exponentials, and one over their sums


def attend(
    true: Bool[Array, ""],
    causal: bool,
    q: Float[Array, "batch head row d_head"],
    k: Float[Array, "batch head pos d_head"],
    v: Float[Array, "batch head pos d_head"],
) -> Float[Array, "batch head row d_head"]:
    """z = softmax(q k^T) v; a causal model's rows are the positions.

    Args:
        true: A flag that is true, known only at run time; see `materialize`.
        causal: Whether rows see no later key.
        q: Queries, divided by the root of a head's width already.
        k: Keys.
        v: Values.
    """
    z: Array = _attend(causal, true, q, k, v)
    return z


def _blocks(causal: bool, n_rows: int) -> list[tuple[int, int, int]]:
    """First row, end of the rows, end of the keys that they see."""
    if not causal:
        return [(0, n_rows, -1)]
    ends = [*range(ROWS, n_rows, ROWS), n_rows]
    begins = [0, *ends[:-1]]
    return [(begin, end, end) for begin, end in zip(begins, ends, strict=True)]


def _unseen(causal: bool, begin: int, end: int, n_keys: int) -> Float[np.ndarray, "1 1 row pos"]:
    """What is added to the scores of a block's rows."""
    is_later = np.arange(n_keys)[None, :] > np.arange(begin, end)[:, None]
    return np.where(is_later & causal, HIDDEN, 0.0).astype(np.float32)[None, None]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(causal: bool, true: Array, q: Array, k: Array, v: Array) -> Array:
    return _forward(causal, true, q, k, v)[0]


def _forward(
    causal: bool, true: Array, q: Array, k: Array, v: Array
) -> tuple[Array, tuple[Array, Array, Array, Array, list[Saved]]]:
    rows: list[Array] = []
    saved: list[Saved] = []
    for begin, end, n_keys in _blocks(causal, q.shape[2]):
        seen_k = k if n_keys < 0 else k[:, :, :n_keys]
        seen_v = v if n_keys < 0 else v[:, :, :n_keys]
        unseen = _unseen(causal, begin, end, seen_k.shape[2])

        def exponentials(scores: Array, unseen: np.ndarray = unseen) -> Array:
            scores = wide(scores) + unseen
            return jnp.exp(scores - scores.max(axis=-1, keepdims=True))

        scores = jnp.einsum("bhre,bhke->bhrk", q[:, :, begin:end], seen_k)
        e = materialize(true, exponentials, scores)
        over_sum = 1 / e.sum(axis=-1, keepdims=True)
        e = e.astype(v.dtype)
        mixed = wide(jnp.einsum("bhrk,bhke->bhre", e, seen_v)) * over_sum
        rows.append(mixed.astype(v.dtype))
        saved.append((e, over_sum))
    return jnp.concatenate(rows, axis=2), (true, q, k, v, saved)


def _backward(
    causal: bool,
    kept: tuple[Array, Array, Array, Array, list[Saved]],
    dz: Array,
) -> tuple[None, Array, Array, Array]:
    true, q, k, v, saved = kept
    dq: list[Array] = []
    dk: list[Array] = []
    dv: list[Array] = []
    for (begin, end, n_keys), (e, over_sum) in zip(_blocks(causal, q.shape[2]), saved, strict=True):
        seen_k = k if n_keys < 0 else k[:, :, :n_keys]
        seen_v = v if n_keys < 0 else v[:, :, :n_keys]
        scaled = (wide(dz[:, :, begin:end]) * over_sum).astype(v.dtype)
        de = jnp.einsum("bhre,bhke->bhrk", scaled, seen_v)

        # not dz . z, which rounds otherwise: where a row sees one key alone, its scores have no
        # gradient at all
        along = (wide(e) * wide(de)).sum(axis=-1, keepdims=True) * over_sum

        def to_scores(e: Array, de: Array, along: Array) -> Array:
            return (wide(e) * (wide(de) - along)).astype(e.dtype)

        ds = materialize(true, to_scores, e, de, along)
        dq.append(jnp.einsum("bhrk,bhke->bhre", ds, seen_k))
        dk.append(jnp.einsum("bhrk,bhre->bhke", ds, q[:, :, begin:end]))
        dv.append(jnp.einsum("bhrk,bhre->bhke", e, scaled))
    return None, jnp.concatenate(dq, axis=2), _added_up(dk), _added_up(dv)


def _added_up(parts: list[Array]) -> Array:
    """The sum of arrays of which each next one has more positions, piece by piece of them."""
    ends = [part.shape[2] for part in parts]
    begins = [0, *ends[:-1]]
    pieces: list[Array] = []
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        over = [part[:, :, begin:end] for part in parts[i:]]
        pieces.append(sum(over[1:], start=over[0]))
    return jnp.concatenate(pieces, axis=2)


_attend.defvjp(_forward, _backward)
