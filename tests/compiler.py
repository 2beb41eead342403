"""Less work for the compiler, where a test asks for numbers and not for the users' machine code.

Most of the tests' time goes into compiling programs that run for milliseconds. JAX has a switch
for less optimization: the same computation in slower machine code. XLA's newer way to emit fused
operations goes through a compiler of its own (MLIR) before LLVM and takes most of what is left; the
older one is still there. Both are set in the environment, so that every process that a test starts
has them too, and is the same program as ours (`mnemoscope.core.fingerprint`).

CPU seconds for the loop of a small training (jax 0.10.2, least of three): 3.3 as users have it, 1.9
with JAX's switch, .6 with both.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from importlib.metadata import version

SWITCH = "JAX_DISABLE_MOST_OPTIMIZATIONS"
EMITTERS = "xla_cpu_use_fusion_emitters"


def compile_less() -> None:
    """From here on, here and in every process started from here; before JAX is imported."""
    os.environ[SWITCH] = "1"
    # XLA ends a process whose flags it does not know, so only where it was tried
    if version("jaxlib").startswith("0.10."):
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --{EMITTERS}=false".strip()


@contextmanager
def compile_as_users_do() -> Generator[None]:
    """Inside, in this process, programs are those that users have."""
    from jax._src import compiler

    options_of = compiler.get_compile_options

    def optimized(*args, **kwargs):
        options = options_of(*args, **kwargs)
        options.env_option_overrides = [*options.env_option_overrides, (EMITTERS, True)]
        return options

    _switch(False)
    if EMITTERS in os.environ.get("XLA_FLAGS", ""):
        compiler.get_compile_options = optimized
    yield
    compiler.get_compile_options = options_of
    _switch(True)


def _switch(on: bool) -> None:
    """JAX's switch, and nothing that was compiled before it was touched."""
    import jax

    from mnemoscope.training import compilation

    jax.clear_caches()
    compilation._programs.clear()
    jax.config.update(SWITCH.lower(), on)
