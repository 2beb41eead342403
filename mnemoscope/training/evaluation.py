r"""What a trained model can do: accuracy and loss, where the loss is read, seed by seed.

    accuracy = sum_i sum_t w_it [argmax logits_it = target_it] / sum_i sum_t w_it
    loss     = sum_i sum_t w_it (-log softmax(logits_it)[target_it]) / sum_i sum_t w_it

over all sequences i that the task is evaluated on (`Task.n_examples`), which is exact; or, where a
task does not say which these are, over a sample that is drawn with one key for all seeds. All seeds
are read by one compiled program, a few sequences at a time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.core.fingerprint import list_replaced
from mnemoscope.core.kinds import codes_in
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.core.working import show_progress
from mnemoscope.models import early_logits
from mnemoscope.models.rewrites.choose import read_logits
from mnemoscope.tasks import Example, World
from mnemoscope.training.by_seed import By, BySeed, Progress
from mnemoscope.training.loss import cross_entropy
from mnemoscope.training.shared_arrays import with_arrays
from mnemoscope.training.spec import Spec

if TYPE_CHECKING:
    from mnemoscope.training.run import Run

SAMPLE = 1024  # sequences that are drawn where a task has no list of them
SAMPLE_KEY = 2**31 - 1
AT_ONCE = 64  # sequences
MAX_PROGRAMS = 16  # that are kept, so that asking again compiles nothing


class _Sums(NamedTuple):
    """What is added up of some sequences at each position where the loss is read."""

    right: Float[Array, "*chunk read"]
    loss: Float[Array, "*chunk read"]
    weight: Float[Array, "*chunk read"]


_programs: dict[
    tuple[Any, ...], Callable[..., _Sums]
] = {}  # insertion order; the oldest goes first


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
        sums = _read(run, snapshot, step, exact, sample)
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


def _read(run: "Run", snapshot: int, step: int, exact: int | None, sample: int) -> _Sums:
    """The sums of every seed, chunk by chunk."""
    spec = run.spec
    key = (spec, codes_in(spec), len(run.seeds), exact, sample, list_replaced())
    program = _programs.pop(key, None)
    if program is None:
        program = map_over_seeds(_make_reader(spec, exact, sample), len(run.seeds))
    _programs[key] = program  # the one that was asked for last goes last
    while len(_programs) > MAX_PROGRAMS:
        del _programs[next(iter(_programs))]
    params = {name: x[:, snapshot] for name, x in run.snapshots.items()}
    arrays = spec.task.load_arrays()
    return program((params, run.worlds()), arrays, np.asarray(step, np.int32))


def _make_reader(spec: Spec, exact: int | None, sample: int) -> Callable[..., _Sums]:
    """The function of one seed that is compiled: its sums, from parameters and world, the task's
    arrays, and the step in whose world it is read."""
    n_sequences = exact or sample
    n_chunks = -(-n_sequences // AT_ONCE)

    def of_seed(each: tuple[Params, World], arrays: Any, step: Array) -> _Sums:
        params, drawn = each
        inside = with_arrays(spec, arrays).task
        world = inside.at_step(drawn, step)

        def sequence(index: Array) -> Example:
            if exact is None:
                return inside.sample(
                    world, key=jax.random.fold_in(jax.random.key(SAMPLE_KEY), index)
                )
            return inside.example(world, jnp.minimum(index, exact - 1))

        def of_chunk(chunk: Array) -> _Sums:
            index = chunk * AT_ONCE + jnp.arange(AT_ONCE)
            batch = jax.vmap(sequence)(index)
            weights = jnp.where((index < n_sequences)[:, None], batch.weights, 0.0)
            return _sums(spec, params, batch._replace(weights=weights))

        return jax.lax.map(of_chunk, jnp.arange(n_chunks))

    return of_seed


def _sums(spec: Spec, params: Params, batch: Example) -> _Sums:
    """What some sequences add up to."""
    task = spec.task
    read = np.array(task.loss_positions)
    if batch.layer is None:
        logits = read_logits(spec.model, params, batch.tokens, task)
    else:
        layers = jnp.minimum(batch.layer, spec.model.n_layers - 1)

        def after(tokens: Array, layer: Array) -> Array:
            return early_logits(spec.model, params, tokens)[layer]

        logits = jax.vmap(after)(batch.tokens, layers)[:, read]
    targets = batch.targets[:, read]
    weights = batch.weights[:, read]
    right = logits.argmax(axis=-1) == targets
    return _Sums(
        right=(right * weights).sum(axis=0),
        loss=jnp.where(weights > 0, cross_entropy(logits, targets) * weights, 0.0).sum(axis=0),
        weight=weights.sum(axis=0),
    )
