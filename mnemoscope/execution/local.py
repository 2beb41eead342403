"""Where it runs: this machine's devices, and the rule that finished work is never run twice."""

import json
import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import cast

import jax
import numpy as np

from mnemoscope import __version__
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.fingerprint import cpu_model, described, trained_by
from mnemoscope.core.seeds import OUT_OF_MEMORY
from mnemoscope.store import RunRow, Store, block_id
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import watch_of
from mnemoscope.training.programs import programs
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec

# Seeds trained and stored together; what is cut off goes on from where it was kept last. An accelerator needs about a
# thousand to be busy (BENCHMARKS.md), a CPU core one.
BLOCK, ACCELERATOR_BLOCK = 256, 1024
KEEP_SECONDS = 30  # between two times that a block under way is kept, or 20 times as long as that takes


def compiled() -> Path:
    """Where compiled programs are kept: among the user's own caches. In a store, one handed over could bring machine code along."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "mnemoscope" / "compiled"


class _Keeper:
    """Keeps a block under way in the store. Only the same program on the same machine goes on to the same bits."""

    def __init__(self, store: Store, spec: Spec, block: Sequence[int]):
        origin = trained_by()
        self.store = store
        self.name = f"runs/{block_id(spec.digest(), block[0], block[-1], origin.program())}.part"
        self.by = json.dumps([hardware(), versions(), origin.canonical_json()])
        self.next = time.monotonic() + KEEP_SECONDS

    def found(self) -> dict[str, np.ndarray] | None:
        held = self.store.part(self.name)
        return held[0] if held and held[1] == self.by else None

    def due(self) -> bool:
        return time.monotonic() >= self.next

    def keep(self, arrays: dict[str, np.ndarray]) -> None:
        began = time.monotonic()
        self.store.keep_part(self.name, arrays, self.by)
        self.next = time.monotonic() + max(KEEP_SECONDS, 20 * (time.monotonic() - began))

    def drop(self) -> None:
        self.store.drop_part(self.name)


def use_all_devices(cache: Path | None = None, at_most: int | None = None) -> None:
    """Show each CPU core, or `at_most` so many, to JAX as a device of its own, and keep compiled programs in `cache`.

    Has an effect only before the first computation; seeds are then sharded over the cores as over accelerators.
    """
    # two cores working on one small product wait for each other longer than they work
    flags = os.environ.get("XLA_FLAGS", "")
    if "multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", min(cores, at_most or cores))
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def hardware() -> str:
    """The machine in words: devices, and the processor they sit beside."""
    devices = jax.devices()
    cpu = cpu_model()
    cores = os.cpu_count() or 1
    if devices[0].platform == "cpu":
        return f"{cores} cores of {cpu}"
    return f"{len(devices)} x {devices[0].device_kind}, {cores} cores of {cpu}"


def versions() -> dict[str, str]:
    """The versions that a number may depend on."""
    ours = {"mnemoscope": __version__, "python": platform.python_version()}
    return ours | {package: version(package) for package in ("jax", "jaxlib", "optax", "numpy", "scipy")}


def pieces(seeds: Sequence[int], most: int) -> list[list[int]]:
    """Seeds as runs of consecutive ones, none longer than `most`."""
    numbers = np.array(seeds, int)
    groups = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return [group[i : i + most].tolist() for group in groups for i in range(0, len(group), most)]


def _missing_blocks(store: Store, spec: Spec, seeds: Sequence[int]) -> list[list[int]]:
    """The seeds that no stored block holds, cut into blocks."""
    missing = store.blocks(spec, seeds, trained_by().program())[1]
    return pieces(missing, BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK)


def prepare(store: Store, spec: Spec, seeds: Sequence[int]) -> None:
    """Compile what `obtain` will need in the background, while something else trains."""
    for block in _missing_blocks(store, spec, seeds)[:1]:
        # not a daemon: a compilation cut off by the end of the process takes the process down with it
        threading.Thread(target=_try_to_compile, args=(spec, len(block))).start()


def _try_to_compile(spec: Spec, n_seeds: int) -> None:
    with suppress(Exception):  # whoever needs the program compiles it again and says what is wrong
        programs(spec, n_seeds)


def obtain(
    store: Store,
    spec: Spec,
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
    sink: Sink | None = None,
    name: str = "",
) -> Run:
    """The run of these seeds: what the store holds is read, what is missing is trained and stored block by block.

    `progress(done, total)` counts optimiser steps of all seeds that had to be trained. A block that does not fit the
    device's memory is cut in two, and a warning says so: a seed trains the same in any block. A `sink` follows
    each block, under the name and its seeds. All seeds come from one program: this one, unless another has them all already,
    which a warning says.
    """

    def waiting() -> None:
        warnings.warn("another process is training this already; waiting for it", Notice, stacklevel=2)

    with store.alone(spec.digest(), waiting):
        _train(store, spec, _missing_blocks(store, spec, seeds), progress, sink, name or spec.digest())
    program = trained_by().program()
    rows = store.blocks(spec, seeds, program)[0]
    if rows[0].program != program:
        by = ", ".join(described(row.origin for row in rows))
        message = f"{name or spec.digest()} was trained by {by}, not by this program; it is used as that"
        warnings.warn(message, Notice, stacklevel=2)
    return select([store.load(row) for row in rows], tuple(seeds))


def train_again(store: Store, row: RunRow, progress: Callable[[int, int], None] | None = None) -> None:
    """Train a stored block again and put it in the place of what is stored, which stays until then."""
    spec = Spec.model_validate_json(row.spec_json)
    with store.alone(spec.digest()):
        _train(store, spec, [list(range(row.first, row.last + 1))], progress, None, row.id)
        if row in store.rows(row.spec):  # another program's, or now in smaller blocks: the new ones stand beside it
            store.delete(row)


def _train(
    store: Store, spec: Spec, blocks: list[list[int]], progress: Callable[[int, int], None] | None, sink: Sink | None, name: str
) -> None:  # fmt: skip
    """Train and store block after block."""
    total = sum(map(len, blocks)) * spec.steps
    behind = 0  # steps of the blocks that are finished

    def tell(steps: int, _: int) -> None:
        if progress:
            progress(behind + steps * len(block), total)

    while blocks:
        block, began = blocks.pop(0), time.monotonic()
        keeper = _Keeper(store, spec, block)
        if sink:
            sink.init(f"{name}/{block[0]}-{block[-1]}", spec.model_dump(mode="json"))
        try:
            run = fit(spec, block, observe=watch_of(spec), progress=tell, keeper=keeper, sink=sink)
        except jax.errors.JaxRuntimeError as error:
            if OUT_OF_MEMORY not in str(error):
                raise
            if len(block) == 1:
                raise UserError(f"one seed of this Spec does not fit the memory of {hardware()}") from error
            half = len(block) // 2
            message = f"{len(block)} seeds at once do not fit the device's memory; going on with {half}"
            warnings.warn(message, Notice, stacklevel=3)
            blocks[:0] = [block[:half], block[half:]]
            continue
        finally:
            if sink:
                sink.finish()
        store.save(run, time.monotonic() - began, hardware())
        keeper.drop()
        if lost := run.diverged():
            warnings.warn(f"{name}: diverged and left out of what is judged: {lost}", Notice, stacklevel=3)
        behind += len(block) * spec.steps


def select(runs: Sequence[Run], seeds: tuple[int, ...]) -> Run:
    """Chosen seeds out of several runs of one Spec, in the order asked for."""
    where = {seed: (run, row) for run in reversed(runs) for row, seed in enumerate(run.seeds)}

    def rows(read: Callable[[Run], np.ndarray]) -> np.ndarray:
        return np.stack([read(where[seed][0])[where[seed][1]] for seed in seeds])

    one = runs[0]
    used = {id(where[seed][0]): where[seed][0] for seed in seeds}.values()
    hashes = None
    if all(run.world_hashes is not None for run in used):
        hashes = rows(lambda run: cast(np.ndarray, run.world_hashes))
    return Run(
        one.spec, seeds,
        {k: rows(lambda run, k=k: run.snapshots[k]) for k in one.snapshots},
        one.loss_steps, rows(lambda run: run.losses), rows(lambda run: run.good_steps),
        {k: rows(lambda run, k=k: run.observed[k]) for k in one.observed},
        hashes,
        tuple(dict.fromkeys(origin for run in used for origin in run.origins)),
    )  # fmt: skip
