"""What may be given as a prompt: one row of tokens, or a batch of rows of one length."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from mnemoscope.core.axes import Array, Int, Tokens
from mnemoscope.core.errors import UserError, short


def row_of(tokens: object) -> np.ndarray:
    """What was given as a prompt, as an array; what is none has no elements."""
    try:
        return np.asarray(tokens)
    except (ValueError, TypeError):  # rows of different lengths, or nested too deeply
        return np.zeros((0, 0))


def check_row(tokens: Any, d_vocab: int, n_ctx: int | None) -> Tokens:
    """One prompt as an array, or an error that says what a prompt may be.

    Args:
        tokens: What was given.
        d_vocab: How many tokens there are.
        n_ctx: The longest prompt; None: any.
    """
    array = row_of(tokens)
    if array.ndim != 1 or not _is_prompt(array, n_ctx):
        raise UserError(
            f"a prompt is one row of {_lengths(n_ctx)} whole numbers, "
            f"got {array.dtype} {array.shape}"
        )
    _check_range(array, d_vocab)
    return jnp.asarray(array)


def check_rows(tokens: Any, d_vocab: int, n_ctx: int | None) -> Int[Array, "*batch pos"]:
    """One prompt or a batch of them as an array, or an error that says what prompts may be.

    While JAX traces, only the shape is known and checked.

    Args:
        tokens: What was given.
        d_vocab: How many tokens there are.
        n_ctx: The longest prompt; None: any.
    """
    array = tokens if isinstance(tokens, Tracer) else row_of(tokens)
    if array.ndim not in (1, 2) or not _is_prompt(array, n_ctx):
        raise UserError(
            f"a prompt is one row of {_lengths(n_ctx)} whole numbers, or a batch of such rows, "
            f"got {_came(tokens, array)}"
        )
    if not isinstance(array, Tracer):
        _check_range(array, d_vocab)
    return jnp.asarray(array, dtype=int)


def _is_prompt(array: Any, n_ctx: int | None) -> bool:
    """Whether the last axis has as many whole numbers as a prompt may have."""
    if array.dtype.kind not in "iu" or array.size == 0:
        return False
    return n_ctx is None or array.shape[-1] <= n_ctx


def _check_range(array: np.ndarray, d_vocab: int) -> None:
    if array.min() < 0 or array.max() >= d_vocab:
        raise UserError(f"tokens are 0 to {d_vocab - 1}, got {short(array.tolist())}")


def _lengths(n_ctx: int | None) -> str:
    return "1 or more" if n_ctx is None else f"1 to {n_ctx}"


def _came(tokens: Any, array: Any) -> str:
    """What was given, in words."""
    if array.dtype.kind in "US":
        return f"the text {short(tokens)}, which a tokenizer has to make into numbers first"
    if isinstance(tokens, Sequence) and array.size == 0:
        lengths = [len(row) for row in tokens if isinstance(row, Sequence)]
        if len(set(lengths)) > 1:
            return f"rows of {short(lengths)} tokens"
    return f"{array.dtype} {array.shape}"
