"""A model from elsewhere as a stored run, so that it can be walked and explored with a task of ours.

It was not trained by us, and nothing may take it for a training: its Spec carries the fingerprint of its weights, which no study
asks for and which `fit` refuses. It has one snapshot, and its one loss is that of a fresh batch of the task. Its seed draws the
world of the task that it is shown with.
"""

import hashlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Int, Params
from mnemoscope.core.errors import UserError
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import Transformer, parameter_shapes
from mnemoscope.store import RunRow, Store
from mnemoscope.training.loss import batch_loss
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import draw
from mnemoscope.training.worlds import seed_keys

BATCH = 256  # sequences of the task on which the loss is measured


def fingerprint(model: Transformer) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the weights with their names and shapes."""
    whole = hashlib.sha256()
    for name, value in sorted(model.params.items()):
        whole.update(f"{name}{value.shape}".encode() + np.asarray(value, "<f4").tobytes())
    return whole.hexdigest()[:16]


@fixed_numerics()
def as_run(model: Transformer, like: Spec, seed: int) -> Run:
    """The model as a run of one seed on the task of `like`, whose tokens and positions it must have."""
    if not 0 <= seed < 2**31:
        raise UserError(f"--seed must be a whole number from 0 to {2**31 - 1}, got {seed}")
    task = like.task
    wanted = parameter_shapes(model.config, task.d_vocab, task.n_ctx, task.d_vocab_out)
    for name, shape in wanted.items():
        if model.params[name].shape != shape:
            words = f"{task.d_vocab} tokens, {task.n_ctx} positions and {task.d_vocab_out} answers"
            raise UserError(f"{name!r} has shape {model.params[name].shape}; the task {task.kind!r} of that run has {words}, which "
                            f"make it {shape}")  # fmt: skip
    spec = Spec(task=task, model=model.config, steps=1, batch=BATCH, snapshots=1, imported=fingerprint(model))
    run = Run(spec, (seed,), {name: np.asarray(model.params[name])[None, None] for name in wanted}, np.array([1]),
              np.zeros((1, 1), np.float32), np.array([1]))  # fmt: skip
    run.losses[:] = _loss(spec, model.params, jnp.array(seed))
    run.good_steps[:] = np.isfinite(run.losses[0])
    return run


@partial(jax.jit, static_argnames="spec")
def _loss(spec: Spec, params: Params, seed: Int[Array, ""]) -> Float[Array, ""]:
    for_world, _, for_data = seed_keys(seed)
    batch = draw(spec, spec.task.world(key=for_world), for_data, jnp.array(0))
    return batch_loss(spec.model, params, batch, spec.task.read_positions, plain=True)


def keep(store: Store, run: Run) -> RunRow:
    """Store an imported run; one that is stored already is not stored again."""
    with store.alone(run.spec.digest()):  # two processes that import the same at once do not both find nothing
        if held := store.blocks(run.spec, run.seeds)[0]:
            raise UserError(
                f"this model is stored already with seed {run.seeds[0]}, as {held[0].id}; give another --seed"
            )
        store.save(run, 0.0, "imported")
        return store.blocks(run.spec, run.seeds)[0][0]
