r"""Softmax attention of short sequences in one GPU kernel, and its derivative in another.

On an accelerator attention waits for memory: scores, exponentials and patterns of every pair of
positions are written and read again. Here a program takes one head of one sequence; its queries
meet all of its keys some rows at a time, and what is between them never leaves the chip:

    s = q k^T / sqrt(d_head),    a = softmax(s),    z = a v

    dv = a^T dz,    ds = a (dz v^T - sum_key a dz v^T),    dq = ds k,    dk = ds^T q

A row of a short sequence fits whole, so its highest score is known at once and nothing has to be
kept for the derivative but q, k and v. They come as one array, as they leave their product: heads
are picked out of it, and key-value heads that serve a group are read by each head of it.

Products are in TF32 or bfloat16 as the program's are, sums and softmax in float32. Triton wants
sizes that are powers of two and at least 16: what is not is padded with zeros, and padded keys are
never seen.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from mnemoscope.core.axes import Array, Float

HIDDEN = -1e30  # a score that no softmax can see; finite, so that its gradient is 0 and not NaN
# positions: a block of rows has a score for each
LONGEST = 256
# of a head: a program holds its keys and values
WIDEST_HEAD = 128


@dataclass(frozen=True)
class Sizes:
    """What is tuned for a device (`benchmarks/tune_attention.py`)."""

    forward_rows: int = 64
    """Queries in flight in the forward kernel."""
    forward_warps: int = 4
    """Warps of one of its programs."""
    backward_rows: int = 32
    """Queries in flight in the backward kernel."""
    backward_warps: int = 8
    """Warps of one of its programs."""


SIZES = Sizes()  # not tuned yet


def why_not(n_pos: int, d_head: int) -> str | None:
    """Why the kernels are not used; None on a GPU for sequences and heads that a program can hold.

    Args:
        n_pos: Positions of a sequence.
        d_head: The width of a head.
    """
    if jax.default_backend() != "gpu":
        return "its kernel runs on a GPU alone"
    if n_pos > LONGEST:
        return f"{n_pos} positions (allowed: up to {LONGEST})"
    if d_head > WIDEST_HEAD:
        return f"d_head={d_head} (allowed: up to {WIDEST_HEAD})"
    return None


def attend(
    qkv: Float[Array, "batch pos heads d_head"],
    n_heads: int,
    causal: bool,
    sizes: Sizes = SIZES,
    interpret: bool = False,
) -> Float[Array, "batch pos n_heads d_head"]:
    """z of every head at every position.

    Args:
        qkv: Queries of all heads, then keys, then values of all key-value heads.
        n_heads: Heads of queries; key-value heads serve equal groups of them.
        causal: Whether no position sees a later one.
        sizes: What is tuned.
        interpret: Run without a GPU.
    """
    n_pos, d_head = qkv.shape[1], qkv.shape[3]
    n_padded = _padded(n_pos)
    widths = ((0, 0), (0, n_padded - n_pos), (0, 0), (0, _padded(d_head) - d_head))
    call = _Call(
        n_heads=n_heads,
        n_pos=n_pos,
        causal=causal,
        scale=d_head**-0.5,
        sizes=sizes,
        interpret=interpret,
    )
    z: Array = _attention(call, jnp.pad(qkv, widths) if any(map(any, widths)) else qkv)
    return z[:, :n_pos, :, :d_head]


def _padded(n: int) -> int:
    """The next power of two that is at least 16."""
    return max(16, 2 ** math.ceil(math.log2(n)))


@dataclass(frozen=True)
class _Call:
    """What a kernel is compiled for, besides the shapes of its arrays."""

    n_heads: int
    n_pos: int
    causal: bool
    scale: float
    sizes: Sizes
    interpret: bool

    def pattern(self, q: Array, k: Array, first_row: Any) -> Array:
        """The pattern of some rows, from their queries and all keys."""
        scores = _dot(q, k.T) * self.scale
        key = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        seen = key < self.n_pos
        if self.causal:
            row = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) + first_row
            seen = seen & (key <= row)
        scores = jnp.where(seen, scores, HIDDEN)
        e = jnp.exp(scores - scores.max(axis=1)[:, None])
        return e / e.sum(axis=1)[:, None]


def _dot(a: Array, b: Array) -> Array:
    return jnp.dot(a, b, preferred_element_type=jnp.float32)


def _forward_kernel(call: _Call, n_rows: int, q: Any, k: Any, v: Any, z: Any) -> None:
    first_row = pl.program_id(2) * n_rows
    a = call.pattern(q[...], k[...], first_row)
    z[...] = _dot(a.astype(v.dtype), v[...]).astype(z.dtype)


def _backward_kernel(
    call: _Call, n_rows: int, q: Any, k: Any, v: Any, dz: Any, dq: Any, dk: Any, dv: Any
) -> None:
    def some_rows(i: Array, so_far: tuple[Array, Array]) -> tuple[Array, Array]:
        at = pl.ds(i * n_rows, n_rows)
        here = q[at, :]
        dz_here = dz[at, :]
        a = call.pattern(here, k[...], i * n_rows)
        da = _dot(dz_here, v[...].T)
        ds = (a * (da - (a * da).sum(axis=1)[:, None]) * call.scale).astype(k.dtype)
        dq[at, :] = _dot(ds, k[...]).astype(dq.dtype)
        dk_so_far, dv_so_far = so_far
        dk_more = _dot(ds.T, here)
        return dk_so_far + dk_more, dv_so_far + _dot(a.astype(v.dtype).T, dz_here)

    nothing = (jnp.zeros(k.shape, jnp.float32), jnp.zeros(v.shape, jnp.float32))
    n_blocks = q.shape[0] // n_rows
    dk_all, dv_all = jax.lax.fori_loop(0, n_blocks, some_rows, nothing)
    dk[...] = dk_all.astype(dk.dtype)
    dv[...] = dv_all.astype(dv.dtype)


def _head(n_rows: int, d_head: int, head: Any, by_rows: bool = False) -> pl.BlockSpec:
    """The part of an array (batch, pos, heads, d_head) that a program (sequence, head[, block of
    rows]) sees: some rows of one head.

    Args:
        n_rows: How many rows.
        d_head: The width of a head.
        head: Which head, of the program's.
        by_rows: Whether the program has one block of rows, or all.
    """

    def place(sequence: Any, number: Any, block: Any = 0) -> tuple[Any, ...]:
        return sequence, block if by_rows else 0, head(number), 0

    return pl.BlockSpec((None, n_rows, None, d_head), place)


def _parts(call: _Call, qkv: Array, n_rows: int) -> list[pl.BlockSpec]:
    """Queries, keys and values of a program's head."""
    n_pos, n_all, d_head = qkv.shape[1:]
    n_kv = (n_all - call.n_heads) // 2
    group = call.n_heads // n_kv
    return [
        _head(n_rows, d_head, lambda h: h, by_rows=n_rows < n_pos),
        _head(n_pos, d_head, lambda h: call.n_heads + h // group),
        _head(n_pos, d_head, lambda h: call.n_heads + n_kv + h // group),
    ]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(call: _Call, qkv: Array) -> Array:
    batch, n_pos, _, d_head = qkv.shape
    n_rows = min(call.sizes.forward_rows, n_pos)
    run = pl.pallas_call(
        partial(_forward_kernel, call, n_rows),
        grid=(batch, call.n_heads, n_pos // n_rows),
        in_specs=_parts(call, qkv, n_rows),
        out_specs=_head(n_rows, d_head, lambda h: h, by_rows=True),
        out_shape=jax.ShapeDtypeStruct((batch, n_pos, call.n_heads, d_head), qkv.dtype),
        compiler_params=triton.CompilerParams(num_warps=call.sizes.forward_warps, num_stages=1),
        interpret=call.interpret,
        name="attention_forward",
    )
    return run(qkv, qkv, qkv)


def _attention_backward(call: _Call, qkv: Array, dz: Array) -> tuple[Array]:
    batch, n_pos, n_all, d_head = qkv.shape
    n_rows = min(call.sizes.backward_rows, n_pos)
    whole = _head(n_pos, d_head, lambda h: h)
    shape = jax.ShapeDtypeStruct(dz.shape, qkv.dtype)
    run = pl.pallas_call(
        partial(_backward_kernel, call, n_rows),
        grid=(batch, call.n_heads),
        in_specs=[*_parts(call, qkv, n_pos), whole],
        out_specs=[whole, whole, whole],
        out_shape=[shape, shape, shape],
        compiler_params=triton.CompilerParams(num_warps=call.sizes.backward_warps, num_stages=1),
        interpret=call.interpret,
        name="attention_backward",
    )
    dq, dk, dv = run(qkv, qkv, qkv, dz)
    n_kv = (n_all - call.n_heads) // 2

    def of_groups(x: Array) -> Array:
        """What each head of a group says of its keys or values, added up."""
        if n_kv == call.n_heads:
            return x
        return x.reshape(batch, n_pos, n_kv, -1, d_head).sum(axis=3)

    return (jnp.concatenate([dq, of_groups(dk), of_groups(dv)], axis=2),)


_attention.defvjp(lambda call, qkv: (_attention(call, qkv), qkv), _attention_backward)
