"""What is left of a matrix when only its largest singular values are kept: W = sum_i s_i u_i v_i^T, cut after `rank` terms."""

import jax.numpy as jnp
import numpy as np

from mnemoscope.arrays import Array, Float, Int
from mnemoscope.config import UserError


def keep_rank(
    matrix: Float[Array | np.ndarray, "rows columns"], rank: int | Int[Array, ""]
) -> Float[Array, "rows columns"]:
    """The nearest matrix of this rank: 0 is nothing, the full rank the matrix itself. `vmap` over ranks decomposes it once."""
    full = min(matrix.shape)
    if isinstance(rank, int) and not 0 <= rank <= full:
        raise UserError(f"rank {rank} of a matrix of {matrix.shape[0]} x {matrix.shape[1]}; allowed: 0 to {full}")
    left, values, right = jnp.linalg.svd(jnp.asarray(matrix), full_matrices=False)
    return (left * jnp.where(jnp.arange(full) < rank, values, 0.0)[None]) @ right
