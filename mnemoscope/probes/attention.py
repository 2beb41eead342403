"""Where heads look: the mean pattern over a list of sequences, and the mass on each role.

In one layer, a row of the pattern acts only on the answer at its own position. The rows at outputs
y therefore cannot change any answer that is scored; they are reported because papers describe
them.
"""

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError
from mnemoscope.models import HookedModel
from mnemoscope.tasks import Permutation


def mean_pattern(
    task: Permutation, model: HookedModel, tokens: Int[Array, "batch length"], layer: int = 0
) -> Float[Array, "head pos key_pos"]:
    """The attention pattern, averaged over sequences.

    Args:
        task: says how much of a sequence the model reads.
        model: what is read.
        tokens: the sequences.
        layer: whose pattern it is.
    """
    if not model.config.has_attn(layer):
        raise UserError(
            f"layer {layer} has no attention; allowed: one of attn_layers="
            f"{model.config.attn_layers}"
        )

    def pattern(row: Array) -> Array:
        return model.run_with_trace(row)[1][f"blocks.{layer}.attn.hook_pattern"]

    return jax.vmap(pattern)(tokens[:, : task.n_ctx]).mean(axis=0)


def roles(
    task: Permutation, pattern: Float[Array, "head pos key_pos"]
) -> dict[str, Float[Array, "head"]]:
    """Mean mass by role, over the rows where the role exists (x rows from the second on; y
    rows)."""
    position = jnp.arange(task.n_ctx)
    is_y = position % 2 == 1
    later_x = (~is_y) & (position > 0)
    earlier_y = is_y[None, :] & (position[None, :] < position[:, None])

    def mass(rows: Array, where: Array) -> Array:
        per_row = (pattern * where[None].astype(float)).sum(axis=-1)
        return (per_row * rows[None].astype(float)).sum(axis=-1) / rows.sum()

    before = position[None, :] == position[:, None] - 1
    self_ = position[None, :] == position[:, None]
    return {
        "x_to_outputs": mass(later_x, earlier_y),
        "x_to_self": mass(later_x, self_),
        "x_to_preceding_output": mass(later_x, before),
        "y_to_self": mass(is_y, self_),
        "y_to_own_x": mass(is_y, before),
        "last_x_to_first_x": pattern[:, -1, 0],
        "last_x_to_first_output": pattern[:, -1, 1],
        "last_x_to_preceding_output": pattern[:, -1, -2],
        "unevenness": unevenness(task, pattern),
    }


def unevenness(
    task: Permutation, pattern: Float[Array, "head pos key_pos"]
) -> Float[Array, "head"]:
    """The largest distance of any weight from x_k to an earlier output from 1/(k - 1), over all k
    from 2 to V."""
    gaps = []
    for earlier in range(1, task.n_symbols):
        to_outputs = pattern[:, 2 * earlier, 1 : 2 * earlier : 2]
        gaps.append(jnp.abs(to_outputs - 1 / earlier).max(axis=-1))
    return jnp.stack(gaps).max(axis=0)
