"""Strict JAX for every test, shapes checked at run time, two CPU devices,
and a home that nobody else has.

A run of the tests has one folder of its own, made by whoever starts it and shared with its workers
and with every process that a test starts. It is their home and their current directory, their
caches are in it, and it goes when the run ends: nothing of the user's is read or written, and no
run finds what an earlier one left. A program that one process compiled is there for the others.
"""

import atexit
import gc
import os
import shutil
import sys
import tempfile
from pathlib import Path

from compiler import compile_as_users_do, compile_less

if "PYTEST_XDIST_WORKER" not in os.environ:
    made = tempfile.mkdtemp(prefix="mnemoscope-tests-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    os.environ.update(
        HOME=made,
        XDG_CACHE_HOME=f"{made}/cache",
        XDG_CONFIG_HOME=f"{made}/config",
        # as `mnemoscope.execution.machine.compile_cache_dir` has it
        JAX_COMPILATION_CACHE_DIR=f"{made}/cache/mnemoscope/compiled",
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0.05",
        JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
    )
    for name in (
        "MNEMOSCOPE_DATA",
        "MNEMOSCOPE_STORE",
        "MNEMOSCOPE_LANGUAGE_MODEL",
        "MPLCONFIGDIR",
        "PYTHONWARNINGS",
    ):
        os.environ.pop(name, None)
    if "--optimize" not in sys.argv:
        compile_less()
ROOM = Path(os.environ["HOME"])

from importlib.util import find_spec  # noqa: E402

from jaxtyping import install_import_hook  # noqa: E402

# must come before the first import of the package: every annotated function then checks its shapes
# a machine with a GPU may have neither this nor Hypothesis, and tests/test_gpu.py needs none
if find_spec("beartype"):
    install_import_hook("mnemoscope", "beartype.beartype")

import jax  # noqa: E402
import pytest  # noqa: E402

from mnemoscope.execution import machine  # noqa: E402

# tracing makes millions of short-lived objects, and what was imported stays:
# looked through less often, tests take 4% less
gc.freeze()
gc.set_threshold(100_000, 50, 100)

# two on any machine; devices can be chosen only before the first computation,
# and commands called here come later
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_numpy_rank_promotion", "raise")
machine.use_all_devices = lambda cache=None, at_most=None: None

if find_spec("hypothesis"):
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis.database import DirectoryBasedExampleDatabase

    # without shrinking: each example compiles anew,
    # and minutes spent on a smaller failure are not worth it
    settings.register_profile(
        "wide",
        deadline=None,
        max_examples=10,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.explicit, Phase.reuse, Phase.generate],
        database=DirectoryBasedExampleDatabase(
            Path(__file__).parents[1] / ".hypothesis" / "examples"
        ),
    )
    # the same examples each time, so that a test fails for what was changed;
    # `make test-long` looks for new ones
    settings.register_profile(
        "house", settings.get_profile("wide"), derandomize=True, database=None
    )
    settings.load_profile("house")

# the files that take longest go first, by CPU seconds (ENGINEERING), so that no worker is left
# with one of them at the end
LONGEST = (
    "cluster",
    "site",
    "explorer",
    "explorer_numbers",
    "golden",
    "memories",
    "train",
    "studies",
    "hops",
    "cli",
    "capacity",
    "model",
    "rewrites",
    "resume",
    "bits",
    "identity",
    "profile",
    "loss",
    "fuzz",
    "gradients",
    "optimizers",
    "hops_study",
    "tasks",
    "facts",
    "birth_theory",
    "birth_heads",
    "facts_stored",
    "probes",
    "noise",
    "birth",
    "identity_store",
    "explorer_beside",
    "own_models",
    "induction",
    "old_store",
)


# before pytest chooses by `-m`
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """The longest files first; within a file everything stays in its order."""
    for item in items:
        if item.path.stem.removeprefix("test_") in PROMISE_BITS:
            item.add_marker("bits")
    place = {f"test_{name}.py": at for at, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


# this file compiles what users have; the others leave most of that out (tests/compiler.py)
AS_USERS_HAVE_IT = ("bits",)

# These promise the same bits, or golden numbers: `make test-long` runs them as users have it too.
PROMISE_BITS = (
    "cluster",
    "golden",
    "identity",
    "identity_judges",
    "identity_store",
    "old_store",
    "optimizers",
    "own_models",
    "profile",
    "resume",
    "seeds",
    "train",
)


def pytest_addoption(parser):
    parser.addoption(
        "--optimize", action="store_true", help="compile every test's programs as users have them"
    )


@pytest.fixture(scope="module", autouse=True)
def _compiled_as_users_have_it(request):
    all_do = request.config.getoption("--optimize")
    if all_do or request.path.stem.removeprefix("test_") not in AS_USERS_HAVE_IT:
        yield
    else:
        with compile_as_users_do():
            yield


@pytest.fixture(scope="session", autouse=True)
def _in_a_folder_of_its_own():
    os.chdir(ROOM)
    # where nothing may be written beside the sources, every process that a test starts would
    # compile them anew, for a second or two
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        os.environ["PYTHONPYCACHEPREFIX"] = f"{ROOM}/bytecode"


@pytest.fixture
def store(tmp_path):
    """An empty store."""
    from mnemoscope.store import Store

    return Store(tmp_path / "store")
