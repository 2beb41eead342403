"""Models that travel with a study, so that its explorer needs no training.

They lie in the folder `explorer_models` beside the study's claims, and are written by
`mnemoscope.explorer.train_shown` alone:

    models.json    what they are: name, Spec, seeds, what trained them, and the hash of each file
    *.json.gz      of each what `measure_run` found: weights, skills, Python's answers

What is said of them, such as prompts and tours, is read from the study's files when a page is made.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TrainedBy
from mnemoscope.core.strict import Strict
from mnemoscope.explorer.explorer_run import describe_spec
from mnemoscope.explorer.pack import present_run
from mnemoscope.explorer.weight_bytes import decode_weights
from mnemoscope.store.checksums import sha256
from mnemoscope.studies.folder import EXPLORER_MODELS, path_of
from mnemoscope.studies.study import Study
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

INDEX = "models.json"


class ShippedModel(Strict):
    """One of them."""

    name: str
    """What the study calls it."""

    file: str
    """Its file in the folder."""

    sha256: str
    """The hash of the file."""

    spec: Spec
    """What was trained."""

    seeds: tuple[int, ...]
    """All seeds that were trained."""

    carried: tuple[int, ...]
    """Those whose whole training can be scrubbed through."""

    trained_by: TrainedBy
    """Which program it was."""

    made: str
    """The day."""

    command: str
    """What somebody typed."""


class ShippedModels(Strict):
    """The models of one study, in the order in which they are shown."""

    models: tuple[ShippedModel, ...]
    """Each of them."""


def folder_of(study: Study) -> Path | None:
    """Where a study's models lie; None where it has no folder.

    Args:
        study: Whose models they are.
    """
    return None if study.package is None else path_of(study.package) / EXPLORER_MODELS


def list_shipped(study: Study) -> tuple[ShippedModel, ...]:
    """What travels with a study.

    Args:
        study: Whose models they are.

    Raises:
        UserError: The list cannot be read.
    """
    folder = folder_of(study)
    if folder is None or not (folder / INDEX).is_file():
        return ()
    try:
        text = (folder / INDEX).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{INDEX} of {study.name} cannot be read: {error}") from None
    return ShippedModels.model_validate_json(text).models


def read_measured(study: Study, model: ShippedModel) -> dict[str, Any]:
    """What was measured of a model.

    Args:
        study: Whose model it is.
        model: Which one.

    Raises:
        UserError: Its file is not the one that was written.
    """
    folder = folder_of(study)
    assert folder is not None
    try:
        data = (folder / model.file).read_bytes()
    except OSError as error:
        reason = error.strerror
        raise UserError(f"{_of(study, model)}: {model.file} cannot be read ({reason})") from None
    if sha256(data) != model.sha256:
        raise UserError(
            f"{_of(study, model)}: {model.file} is damaged, it is not the file that {INDEX} names; "
            f"install again, or write it anew with '{model.command}'"
        )
    return json.loads(gzip.decompress(data))


def pack_shipped(study: Study) -> list[dict[str, Any]]:
    """A study's models as the page reads them; nothing is computed.

    Args:
        study: Whose models they are.
    """
    return [
        present_run(
            read_measured(study, model),
            model.spec,
            id_=model.spec.digest(),
            name=_of(study, model),
            about=f"{describe_spec(model.spec)} It came with the study: {model.trained_by}, "
            f"{model.made}.",
        )
        for model in list_shipped(study)
    ]


def shipped_runs(study: Study) -> dict[str, Run]:
    """A study's models as runs by name, with the seeds whose whole training there is.

    Args:
        study: Whose models they are.
    """
    return {model.name: _as_run(study, model) for model in list_shipped(study)}


def _as_run(study: Study, model: ShippedModel) -> Run:
    """The carried seeds; the rest have no snapshots."""
    measured = read_measured(study, model)
    spec = model.spec
    steps = spec.snapshot_steps()
    shapes = spec.model.parameter_shapes(spec.task.d_vocab, spec.task.n_ctx)
    n_carried = len(model.carried)
    n_ends = len(measured["opened"]) - n_carried
    rows = [len(steps)] * n_carried + [1] * n_ends
    blocks = decode_weights(measured["weights"], shapes, rows)[:n_carried]
    return Run(
        spec=spec,
        seeds=model.carried,
        snapshots={name: np.stack([each[name] for each in blocks]) for name in shapes},
        loss_steps=np.array(measured["loss_steps"]),
        losses=np.array(measured["losses"][:n_carried], np.float32),
        finite_steps=np.full(n_carried, spec.steps),
        origins=(model.trained_by,),
    )


def write_models(folder: Path, written: Sequence[tuple[ShippedModel, bytes]]) -> None:
    """Put models into a folder, in the place of those that were there.

    Args:
        folder: The study's folder for them.
        written: Each with the bytes of its file.
    """
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.json.gz"):
        old.unlink()
    for model, data in written:
        (folder / model.file).write_bytes(data)
    models = ShippedModels(models=tuple(model for model, _ in written))
    text = json.dumps(models.model_dump(mode="json"), indent=1, ensure_ascii=False)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")


def _of(study: Study, model: ShippedModel) -> str:
    """What a page calls it."""
    return f"{study.name}: {model.name}"
