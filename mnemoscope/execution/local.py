"""Where it runs: on this machine, by the rule that finished work is never run twice."""

import json
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import jax
import numpy as np

from mnemoscope.core.errors import Notice, UserError, counted
from mnemoscope.core.fingerprint import describe_origins, trained_by
from mnemoscope.core.seeds import OUT_OF_MEMORY, different_seeds
from mnemoscope.core.working import show_progress
from mnemoscope.execution.machine import hardware, versions
from mnemoscope.store import RunRow, Store, block_id, open_store
from mnemoscope.store.checkpoints import StoreCheckpointer
from mnemoscope.training.compilation import programs
from mnemoscope.training.loop import PartialProgress, Progress, fit
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec

# Seeds trained and stored together; what is cut off goes on from where it was kept last. An
# accelerator needs about a thousand to be busy (BENCHMARKS.md), a CPU core one.
BLOCK = 256
ACCELERATOR_BLOCK = 1024


def _checkpointer(store: Store, spec: Spec, block: Sequence[int]) -> StoreCheckpointer:
    """What saves a block under way."""
    name = block_id(spec.digest(), block[0], block[-1], trained_by().program())
    return make_checkpointer(store, name)


def make_checkpointer(store: Store, name: str, what: str = "") -> StoreCheckpointer:
    """What saves a training under way: only this program on this machine goes on from there.

    Args:
        store: where it is saved.
        name: under which name.
        what: is trained, in words, where the name does not say it all.
    """
    by = json.dumps([hardware(), versions(), trained_by().canonical_json(), what])
    return StoreCheckpointer(store, name, by)


def contiguous_blocks(seeds: Sequence[int], most: int) -> list[list[int]]:
    """Seeds as runs of consecutive ones, none longer than `most`."""
    numbers = np.array(seeds, int)
    gaps = np.flatnonzero(np.diff(numbers) != 1) + 1
    found = []
    for group in np.split(numbers, gaps):
        for start in range(0, len(group), most):
            found.append(group[start : start + most].tolist())
    return found


def _missing_blocks(store: Store, spec: Spec, seeds: int | Sequence[int]) -> list[list[int]]:
    """The seeds that no stored block holds, cut into blocks."""
    _, missing = store.blocks(spec, seeds, trained_by().program())
    return contiguous_blocks(
        missing, BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK
    )


def precompile(store: Store, spec: Spec, seeds: int | Sequence[int]) -> None:
    """Compile what `load_or_train` will need in the background, while something else trains.

    Args:
        store: where finished seeds are.
        spec: what will be trained.
        seeds: those that will be wanted; 16 means 0 to 15.
    """
    for block in _missing_blocks(store, spec, seeds)[:1]:
        # not a daemon: a compilation cut off by the end of the process takes the process down too
        threading.Thread(target=_try_to_compile, args=(spec, len(block))).start()


def _try_to_compile(spec: Spec, n_seeds: int) -> None:
    # whoever needs the program compiles it again and says what is wrong
    with suppress(Exception):
        programs(spec, n_seeds)


def load_or_train(
    store: Store | str | os.PathLike[str],
    spec: Spec,
    seeds: int | Sequence[int],
    progress: Progress | bool | None = None,
    sink: Sink | None = None,
    name: str = "",
) -> Run:
    """The run of these seeds: what the store holds is read, what is missing is trained and stored.

    That goes block by block. A block that does not fit the device's memory is cut in two, and a
    warning says so: a seed trains the same in any block. All seeds come from one program: this one,
    unless another has them all already, which a warning says.

    Args:
        store: where finished seeds are, and where new ones go: a store, or its folder.
        spec: what to train.
        seeds: those that are wanted; 16 means 0 to 15.
        progress: called with optimizer steps done and in total, of all seeds that are trained here;
            True and False show a bar, or none; None shows one in a terminal and in a notebook.
        sink: follows each block, under the name and its seeds.
        name: of the condition, for people; the digest of the Spec, unless told otherwise.
    """
    store = open_store(store)
    wanted = different_seeds(seeds)
    name = name or spec.digest()

    def waiting() -> None:
        warnings.warn(
            "another process is training this already; waiting for it", Notice, stacklevel=2
        )

    with store.lock(spec.digest(), waiting):
        missing = _missing_blocks(store, spec, wanted)
        with show_progress(describe_training(spec, sum(map(len, missing))), progress) as tell:
            _train(store, spec, missing, tell, sink, name)
        program = trained_by().program()
        rows, _ = store.blocks(spec, wanted, program)
        # read before anybody else may delete it
        found = select([store.load(row) for row in rows], wanted)
    if rows[0].program != program:
        by = ", ".join(describe_origins(row.origin for row in rows))
        message = f"{name} was trained by {by}, not by this program; it is used as that"
        warnings.warn(message, Notice, stacklevel=2)
    return found


def describe_training(spec: Spec, n_seeds: int) -> str:
    """What is being trained, in words."""
    return f"training {counted(n_seeds, 'seed')} of {spec.task.kind_name()}"


def train_again(store: Store, row: RunRow, progress: Progress | None = None) -> None:
    """Train a stored block again and put it in the place of what is stored, which stays until then.

    Args:
        store: where the block is.
        row: the block.
        progress: called with optimizer steps done and in total, of all its seeds.
    """
    spec = Spec.model_validate_json(row.spec_json)
    block = list(range(row.first, row.last + 1))
    with store.lock(spec.digest()):
        _train(store, spec, [block], progress, None, row.id)
        # another program's, or now in smaller blocks: the new ones stand beside it
        if row in store.rows(row.spec):
            store.delete(row)


def _train(
    store: Store,
    spec: Spec,
    blocks: list[list[int]],
    progress: Progress | None,
    sink: Sink | None,
    name: str,
) -> None:
    """Train and store block after block."""
    total = sum(map(len, blocks)) * spec.steps
    behind = 0  # steps of the blocks that are finished
    while blocks:
        block = blocks.pop(0)
        fitting = seeds_that_fit(spec, len(block))
        if fitting < len(block):
            _tell_of_cut(len(block), fitting)
            blocks[:0] = contiguous_blocks(block, fitting)
            continue
        began = time.monotonic()
        saving = _checkpointer(store, spec, block)
        if sink:
            sink.init(f"{name}/{block[0]}-{block[-1]}", spec.model_dump(mode="json"))
        try:
            run = fit(
                spec,
                block,
                progress=progress and PartialProgress(progress, behind, len(block), total),
                checkpointer=saving,
                sink=sink,
            )
        except jax.errors.JaxRuntimeError as error:
            if OUT_OF_MEMORY not in str(error):
                raise
            blocks[:0] = _halve_block(block, error)
            continue
        finally:
            if sink:
                sink.finish()
        store.save(run, time.monotonic() - began, hardware())
        saving.drop()
        if lost := run.diverged():
            message = f"{name}: diverged and left out of what is judged: {lost}"
            warnings.warn(message, Notice, stacklevel=3)
        behind += len(block) * spec.steps


def _halve_block(block: list[int], error: Exception) -> list[list[int]]:
    """Two blocks in place of one that does not fit the memory, as `error` said; with a warning."""
    if len(block) == 1:
        raise UserError(f"one seed of this Spec does not fit the memory of {hardware()}") from error
    half = len(block) // 2
    _tell_of_cut(len(block), half)
    return [block[:half], block[half:]]


def _tell_of_cut(n_seeds: int, fewer: int) -> None:
    message = f"{n_seeds} seeds at once do not fit the device's memory; going on with {fewer}"
    warnings.warn(message, Notice, stacklevel=5)


def seeds_that_fit(spec: Spec, n_seeds: int) -> int:
    """How many of so many seeds fit the device's memory at once, before any of it is tried.

    What a training holds is the compiler's own count; of a training that is too large, it is taken
    to be proportional to the seeds. All of them, where a device does not say how much it has.

    Args:
        spec: what is trained.
        n_seeds: how many seeds are wanted at once.
    """
    free = free_memory()
    if free is None:
        return n_seeds
    try:
        needed = programs(spec, n_seeds).bytes_on_device
    except jax.errors.JaxRuntimeError as error:
        if OUT_OF_MEMORY not in str(error):
            raise
        return max(1, n_seeds // 2)  # too large even to compile
    if needed is None or needed <= free:
        return n_seeds
    pieces = -(-needed // free)  # rounded up
    return max(1, n_seeds // pieces)


def free_memory() -> int | None:
    """Bytes that every device has left for a training; None where one does not say.

    A hundredth is left alone: an allocator cannot use every gap.
    """
    free: list[int] = []
    for device in jax.local_devices():
        stats = device.memory_stats()
        if not stats or "bytes_limit" not in stats:
            return None
        free.append(stats["bytes_limit"] * 99 // 100 - stats.get("bytes_in_use", 0))
    return max(1, min(free))


def select(runs: Sequence[Run], seeds: tuple[int, ...]) -> Run:
    """Chosen seeds out of several runs of one Spec, in the order asked for."""
    where = {}
    for run in reversed(runs):  # a seed that several runs hold is taken from the first of them
        for row, seed in enumerate(run.seeds):
            where[seed] = (run, row)
    chosen = [where[seed] for seed in seeds]
    used = list({id(run): run for run, _ in chosen}.values())

    def gather(read: Callable[[Run], np.ndarray]) -> np.ndarray:
        return np.stack([read(run)[row] for run, row in chosen])

    hashes = None
    if all(run.world_hashes is not None for run in used):
        hashes = gather(lambda run: cast(np.ndarray, run.world_hashes))
    one = runs[0]
    return Run(
        spec=one.spec,
        seeds=seeds,
        snapshots={
            name: gather(lambda run, name=name: run.snapshots[name]) for name in one.snapshots
        },
        loss_steps=one.loss_steps,
        losses=gather(lambda run: run.losses),
        finite_steps=gather(lambda run: run.finite_steps),
        metrics={name: gather(lambda run, name=name: run.metrics[name]) for name in one.metrics},
        world_hashes=hashes,
        origins=tuple(dict.fromkeys(origin for run in used for origin in run.origins)),
    )
