"""Where it runs: this machine's devices, and the rule that finished work is never run twice."""

import os
import platform
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

from mnemoscope import __version__
from mnemoscope.config import UserError
from mnemoscope.probes.watch import watch_of
from mnemoscope.spec import Spec
from mnemoscope.store import Store
from mnemoscope.train import Run, fit, programs

# Seeds trained and stored together; what is cut off by Ctrl-C is at most one block. An accelerator needs about a
# thousand to be busy (BENCHMARKS.md), a CPU core one.
BLOCK, ACCELERATOR_BLOCK = 256, 1024


def compiled() -> Path:
    """Where compiled programs are kept: among the user's own caches. In a store, one handed over could bring machine code along."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "mnemoscope" / "compiled"


def use_all_devices(cache: Path | None = None) -> None:
    """Show each CPU core to JAX as a device of its own, and keep compiled programs in `cache`.

    Has an effect only before the first computation; seeds are then sharded over the cores as over accelerators.
    """
    # two cores working on one small product wait for each other longer than they work
    flags = os.environ.get("XLA_FLAGS", "")
    if "multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", cores)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def hardware() -> str:
    """The machine in words: devices, and the processor they sit beside."""
    devices = jax.devices()
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = os.cpu_count() or 1
    if devices[0].platform == "cpu":
        return f"{cores} cores of {cpu}"
    return f"{len(devices)} x {devices[0].device_kind}, {cores} cores of {cpu}"


def versions() -> dict[str, str]:
    """The versions that a number may depend on."""
    ours = {"mnemoscope": __version__, "python": platform.python_version()}
    return ours | {package: version(package) for package in ("jax", "jaxlib", "optax", "numpy", "scipy")}


def _missing_blocks(store: Store, spec: Spec, seeds: Sequence[int]) -> list[list[int]]:
    """The seeds that no stored block holds, as runs of consecutive ones, none longer than a block."""
    most = BLOCK if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK
    missing = np.array(store.blocks(spec, seeds)[1], int)
    groups = np.split(missing, np.flatnonzero(np.diff(missing) != 1) + 1)
    return [group[i : i + most].tolist() for group in groups for i in range(0, len(group), most)]


def prepare(store: Store, spec: Spec, seeds: Sequence[int]) -> None:
    """Compile what `obtain` will need in the background, while something else trains."""
    for block in _missing_blocks(store, spec, seeds)[:1]:
        # not a daemon: a compilation cut off by the end of the process takes the process down with it
        threading.Thread(target=programs, args=(spec, len(block))).start()


def obtain(
    store: Store,
    spec: Spec,
    seeds: Sequence[int],
    progress: Callable[[int, int], None] | None = None,
) -> Run:
    """The run of these seeds: what the store holds is read, what is missing is trained and stored block by block.

    `progress(done, total)` counts optimiser steps of all seeds that had to be trained. A block that does not fit the
    device's memory is cut in two, and a warning says so: a seed trains the same in any block.
    """
    blocks = _missing_blocks(store, spec, seeds)
    total = sum(map(len, blocks)) * spec.steps
    behind = 0  # steps of the blocks that are finished

    def tell(steps: int, _: int) -> None:
        if progress:
            progress(behind + steps * len(block), total)

    while blocks:
        block, began = blocks.pop(0), time.monotonic()
        try:
            run = fit(spec, block, observe=watch_of(spec), progress=tell)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            if len(block) == 1:
                raise UserError(f"one seed of this Spec does not fit the memory of {hardware()}") from error
            half = len(block) // 2
            message = f"{len(block)} seeds at once do not fit the device's memory; going on with {half}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            blocks[:0] = [block[:half], block[half:]]
            continue
        store.save(run, time.monotonic() - began, hardware())
        behind += len(block) * spec.steps
    return select([store.load(row) for row in store.blocks(spec, seeds)[0]], tuple(seeds))


def select(runs: Sequence[Run], seeds: tuple[int, ...]) -> Run:
    """Chosen seeds out of several runs of one Spec, in the order asked for."""
    where = {seed: (run, row) for run in reversed(runs) for row, seed in enumerate(run.seeds)}

    def rows(read: Callable[[Run], np.ndarray]) -> np.ndarray:
        return np.stack([read(where[seed][0])[where[seed][1]] for seed in seeds])

    one = runs[0]
    return Run(
        one.spec, seeds,
        {k: rows(lambda run, k=k: run.snapshots[k]) for k in one.snapshots},
        one.loss_steps, rows(lambda run: run.losses), rows(lambda run: run.good_steps),
        {k: rows(lambda run, k=k: run.observed[k]) for k in one.observed},
    )  # fmt: skip
