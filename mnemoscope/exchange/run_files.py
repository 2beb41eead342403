"""A whole run in one file, as the explorer writes what was trained in its page.

The file is a safetensors file with the arrays of a stored run (`mnemoscope.store.run_file`) and, in
its header,

    format   "mnemoscope run"        spec   the Spec as JSON        seeds   a list, as JSON

Whoever wrote it may have written anything, so nothing takes it for a training of ours: like a model
from elsewhere the run carries the fingerprint of its weights in its Spec, which no study asks for
and which `fit` refuses, so that its seeds are never joined with trained ones.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from mnemoscope.core.errors import UserError, short
from mnemoscope.store.run_file import check_arrays, run_of
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

SUFFIX = ".safetensors"
FORMAT = "mnemoscope run"
MOST_SEEDS = 2**31


def is_run_file(path: Path) -> bool:
    """Whether a file says of itself that it has a whole run.

    Args:
        path: any path.
    """
    if path.suffix != SUFFIX or not path.is_file():
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (OSError, SafetensorError):
        return False


def read_run_file(path: Path) -> Run:
    """The run in a file; anything that is not as it should be is one line.

    Args:
        path: of the file.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError) as error:
        raise _unreadable(path, str(error)) from None
    spec = _read_spec(path, header.get("spec", ""))
    seeds = _read_seeds(path, header.get("seeds", ""))
    try:
        check_arrays(spec, len(seeds), arrays)
        _check_numbers(spec, arrays)
    except (ValueError, TypeError, KeyError) as error:
        raise _unreadable(path, str(error)) from None
    marked = spec.model_copy(update={"imported": _fingerprint(arrays)})
    return run_of(marked, seeds, arrays, ())


def _unreadable(path: Path, why: str) -> UserError:
    lines = why.splitlines() or ["nothing"]
    return UserError(f"{str(path)!r} has no run that can be read: {short(lines[0])}")


def _read_spec(path: Path, text: str) -> Spec:
    """The Spec in the header."""
    try:
        spec = Spec.model_validate_json(text)
    except ValueError as error:
        raise _unreadable(path, f"its spec: {error}") from None
    if spec.imported:
        raise _unreadable(path, "its spec is of a model that was imported")
    return spec


def _read_seeds(path: Path, text: str) -> tuple[int, ...]:
    """The seeds in the header: they are stored as one block, so they follow each other."""
    try:
        seeds: Any = json.loads(text)
    except ValueError:
        seeds = None
    if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
        raise _unreadable(path, f"seeds must be a list of whole numbers, got {text!r}")
    first = seeds[0]
    if not 0 <= first < MOST_SEEDS - len(seeds) or seeds != [*range(first, first + len(seeds))]:
        raise _unreadable(path, f"seeds must follow each other from 0 up, got {text}")
    return tuple(seeds)


def _check_numbers(spec: Spec, arrays: Mapping[str, np.ndarray]) -> None:
    """Steps that the Spec has, and finite weights of every seed that finished."""
    stops = arrays["loss_steps"]
    if len(stops) and (stops[0] < 1 or stops[-1] != spec.steps or (np.diff(stops) < 1).any()):
        raise ValueError(f"loss_steps must rise to the last step, {spec.steps}")
    finite = arrays["good_steps"]
    if ((finite < 0) | (finite > spec.steps)).any():
        raise ValueError(f"good_steps must be numbers of steps up to {spec.steps}")
    finished = finite == spec.steps
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array[finished]).all():
            raise ValueError(f"{name} of a seed that finished has numbers that are not finite")


def _fingerprint(arrays: Mapping[str, np.ndarray]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all arrays with their names and shapes."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name}{array.shape}{array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
