r"""Operations whose last axis is the batch, with their derivatives written out.

    product   w^T x for many columns x
    compare   scores = q . k
    attend    z = softmax(scores) v
    pick      the entry of a table that belongs to each key's token

A core runs along the batch, so that every other axis is short and unrolled. Derivatives are written
by hand where automatic ones would pad, scatter or transpose. `pair_tables` is built from these.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Shaped
from mnemoscope.core.xla import materialize, pin_layout


def standard(
    x: Float[Array, "*axes"], eps: float, axis: int = 0, centered: bool = False
) -> Float[Array, "*axes"]:
    """x with mean 0 and variance 1 along an axis.

    Args:
        x: Any array.
        eps: What is added to the variance.
        axis: The axis along which it is standardized.
        centered: Whether the mean is 0 already.
    """
    x = x if centered else x - x.mean(axis, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(axis, keepdims=True) + eps)


def take(rows: np.ndarray, x: Shaped[Array, "pos ..."]) -> Shaped[Array, "row ..."]:
    """x[rows]; a slice where the rows are evenly spaced, whose derivative is no scatter."""
    step = int(rows[1] - rows[0]) if len(rows) > 1 else 1
    is_even = step > 0 and (np.diff(rows) == step).all()
    if not is_even:
        return x[rows]
    return x[int(rows[0]) : int(rows[-1]) + 1 : step]


@jax.custom_vjp
def product(
    true: Bool[Array, ""],
    w: Float[Array, "d e"],
    x: Float[Array, "upper column"],
    data: Float[Array, "lower column"] | None = None,
) -> Float[Array, "e column"]:
    """w^T [x; data] for many columns.

    Args:
        true: A flag that is true, known only at run time; see `materialize`.
        w: The weights.
        x: The upper rows of the columns.
        data: The lower rows, if there are any; nobody asks for their gradient.
    """
    return w.T @ _stacked(x, data)


def _stacked(x: Array, data: Array | None) -> Array:
    return x if data is None else jnp.concatenate([x, data])


def _product_backward(
    saved: tuple[Array, Array, Array, Array | None], dy: Array
) -> tuple[None, Array, Array, None]:
    r"""dw = [x; data] dy^T;   dx = w dy.

    The longer side of dw comes first: 28 us against 80 for 32 x 64 of 640 columns.
    """
    true, w, x, data = saved
    columns = _stacked(x, data)
    dw = columns @ dy.T if len(w) >= len(dy) else pin_layout(true, dy @ columns.T).T
    return None, dw, w[: len(x)] @ dy, None


product.defvjp(lambda *args: (product(*args), args), _product_backward)


# The parts of attention, each written so that it runs along the batch. With a a pattern, q and z by
# row, k and v by key:
#   compare = sum_e q k,   mix = sum_key a v,   gather = sum_row a z.
# Each is the derivative of the other two.


def _sum(parts: list[Array]) -> Array:
    return sum(parts[1:], start=parts[0])


def _compare(q: Array, k: Array) -> Array:
    def term(e: int) -> Array:
        by_row = q[:, e].transpose(1, 0, 2)[:, :, None]
        return by_row * k[:, :, e].transpose(1, 0, 2)[None]

    return _sum([term(e) for e in range(k.shape[2])])


def _mix(a: Array, v: Array) -> Array:
    def term(key: int) -> Array:
        return a[:, :, key].transpose(1, 0, 2)[:, None] * v[key][:, :, None]

    return _sum([term(key) for key in range(v.shape[0])])


def _gather(a: Array, z: Array) -> Array:
    def term(row: int) -> Array:
        return a[row].transpose(1, 0, 2)[:, :, None] * z[None, :, :, row]

    return _sum([term(row) for row in range(a.shape[0])])


@jax.custom_vjp
def compare(
    true: Bool[Array, ""],
    q: Float[Array, "head d_head row batch"],
    k: Float[Array, "key_pos head d_head batch"],
) -> Float[Array, "row head key_pos batch"]:
    """scores = q . k.

    Args:
        true: A flag that is true, known only at run time; see `materialize`.
        q: Queries.
        k: Keys.
    """
    return materialize(true, _compare, q, k)


def _compare_backward(
    saved: tuple[Array, Array, Array], dscores: Array
) -> tuple[None, Array, Array]:
    true, q, k = saved
    return None, materialize(true, _mix, dscores, k), materialize(true, _gather, dscores, q)


compare.defvjp(lambda *args: (compare(*args), args), _compare_backward)


@jax.custom_vjp
def attend(
    true: Bool[Array, ""],
    scores: Float[Array, "row head key_pos batch"],
    v: Float[Array, "key_pos head d_head batch"],
) -> Float[Array, "head d_head row batch"]:
    """z = softmax(scores) v.

    Args:
        true: A flag that is true, known only at run time; see `materialize`.
        scores: Scores, with the causal mask added.
        v: Values.
    """
    return _attend(true, scores, v)[0]


def _attend(true: Array, scores: Array, v: Array) -> tuple[Array, tuple[Array, Array, Array]]:
    def highest(scores: Array) -> Array:
        by_key = [scores[:, :, key] for key in range(scores.shape[2])]
        return functools.reduce(jnp.maximum, by_key)

    def softmax(scores: Array, top: Array) -> Array:
        e = jnp.exp(scores - top[:, :, None])
        return e / _sum([e[:, :, key] for key in range(e.shape[2])])[:, :, None]

    a = materialize(true, softmax, scores, materialize(true, highest, scores))
    return materialize(true, _mix, a, v), (true, a, v)


def _attend_backward(saved: tuple[Array, Array, Array], dz: Array) -> tuple[None, Array, Array]:
    r"""dv = sum_row a dz;   da = dz . v;   dscores = a (da - sum_key a da)."""
    true, a, v = saved

    def to_scores(a: Array, da: Array) -> Array:
        mean = _sum([a[:, :, key] * da[:, :, key] for key in range(a.shape[2])])
        return a * (da - mean[:, :, None])

    da = materialize(true, _compare, dz, v)
    return None, materialize(true, to_scores, a, da), materialize(true, _gather, a, dz)


attend.defvjp(_attend, _attend_backward)


@jax.custom_vjp
def pick(
    table: Float[Array, "row head key_pos vocab batch"],
    is_token: Float[Array, "key_pos vocab batch"],
) -> Float[Array, "row head key_pos batch"]:
    """The entry of each key's own token.

    Automatic derivation would pad and add a whole table for each token.
    """
    return _sum([table[:, :, :, t] * is_token[None, None, :, t] for t in range(table.shape[3])])


def _pick_forward(table: Array, is_token: Array) -> tuple[Array, Array]:
    return pick(table, is_token), is_token


def _pick_backward(is_token: Array, dentry: Array) -> tuple[Array, None]:
    return dentry[:, :, :, None] * is_token[None, None], None


pick.defvjp(_pick_forward, _pick_backward)
