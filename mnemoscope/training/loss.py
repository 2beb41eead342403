r"""What training minimizes, and its gradient.

    loss = sum_t weight_t * -log softmax(logits_t)[target_t] / sum_t weight_t         over the batch

Which forward pass computes the logits depends on shapes alone: `mnemoscope.models.rewrites.choose`
chooses. One that works in chunks takes a few sequences at a time that fit a core's cache, each
chunk with its own gradient.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models import ModelConfig, early_logits
from mnemoscope.models.precision import Precision, lowered, products
from mnemoscope.models.rewrites.choose import Rewrite, choose_rewrite, plain_logits
from mnemoscope.tasks import Example, Task

# Of the positions: the rows computed for sequences that read no more, nine in ten of them in
# `Bigrams`
FEW = 3 / 8


def cross_entropy(
    logits: Float[Array, "..."], targets: Int[Array, "..."], vocab_axis: int = -1
) -> Float[Array, "..."]:
    """-log softmax(logits)[target].

    Every forward pass ends here, so that another loss put in its place counts in all of them.

    Args:
        logits: with one axis more than the targets, over the vocabulary.
        targets: the right tokens.
        vocab_axis: where the vocabulary is: the last axis (-1) or the first (0).
    """
    if vocab_axis == -1:
        return optax.losses.softmax_cross_entropy_with_integer_labels(logits, targets)
    # pair tables have the vocabulary in front: a gather along it would be slow
    is_target = targets[None] == jnp.arange(logits.shape[0]).reshape(-1, *(1,) * targets.ndim)
    return jax.nn.logsumexp(logits, axis=0) - jnp.where(is_target, logits, 0).sum(axis=0)


def batch_loss(
    task: Task, config: ModelConfig, params: Params, batch: Example, rewrite: Rewrite | None
) -> Float[Array, ""]:
    """The loss of a batch over the positions that are read.

    Args:
        task: says where the loss is read.
        config: the model.
        params: its parameters, in the precision of the pass.
        batch: sequences, targets and weights, with a leading batch axis.
        rewrite: the pass to take, as `choose_rewrite` says; None: the plain one.
    """
    if rewrite is not None and rewrite.tokens_at_once is not None:
        return _loss_in_chunks(task, config, params, batch, rewrite)
    total = _total(batch.weights[:, np.array(task.loss_positions)])
    return _loss_sum(task, config, params, batch, rewrite) / total


def _loss_sum(
    task: Task, config: ModelConfig, params: Params, batch: Example, rewrite: Rewrite | None
) -> Float[Array, ""]:
    """The weighted losses of some sequences, added up."""
    read = np.array(task.loss_positions)
    targets = batch.targets[:, read]
    if batch.layer is not None:
        logits = _logits_after_layers(config, params, batch)[:, read]
        each = cross_entropy(logits, targets)
    elif rewrite is None:
        each = cross_entropy(plain_logits(config, params, batch.tokens, task), targets)
    else:
        logits = rewrite.logits(config, params, batch.tokens, task)
        if rewrite.vocab_axis == 0:
            each = cross_entropy(logits, targets.T, vocab_axis=0).T
        else:
            each = cross_entropy(logits, targets)
    return (each * batch.weights[:, read]).sum()


def _logits_after_layers(
    config: ModelConfig, params: Params, batch: Example
) -> Float[Array, "batch pos vocab"]:
    """Of every sequence the logits after the layer that its example names."""

    assert batch.layer is not None

    def of_sequence(tokens: Array, layer: Array) -> Array:
        return early_logits(config, params, tokens)[layer]

    return jax.vmap(of_sequence)(batch.tokens, jnp.minimum(batch.layer, config.n_layers - 1))


def loss_and_gradient(
    task: Task,
    config: ModelConfig,
    trained: Params,
    frozen: Params,
    batch: Example,
    precision: Precision = "default",
) -> tuple[Float[Array, ""], Params]:
    """The loss of a batch, and its gradient in the trained parameters.

    Args:
        task: says where the loss is read.
        config: the model.
        trained: the parameters in which the gradient is taken.
        frozen: the others.
        batch: sequences, targets and weights, with a leading batch axis.
        precision: in what logits and gradient are computed.
    """
    rewrite = choose_rewrite(config, task, precision)
    with products(precision):
        if rewrite is not None and rewrite.tokens_at_once is not None:
            return _in_chunks(task, config, trained, frozen, batch, rewrite, precision)

        def loss(trained: Params) -> Array:
            params = lowered({**frozen, **trained}, precision)
            return batch_loss(task, config, params, batch, rewrite)

        return jax.value_and_grad(loss)(trained)


# ---- a few sequences at a time


def _in_chunks(
    task: Task,
    config: ModelConfig,
    trained: Params,
    frozen: Params,
    batch: Example,
    rewrite: Rewrite,
    precision: Precision = "default",
) -> tuple[Float[Array, ""], Params]:
    """The loss and its gradient, chunk by chunk."""

    def of_chunk(width: int | None, part: Example) -> tuple[Array, Params]:
        def loss_sum(trained: Params) -> Array:
            params = lowered({**frozen, **trained}, precision)
            return _chunk_loss_sum(task, config, params, part, rewrite, width)

        return jax.value_and_grad(loss_sum)(trained)

    nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained))
    return _mean_over_chunks(task, batch, rewrite, of_chunk, nothing)


def _loss_in_chunks(
    task: Task, config: ModelConfig, params: Params, batch: Example, rewrite: Rewrite
) -> Float[Array, ""]:
    """The loss alone, chunk by chunk."""

    def of_chunk(width: int | None, part: Example) -> Array:
        return _chunk_loss_sum(task, config, params, part, rewrite, width)

    return _mean_over_chunks(task, batch, rewrite, of_chunk, jnp.zeros(()))


def _chunk_loss_sum(
    task: Task,
    config: ModelConfig,
    params: Params,
    part: Example,
    rewrite: Rewrite,
    width: int | None,
) -> Float[Array, ""]:
    """The weighted losses of a chunk, added up.

    Args:
        task: says where the loss is read.
        config: the model.
        params: its parameters.
        part: the sequences of the chunk.
        rewrite: the pass to take.
        width: how many rows of each sequence are computed, where each reads others; None: those at
            the task's loss positions.
    """
    if width is None:
        return _loss_sum(task, config, params, part, rewrite)
    assert rewrite.row_logits is not None
    rows, weights = _read_rows(part.weights, width)
    logits = rewrite.row_logits(config, params, part.tokens, rows)
    targets = jnp.take_along_axis(part.targets, rows, axis=1)
    return (cross_entropy(logits, targets) * weights).sum()


def _mean_over_chunks(
    task: Task,
    batch: Example,
    rewrite: Rewrite,
    of_chunk: Callable[[int | None, Example], Any],
    nothing: Any,
) -> Any:
    """What chunks add up to, by the sum of all weights.

    Where most sequences read few positions, they come in the order of how many they read, and of
    each only as many rows are computed as one of its chunk reads.

    Args:
        task: says where the loss is read.
        batch: sequences, targets and weights.
        rewrite: says how many tokens are worked on at once.
        of_chunk: what is added up, of a number of rows and a chunk.
        nothing: its zero.
    """
    n_sequences, length = batch.tokens.shape
    assert rewrite.tokens_at_once is not None
    chunk = _chunk_size(n_sequences, length, rewrite.tokens_at_once)
    widths: tuple[int | None, ...] = (None,)
    total = _total(batch.weights[:, np.array(task.loss_positions)])
    if task.sparse_loss and rewrite.row_logits is not None:
        order = jnp.argsort((batch.weights > 0).sum(axis=1))
        batch = jax.tree.map(lambda x: x[order], batch)
        widths = (int(length * FEW), None)
    chunks = jax.tree.map(lambda x: x.reshape(-1, chunk, length), batch)
    branches = [partial(of_chunk, width) for width in widths]

    def add(sums: Any, part: Example) -> tuple[Any, None]:
        most_read = (part.weights > 0).sum(axis=1).max()
        branch = sum((most_read > width).astype(int) for width in widths if width is not None)
        return jax.tree.map(jnp.add, sums, jax.lax.switch(branch, branches, part)), None

    sums, _ = jax.lax.scan(add, nothing, chunks)
    return jax.tree.map(lambda x: x / total, sums)


def _chunk_size(n_sequences: int, length: int, tokens: int) -> int:
    """How many sequences are worked on at once: the most of so many tokens that divide the
    batch."""
    most = min(max(1, tokens // length), n_sequences)
    return next(n for n in range(most, 0, -1) if n_sequences % n == 0)


def _total(weights: Float[Array, "batch read"]) -> Float[Array, ""]:
    """What the sum is divided by; a batch in which nothing is asked has no loss, not an undefined
    one."""
    total = weights.sum()
    return jnp.where(total > 0, total, 1.0)


def _read_rows(weights: Float[Array, "batch pos"], width: int) -> tuple[Array, Array]:
    """The first `width` positions of each sequence whose weight is not zero, and their weights; 0
    where there are fewer."""
    read = weights > 0
    place = jnp.where(read, jnp.cumsum(read, axis=1) - 1, width)
    positions = jnp.arange(weights.shape[1])
    rows = jax.vmap(lambda at: jnp.zeros(width, int).at[at].set(positions, mode="drop"))(place)
    counts = jnp.arange(width)[None] < read.sum(axis=1, keepdims=True)
    row_weights = jnp.take_along_axis(weights, rows, axis=1)
    return rows, jnp.where(counts, row_weights, 0.0)
