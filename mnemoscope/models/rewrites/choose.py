"""The faster forward passes, in the order in which they are tried.

Each is exact, and says of a model and a task why it is not used. Training, profiles and whatever is
read while a model trains ask here, so all of them take the same one.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.rewrites import pair_tables, score_tables, token_counts
from mnemoscope.tasks import Task

Tokens = Int[Array, "batch pos"]


@dataclass(frozen=True)
class Rewrite:
    """A faster way to the same logits."""

    name: str
    why_not: Callable[[ModelConfig, Task], str | None]
    """Why it is not used for a model and a task; None if it is."""
    logits: Callable[[ModelConfig, Params, Tokens, Task], Array]
    """Logits at the task's loss positions, with axes (batch, read, vocab) or as `vocab_axis` says.
    """
    vocab_axis: int = -1
    """Where the vocabulary is: last, or first, and then the axes are (vocab, read, batch)."""
    in_chunks: bool = False
    """Whether training works on a few sequences at a time, each with its own gradient."""


def _by_token_counts(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    assert task.query_token is not None
    return token_counts.last_logits(config, params, tokens, task.query_token)[:, None]


def _by_pair_tables(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "vocab read batch"]:
    return pair_tables.read_logits(config, params, tokens, task.loss_positions)


def _by_score_tables(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    read = np.array(task.loss_positions)
    rows = jnp.broadcast_to(read[None], (len(tokens), len(read)))
    return score_tables.read_logits(config, params, tokens, rows)


REWRITES: tuple[Rewrite, ...] = (
    Rewrite("token counts", token_counts.why_not, _by_token_counts),
    Rewrite("pair tables", pair_tables.why_not, _by_pair_tables, vocab_axis=0),
    Rewrite("score tables", score_tables.why_not, _by_score_tables, in_chunks=True),
)


def choose_rewrite(config: ModelConfig, task: Task) -> Rewrite | None:
    """The first rewrite that covers a model and a task; None: the plain pass."""
    for rewrite in REWRITES:
        if rewrite.why_not(config, task) is None:
            return rewrite
    return None


def plain_logits(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    """The plain pass's logits at the task's loss positions.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: A batch of sequences.
        task: What it is trained on.
    """
    logits = jax.vmap(lambda row: forward(config, params, row)[0])(tokens)
    return logits[:, np.array(task.loss_positions)]


def read_logits(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    """Logits at the task's loss positions, by the pass that training takes.

    Args:
        config: The model.
        params: Its parameters by name.
        tokens: A batch of sequences.
        task: What it is trained on.
    """
    rewrite = choose_rewrite(config, task)
    if rewrite is None:
        return plain_logits(config, params, tokens, task)
    logits = rewrite.logits(config, params, tokens, task)
    return logits if rewrite.vocab_axis == -1 else logits.transpose(2, 1, 0)
