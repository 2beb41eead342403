"""The compiled programs of a training, and the cache in which threads share them.

A training has two programs: one draws the start of every seed, one goes on from any step to any
later step. The loop's end is an argument, so one compilation serves every stretch between two
stops; so are the numbers of a Spec, so that it serves every rate and every length too. Where the
Spec names metrics, a third one reads them. Seeds run along a leading axis, shared out over the
devices (`mnemoscope.core.seeds`).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from mnemoscope.core.axes import Array, Int, Params
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import list_replaced
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, for_each_seed, seeds_per_device, shard
from mnemoscope.core.xla import compiler_options
from mnemoscope.models import bind
from mnemoscope.training.first_look import require_answers, require_trainable
from mnemoscope.training.metric import Observe
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.shared_arrays import shapes_of, with_arrays
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import (
    State,
    TrainingNumbers,
    all_params,
    numbers_of,
    start,
    train_step,
)
from mnemoscope.training.worlds import seed_keys

# of the seeds, what of their states moves, what does not, and the task's arrays: what was read
ReadMetrics = Callable[[Array, Array, Params, Any], Mapping[str, Array]]
T = TypeVar("T")


class Programs(NamedTuple):
    """The two compiled programs of a training: draw the start, and go on to a later step."""

    # of the seeds
    start: Callable[[Int[Array, "seed"]], State]
    # of (seeds, states, numbers of each seed's Spec), first step, last step, arrays of the task
    advance: Callable[..., State]
    # what `advance` holds on each device while it runs; None where the compiler does not say
    bytes_on_device: int | None


_programs: dict[tuple[Any, ...], Future[Any]] = {}  # what was asked for longest ago goes first
_programs_lock = threading.Lock()
MAX_PROGRAMS = 128


@fixed_numerics()
def programs(spec: Spec, n_seeds: int) -> Programs:
    """Compile a training for so many seeds, once for each shape. Another thread may do so ahead of
    time; the second to ask waits."""
    mesh = device_mesh(n_seeds)
    # a function that was put in the place of ours is another program
    key = (spec.compile_key(), mesh, n_seeds, list_replaced())
    return made_once(key, lambda: _compile(spec, mesh, n_seeds))


@fixed_numerics()
def metrics_program(spec: Spec, n_seeds: int) -> ReadMetrics | None:
    """Compile what reads a Spec's metrics of so many seeds, once for each shape; None where it
    names none."""
    if spec.metrics is None:
        return None
    mesh = device_mesh(n_seeds)
    key = (spec.metrics, spec.compile_key(), mesh, n_seeds, list_replaced())

    def compile_for_states() -> ReadMetrics:
        found = programs(spec, n_seeds)
        ids = shard(mesh, jnp.zeros(n_seeds, int))
        states = _shapes_with_sharding(found.start)
        reading = jax.jit(reader_of(spec, None, mesh, n_seeds))
        lowered = reading.lower(ids, states.trained, states.frozen, shapes_of(spec.task, mesh))
        return cast(ReadMetrics, lowered.compile())

    return made_once(key, compile_for_states)


def reader_of(spec: Spec, observe: Observe | None, mesh: Mesh, n_seeds: int) -> ReadMetrics:
    """The Spec's metrics and `observe` for all seeds at once, each with its own world.

    Args:
        spec: names the metrics.
        observe: what is read beside them.
        mesh: the devices.
        n_seeds: how many seeds.
    """

    def on_one(each: tuple[Array, Array, Params], arrays: Any) -> Mapping[str, Array]:
        seed, trained, frozen = each
        inside = with_arrays(spec, arrays)
        world = inside.task.world(key=seed_keys(seed)[0])
        model = bind(spec.model, all_params(spec, trained, frozen))
        found: dict[str, Array] = {}
        for read in (metrics_of(inside), observe):
            for name, value in read(model, world).items() if read else ():
                if name in found:
                    raise UserError(
                        f"observe reads {name!r}, as a metric of the Spec does; allowed: one of "
                        "them"
                    )
                found[name] = value
        return found

    for_all = for_each_seed(on_one, mesh, seeds_per_device(mesh, n_seeds))
    return lambda ids, trained, frozen, arrays: for_all((ids, trained, frozen), arrays)


def made_once(key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What has this key; made by whoever asks first, while others wait.

    Args:
        key: all that it depends on.
        make: makes it.
    """
    future, is_ours_to_compile = _future_of(key)
    if is_ours_to_compile:
        try:
            future.set_result(make())
        except BaseException as error:
            _programs.pop(key, None)
            future.set_exception(error)
    return future.result()


def numbers_by_seed(specs: Sequence[Spec]) -> TrainingNumbers:
    """The numbers of the Spec that each seed is trained by, with a leading seed axis.

    Args:
        specs: one for each seed, all of one shape.
    """
    each = [numbers_of(spec) for spec in specs]
    return jax.tree.map(lambda *rows: np.stack(rows), *each)


def _future_of(key: tuple[Any, ...]) -> tuple[Future[Any], bool]:
    """The place where a program is or will be, and whether the caller has to compile it."""
    with _programs_lock:
        future = _programs.pop(key, None)
        if future is not None:
            _programs[key] = future  # the last that was asked for
            return future, False
        future = Future()
        _programs[key] = future
        while len(_programs) > MAX_PROGRAMS:
            del _programs[next(iter(_programs))]
        return future, True


def _compile(spec: Spec, mesh: Mesh, n_seeds: int) -> Programs:
    """Both programs for these devices; they are those of every Spec of the same shape."""
    require_trainable(spec.task)
    require_answers(spec.model, spec.task)

    def one_seed(
        each: tuple[Array, State, TrainingNumbers], begin: Array, end: Array, arrays: Any
    ) -> State:
        seed, state, numbers = each
        inside = with_arrays(spec, arrays)
        for_world, _, for_data = seed_keys(seed)
        world = inside.task.world(key=for_world)
        state = state._replace(loss_sum=jnp.zeros(()))

        def one_step(i: Array, state: State) -> State:
            return train_step(inside, world, for_data, i, state, numbers)

        return jax.lax.fori_loop(begin, end, one_step, state)

    lanes = seeds_per_device(mesh, n_seeds)
    ids = shard(mesh, jnp.zeros(n_seeds, int))
    draw_start = jax.jit(for_each_seed(partial(start, spec), mesh, lanes)).lower(ids).compile()
    states = _shapes_with_sharding(draw_start)
    numbers = shard(mesh, numbers_by_seed([spec] * n_seeds))
    step = jnp.zeros((), int)
    advance = jax.jit(for_each_seed(one_seed, mesh, lanes))
    lowered = advance.lower((ids, states, numbers), step, step, shapes_of(spec.task, mesh))
    compiled = lowered.compile(compiler_options(mesh))
    return Programs(start=draw_start, advance=compiled, bytes_on_device=_bytes_of(compiled))


def _shapes_with_sharding(draw_start: Any) -> State:
    """The states that a compiled start gives, as shapes on their devices."""
    return jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        draw_start.out_info,
        draw_start.output_shardings,
    )


def _bytes_of(compiled: jax.stages.Compiled) -> int | None:
    """Arguments, results and whatever a program needs between them, by the compiler's own count.

    What shares its memory with an argument is counted once.
    """
    found = compiled.memory_analysis()
    if found is None:
        return None
    arguments = found.argument_size_in_bytes
    results = found.output_size_in_bytes - found.alias_size_in_bytes
    return arguments + results + found.temp_size_in_bytes
