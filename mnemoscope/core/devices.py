"""Every CPU core as a device of JAX, so that seeds train side by side on all of them.

JAX takes a processor for one device, unless it is told of more before it first computes. It is told
when `mnemoscope.training` is first imported. Whoever has said how many there should be, to JAX or
in XLA_FLAGS, is left alone. Which devices there are decides no number: a seed trains to the same
bits on any number of cores.
"""

import os
import warnings
from functools import cache

import jax

from mnemoscope.core.errors import Notice
from mnemoscope.core.numerics import read_setting

UNSAID = -1  # JAX's number of CPU devices where nobody has said one
BY_FLAG = "--xla_force_host_platform_device_count"  # another way to say it

_shown = UNSAID  # what we have said last


def available_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def use_all_cores(at_most: int | None = None) -> None:
    """Show each CPU core to JAX as a device of its own.

    Nothing happens where the user has said how many devices there should be, or where JAX has
    computed before.

    Args:
        at_most: Show so many cores, if there are more.
    """
    global _shown
    if _is_said(by_others_than=_shown):
        return
    if at_most is None and _shown != UNSAID:
        return  # said already, perhaps with a number
    cores = available_cores()
    wanted = min(cores, at_most or cores)
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:  # JAX has computed before: its devices are what they are
        return
    _shown = wanted


def _is_said(by_others_than: int = UNSAID) -> bool:
    """Whether the user, or somebody else than us, has said how many CPU devices there should be."""
    by_config = read_setting("num_cpu_devices") not in (UNSAID, by_others_than)
    return by_config or BY_FLAG in os.environ.get("XLA_FLAGS", "")


@cache
def notice_if_one_core_works() -> None:
    """Say, once, that JAX computed before it could be told of the cores, so seeds take turns."""
    cores = available_cores()
    is_one_core = jax.default_backend() == "cpu" and jax.device_count() == 1
    if not is_one_core or cores == 1 or _is_said():
        return
    warnings.warn(
        f"JAX computed before mnemoscope.training was imported, so all seeds train on one of "
        f"{cores} cores; import it first, or begin with "
        f"jax.config.update('jax_num_cpu_devices', {cores})",
        Notice,
        stacklevel=4,
    )
