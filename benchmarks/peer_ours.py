"""Ours, beside its peers: the program that `fit` runs, stretch by stretch."""

import jax
import jax.numpy as jnp
import numpy as np
from peer_cases import Advance

from mnemoscope import Spec
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, shard
from mnemoscope.training.compilation import numbers_by_seed, programs
from mnemoscope.training.shared_arrays import place_arrays


@fixed_numerics()
def prepare(spec: Spec, seeds: int) -> Advance:
    """A training that is ready to go on.

    Args:
        spec: what is trained.
        seeds: how many.
    """
    program = programs(spec, seeds)
    mesh = device_mesh(seeds)
    ids = shard(mesh, np.arange(seeds))
    numbers = shard(mesh, numbers_by_seed([spec] * seeds))
    states = program.start(ids)
    arrays = place_arrays(spec.task, mesh)
    done = 0

    def advance(steps: int) -> float:
        nonlocal states, done
        begin, end = jnp.array(done), jnp.array(done + steps)
        states = program.advance((ids, states, numbers), begin, end, arrays)
        done += steps
        return float(jax.device_get(states.loss_sum)[:seeds].mean()) / steps

    return advance
