"""Where the time of a training step goes: four compiled loops, each with one stage more than the
last.

    draw the batch  <  + loss  <  + gradient  <  + optimizer = the step that `fit` takes

A stage's time is the difference between two loops, so the stages add up to the step. What a stage
computes is the training's own code; each loop hands its result on to the next turn, so that no
compiler can leave work out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from mnemoscope.core.axes import Array
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, for_each_seed, seeds_per_device, shard
from mnemoscope.core.xla import compiler_options
from mnemoscope.models.precision import lowered, products
from mnemoscope.models.rewrites.choose import choose_rewrite
from mnemoscope.training.compilation import numbers_by_seed, programs
from mnemoscope.training.loss import batch_loss, loss_and_gradient
from mnemoscope.training.shared_arrays import place_arrays, with_arrays
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import (
    State,
    all_params,
    draw,
    numbers_of,
    ravel_params,
    start,
    train_step,
    unravel_params,
)
from mnemoscope.training.worlds import seed_keys

STAGES: tuple[str, ...] = ("draw the batch", "loss", "gradient", "optimizer")
TARGET = 0.5  # seconds that one measurement should last


@dataclass(frozen=True)
class Profile:
    """Seconds by stage for one step of all seeds, and the rate they add up to."""

    spec: Spec  # what was timed
    seeds: int  # how many were trained together
    seconds: dict[str, float]  # median over repeats, by stage
    spread: dict[str, float]  # largest less smallest, of the loop that ends with the stage
    compile_seconds: dict[str, float]  # of that loop

    @property
    def step(self) -> float:
        """Seconds of a whole step."""
        return sum(self.seconds.values())

    @property
    def rate(self) -> float:
        """Samples a second, all seeds together."""
        return self.seeds * self.spec.batch / self.step


def _turn(stage: str, spec: Spec, world: object, key: Array, step: Array, state: State) -> State:
    """One turn of the loop that ends with `stage`."""
    if stage == "optimizer":
        return train_step(spec, world, key, step, state, numbers_of(spec))
    batch = draw(spec, world, key, step)
    if stage == "draw the batch":
        drawn = state.finite_steps + batch.tokens.sum() + batch.targets.sum()
        return state._replace(finite_steps=drawn)
    # below: zero times a number that may be NaN is not known to be zero, so the parameters wait for
    # what was computed
    if stage == "loss":
        params = all_params(spec, state.trained, state.frozen)
        rewrite = choose_rewrite(spec.model, spec.task, spec.precision, spec.loss.reads_trace)
        with products(spec.precision):
            params = lowered(params, spec.precision)
            value = batch_loss(spec.task, spec.model, params, batch, rewrite, spec.loss)
        return state._replace(trained=state.trained + 0.0 * value)
    trained = unravel_params(spec, state.trained)
    gradient = loss_and_gradient(
        spec.task, spec.model, trained, state.frozen, batch, spec.precision, spec.loss
    )[1]
    return state._replace(trained=state.trained + 0.0 * ravel_params(spec, gradient))


@fixed_numerics()
def profile(
    spec: Spec, n_seeds: int, repeats: int = 5, tell: Callable[[str], None] = lambda _: None
) -> Profile:
    """Time every stage on this machine's devices.

    Args:
        spec: the training.
        n_seeds: how many seeds are trained together.
        repeats: how often each loop is timed.
        tell: hears what is being done.
    """
    mesh = device_mesh(n_seeds)
    ids = shard(mesh, np.arange(n_seeds))
    lanes = seeds_per_device(mesh, n_seeds)
    states = jax.jit(for_each_seed(partial(start, spec), mesh, lanes))(ids)
    step_seconds: list[float] = []  # of the loops, each with one stage more
    spreads: dict[str, float] = {}
    compile_seconds: dict[str, float] = {}
    for stage in STAGES:
        tell(f"compiling: {stage}")
        began = time.perf_counter()
        loop = _compiled_loop(stage, spec, mesh, lanes, (ids, states))
        compile_seconds[stage] = time.perf_counter() - began
        tell(f"timing: {stage}")
        found = _seconds_a_turn(partial(loop, (ids, states)), repeats)
        step_seconds.append(float(np.median(found)))
        spreads[stage] = max(found) - min(found)
    seconds = np.diff([0.0, *step_seconds]).tolist()
    return Profile(
        spec=spec,
        seeds=n_seeds,
        seconds=dict(zip(STAGES, seconds, strict=True)),
        spread=spreads,
        compile_seconds=compile_seconds,
    )


def _compiled_loop(
    stage: str, spec: Spec, mesh: Mesh, lanes: int | None, each: tuple[Array, State]
) -> Callable[..., State]:
    """The loop that ends with `stage`, compiled: of (seeds, states) and a number of turns."""

    def one_seed(each: tuple[Array, State], end: Array, arrays: Any) -> State:
        seed, state = each
        inside = with_arrays(spec, arrays)
        for_world, _, for_data = seed_keys(seed)
        world = inside.task.world(key=for_world)

        def one_turn(i: Array, state: State) -> State:
            return _turn(stage, inside, world, for_data, i, state)

        return jax.lax.fori_loop(0, end, one_turn, state)

    arrays = place_arrays(spec.task, mesh)
    lowered = jax.jit(for_each_seed(one_seed, mesh, lanes)).lower(each, jnp.zeros((), int), arrays)
    compiled = lowered.compile(compiler_options(mesh))
    return lambda each, end: compiled(each, end, arrays)


def _seconds_a_turn(loop: Callable[[Array], State], repeats: int) -> list[float]:
    """How long a turn of the loop takes, measured so many times, each about `TARGET` long."""

    def timed(turns: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(loop(jnp.array(turns)))
        return time.perf_counter() - began

    turns = 8
    took = timed(turns)
    while took < TARGET / 4:
        turns *= 2
        took = timed(turns)
    turns = max(1, round(turns * TARGET / took))
    return [timed(turns) / turns for _ in range(repeats)]


def write_trace(spec: Spec, n_seeds: int, folder: Path, steps: int = 20) -> None:
    """A trace of some steps of the training that `fit` runs, by the profiler of JAX.

    Args:
        spec: the training.
        n_seeds: how many seeds are trained together.
        folder: where the trace is written.
        steps: how many steps it shows, after as many that are not in it.
    """
    program = programs(spec, n_seeds)
    ids = shard(device_mesh(n_seeds), np.arange(n_seeds))
    numbers = shard(device_mesh(n_seeds), numbers_by_seed([spec] * n_seeds))
    states = program.start(ids)
    begin = jnp.array(steps)
    end = jnp.array(2 * steps)
    arrays = place_arrays(spec.task, device_mesh(n_seeds))
    states = program.advance((ids, states, numbers), jnp.array(0), begin, arrays)
    states = jax.block_until_ready(states)
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(program.advance((ids, states, numbers), begin, end, arrays))
