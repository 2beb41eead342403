r"""What a model can do, measured on every sequence of a list: accuracy, distance from a
posterior, recall.

Probabilities are read at the positions where the task asks (axis `step`). For p the model's and p*
the exact one,

    MAE = mean over sequences and symbols of |p - p*|
    Max-AE = the largest |p - p*|
    loss = -log p(answer)

Elimination and recall are both read at the last step: the share of sequences whose most probable
token is the answer, when the last x is new (one value is left) and when it repeats an earlier pair
(the answer was shown).
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.models import Edit, HookedModel
from mnemoscope.tasks import Permutation, Split

SEEDS_AT_ONCE = 16  # on an accelerator: every sequence of a seed at once is already much work


def over_seeds(probe: Callable[..., Any], models: HookedModel, worlds: Any) -> Any:
    """`probe(model, world)` for every seed: compiled once, on all devices.

    Args:
        probe: what is read of one model.
        models: stacked, with a leading seed axis.
        worlds: the same.
    """
    n_seeds = len(jax.tree.leaves(models)[0])
    return map_over_seeds(lambda each: probe(*each), n_seeds, SEEDS_AT_ONCE)((models, worlds))


def answers(
    task: Permutation,
    model: HookedModel,
    tokens: Int[Array, "batch length"],
    edits: Iterable[Edit] = (),
) -> Float[Array, "batch step vocab"]:
    """The model's probabilities for the answer at every x.

    Args:
        task: says where the model is asked.
        model: what is read.
        tokens: the sequences.
        edits: changes to the forward pass.
    """
    logits = jax.vmap(lambda row: model(row, edits))(tokens[:, : task.n_ctx])
    return jax.nn.softmax(logits[:, jnp.array(task.asked_positions)], axis=-1)


def accuracy(
    p: Float[Array, "batch step vocab"], tokens: Int[Array, "batch length"]
) -> Float[Array, "step"]:
    """Accuracy: the share of sequences whose most probable answer is right, by step."""
    return (p.argmax(axis=-1) == tokens[:, 1::2]).mean(axis=0)


def mean_loss(
    p: Float[Array, "batch step vocab"], tokens: Int[Array, "batch length"]
) -> Float[Array, "step"]:
    """Mean cross-entropy in nats, by step."""
    p_answer = jnp.take_along_axis(p, tokens[:, 1::2, None], axis=-1)
    return -jnp.log(p_answer).mean(axis=(0, 2))


def measure_errors(
    p: Float[Array, "batch step vocab"], exact: Float[Array, "batch step vocab"]
) -> tuple[Float[Array, "step"], Float[Array, "step"]]:
    """MAE and Max-AE by step over the V symbols; rows where the exact posterior is undefined (NaN)
    are left out."""
    gap = jnp.abs(p - exact)[:, :, 1:]
    defined = ~jnp.isnan(gap)
    gap = jnp.where(defined, gap, 0)
    return gap.sum(axis=(0, 2)) / defined.sum(axis=(0, 2)), gap.max(axis=(0, 2))


def unused_value(task: Permutation, tokens: Int[Array, "batch length"]) -> Int[Array, "batch"]:
    """The one value that the first V - 1 pairs did not show."""
    total = task.n_symbols * (task.n_symbols + 1) // 2
    return total - tokens[:, 1 : 2 * task.n_symbols - 2 : 2].sum(axis=1)


def both_skills(
    task: Permutation, model: HookedModel, split: Split, edits: Iterable[Edit] = (), source: int = 0
) -> dict[str, Float[Array, ""]]:
    """Elimination and recall on every held-out sequence.

    Args:
        task: lists the sequences.
        model: what is read.
        split: whose held-out mappings are shown.
        edits: changes to the forward pass.
        source: which earlier pair is repeated for recall.
    """
    edits = tuple(edits)
    new = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    again = task.list_tokens(split.held_out, (source,))
    return {
        "elimination": accuracy(answers(task, model, new, edits), new)[-1],
        "recall": accuracy(answers(task, model, again, edits), again)[-1],
    }


def report_card(task: Permutation, model: HookedModel, split: Split) -> dict[str, Array]:
    """Everything about a model's answers on held-out mappings: new last pairs, and each earlier
    pair repeated.

    Args:
        task: lists the sequences.
        model: what is read.
        split: whose held-out mappings are shown.
    """
    last = task.n_symbols - 1
    new = task.list_tokens(split.held_out, (last,))
    p = answers(task, model, new)
    exact = jax.vmap(task.posterior)(new[:, :-1])
    mae, max_ae = measure_errors(p, exact)
    card = {"accuracy": accuracy(p, new), "loss": mean_loss(p, new), "mae": mae, "max_ae": max_ae}

    def repeated(tokens: Array) -> dict[str, Array]:
        p = answers(task, model, tokens)
        exact = jax.vmap(task.posterior)(tokens[:, :-1])
        mae, max_ae = measure_errors(p, exact)
        unused = unused_value(task, tokens)
        return {
            "recall": accuracy(p, tokens)[-1],
            "repeat_loss": mean_loss(p, tokens),
            "p_unused": jnp.take_along_axis(p[:, -1], unused[:, None], axis=-1).mean(),
            "says_unused": (p[:, -1].argmax(axis=-1) == unused).mean(),
            "recall_mae": mae[-1],
            "recall_max_ae": max_ae[-1],
        }

    traps = task.list_tokens(split.held_out, tuple(range(last)))
    by_source = traps.reshape(-1, last, 2 * task.n_symbols).swapaxes(0, 1)
    return card | jax.lax.map(repeated, by_source)


def against_training(task: Permutation, model: HookedModel, split: Split) -> dict[str, Array]:
    """Is the model an eliminator over all mappings, or does it know which mappings it was trained
    on?

    On held-out sequences: mean |p - p*| by step for both exact posteriors, wherever some training
    mapping still fits, and how often the training posterior's own best guess is right. On trained
    sequences: the loss by step.

    Args:
        task: lists the sequences.
        model: what is read.
        split: the mappings that were trained on, and those that were not.
    """
    held = task.list_tokens(split.held_out, (task.n_symbols - 1,))
    trained = task.list_tokens(split.train, (task.n_symbols - 1,))
    p = answers(task, model, held)
    by_all = jax.vmap(task.posterior)(held[:, :-1])
    posterior = partial(task.posterior, mappings=split.train)
    by_training = jax.lax.map(posterior, held[:, :-1], batch_size=256)
    fits = ~jnp.isnan(by_training).any(axis=-1, keepdims=True)
    return {
        "mae_all": measure_errors(p, jnp.where(fits, by_all, jnp.nan))[0],
        "mae_training": measure_errors(p, by_training)[0],
        "accuracy_training": accuracy(jnp.nan_to_num(by_training), held),
        "trained_loss": mean_loss(answers(task, model, trained), trained),
    }
