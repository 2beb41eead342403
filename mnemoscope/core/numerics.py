"""Numbers that do not depend on the user's environment.

JAX reads its random numbers' algorithm, the width of floats and more from environment variables.
The same Spec and seed must draw and train the same whatever they say, so everything that trains,
measures or judges runs inside `fixed_numerics`. What cannot be set here (XLA's own flags) is
recorded with every run (`mnemoscope.core.fingerprint`).
"""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax

# what JAX itself has by default, and the Specs of 0.1 were trained with
FIXED: dict[str, Any] = {
    "enable_x64": False,
    "default_prng_impl": "threefry2x32",
    "threefry_partitionable": True,
    "default_matmul_precision": None,
}


def read_setting(name: str) -> Any:
    """What JAX computes with here and now, in this thread."""
    return getattr(jax.config, f"jax_{name}")


@contextmanager
def fixed_numerics() -> Generator[None]:
    """Inside, and in this thread, JAX computes with the settings in FIXED; seeds are not shifted.

    Also a decorator. What stands as it should is left alone: JAX compiles anew for a setting that
    was touched.
    """
    # there is no scope for this one; nobody shifts all seeds of a process and wants them shifted
    # only for others
    if read_setting("random_seed_offset"):
        jax.config.update("jax_random_seed_offset", 0)
    with ExitStack() as scopes:
        for name, value in FIXED.items():
            if read_setting(name) != value:
                scopes.enter_context(getattr(jax, name)(value))
        yield
