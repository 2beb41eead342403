"""How long a sweep takes and how much disk it needs, said before it begins.

Disk is counted from the shapes of what is kept. Time is measured: the cheapest and the dearest
program are compiled and run for a few steps, and what lies between is taken to lie on a line,

    seconds of a step = a + b x (batch x relative cost of the model)

so it is as good as that line. What was compiled for it is kept; the other compilations are counted
one after another, though they go on while others train.
"""

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, shard
from mnemoscope.sweeps.event import shapes_read
from mnemoscope.sweeps.planned import Chunk
from mnemoscope.training.compilation import metrics_program, numbers_by_seed, programs
from mnemoscope.training.loop import side_by_side_key, stop_steps
from mnemoscope.training.shared_arrays import place_arrays
from mnemoscope.training.spec import Spec

LONG_ENOUGH = 0.2  # seconds that a timed stretch lasts, at least
TOO_LONG = 2.0  # seconds after which it is not repeated with more steps
FEWEST = 16  # steps of a stretch
NAME_BYTES = 100  # about what a file says of an array besides its numbers
ROW_BYTES = 900  # about what the index says of a block, besides its Spec


class Timing(NamedTuple):
    """How fast a program is, all its rows together."""

    compile: float
    """Seconds until it can begin."""
    step: float
    """Seconds of a step."""
    read: float
    """Seconds of an evaluation."""


class Estimate(NamedTuple):
    """What is left to do for a sweep."""

    programs: int
    """How many are needed."""
    seconds: float
    """How long that takes."""
    timed: int
    """On how many programs that rests."""


@fixed_numerics()
def time_program(spec: Spec, n_rows: int) -> Timing:
    """How fast a program is here and now; what it compiles is kept for the training.

    Args:
        spec: any of those that it trains.
        n_rows: how many seeds it trains together.
    """
    began = time.perf_counter()
    program = programs(spec, n_rows)
    read = metrics_program(spec, n_rows)
    compiling = time.perf_counter() - began
    mesh = device_mesh(n_rows)
    ids = shard(mesh, np.arange(n_rows, dtype=np.int32))
    numbers = shard(mesh, numbers_by_seed([spec] * n_rows))
    arrays = place_arrays(spec.task, mesh)
    states = jax.block_until_ready(program.start(ids))

    def train(steps: int) -> float:
        began = time.perf_counter()
        each = (ids, states, numbers)
        jax.block_until_ready(program.advance(each, jnp.array(0), jnp.array(steps), arrays))
        return time.perf_counter() - began

    steps = 1
    took = train(steps)
    # the first few steps cost more than the others; of slow ones there need not be many
    while (took < LONG_ENOUGH or steps < FEWEST) and took < TOO_LONG and steps < spec.steps:
        steps *= 2
        took = train(steps)
    reading = 0.0
    if read is not None:
        began = time.perf_counter()
        jax.block_until_ready(read(ids, states.trained, states.frozen, arrays))
        reading = time.perf_counter() - began
    return Timing(compiling, took / steps, reading)


def estimate(
    chunks: Iterable[Chunk], tell: Callable[[int, int], None] | None = None
) -> Estimate | None:
    """How long some chunks take on this machine; None where there are none.

    Args:
        chunks: what is to be trained.
        tell: hears how many programs are timed, and how many will be.
    """
    by_program: dict[object, list[Chunk]] = {}
    for chunk in chunks:
        key = (side_by_side_key(_spec_of(chunk)), chunk.n_rows)
        by_program.setdefault(key, []).append(chunk)
    ordered = sorted(by_program.values(), key=lambda each: _row_cost(each[0]))
    if not ordered:
        return None
    chosen = ordered if len(ordered) <= 2 else [ordered[0], ordered[-1]]
    timings: list[Timing] = []
    for number, each in enumerate(chosen):
        timings.append(time_program(_spec_of(each[0]), each[0].n_rows))
        if tell:
            tell(number + 1, len(chosen))
    # per row: programs may have different numbers of them
    costs = [_row_cost(each[0]) for each in chosen]
    by_row = [
        (timing.step / each[0].n_rows, timing.read / each[0].n_rows)
        for timing, each in zip(timings, chosen, strict=True)
    ]
    compiling = float(np.mean([timing.compile for timing in timings]))
    seconds = compiling * (len(ordered) - len(chosen))
    for each in ordered:
        step, read = (float(np.interp(_row_cost(each[0]), costs, x)) for x in zip(*by_row))  # noqa: B905
        for chunk in each:
            spec = _spec_of(chunk)
            n_evals = len(spec.eval_steps()) if spec.metrics is not None else 0
            seconds += chunk.n_rows * (step * spec.steps + read * n_evals)
    return Estimate(programs=len(ordered), seconds=seconds, timed=len(chosen))


def _spec_of(chunk: Chunk) -> Spec:
    return chunk.pieces[0].cell.spec


def _row_cost(chunk: Chunk) -> float:
    """About how long a step of one seed takes, in no unit."""
    spec = _spec_of(chunk)
    return float(spec.batch * spec.model.relative_cost)


def stored_bytes(spec: Spec, n_seeds: int) -> int:
    """About how many bytes a stored block has, its row in the index included.

    Args:
        spec: what is trained.
        n_seeds: how many seeds the block has.
    """
    task = spec.task
    shapes = spec.model.parameter_shapes(task.d_vocab, task.n_ctx, task.d_vocab_out)
    n_weights = sum(int(np.prod(shape)) for shape in shapes.values())
    stops = stop_steps(spec, with_metrics=spec.metrics is not None)
    read = shapes_read(spec)
    n_read = sum(int(np.prod(shape)) for shape in read.values())
    hash_and_finite_steps = 36
    of_seed = 4 * (n_weights * len(stops.snapshots) + len(stops.stops) + n_read * len(stops.evals))
    about = NAME_BYTES * (len(shapes) + len(read) + 4) + 8 * len(stops.stops)
    written_out = 2 * len(spec.canonical_json())  # in the file's head, and in the index
    return n_seeds * (of_seed + hash_and_finite_steps) + about + written_out + ROW_BYTES
