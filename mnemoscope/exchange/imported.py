"""A model from elsewhere as a stored run, to be walked and explored.

It was not trained by us, and nothing may take it for a training: its Spec carries the fingerprint
of its weights, which no study asks for and which `fit` refuses. It has one snapshot.

Its task is what is known of it: tokens and a longest prompt (`Vocabulary`), so that there is no
loss. It can be shown with the task of a stored run instead: its one loss is then that of a fresh
batch, and its seed draws the world of that task.
"""

import hashlib
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.errors import UserError
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import Transformer, parameter_shapes
from mnemoscope.models.language import LanguageModel, Tokenizer
from mnemoscope.models.language.tokens import byte_characters
from mnemoscope.store import RunRow, Store
from mnemoscope.tasks import Task, Vocabulary
from mnemoscope.training.loss import batch_loss
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import draw
from mnemoscope.training.worlds import seed_keys

BATCH = 256  # sequences of the task on which the loss is measured


def weights_fingerprint(model: Transformer) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the weights with their names and shapes."""
    digest = hashlib.sha256()
    for name, value in sorted(model.params.items()):
        digest.update(f"{name}{value.shape}".encode())
        digest.update(np.asarray(value, "<f4").tobytes())
    return digest.hexdigest()[:16]


def vocabulary_of(model: Transformer, n_ctx: int) -> Vocabulary:
    """What is known of the task of a model.

    Args:
        model: The model; the tokens of a `LanguageModel` have the names of its tokenizer.
        n_ctx: The longest prompt.
    """
    d_vocab = model.d_vocab
    fields: dict[str, Any] = {"n_tokens": d_vocab, "n_positions": n_ctx}
    if model.d_vocab_out != d_vocab:
        fields["n_answers"] = model.d_vocab_out
    if isinstance(model, LanguageModel):
        fields["names"] = _names(model.tokenizer, d_vocab)
    return Vocabulary(**fields)


def _names(tokenizer: Tokenizer, d_vocab: int) -> tuple[str, ...]:
    """Each token as its tokenizer writes it, with no space inside; one that has no name of its own
    is called by its number."""
    taken = set()
    names = []
    for number in range(d_vocab):
        known = tokenizer.vocabulary[number] if number < len(tokenizer.vocabulary) else ""
        # added tokens are written as they are; others have no space but the character for it
        name = "".join(byte_characters()[ord(" ")] if c.isspace() else c for c in known)
        if not name or name in taken:
            name = f"<{number}>"
        while name in taken:
            name = f"<{name}>"
        taken.add(name)
        names.append(name)
    return tuple(names)


@fixed_numerics()
def as_run(model: Transformer, task: Task, seed: int) -> Run:
    """The model as a run of one seed.

    Args:
        model: The model.
        task: What it is shown with; the model must have its tokens and positions.
        seed: The run's one seed, which draws the world of the task.
    """
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed must be a whole number from 0 to {2**31 - 1}, got {seed}")
    shapes = parameter_shapes(model.config, task.d_vocab, task.n_ctx, task.d_vocab_out)
    _check_shapes(model, task, shapes)
    has_sequences = not isinstance(task, Vocabulary)
    spec = Spec(
        task=task,
        model=model.config,
        steps=1,
        batch=BATCH if has_sequences else 1,
        snapshots=1,
        imported=weights_fingerprint(model),
    )
    # one seed and one snapshot, so two axes of length one before each parameter's own
    snapshots = {name: np.asarray(model.params[name])[None, None] for name in shapes}
    loss_steps = np.ones(int(has_sequences), int)
    losses = np.zeros((1, len(loss_steps)), np.float32)
    finite_steps = np.array([1])
    run = Run(spec, (seed,), snapshots, loss_steps, losses, finite_steps)
    if has_sequences:
        run.losses[:] = _loss(spec, model.params, jnp.array(seed))
        run.finite_steps[:] = np.isfinite(run.losses[0])
    return run


def _check_shapes(model: Transformer, task: Task, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """The model has the tokens, positions and answers of the task."""
    for name, shape in shapes.items():
        came = model.params[name].shape
        if came != shape:
            raise UserError(
                f"{name!r} has shape {came}; the task {task.kind_name()!r} of that run has "
                f"{task.d_vocab} tokens, {task.n_ctx} positions and {task.d_vocab_out} answers, "
                f"which make it {shape}"
            )
    if model.n_ctx is not None and model.n_ctx < task.n_ctx:
        raise UserError(
            f"the model takes prompts of at most {model.n_ctx} tokens; those of the task "
            f"{task.kind_name()!r} of that run have {task.n_ctx}"
        )


@partial(jax.jit, static_argnames="spec")
def _loss(spec: Spec, params: Params, seed: Int[Array, ""]) -> Float[Array, ""]:
    for_world, _, for_data = seed_keys(seed)
    batch = draw(spec, spec.task.world(key=for_world), for_data, jnp.array(0))
    return batch_loss(spec.task, spec.model, params, batch, rewrite=None)


def keep(store: Store, run: Run, advice: str = "give another --seed") -> RunRow:
    """Store an imported run; one that is stored already is not stored again.

    Args:
        store: The store.
        run: As it was read.
        advice: What to do where it is stored already.
    """
    # two processes that import the same at once do not both find nothing
    with store.lock(run.spec.digest()):
        held, _ = store.blocks(run.spec, run.seeds)
        if held:
            raise UserError(
                f"this model is stored already with seed {run.seeds[0]}, as {held[0].id}; {advice}"
            )
        store.save(run, 0.0, "imported")
        held, _ = store.blocks(run.spec, run.seeds)
        return held[0]
