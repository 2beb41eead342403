r"""What training minimizes, and its gradient.

    loss = sum_t weight_t * loss_t / sum_t weight_t                       over the batch
    loss_t = -log softmax(logits_t)[target_t]                             unless a Spec says more

A `Loss` says what the loss at a position is, and may add what it reads off the trace. Which forward
pass computes the logits depends on shapes alone: `mnemoscope.models.rewrites.choose` chooses. One
that works in chunks takes a few sequences at a time that fit a core's cache, each chunk with its
own gradient.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.kinds import any_kind
from mnemoscope.models import Model, ModelConfig, early_logits, forward
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.models.forward_pass import logits_by_layer
from mnemoscope.models.precision import Precision, lowered, products
from mnemoscope.models.rewrites.choose import Rewrite, choose_rewrite, plain_logits
from mnemoscope.tasks import Example, Task
from mnemoscope.training.numbered import Numbered

# Of the positions: the rows computed for sequences that read no more, nine in ten of them in
# `Bigrams`
FEW = 3 / 8
EARLY = "a task that is asked after earlier layers"  # as a message begins


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


# ---- what a Spec may say is minimized


class Loss(Numbered):
    """The loss at each position. Its numbers are arguments of the compiled program.

    What it reads off the trace of a pass, besides, is added; then training takes the plain pass,
    since faster ones have no sites.
    """

    family: ClassVar[str] = "loss"

    @abstractmethod
    def at_positions(
        self, logits: Float[Array, "*axes vocab"], targets: Int[Array, "*axes"]
    ) -> Float[Array, "*axes"]:
        """The loss at each position.

        Args:
            logits: of the model.
            targets: the right tokens.
        """

    def with_vocab_axis(
        self, logits: Float[Array, "..."], targets: Int[Array, "..."], vocab_axis: int
    ) -> Float[Array, "..."]:
        """`at_positions` of logits as a pass has them; they are turned, unless a kind computes
        faster without.

        Args:
            logits: with one axis more than the targets, over the vocabulary.
            targets: the right tokens.
            vocab_axis: where the vocabulary is: the last axis (-1) or the first (0).
        """
        return self.at_positions(jnp.moveaxis(logits, vocab_axis, -1), targets)

    def from_trace(self, trace: Mapping[str, Array]) -> Float[Array, ""] | Float[Array, "pos"]:
        """What is added to the loss at every position of a sequence, read off its pass.

        Args:
            trace: every site's value by its full name.
        """
        raise NotImplementedError

    @property
    def reads_trace(self) -> bool:
        """Whether it does: whether the kind has a `from_trace` of its own."""
        return type(self).from_trace is not Loss.from_trace


class CrossEntropy(Loss):
    """-log softmax(logits)[target]."""

    kind: Literal["cross-entropy"] = "cross-entropy"
    """The name of this loss in files."""

    def at_positions(
        self, logits: Float[Array, "*axes vocab"], targets: Int[Array, "*axes"]
    ) -> Float[Array, "*axes"]:
        return cross_entropy(logits, targets)

    def with_vocab_axis(
        self, logits: Float[Array, "..."], targets: Int[Array, "..."], vocab_axis: int
    ) -> Float[Array, "..."]:
        return cross_entropy(logits, targets, vocab_axis)


class LabelSmoothing(Loss):
    """Cross-entropy with a share of each target spread evenly over the vocabulary.

    (1 - share) * -log p[target] + share * mean_v -log p[v]
    """

    kind: Literal["label-smoothing"] = "label-smoothing"
    """The name of this loss in files."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """The share that is spread."""

    def at_positions(
        self, logits: Float[Array, "*axes vocab"], targets: Int[Array, "*axes"]
    ) -> Float[Array, "*axes"]:
        return self.with_vocab_axis(logits, targets, -1)

    def with_vocab_axis(
        self, logits: Float[Array, "..."], targets: Int[Array, "..."], vocab_axis: int
    ) -> Float[Array, "..."]:
        of_targets = cross_entropy(logits, targets, vocab_axis)
        of_all = jax.nn.logsumexp(logits, axis=vocab_axis) - logits.mean(axis=vocab_axis)
        return jnp.asarray(self.one_minus("share") * of_targets + self.share * of_all)


AnyLoss = Annotated[Loss, *any_kind(Loss)]


# ---- of a batch


def batch_loss(
    task: Task,
    config: Model,
    params: Params,
    batch: Example,
    rewrite: Rewrite | None,
    loss: Loss = CrossEntropy(),  # noqa: B008 (it is frozen)
) -> Float[Array, ""]:
    """The loss of a batch over the positions that are read.

    Args:
        task: says where the loss is read.
        config: the model.
        params: its parameters, in the precision of the pass.
        batch: sequences, targets and weights, with a leading batch axis.
        rewrite: the pass to take, as `choose_rewrite` says; None: the plain one.
        loss: what is minimized.
    """
    if rewrite is not None and rewrite.tokens_at_once is not None:
        return _loss_in_chunks(task, config, params, batch, rewrite, loss)
    total = _total(batch.weights[:, np.array(task.loss_positions)])
    return _loss_sum(task, config, params, batch, rewrite, loss) / total


def _loss_sum(
    task: Task,
    config: Model,
    params: Params,
    batch: Example,
    rewrite: Rewrite | None,
    loss: Loss,
) -> Float[Array, ""]:
    """The weighted losses of some sequences, added up."""
    read = np.array(task.loss_positions)
    targets = batch.targets[:, read]
    if loss.reads_trace:
        each = _losses_with_trace(config, params, batch, loss)[:, read]
    elif batch.layer is not None:
        logits = _logits_after_layers(config, params, batch)[:, read]
        each = _at_positions(loss, logits, targets)
    elif rewrite is None:
        each = _at_positions(loss, plain_logits(config, params, batch.tokens, task), targets)
    else:
        assert isinstance(config, ModelConfig)
        logits = rewrite.logits(config, params, batch.tokens, task)
        if rewrite.vocab_axis == 0:
            each = _at_positions(loss, logits, targets.T, vocab_axis=0).T
        else:
            each = _at_positions(loss, logits, targets)
    return (each * batch.weights[:, read]).sum()


def _at_positions(loss: Loss, logits: Array, targets: Array, vocab_axis: int = -1) -> Array:
    """The loss at each position, which must be one number for each target."""
    found = loss.with_vocab_axis(logits, targets, vocab_axis)
    if jnp.shape(found) != targets.shape:
        raise UserError(
            f"the loss {loss.kind_name()!r} returned shape {jnp.shape(found)} for targets of shape "
            f"{targets.shape}; allowed: one number for each"
        )
    return found


def _logits_after_layers(
    config: Model, params: Params, batch: Example
) -> Float[Array, "batch pos vocab"]:
    """Of every sequence the logits after the layer that its example names."""
    assert batch.layer is not None
    layered = as_transformer(config, EARLY)

    def of_sequence(tokens: Array, layer: Array) -> Array:
        return early_logits(layered, params, tokens)[layer]

    return jax.vmap(of_sequence)(batch.tokens, jnp.minimum(batch.layer, layered.n_layers - 1))


# ---- with what is read off the trace


class _Trace(dict[str, Array]):
    """A trace that says which sites there are where it is asked for another."""

    def __missing__(self, name: str) -> Array:
        raise UserError(unknown("site", name, self))


def _losses_with_trace(
    config: Model, params: Params, batch: Example, loss: Loss
) -> Float[Array, "batch pos"]:
    """The losses at all positions, with what the loss reads off each sequence's pass."""

    def of_sequence(tokens: Array, targets: Array, layer: Array | None) -> Array:
        logits, trace = forward(config, params, tokens)
        if layer is not None:
            layered = as_transformer(config, EARLY)
            last = jnp.minimum(layer, layered.n_layers - 1)
            logits = logits_by_layer(layered, params, trace)[last]
        added = jnp.asarray(loss.from_trace(_Trace(trace)))
        if added.shape not in ((), tokens.shape):
            raise UserError(
                f"the loss {loss.kind_name()!r} read shape {added.shape} off the trace of "
                f"{len(tokens)} tokens; allowed: one number, or one for each position"
            )
        return _at_positions(loss, logits, targets) + added

    axes = (0, 0, None if batch.layer is None else 0)
    return jax.vmap(of_sequence, in_axes=axes)(batch.tokens, batch.targets, batch.layer)


def loss_and_gradient(
    task: Task,
    config: Model,
    trained: Params,
    frozen: Params,
    batch: Example,
    precision: Precision = "default",
    loss: Loss = CrossEntropy(),  # noqa: B008 (it is frozen)
) -> tuple[Float[Array, ""], Params]:
    """The loss of a batch, and its gradient in the trained parameters.

    Args:
        task: says where the loss is read.
        config: the model.
        trained: the parameters in which the gradient is taken.
        frozen: the others.
        batch: sequences, targets and weights, with a leading batch axis.
        precision: in what logits and gradient are computed.
        loss: what is minimized.
    """
    rewrite = choose_rewrite(config, task, precision, loss.reads_trace)
    with products(precision):
        if rewrite is not None and rewrite.tokens_at_once is not None:
            return _in_chunks(task, config, trained, frozen, batch, rewrite, precision, loss)

        def of_trained(trained: Params) -> Array:
            params = lowered({**frozen, **trained}, precision)
            return batch_loss(task, config, params, batch, rewrite, loss)

        return jax.value_and_grad(of_trained)(trained)


# ---- a few sequences at a time


def _in_chunks(
    task: Task,
    config: Model,
    trained: Params,
    frozen: Params,
    batch: Example,
    rewrite: Rewrite,
    precision: Precision = "default",
    loss: Loss = CrossEntropy(),  # noqa: B008 (it is frozen)
) -> tuple[Float[Array, ""], Params]:
    """The loss and its gradient, chunk by chunk."""

    def of_chunk(width: int | None, part: Example) -> tuple[Array, Params]:
        def loss_sum(trained: Params) -> Array:
            params = lowered({**frozen, **trained}, precision)
            return _chunk_loss_sum(task, config, params, part, rewrite, width, loss)

        return jax.value_and_grad(loss_sum)(trained)

    nothing = (jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained))
    return _mean_over_chunks(task, batch, rewrite, of_chunk, nothing)


def _loss_in_chunks(
    task: Task, config: Model, params: Params, batch: Example, rewrite: Rewrite, loss: Loss
) -> Float[Array, ""]:
    """The loss alone, chunk by chunk."""

    def of_chunk(width: int | None, part: Example) -> Array:
        return _chunk_loss_sum(task, config, params, part, rewrite, width, loss)

    return _mean_over_chunks(task, batch, rewrite, of_chunk, jnp.zeros(()))


def _chunk_loss_sum(
    task: Task,
    config: Model,
    params: Params,
    part: Example,
    rewrite: Rewrite,
    width: int | None,
    loss: Loss,
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
        loss: what is minimized.
    """
    if width is None:
        return _loss_sum(task, config, params, part, rewrite, loss)
    assert rewrite.row_logits is not None
    assert isinstance(config, ModelConfig)
    rows, weights = _read_rows(part.weights, width)
    logits = rewrite.row_logits(config, params, part.tokens, rows)
    targets = jnp.take_along_axis(part.targets, rows, axis=1)
    return (_at_positions(loss, logits, targets) * weights).sum()


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
