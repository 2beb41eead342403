r"""What a trained model can do: accuracy and loss, where the loss is read, seed by seed.

    accuracy = sum_i sum_t w_it [argmax logits_it = target_it] / sum_i sum_t w_it
    loss     = sum_i sum_t w_it (-log softmax(logits_it)[target_it]) / sum_i sum_t w_it

The sums are those of `mnemoscope.training.answers`. All seeds are read by one compiled program, a
few sequences at a time.
"""

from typing import TYPE_CHECKING, Any, Literal

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Params
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.fingerprint import list_replaced
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, map_over_seeds
from mnemoscope.core.working import show_progress
from mnemoscope.tasks import World
from mnemoscope.training.answers import SAMPLE, Sums, read_answers
from mnemoscope.training.by_seed import By, BySeed, Progress
from mnemoscope.training.compilation import made_once
from mnemoscope.training.shared_arrays import with_arrays

if TYPE_CHECKING:
    from mnemoscope.training.run import Run


@fixed_numerics()
def evaluate(
    run: "Run",
    name: Literal["accuracy", "loss"],
    by: By = "seed",
    sample: int = SAMPLE,
    snapshot: int = -1,
    progress: Progress = None,
) -> BySeed:
    """Accuracy or loss of every seed's model.

    Args:
        run: the seeds.
        name: which of the two.
        by: `seed`, a number for each; `position`, one for each seed and position.
        sample: how many sequences are drawn, where the task has no list of them.
        snapshot: the stored moment of training; -1 is the end.
        progress: whether a bar is shown.
    """
    if by not in ("seed", "position"):
        raise UserError(unknown("by", by, ("seed", "position")))
    task = run.spec.task
    exact = task.n_examples
    if exact is None and not 1 <= sample < 2**31:
        raise UserError(f"sample must be a number of sequences from 1 up, got {sample}")
    # the world is that of the step before
    step = max(run.step_of(snapshot) - 1, 0)
    with show_progress(f"reading the {name} of {len(run.seeds)} seeds", progress):
        sums = _read(run, snapshot, step, sample)
    found = np.asarray(sums.right if name == "accuracy" else sums.loss, float)
    weights = np.asarray(sums.weight, float)
    axes = (1,) if by == "position" else (1, 2)  # chunks, and positions
    with np.errstate(invalid="ignore"):
        read = found.sum(axis=axes) / weights.sum(axis=axes)  # in float64: chunks are many
    if by == "position":
        values = np.full((len(run.seeds), task.n_ctx), np.nan)
        values[:, np.array(task.loss_positions)] = read
    else:
        values = read
    values[~run.finished] = np.nan
    over = (
        f"all {exact:,} sequences of its evaluation"
        if exact
        else f"a sample of {sample:,} sequences"
    )
    return BySeed(name, run.seeds, values, over)


def _read(run: "Run", snapshot: int, step: int, sample: int) -> Sums:
    """The sums of every seed, chunk by chunk."""
    spec = run.spec
    n_seeds = len(run.seeds)

    def of_seed(each: tuple[Params, World], step: Array, arrays: Any) -> Sums:
        params, drawn = each
        inside = with_arrays(spec, arrays).task
        world = inside.at_step(drawn, step)
        return read_answers(inside, spec.model, params, world, sample)

    # runs that differ in numbers alone, as those of a sweep, are read by one program
    key = ("answers", spec.compile_key(), sample, n_seeds, device_mesh(n_seeds), list_replaced())
    read = made_once(key, lambda: map_over_seeds(of_seed, n_seeds))
    params = {name: x[:, snapshot] for name, x in run.snapshots.items()}
    arrays = spec.task.load_arrays()
    return read((params, run.worlds()), jnp.array(step), arrays)
