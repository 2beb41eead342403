r"""Weights with less in them: only the largest singular values of a matrix are kept.

W = sum_i s_i u_i v_i^T,   s_1 >= s_2 >= ...
kept: the terms i <= rank;   rank 0 is no matrix at all
"""

from fnmatch import fnmatchcase

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.models import HookedModel, bind


def keep_rank(
    matrix: Float[Array | np.ndarray, "*n row column"], rank: int | Int[Array, ""]
) -> Float[Array, "*n row column"]:
    """The nearest matrix of at most this rank, in the sense of least squares. A rank inside `jit`
    is taken as it comes."""
    most = min(matrix.shape[-2:])
    if isinstance(rank, int) and not 0 <= rank <= most:
        raise UserError(
            f"a {matrix.shape[-2]} x {matrix.shape[-1]} matrix can keep "
            f"0 to {most} singular values, got {rank}"
        )
    u, s, v = jnp.linalg.svd(jnp.asarray(matrix), full_matrices=False)
    kept = jnp.where(jnp.arange(most) < rank, s, 0.0)
    return jnp.einsum("...ri,...i,...ic->...rc", u, kept, v)


def truncated(model: HookedModel, pattern: str, rank: int | Int[Array, ""]) -> HookedModel:
    """A model with less in some of its matrices; its biases stay.

    Args:
        model: the whole one.
        pattern: names the matrices, for example `*.mlp.W_*`.
        rank: how many singular values each of them keeps.
    """
    matrices = [name for name, value in model.params.items() if value.ndim >= 2]
    chosen = [name for name in matrices if fnmatchcase(name, pattern)]
    if not chosen:
        raise UserError(unknown("matrix", pattern, matrices))
    cut = {name: keep_rank(model.params[name], rank) for name in chosen}
    return bind(model.config, {**model.params, **cut})
