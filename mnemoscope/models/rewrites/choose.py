"""The faster forward passes, in the order in which they are tried.

Each is exact, and says of a model and a task why it is not used. Training, profiles and whatever is
read while a model trains ask here, so all of them take the same one. None of them has sites: a loss
that reads the trace takes the plain pass, and so does a model of another kind.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.consumer_support import why_foreign
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.model import Model
from mnemoscope.models.precision import EVERY, OF_FLOAT32, Precision
from mnemoscope.models.rewrites import pair_tables, score_tables, token_counts, token_rows
from mnemoscope.tasks import Task

Tokens = Int[Array, "batch pos"]
RowLogits = Callable[[ModelConfig, Params, Tokens, Int[Array, "batch row"]], Array]


@dataclass(frozen=True)
class Rewrite:
    """A faster way to the same logits."""

    name: str
    refuses: Callable[[ModelConfig, Task], str | None]
    """Why it is not used for a model and a task; None if it is."""
    logits: Callable[[ModelConfig, Params, Tokens, Task], Array]
    """Logits at the task's loss positions, with axes (batch, read, vocab) or as `vocab_axis` says.
    """
    vocab_axis: int = -1
    """Where the vocabulary is: last, or first, and then the axes are (vocab, read, batch)."""
    row_logits: RowLogits | None = None
    """Logits (batch, row, vocab) at positions (batch, row) that each sequence has for itself."""
    tokens_at_once: int | None = None
    """Training works on sequences of so many tokens at a time, each with its own gradient; None: on
    the whole batch."""
    precisions: tuple[Precision, ...] = OF_FLOAT32
    """Those in which it computes."""

    def why_not(
        self,
        config: Model,
        task: Task,
        precision: Precision = "default",
        reads_trace: bool = False,
    ) -> str | None:
        """Why it is not used; None if it is.

        Args:
            config: The model.
            task: What it is trained on.
            precision: In what is computed.
            reads_trace: Whether the sites of the pass are asked for too.
        """
        foreign = why_foreign(config)
        if foreign is not None:
            return foreign
        assert isinstance(config, ModelConfig)
        if reads_trace:
            return "the loss reads the trace"
        if precision not in self.precisions:
            return f"precision={precision!r} (allowed: {', '.join(map(repr, self.precisions))})"
        return self.refuses(config, task)


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


def _by_token_rows(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    return token_rows.read_logits(config, params, tokens, np.array(task.loss_positions))


def _by_fused_attention(
    config: ModelConfig, params: Params, tokens: Tokens, task: Task
) -> Float[Array, "batch read vocab"]:
    read = np.array(task.loss_positions)
    return token_rows.read_logits(config, params, tokens, read, fused=True)


# Tokens at once, on one core. One step of the simplified induction model (d=256, batch 512, 256
# tokens) by score tables takes 1.9 s with 8 sequences at a time, 2.5 with 4, 2.6 with 16 and with
# 32; the plain pass 9.1 (jax 0.10.2). Loss and gradient of two layers by token rows (an EPYC):
# 64 tokens, d=64, batch 64: 19.9 ms with 4 sequences, 19.5 with 8, 21.2 with 16, the plain pass 72;
# 256 tokens, d=128: 300 ms with 1, 298 with 2, 289 with 4, the plain pass 912
SCORE_TABLES_AT_ONCE = 2048
TOKEN_ROWS_AT_ONCE = 512

REWRITES: tuple[Rewrite, ...] = (
    Rewrite("token counts", token_counts.why_not, _by_token_counts),
    Rewrite("pair tables", pair_tables.why_not, _by_pair_tables, vocab_axis=0),
    Rewrite(
        "score tables",
        score_tables.why_not,
        _by_score_tables,
        row_logits=score_tables.read_logits,
        tokens_at_once=SCORE_TABLES_AT_ONCE,
    ),
    Rewrite(
        "token rows",
        token_rows.why_not,
        _by_token_rows,
        row_logits=token_rows.read_logits,
        tokens_at_once=TOKEN_ROWS_AT_ONCE,
        precisions=EVERY,
    ),
)
# Not in the table: its kernel is compared with the plain pass interpreted, and has not run on a
# GPU. If it failed to compile there, every model that it covers would fail with it
FUSED_ATTENTION = Rewrite(
    "fused attention", token_rows.why_not_fused, _by_fused_attention, precisions=EVERY
)


def choose_rewrite(
    config: Model, task: Task, precision: Precision = "default", reads_trace: bool = False
) -> Rewrite | None:
    """The first rewrite that covers a model and a task; None: the plain pass.

    Args:
        config: The model.
        task: What it is trained on.
        precision: In what is computed.
        reads_trace: Whether the sites of the pass are asked for too.
    """
    for rewrite in REWRITES:
        if rewrite.why_not(config, task, precision, reads_trace) is None:
            return rewrite
    return None


def plain_logits(
    config: Model, params: Params, tokens: Tokens, task: Task
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
    config: Model, params: Params, tokens: Tokens, task: Task
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
    assert isinstance(config, ModelConfig)
    logits = rewrite.logits(config, params, tokens, task)
    return logits if rewrite.vocab_axis == -1 else logits.transpose(2, 1, 0)
