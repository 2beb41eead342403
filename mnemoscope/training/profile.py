"""Where the time of a training step goes: four compiled loops, each with one stage more than the last.

    draw the batch  <  + loss  <  + gradient  <  + optimiser = the step that `fit` takes

A stage's time is the difference between two loops, so the stages add up to the step. What a stage computes is the
training's own code; each loop hands its result on to the next turn, so that no compiler can leave work out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, for_each_seed, lanes_for, spread
from mnemoscope.core.xla import compiler_options
from mnemoscope.training.loop import (
    State,
    all_params,
    draw,
    joined,
    parted,
    programs,
    release_steps,
    seed_keys,
    start,
    train_step,
)
from mnemoscope.training.loss import batch_loss, loss_and_gradient
from mnemoscope.training.spec import Spec

STAGES: tuple[str, ...] = ("draw the batch", "loss", "gradient", "optimiser")
TARGET = 0.5  # seconds that one measurement should last


@dataclass(frozen=True)
class Profile:
    """Seconds by stage for one step of all seeds, and the rate they add up to."""

    spec: Spec
    seeds: int
    seconds: dict[str, float]  # median over repeats, by stage
    spread: dict[str, float]  # largest less smallest, of the loop that ends with the stage
    compile_seconds: dict[str, float]

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
    if stage == "optimiser":
        return train_step(spec, world, key, step, state, release_steps(spec))
    batch = draw(spec, world, key, step)
    if stage == "draw the batch":
        return state._replace(good_steps=state.good_steps + batch.tokens.sum() + batch.targets.sum())
    if stage == "loss":
        value = batch_loss(spec.model, all_params(spec, state.trained, state.frozen), batch, spec.task.read_positions)
        # zero times a number that may be NaN is not known to be zero: the parameters wait for the loss
        return state._replace(trained=state.trained + 0.0 * value)
    gradient = loss_and_gradient(spec.task, spec.model, parted(spec, state.trained), state.frozen, batch)[1]
    return state._replace(trained=state.trained + 0.0 * joined(spec, gradient))


@fixed_numerics()
def profile(spec: Spec, n_seeds: int, repeats: int = 5, tell: Callable[[str], None] = lambda _: None) -> Profile:
    """Time every stage for so many seeds on this machine's devices; `tell` hears what is being done."""
    mesh = device_mesh(n_seeds)
    lanes = lanes_for(mesh, n_seeds)
    ids = spread(mesh, np.arange(n_seeds))
    totals: list[float] = []
    apart: dict[str, float] = {}
    compiled: dict[str, float] = {}
    states = jax.jit(for_each_seed(partial(start, spec), mesh, lanes))(ids)

    for stage in STAGES:

        def one_seed(each: tuple[Array, State], end: Array, stage: str = stage) -> State:
            seed, state = each
            for_world, _, for_data = seed_keys(seed)
            world = spec.task.world(key=for_world)
            return jax.lax.fori_loop(0, end, lambda i, s: _turn(stage, spec, world, for_data, i, s), state)

        tell(f"compiling: {stage}")
        began = time.perf_counter()
        lowered = jax.jit(for_each_seed(one_seed, mesh, lanes)).lower((ids, states), jnp.zeros((), int))
        loop = lowered.compile(compiler_options(mesh))
        compiled[stage] = time.perf_counter() - began

        def timed(turns: int, loop: Callable[..., State] = loop) -> float:
            began = time.perf_counter()
            jax.block_until_ready(loop((ids, states), jnp.array(turns)))
            return time.perf_counter() - began

        tell(f"timing: {stage}")
        turns = 8
        while (took := timed(turns)) < TARGET / 4:
            turns *= 2
        turns = max(1, round(turns * TARGET / took))
        found = [timed(turns) / turns for _ in range(repeats)]
        totals.append(float(np.median(found)))
        apart[stage] = max(found) - min(found)
    seconds = dict(zip(STAGES, np.diff([0.0, *totals]).tolist(), strict=True))
    return Profile(spec, n_seeds, seconds, apart, compiled)


def write_trace(spec: Spec, n_seeds: int, folder: Path, steps: int = 20) -> None:
    """A trace of some steps of the training that `fit` runs, by the profiler of JAX."""
    program = programs(spec, n_seeds)
    ids = spread(device_mesh(n_seeds), np.arange(n_seeds))
    states = program.start(ids)
    states = jax.block_until_ready(program.advance((ids, states), jnp.array(0), jnp.array(steps)))
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(program.advance((ids, states), jnp.array(steps), jnp.array(2 * steps)))
