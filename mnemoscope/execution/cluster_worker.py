"""What a Dask worker does: it says what it is, and trains the blocks that it is given.

It answers with safetensors bytes, and with an error in words: an exception that cannot be
serialized leaves a worker mute. The client is `mnemoscope.execution.cluster`.
"""

import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from safetensors.numpy import save

from mnemoscope.core.fingerprint import trained_by
from mnemoscope.execution.machine import hardware, use_all_devices, versions
from mnemoscope.execution.sent_plugins import SentPlugin, load_sent
from mnemoscope.store import arrays_of
from mnemoscope.tasks.data_files import remember_file
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec

SIGN_SECONDS = 1.0  # how often a worker says how far it is


def in_a_line(error: Exception) -> str:
    """An exception in one line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:200]}"


def must_agree() -> dict[str, str]:
    """What client and workers must have in common.

    That is everything that a trained number may depend on, but the machine.
    """
    ours = trained_by().model_dump(mode="json", exclude={"device"})
    return {"numpy": versions()["numpy"]} | {name: str(value) for name, value in ours.items()}


def describe_worker(sent: Sequence[SentPlugin], specs: Sequence[str]) -> dict[str, Any]:
    """What a worker is, once it has loaded what the client has.

    Its Dask threads are the CPU cores that it may train on.

    Args:
        sent: plugins.
        specs: what is to be trained, as JSON; a kind that is unknown here, or of another code, is
            an error.
    """
    from distributed import get_worker

    try:
        use_all_devices(at_most=get_worker().state.nthreads)
        load_sent(sent, Path(get_worker().local_directory))
        for spec_json in specs:
            Spec.model_validate_json(spec_json)
        accelerator = jax.default_backend() != "cpu"
        return {"agree": must_agree(), "accelerator": accelerator, "devices": jax.device_count()}
    except (
        Exception
    ) as error:  # in words: an exception that cannot be serialized leaves a Dask worker mute
        return {"error": in_a_line(error)}


def train_block(
    spec_json: str, seeds: list[int], topic: str, number: int, files: Mapping[str, str]
) -> dict[str, Any]:
    """Train a block on this worker, with a sign of life now and then.

    Args:
        spec_json: what to train.
        seeds: consecutive.
        topic: where signs of life are heard.
        number: of the block, which they name.
        files: those that the task reads, by SHA-256, with the path that they have everywhere.
    """
    from distributed import get_worker

    worker = get_worker()
    began = time.monotonic()
    last_sign = 0.0
    spec = Spec.model_validate_json(spec_json)
    for sha256, path in files.items():
        remember_file(sha256, path)
    origin = trained_by()

    def send_sign_of_life(steps: int, _: int) -> None:
        nonlocal last_sign
        if time.monotonic() - last_sign > SIGN_SECONDS:
            last_sign = time.monotonic()
            worker.log_event(topic, [worker.address, number, steps])

    try:
        send_sign_of_life(0, spec.steps)
        run = fit(spec, seeds, progress=send_sign_of_life)
    except Exception as error:  # in words, as above
        return {"error": in_a_line(error)}
    data = save(arrays_of(run))
    return {
        "spec": spec.digest(),
        "seeds": list(run.seeds),
        "data": data,
        "sha256": hashlib.sha256(data).hexdigest(),
        "seconds": time.monotonic() - began,
        "machine": hardware(),
        "trained_by": origin.canonical_json(),
    }
