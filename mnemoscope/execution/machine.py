"""This machine: its devices for JAX, its folder of compiled programs, and what it is in words."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

import jax

from mnemoscope import __version__
from mnemoscope.core.devices import use_all_cores
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import cpu_model


def use_all_devices(cache: Path | None = None, at_most: int | None = None) -> None:
    """What a process does that is Mnemoscope's own: every core works, each on its own.

    Each CPU core is a device of its own, no operation is shared between cores, and compiled
    programs are kept. Has an effect only before the first computation.

    Args:
        cache: the folder of compiled programs; without one, what JAX was told before stays.
        at_most: show so many cores, if there are more.
    """
    # two cores working on one small product wait for each other longer than they work
    flags = os.environ.get("XLA_FLAGS", "")
    if "multi_thread_eigen" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_cpu_multi_thread_eigen=false".strip()
    use_all_cores(at_most)
    if cache is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    _require_devices()


def _require_devices() -> None:
    """Raise where JAX finds no device of the platforms that it was told of."""
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:
        asked = os.environ.get("JAX_PLATFORMS", "")
        lines = str(error).splitlines() or ["it does not say why"]
        raise UserError(
            f"JAX finds no device (JAX_PLATFORMS={asked!r}: {lines[0]}); allowed: "
            "JAX_PLATFORMS=cpu, or to leave it unset"
        ) from None


def compile_cache_dir() -> Path:
    """Where compiled programs are kept: among the user's own caches.

    In a store, one handed over could bring machine code along.
    """
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return caches / "mnemoscope" / "compiled"


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
    found = {"mnemoscope": __version__, "python": platform.python_version()}
    for package in ("jax", "jaxlib", "optax", "numpy", "scipy"):
        found[package] = version(package)
    return found
