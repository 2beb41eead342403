"""Seeds along a leading axis, shared out over the devices: how anything runs for many seeds.

Each device takes an equal share of the seeds. Inside a device, `lanes` seeds advance together (an
accelerator has thousands of lanes); None takes them one after another, which is what a CPU core
wants: its cache holds one seed.
"""

import warnings
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from operator import index
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mnemoscope.core.errors import Notice, UserError, short
from mnemoscope.core.limits import MAX_SEEDS

BY_SEED = PartitionSpec("seed")
SAME = PartitionSpec()
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"  # what a device says of which too much was asked


def different_seeds(seeds: Any) -> tuple[int, ...]:
    """The seeds that a caller asks for: 16 means 0 to 15. Anything else is refused, not rounded."""
    numbers = seeds
    if not isinstance(seeds, bool):
        with suppress(TypeError):  # no number, so the seeds themselves
            numbers = range(index(seeds))
    try:
        # one more than there may be, of as many as there are
        wanted = tuple(index(seed) for seed in islice(numbers, MAX_SEEDS + 1))
    except TypeError:
        wanted = ()
    fit = wanted and min(wanted) >= 0 and max(wanted) < 2**31 and len(wanted) <= MAX_SEEDS
    if not fit or len(set(wanted)) != len(wanted):
        raise UserError(
            "seeds must be a number of seeds or different whole numbers from 0 up, at least one, "
            f"for example 8 or range(8) (no more than {MAX_SEEDS:,}, each below 2^31), "
            f"got {short(seeds)}"
        )
    return wanted


def device_mesh(n_seeds: int) -> Mesh:
    """This machine's devices in a row, no more of them than there are seeds."""
    return Mesh(np.array(jax.devices()[:n_seeds]), ("seed",))


def seeds_per_device(mesh: Mesh, n_seeds: int, at_most: int | None = None) -> int | None:
    """How many seeds advance together on each device of a mesh; None: one after another.

    Args:
        mesh: The devices.
        n_seeds: Seeds in all.
        at_most: The most that may advance together; None: as many as there are.
    """
    if mesh.devices.flat[0].platform == "cpu":
        return None
    share = -(-n_seeds // mesh.size)
    return share if at_most is None else min(share, at_most)


def shard(mesh: Mesh, tree: Any) -> Any:
    """Put a seed axis on the devices; the last seed stands in where there are too few."""

    def place(x: Any) -> Any:
        # on the host: an eager JAX operation would be compiled for every new shape
        x = np.asarray(x)
        n_missing = -len(x) % mesh.size
        x = np.concatenate([x, np.repeat(x[-1:], n_missing, axis=0)])
        return jax.device_put(x, NamedSharding(mesh, BY_SEED))

    return jax.tree.map(place, tree)


def for_each_seed(f: Callable[..., Any], mesh: Mesh, lanes: int | None) -> Callable[..., Any]:
    """g(each, *same) = f(one seed's part of each, *same) for every seed.

    Args:
        f: What is computed for one seed; whatever else it takes is the same for all of them.
        mesh: The devices.
        lanes: How many seeds advance together on each; None: one after another.
    """

    def one_device(each: Any, *same: Any) -> Any:
        return jax.lax.map(lambda one: f(one, *same), each, batch_size=lanes)

    def run(each: Any, *same: Any) -> Any:
        specs = (BY_SEED, *(SAME for _ in same))
        on_mesh = jax.shard_map(
            one_device, mesh=mesh, in_specs=specs, out_specs=BY_SEED, check_vma=False
        )
        return on_mesh(each, *same)

    return run


def map_over_seeds(f: Callable[..., Any], n: int, at_most: int | None = None) -> Callable[..., Any]:
    """g(each, *same) = f(one part of each, *same) for every part, compiled once, on all devices.

    NumPy arrays come back.

    Args:
        f: What is computed for one part; whatever else it takes is the same for all of them.
        n: How many parts there are.
        at_most: The most that advance together on an accelerator; half as many, with a warning,
            where these do not fit its memory.
    """
    mesh = device_mesh(n)
    lanes = seeds_per_device(mesh, n, at_most)
    run = jax.jit(for_each_seed(f, mesh, lanes))

    def over_all(each: Any, *same: Any) -> Any:
        nonlocal lanes, run
        while True:
            try:
                return jax.tree.map(lambda x: np.asarray(x)[:n], run(shard(mesh, each), *same))
            except jax.errors.JaxRuntimeError as error:
                if OUT_OF_MEMORY not in str(error):
                    raise
                if lanes is None or lanes == 1:
                    raise UserError(
                        "what is measured on one seed does not fit the device's memory"
                    ) from error
                too_many = lanes
                lanes = lanes // 2
                message = (
                    f"{too_many} seeds at once do not fit the device's memory; "
                    f"measuring {lanes} at once"
                )
                warnings.warn(message, Notice, stacklevel=2)
                run = jax.jit(for_each_seed(f, mesh, lanes))

    return over_all
