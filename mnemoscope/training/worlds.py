"""What a seed stands for: its three random keys, the world drawn from it, and that world's hash.

A seed's key is split into world, weights and data. A world is drawn again whenever it is needed
and never stored; its hash is stored, so that a world drawn later is known to be the same.
"""

import hashlib
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Int, Key, UInt
from mnemoscope.core.fingerprint import list_replaced
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.tasks import Task, World
from mnemoscope.tasks.base import Arrays

WORLDS_AT_ONCE = 256  # the worlds of permutations of 9 symbols have three megabytes each


def seed_keys(seed: int | Int[Array, ""]) -> Key[Array, "3"]:
    """The three keys of a seed: world, weights, data."""
    return jax.random.split(jax.random.key(seed), 3)


def draw_worlds(task: Task, seeds: Int[Array, "seed"]) -> World:
    """Each seed's world, with a leading seed axis."""
    # a task without a world of its own needs no arrays for it, which may be gone by now
    arrays = () if type(task).world is Task.world else task.load_arrays()
    # what was put in the place of our functions, or of a task's helpers, is part of the key under
    # which jit keeps a program
    return _draw_worlds(task, seeds, (task.code(), list_replaced()), arrays)


@partial(jax.jit, static_argnames=("task", "code"))
def _draw_worlds(
    task: Task,
    seeds: Int[Array, "seed"],
    code: tuple[str, tuple[tuple[str, str], ...]],
    arrays: Arrays,
) -> World:
    inside = task.with_arrays(arrays)
    return jax.vmap(lambda seed: inside.world(key=seed_keys(seed)[0]))(seeds)


def hash_worlds(worlds: World, n_seeds: int) -> UInt[np.ndarray, "seed 32"]:
    """The SHA-256 of each seed's world.

    Whole numbers count exactly, floats by their shape: their last bits differ between CPUs.
    """
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(worlds)]
    hashes = np.zeros((n_seeds, 32), np.uint8)
    for row in range(n_seeds):
        digest = hashlib.sha256()
        for leaf in leaves:
            digest.update(f"{leaf.dtype.kind}{leaf.shape[1:]}".encode())
            if leaf.dtype.kind in "biu":
                digest.update(leaf[row].astype("<i8").tobytes())
        hashes[row] = np.frombuffer(digest.digest(), np.uint8)
    return hashes


@fixed_numerics()
def world_hashes(task: Task, seeds: Sequence[int]) -> UInt[np.ndarray, "seed 32"]:
    """The hash of each seed's world."""
    parts = [seeds[i : i + WORLDS_AT_ONCE] for i in range(0, len(seeds), WORLDS_AT_ONCE)]
    hashes = []
    for part in parts:
        worlds = draw_worlds(task, jnp.array(part))
        hashes.append(hash_worlds(worlds, len(part)))
    return np.concatenate(hashes)
