"""Which sizes of blocks the attention kernels want on this GPU: about five minutes.

    python benchmarks/tune_attention.py [--out FILE] [--only t64 t256]

For each shape and type the forward kernel is timed with every number of rows and warps, then the
backward kernel, and beside them attention as XLA makes it. What wins goes into
`mnemoscope/models/rewrites/attention_kernel.py`.
"""

import argparse
import dataclasses
import json
import statistics
import time
from itertools import product
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.models.rewrites.attention_kernel import Sizes, attend

# seeds x sequences, positions, heads, width of a head: those of the peers' models
SHAPES = {"t64": (64 * 64, 64, 4, 16), "t256": (16 * 64, 256, 4, 32)}
ROWS = (16, 32, 64, 128)
WARPS = (2, 4, 8)
REPEATS = 5


def by_xla(qkv: jax.Array, n_heads: int) -> jax.Array:
    """Attention with its scores in memory."""
    q, k, v = jnp.split(qkv, 3, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    scores = jnp.where(seen[None, None], scores * q.shape[-1] ** -0.5, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(v.dtype), v)


def seconds(f, *given) -> float:
    """Median seconds of a call, ten of them at a time."""
    run = jax.jit(f)
    jax.block_until_ready(run(*given))
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(10):
            result = run(*given)
        jax.block_until_ready(result)
        found.append((time.perf_counter() - began) / 10)
    return statistics.median(found)


def tune(name: str, dtype) -> dict:
    """Milliseconds of both kernels by sizes, and of XLA."""
    batch, n_pos, n_heads, d_head = SHAPES[name]
    rng = np.random.default_rng(0)
    qkv = jnp.asarray(rng.normal(size=(batch, n_pos, 3 * n_heads, d_head)), dtype)
    dz = jnp.ones((batch, n_pos, n_heads, d_head), dtype)

    def forward(qkv, sizes):
        return attend(qkv, n_heads, True, sizes)

    def both(qkv, dz, sizes):
        return jax.vjp(lambda x: attend(x, n_heads, True, sizes), qkv)[1](dz)

    found: dict = {"forward": {}, "backward": {}}
    found["xla forward"] = 1e3 * seconds(lambda x: by_xla(x, n_heads), qkv)
    found["xla backward"] = 1e3 * seconds(
        lambda x, dz: jax.vjp(lambda x: by_xla(x, n_heads), x)[1](dz), qkv, dz
    )
    for rows, warps in product(ROWS, WARPS):
        if rows > n_pos:
            continue
        sizes = dataclasses.replace(
            Sizes(),
            forward_rows=rows,
            forward_warps=warps,
            backward_rows=rows,
            backward_warps=warps,
        )
        key = f"{rows} rows, {warps} warps"
        for which, f, given in (("forward", forward, (qkv,)), ("backward", both, (qkv, dz))):
            try:
                took = 1e3 * seconds(lambda *x, f=f, sizes=sizes: f(*x, sizes), *given)
            except Exception as error:  # too large for a multiprocessor, say
                lines = str(error).splitlines() or [type(error).__name__]
                found[which][key] = None
                print(f"  {which}, {key}: {lines[0][:120]}", flush=True)
                continue
            found[which][key] = took
    for which in ("forward", "backward"):
        timed = {key: took for key, took in found[which].items() if took is not None}
        if timed:
            best = min(timed, key=lambda key: timed[key])
            found[f"best {which}"] = best
            print(
                f"{name} {jnp.dtype(dtype).name} {which}: {best}: {timed[best]:.3f} ms; "
                f"XLA {found[f'xla {which}']:.3f} ms",
                flush=True,
            )
    return found


def main() -> None:
    """Time what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--only", nargs="*", default=list(SHAPES))
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found = {}
    for name in arguments.only:
        for dtype in (jnp.float32, jnp.bfloat16):
            found[f"{name} {jnp.dtype(dtype).name}"] = tune(name, dtype)
            if arguments.out:
                arguments.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
