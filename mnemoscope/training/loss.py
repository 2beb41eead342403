r"""What training minimizes, and its gradient.

    loss = sum_t weight_t * -log softmax(logits_t)[target_t] / sum_t weight_t         over the batch

Which forward pass computes the logits depends on shapes alone. A bag of tokens asked at its end
takes `token_counts`. Short sequences of few tokens take `pair_tables`. Long ones with one head and
no norm take `score_tables`, on a CPU core in chunks of a few sequences that fit its cache, each
with its own gradient. What is read before the last layer takes the plain pass.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.models import ModelConfig, early_logits, forward
from mnemoscope.models.rewrites import pair_tables, score_tables, token_counts
from mnemoscope.tasks import Example, Task

# Tokens worked on at once. One step of the simplified induction model (d=256, batch 512, 256
# tokens) on one core takes 1.9 s with 8 sequences at a time, 2.5 with 4, 2.6 with 16 and with 32;
# the plain pass 9.1 (jax 0.10.2)
CHUNK = 2048
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
    config: ModelConfig,
    params: Params,
    batch: Example,
    read: tuple[int, ...],
    plain: bool = False,
    query_token: int | None = None,
) -> Float[Array, ""]:
    """The loss of a batch over the positions that are read.

    Args:
        config: the model.
        params: its parameters.
        batch: sequences, targets and weights, with a leading batch axis.
        read: the positions at which the loss is read.
        plain: whether to insist on the plain forward pass.
        query_token: the token that ends every sequence, where there is one and the loss is read
            there alone.
    """
    rows = np.array(read)
    d_vocab = params["embed.W_E"].shape[0]
    length = batch.tokens.shape[1]
    if batch.layer is not None:
        last_layer = config.n_layers - 1
        logits = jax.vmap(lambda tokens, layer: early_logits(config, params, tokens)[layer])(
            batch.tokens, jnp.minimum(batch.layer, last_layer)
        )[:, rows]
        each = cross_entropy(logits, batch.targets[:, rows])
    elif query_token is not None and token_counts.applies(config, query_token) and not plain:
        logits = token_counts.last_logits(config, params, batch.tokens, query_token)
        each = cross_entropy(logits, batch.targets[:, -1])[:, None]
    elif pair_tables.applies(config, d_vocab, length) and not plain:
        logits = pair_tables.read_logits(config, params, batch.tokens, read)  # vocab, read, batch
        each = cross_entropy(logits, batch.targets.T[rows], vocab_axis=0).T
    else:
        logits = jax.vmap(lambda tokens: forward(config, params, tokens)[0])(batch.tokens)[:, rows]
        each = cross_entropy(logits, batch.targets[:, rows])
    weights = batch.weights[:, rows]
    return (each * weights).sum() / _total(weights)


def loss_and_gradient(
    task: Task, config: ModelConfig, trained: Params, frozen: Params, batch: Example
) -> tuple[Float[Array, ""], Params]:
    """The loss of a batch, and its gradient in the trained parameters.

    Args:
        task: says where the loss is read.
        config: the model.
        trained: the parameters in which the gradient is taken.
        frozen: the others.
        batch: sequences, targets and weights, with a leading batch axis.
    """
    # on an H200 the plain pass is as fast: 4.1 ms a step of that model against 4.0, and 2.5 against
    # 3.2 at d=128 when all is read
    in_chunks = (
        batch.layer is None
        and score_tables.applies(config)
        and not pair_tables.applies(config, task.d_vocab, batch.tokens.shape[1])
    )
    if in_chunks and jax.default_backend() == "cpu":
        return _in_chunks(config, trained, frozen, batch, few=task.sparse_loss)

    def loss(trained: Params) -> Array:
        params = {**frozen, **trained}
        return batch_loss(config, params, batch, task.loss_positions, query_token=task.query_token)

    return jax.value_and_grad(loss)(trained)


def _in_chunks(
    config: ModelConfig, trained: Params, frozen: Params, batch: Example, few: bool
) -> tuple[Float[Array, ""], Params]:
    """Sequences in the order of how many positions they read, some at a time; of each only as many
    rows as one of them reads."""
    n_sequences, length = batch.tokens.shape
    order = jnp.argsort((batch.weights > 0).sum(axis=1))
    chunk = _chunk_size(n_sequences, length)
    chunks = jax.tree.map(lambda x: x[order].reshape(-1, chunk, length), batch)
    widths = (int(length * FEW), length) if few else (length,)

    def loss_sum(width: int, part: Example, trained: Params) -> Array:
        rows, weights = _read_rows(part.weights, width)
        logits = score_tables.read_logits(config, {**frozen, **trained}, part.tokens, rows)
        targets = jnp.take_along_axis(part.targets, rows, axis=1)
        return (cross_entropy(logits, targets) * weights).sum()

    def value_and_grad(width: int, part: Example) -> tuple[Array, Params]:
        return jax.value_and_grad(partial(loss_sum, width, part))(trained)

    branches = [partial(value_and_grad, width) for width in widths]

    def add(sums: tuple[Array, Params], part: Example) -> tuple[tuple[Array, Params], None]:
        most_read = (part.weights > 0).sum(axis=1).max()
        branch = sum((most_read > width).astype(int) for width in widths[:-1])
        return jax.tree.map(jnp.add, sums, jax.lax.switch(branch, branches, part)), None

    nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained))
    sums, _ = jax.lax.scan(add, nothing, chunks)
    return jax.tree.map(lambda x: x / _total(batch.weights), sums)


def _chunk_size(n_sequences: int, length: int) -> int:
    """How many sequences are worked on at once: the most that fit and divide the batch."""
    most = min(max(1, CHUNK // length), n_sequences)
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
