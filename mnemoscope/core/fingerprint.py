"""Which program it was: fingerprints of source, of functions, and of everything that trains.

A Spec and a seed say what is trained. What it comes to also depends on the program: on our source,
on the versions of JAX and Optax, on XLA's flags. `TrainedBy` is that, written beside every stored
block: seeds of different programs are never joined, and a verdict names what it rests on.

Source is compared by what it does: as syntax trees, without comments, docstrings and layout.
"""

import ast
import hashlib
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mnemoscope import __version__
from mnemoscope.core.code_identity import code_of, inner_function
from mnemoscope.core.import_record import AS_IMPORTED, names_of
from mnemoscope.core.source import plain_tree
from mnemoscope.core.strict import Strict

PACKAGE = Path(__file__).parents[1]
# what decides a trained number, and what is read while it trains and stored with it
TRAINING = (
    "core/numerics.py",
    "core/seeds.py",
    "core/xla.py",
    "tasks",
    "models/activations.py",
    "models/attention_kinds.py",
    "models/config.py",
    "models/edits.py",
    "models/forward_pass.py",
    "models/initialize.py",
    "models/layer.py",
    "models/model.py",
    "models/norms.py",
    "models/positions.py",
    "models/precision.py",
    "models/rewrites",
    "models/shapes.py",
    "models/sites.py",
    "models/consumer_support.py",
    "models/transformer.py",
    "probes/distraction.py",
    "probes/hop_accuracy.py",
    "probes/weight_memories.py",
    "training/answers.py",
    "training/loop.py",
    "core/legacy.py",
    "training/loss.py",
    "training/metric.py",
    "training/metrics.py",
    "training/numbered.py",
    "training/optimizers.py",
    "training/compilation.py",
    "training/run.py",
    "training/schedules.py",
    "training/shared_arrays.py",
    "training/spec.py",
    "training/step.py",
    "training/worlds.py",
)
READ = (".py", ".csv", ".txt")  # programs, and the data that they read
# JAX's own way to ask XLA for less optimization: sums come in another order
LAZY_COMPILER = "jax_disable_most_optimizations"
# they share out the work, or say more; the numbers stay as they are
HARMLESS = re.compile(r"--xla_(force_host_platform_device_count|cpu_multi_thread_eigen|dump\w*)\b")


# ---- source


# files as they were when they were first asked for: later edits are not what runs
_digests: dict[Path, bytes] = {}


def _file_digest(file: Path) -> bytes:
    if file not in _digests:
        data = file.read_bytes()
        if file.suffix == ".py":
            data = json.dumps(plain_tree(ast.parse(data))).encode()
        _digests[file] = hashlib.sha256(data).digest()
    return _digests[file]


def forget_files(folder: Path) -> None:
    """Read the files of a folder anew: its modules were loaded again.

    Args:
        folder: where they are.
    """
    for file in [each for each in _digests if each.is_relative_to(folder)]:
        del _digests[file]


def files_fingerprint(folder: Path, files: Iterable[Path]) -> str:
    """The hash of files of a folder, each under its name there.

    Args:
        folder: to which the names are relative.
        files: what is hashed.
    """
    digest = hashlib.sha256()
    for file in sorted(files):
        name = file.relative_to(folder).as_posix()
        digest.update(f"{name}\n".encode() + _file_digest(file))
    return digest.hexdigest()


def source_fingerprint(*parts: str) -> str:
    """The hash of these files and folders of the package, each under its name."""
    found: set[Path] = set()
    for part in parts:
        files = [PACKAGE / part, *(PACKAGE / part).rglob("*.*")]
        found.update(file for file in files if file.suffix in READ)
    return files_fingerprint(PACKAGE, found)


# ---- what trains


def _training_names() -> Iterator[tuple[tuple[str, str], Any]]:
    """Everything that the training modules in use, and their classes, define or use."""
    stems = tuple(f"mnemoscope.{part.removesuffix('.py').replace('/', '.')}" for part in TRAINING)
    inside = tuple(f"{stem}." for stem in stems)
    # a copy: while another thread imports, modules are added
    for place, module in sys.modules.copy().items():
        if place in stems or place.startswith(inside):
            for name, value in names_of(module):
                yield (place, name), value


def _decides(name: str, value: Any) -> bool:
    """Whether what stands under this name may decide a trained number."""
    _, _, member = name.rpartition(".")
    if member != name:  # of a class
        return not member.startswith(("__", "_abc")) and callable(inner_function(value))
    if name.startswith("__") or inspect.ismodule(value):
        return False
    return callable(value) or isinstance(value, int | float | str | tuple)


def list_replaced() -> tuple[tuple[str, str], ...]:
    """What trains and is not what was imported: somebody's own function, with its code."""
    # asked at every start of a training: what is as it was goes first, nearly all of them
    replaced = [
        (place, value)
        for place, value in _training_names()
        if place in AS_IMPORTED and AS_IMPORTED[place] is not value and _decides(place[1], value)
    ]
    return tuple(
        (f"{module}.{name}", code_of(value))
        for (module, name), value in sorted(replaced, key=lambda item: item[0])
    )


class TrainedBy(Strict):
    """What decides a trained number besides Spec and seed, as it was when the training began."""

    mnemoscope: str
    """Our version; said, not compared: what counts is the source."""
    source: str
    """Fingerprint of what trains."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Functions that somebody put in the place of ours, with their code."""
    jax: str
    """JAX's version."""
    jaxlib: str
    """Its compiler's version."""
    optax: str
    """Optax's version."""
    prng: str
    """The algorithm of random numbers."""
    x64: bool
    """Whether floats have 64 bits."""
    partitionable: bool
    """How threefry counts."""
    seed_offset: int
    """What JAX adds to every seed."""
    precision: str
    """The precision of matrix products."""
    xla_flags: tuple[str, ...]
    """Those that may change a number."""
    device: str
    """The kind of device; a CPU by its model. Said, not compared: the bits of a sum may differ
    between kinds."""

    def program(self) -> str:
        """The hash of all that must agree for seeds to be joined: 16 hexadecimal digits."""
        compared = self.model_dump(mode="json", exclude={"mnemoscope", "device"})
        return hashlib.sha256(json.dumps(compared, sort_keys=True).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"Mnemoscope {self.mnemoscope}, program {self.program()[:8]}, on {self.device}"


def cpu_model() -> str:
    """This machine's processor in words."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def trained_by() -> TrainedBy:
    """What would train here and now."""
    import jax

    from mnemoscope.core.numerics import fixed_numerics, read_setting

    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if not HARMLESS.match(flag)]
    if jax.config.read(LAZY_COMPILER):  # JAX hands it to XLA as flags
        flags.append(LAZY_COMPILER)
    device = jax.devices()[0]
    with fixed_numerics():
        return TrainedBy(
            mnemoscope=__version__,
            source=source_fingerprint(*TRAINING)[:16],
            replaced=list_replaced(),
            jax=version("jax"),
            jaxlib=version("jaxlib"),
            optax=version("optax"),
            prng=read_setting("default_prng_impl"),
            x64=read_setting("enable_x64"),
            partitionable=read_setting("threefry_partitionable"),
            seed_offset=read_setting("random_seed_offset"),
            precision=str(read_setting("default_matmul_precision") or "default"),
            xla_flags=tuple(sorted(flags)),
            device=cpu_model() if device.platform == "cpu" else device.device_kind,
        )


def describe_origins(origins: Iterable[TrainedBy | None]) -> list[str]:
    """Each different origin in words, in the order of the alphabet.

    None is a training of 0.1, which kept none.
    """
    unknown = "Mnemoscope 0.1, which kept no fingerprint"
    return sorted({unknown if each is None else str(each) for each in origins})
