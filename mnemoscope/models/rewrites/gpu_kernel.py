r"""First-layer attention in one GPU kernel, and its derivative in another.

On an accelerator the fast rewrite waits for memory: each of attention's small steps writes and
reads values of the whole batch. Here a program takes one head at one position of one seed and walks
through the batch in chunks; scores and patterns never leave it.

Nothing has to be gathered. What a key shows depends only on its (position, token) pair, so with
`score` the table of scores, `value` that of values, and pairs that are not in the sequence masked,

    a[pair] = softmax over pairs of (score[pair, :] one_hot(query)),      z = value[:, pair] a[pair]

    d value = dz a^T,    da = value^T dz,    ds = a (da - sum_pair a da),
    d score = ds one_hot(query)^T

`pair_tables` has the plain route beside it; the two are compared in the tests, where the kernels
run interpreted. Triton wants sizes that are powers of two and at least 16: tables are padded with
zeros, and padded pairs are never present.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from mnemoscope.core.axes import Array, Float, Int

MASKED = -1e30  # a score that no softmax can see; finite, so that its gradient is 0 and not NaN
# columns in flight and warps of a program: the fastest of eleven pairs tried on one H200
CHUNK = 64
WARPS = 2
# pairs; padded to 128, a gradient took 1.15 ms on that H200 and 0.61 by the plain route
LARGEST = 64
# of a head: a program holds the values of every pair, and a kernel of 4,096 asked for 1 MB of the
# 232 kB that a multiprocessor shares; 128 is the widest that was measured
WIDEST_HEAD = 128

# the axes of every array of a kernel: a program sees one row (r) and one head (h), all of the rest
AXES = {
    "score": "rh..",
    "value": "h..",
    "is_key": "..",
    "query": "r.",
    "z": "h.r.",
    "dvalue": "rh..",
}


def applies(n_pairs: int, d_head: int, batch: int) -> bool:
    """Whether the kernels are used: on a GPU, for tables that a program can hold.

    Args:
        n_pairs: Pairs of a position and a token.
        d_head: The width of a head.
        batch: Sequences of a batch.
    """
    return why_not(n_pairs, d_head, batch) is None


def why_not(n_pairs: int, d_head: int, batch: int) -> str | None:
    """Why the kernels are not used; None if they are.

    Args:
        n_pairs: Pairs of a position and a token.
        d_head: The width of a head.
        batch: Sequences of a batch.
    """
    if jax.default_backend() != "gpu":
        return "there is no GPU"
    if n_pairs > LARGEST:
        return f"{n_pairs} pairs of a position and a token (allowed: up to {LARGEST})"
    if d_head > WIDEST_HEAD:
        return f"d_head={d_head} (allowed: up to {WIDEST_HEAD})"
    if batch % CHUNK:
        return f"batch={batch} (allowed: multiples of {CHUNK})"
    return None


def table_attention(
    score: Float[Array, "row head pair vocab"],
    value: Float[Array, "head d_head pair"],
    is_key: Int[Array, "pair batch"],
    query: Int[Array, "row batch"],
    interpret: bool = False,
) -> Float[Array, "head d_head row batch"]:
    """z at each row of each sequence.

    Args:
        score: Scores of every pair for every token that may ask, with the causal mask added.
        value: Values of every pair.
        is_key: Which pairs are in each sequence.
        query: The token that asks, at each row of each sequence.
        interpret: Run without a GPU.
    """
    padded_score = _padded(score, 2, 3)
    padded_value = _padded(value, 1, 2)
    z: Array = _attention(interpret, padded_score, padded_value, _padded(is_key, 0), query)
    return z[:, : value.shape[1]]


def _padded(x: Array, *axes: int) -> Array:
    """Zeros appended along some axes, up to the next power of two that is at least 16."""

    def missing(n: int) -> int:
        return max(16, 2 ** math.ceil(math.log2(n))) - n

    widths = [(0, missing(n) if i in axes else 0) for i, n in enumerate(x.shape)]
    return jnp.pad(x, widths)


def _pattern(score: Any, is_key: Any, query: Any, at: Any) -> tuple[Array, Array]:
    """A chunk's attention over pairs, and the one-hot queries it came from."""
    every_token = jax.lax.broadcasted_iota(jnp.int32, (score.shape[-1], CHUNK), 0)
    is_query = (every_token == query[at][None]).astype(jnp.float32)
    scores = jnp.where(is_key[:, at] > 0, jnp.dot(score[...], is_query), MASKED)
    e = jnp.exp(scores - scores.max(axis=0)[None])
    return e / e.sum(axis=0)[None], is_query


def _forward_kernel(score: Any, value: Any, is_key: Any, query: Any, z: Any) -> None:
    def chunk(i: Array, _: None) -> None:
        at = pl.ds(i * CHUNK, CHUNK)
        z[:, at] = jnp.dot(value[...], _pattern(score, is_key, query, at)[0])

    jax.lax.fori_loop(0, query.shape[0] // CHUNK, chunk, None)


def _backward_kernel(
    score: Any, value: Any, is_key: Any, query: Any, dz: Any, dscore: Any, dvalue: Any
) -> None:
    def chunk(i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        at = pl.ds(i * CHUNK, CHUNK)
        a, is_query = _pattern(score, is_key, query, at)
        here = dz[:, at]
        da = jnp.dot(value[...].T, here)
        ds = a * (da - (a * da).sum(axis=0)[None])
        dscore_so_far, dvalue_so_far = so_far
        return dscore_so_far + jnp.dot(ds, is_query.T), dvalue_so_far + jnp.dot(here, a.T)

    nothing = (jnp.zeros(score.shape, jnp.float32), jnp.zeros(value.shape, jnp.float32))
    dscore[...], dvalue[...] = jax.lax.fori_loop(0, query.shape[0] // CHUNK, chunk, nothing)


def _call(
    kernel: Any, interpret: bool, given: tuple[Array, ...], results: dict[str, tuple[int, ...]]
) -> Any:
    """Run a kernel once for each row and head; AXES says which part of an array a program sees."""
    n_rows, n_heads = given[0].shape[:2]

    def part(name: str, shape: tuple[int, ...]) -> pl.BlockSpec:
        axes = AXES[name]
        block = tuple(n if axis == "." else None for axis, n in zip(axes, shape, strict=True))

        def place(row: Any, head: Any) -> tuple[Any, ...]:
            at = {"r": row, "h": head, ".": 0}
            return tuple(at[axis] for axis in axes)

        return pl.BlockSpec(block, place)

    names = ("score", "value", "is_key", "query", "z")
    call = pl.pallas_call(
        kernel,
        grid=(n_rows, n_heads),
        in_specs=[part(name, x.shape) for name, x in zip(names, given, strict=False)],
        out_specs=[part(name, shape) for name, shape in results.items()],
        out_shape=[jax.ShapeDtypeStruct(shape, jnp.float32) for shape in results.values()],
        compiler_params=triton.CompilerParams(num_warps=WARPS, num_stages=1),
        interpret=interpret,
        name=kernel.__name__.strip("_"),
    )
    return call(*given)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(interpret: bool, score: Array, value: Array, is_key: Array, query: Array) -> Array:
    shape = (*value.shape[:2], *query.shape)
    return _call(_forward_kernel, interpret, (score, value, is_key, query), {"z": shape})[0]


def _attention_backward(
    interpret: bool, given: tuple[Array, ...], dz: Array
) -> tuple[Array, Array, None, None]:
    score, value = given[:2]
    results = {"score": score.shape, "dvalue": (score.shape[0], *value.shape)}
    dscore, dvalue = _call(_backward_kernel, interpret, (*given, dz), results)
    return dscore, dvalue.sum(axis=0), None, None


_attention.defvjp(
    lambda interpret, *given: (_attention(interpret, *given), given), _attention_backward
)
