"""A metric over stored snapshots, kept in a store beside the run and found again.

It is kept under a key of its own, in which are the metric with its code, the run, and the programs
that read it; the run's own arrays stay as they are.
"""

import base64
import hashlib
import os
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TRAINING, describe_origins, source_fingerprint
from mnemoscope.core.working import Told, show_progress
from mnemoscope.store import Store, open_store
from mnemoscope.training.metric import AnyMetrics
from mnemoscope.training.read_snapshots import Measured, asked_of, read_snapshots
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec


def measure(
    run: Run,
    metric: AnyMetrics,
    store: Store | str | os.PathLike[str] | None = None,
    progress: Told | bool | None = None,
) -> Measured:
    """What a metric reads of every seed at every snapshot; nothing is trained.

    The numbers are those that it would have read while the models trained, at the steps
    `run.spec.snapshot_steps()`.

    Args:
        run: whose snapshots are read.
        metric: a metric (`@ms.metric`), the name of one of ours, or several.
        store: a store, or its folder, where it is kept and found again; None: it is not kept.
        progress: hears how many snapshots are read; True and False show a bar, or none; None shows
            one in a terminal and in a notebook.
    """
    asked = asked_of(run.spec, metric)
    key = _key(run, asked)
    kept = None if store is None else open_store(store)
    body = kept.finding(key) if kept else None
    if body is not None:
        return {name: _unpacked(array) for name, array in body["arrays"].items()}
    with show_progress(f"measuring {len(run.seeds)} seeds", progress) as tell:
        found = read_snapshots(run, metric, tell)
    if kept:
        arrays = {name: _packed(array) for name, array in found.items()}
        about = {"spec": run.spec.digest(), "seeds": list(run.seeds)}
        kept.keep_finding(key, {**about, "arrays": arrays})
    return found


def _key(run: Run, asked: Spec) -> str:
    """Changes whenever anything does that the numbers rest on."""
    parts = (
        source_fingerprint(*TRAINING, "probes"),
        asked.canonical_json(),  # with the metric, and the code of one from outside
        run.spec.digest(),
        str(run.seeds),
        describe_origins(run.origins),
    )
    text = "\n".join(map(str, parts))
    return f"measured {hashlib.sha256(text.encode()).hexdigest()}"


def _packed(array: np.ndarray) -> dict[str, Any]:
    """An array as JSON, to the bit."""
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def _unpacked(stored: dict[str, Any]) -> np.ndarray:
    """The array that was packed; what a store from elsewhere holds may be anything."""
    try:
        dtype = np.dtype(str(stored["dtype"]))
        if dtype.kind not in "fiub":
            raise ValueError("no numbers")
        numbers = np.frombuffer(base64.b64decode(stored["data"]), dtype)
        return numbers.reshape(stored["shape"]).copy()
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"what is stored of this metric is damaged ({error}); 'mnemoscope check --repair'"
        ) from None
