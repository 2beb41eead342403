"""The compiled programs of a training, and the cache in which threads share them.

A training has two programs: one draws the start of every seed, one goes on from any step to any
later step. The loop's end is an argument, so one compilation serves every stretch between two
stops. Seeds run along a leading axis, shared out over the devices (`mnemoscope.core.seeds`).
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from mnemoscope.core.axes import Array, Int
from mnemoscope.core.fingerprint import replaced
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, for_each_seed, seeds_per_device, shard
from mnemoscope.core.xla import compiler_options
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import State, start, train_step, unfreeze_step_of_each
from mnemoscope.training.worlds import seed_keys


class Programs(NamedTuple):
    """The two compiled programs of a training: draw the start, and go on to a later step."""

    # of the seeds
    start: Callable[[Int[Array, "seed"]], State]
    # of (seeds, states), first step, last step
    advance: Callable[..., State]


_programs: dict[tuple[Any, ...], Future[Programs]] = {}  # insertion order; the oldest goes first
_programs_lock = threading.Lock()
MAX_PROGRAMS = 32


@fixed_numerics()
def programs(spec: Spec, n_seeds: int) -> Programs:
    """Compile a training for so many seeds, once. Another thread may do so ahead of time; the
    second to ask waits."""
    mesh = device_mesh(n_seeds)
    shared_spec = spec.compile_key()
    # a function that was put in the place of ours is another program
    key = (shared_spec, mesh, n_seeds, replaced())
    future, is_ours_to_compile = _future_of(key)
    if is_ours_to_compile:
        try:
            future.set_result(_compile(shared_spec, mesh, n_seeds))
        except BaseException as error:
            _programs.pop(key, None)
            future.set_exception(error)
    compiled = future.result()
    # an argument: trainings that differ in it share a program
    unfreeze_steps = unfreeze_step_of_each(spec)
    return Programs(
        start=compiled.start,
        advance=lambda each, begin, end: compiled.advance(each, begin, end, unfreeze_steps),
    )


def _future_of(key: tuple[Any, ...]) -> tuple[Future[Programs], bool]:
    """The place where a program is or will be, and whether the caller has to compile it."""
    with _programs_lock:
        future = _programs.get(key)
        if future is not None:
            return future, False
        future = Future()
        _programs[key] = future
        while len(_programs) > MAX_PROGRAMS:
            del _programs[next(iter(_programs))]
        return future, True


def _compile(spec: Spec, mesh: Mesh, n_seeds: int) -> Programs:
    """Both programs for these devices; `advance` takes `unfreeze_steps` last."""

    def one_seed(
        each: tuple[Array, State], begin: Array, end: Array, unfreeze_steps: Array
    ) -> State:
        seed, state = each
        for_world, _, for_data = seed_keys(seed)
        world = spec.task.world(key=for_world)
        state = state._replace(loss_sum=jnp.zeros(()))

        def one_step(i: Array, state: State) -> State:
            return train_step(spec, world, for_data, i, state, unfreeze_steps)

        return jax.lax.fori_loop(begin, end, one_step, state)

    lanes = seeds_per_device(mesh, n_seeds)
    ids = shard(mesh, jnp.zeros(n_seeds, int))
    draw_start = jax.jit(for_each_seed(partial(start, spec), mesh, lanes)).lower(ids).compile()
    states = jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
        draw_start.out_info,
        draw_start.output_shardings,
    )
    step = jnp.zeros((), int)
    advance = jax.jit(for_each_seed(one_seed, mesh, lanes))
    lowered = advance.lower((ids, states), step, step, unfreeze_step_of_each(spec))
    return Programs(start=draw_start, advance=lowered.compile(compiler_options(mesh)))
