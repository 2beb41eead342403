"""Stored runs: a block of consecutive seeds as a row of the index and as a file of named arrays.

    snapshots/<parameter>   (seed, snapshot, ...)    observed/<metric>   (seed, eval, ...)
    losses                  (seed, stop)             loss_steps          (stop,)
    good_steps              (seed,)                  world_sha256        (seed, 32), not in 0.1

What is read back is what was written, or an error says what is wrong with it.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_type_hints

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TrainedBy
from mnemoscope.core.legacy import metric_names
from mnemoscope.store import files
from mnemoscope.store.checksums import row_checksum, sha256

if TYPE_CHECKING:  # reading the index needs no JAX
    from mnemoscope.training.run import Run
    from mnemoscope.training.spec import Spec

HOW_TO_REPAIR = "'mnemoscope check --repair' deletes it and makes it again"


class DamagedRunError(UserError):
    """A stored run is not what was written."""


class UnknownKindError(UserError):
    """A stored run is as it was written, and this process does not know what it is of."""


# ---- the row


class RunRow(NamedTuple):
    """One stored block of seeds, as the index knows it."""

    spec: str  # digest of the Spec
    first: int  # the first seed
    last: int  # the last seed, which is in the block too
    program: str  # fingerprint of what trained it; empty for 0.1's runs and imported models
    spec_json: str  # the Spec, written out
    trained_by: str  # the fingerprint written out, as JSON; empty as above
    file: str  # where its arrays are, relative to the store
    bytes: int  # size of the file
    diverged: int  # how many of its seeds diverged
    seconds: float  # how long the training took
    made: str  # when it was stored, in UTC
    machine: str  # what trained it, in words
    sha256: str  # of the file
    checksum: str  # checksum of all the fields above

    @property
    def intact(self) -> bool:
        """Whether the row is as it was written."""
        return row_checksum(self[:-1]) == self.checksum

    @property
    def id(self) -> str:
        """The name of the block."""
        return block_id(self.spec, self.first, self.last, self.program)

    def starts_with(self, text: str) -> bool:
        """Whether the name of the block starts so, in capitals or not."""
        return self.id.startswith(text.lower())

    @property
    def origin(self) -> TrainedBy | None:
        """What trained it; None where that was not kept."""
        return TrainedBy.model_validate_json(self.trained_by) if self.trained_by else None


COLUMN_TYPES = tuple(get_type_hints(RunRow).values())


def block_id(spec: str, first: int, last: int, program: str) -> str:
    """The name of a block: Spec, seeds, and the start of the program's fingerprint, if it has one.

    Args:
        spec: digest of the Spec.
        first: the first seed.
        last: the last seed, which is in the block too.
        program: fingerprint of the program that trained it, or nothing.
    """
    name = f"{spec}/{first}-{last}"
    return f"{name}.{program[:8]}" if program else name


def file_name(spec: str, first: int, last: int, program: str) -> str:
    """The file of a block, relative to the store; the arguments are those of `block_id`."""
    return f"runs/{block_id(spec, first, last, program)}.safetensors"


def origin_of(run: "Run") -> TrainedBy | None:
    """What trained a run that comes from one program; None where that was not kept."""
    return run.origins[0] if run.origins else None


def _new_row(run: "Run", data: bytes, seconds: float, machine: str) -> RunRow:
    """The row of a block that is stored now.

    Args:
        run: consecutive seeds of one program.
        data: the bytes of its file.
        seconds: how long the training took.
        machine: what trained it, in words.
    """
    digest = run.spec.digest()
    origin = origin_of(run)
    program = origin.program() if origin else ""
    row = RunRow(
        spec=digest,
        first=run.seeds[0],
        last=run.seeds[-1],
        program=program,
        spec_json=run.spec.canonical_json(),
        trained_by=origin.canonical_json() if origin else "",
        file=file_name(digest, run.seeds[0], run.seeds[-1], program),
        bytes=len(data),
        diverged=int((~run.finished).sum()),
        seconds=float(seconds),
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        machine=machine,
        sha256=sha256(data),
        checksum="",
    )
    return row._replace(checksum=row_checksum(row[:-1]))


def cover(rows: list[RunRow], seeds: Sequence[int]) -> tuple[list[RunRow], list[int]]:
    """Blocks that hold wanted seeds, the largest first, each seed once; and the seeds left over."""
    missing = set(seeds)
    useful: list[RunRow] = []
    for row in sorted(rows, key=lambda row: row.first - row.last):
        held = {seed for seed in missing if row.first <= seed <= row.last}
        if held:
            useful.append(row)
            missing -= held
    return useful, sorted(missing)


# ---- the arrays


def arrays_of(run: "Run") -> dict[str, np.ndarray]:
    """A run as named arrays, the way a file holds it."""
    arrays = {f"snapshots/{name}": array for name, array in run.snapshots.items()}
    stored_names = metric_names(run.spec.metrics)
    for name, array in run.metrics.items():
        arrays[f"observed/{stored_names.get(name, name)}"] = array
    arrays["loss_steps"] = run.loss_steps
    arrays["losses"] = run.losses
    arrays["good_steps"] = run.finite_steps
    if run.world_hashes is not None:
        arrays["world_sha256"] = run.world_hashes
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def run_of(
    spec: "Spec",
    seeds: Iterable[int],
    arrays: Mapping[str, np.ndarray],
    origins: "tuple[TrainedBy | None, ...]",
) -> "Run":
    """The run that `arrays_of` took apart.

    Args:
        spec: what was trained.
        seeds: the seeds along the first axis of the arrays.
        arrays: as `arrays_of` names them.
        origins: the programs that trained it.
    """
    from mnemoscope.training.run import Run

    def under(prefix: str) -> dict[str, np.ndarray]:
        found = [name for name in arrays if name.startswith(prefix)]
        return {name.removeprefix(prefix): arrays[name] for name in found}

    stored_names = metric_names(spec.metrics)
    names = {stored: name for name, stored in stored_names.items()}
    return Run(
        spec=spec,
        seeds=tuple(seeds),
        snapshots=under("snapshots/"),
        loss_steps=arrays["loss_steps"],
        losses=arrays["losses"],
        finite_steps=arrays["good_steps"],
        metrics={names.get(name, name): array for name, array in under("observed/").items()},
        world_hashes=arrays.get("world_sha256"),
        origins=origins,
    )


def check_arrays(spec: "Spec", seeds: int, arrays: Mapping[str, np.ndarray]) -> None:
    """A ValueError unless these are the arrays of such a run.

    Whoever stored or sent them may have written anything.

    Args:
        spec: what was trained.
        seeds: how many seeds.
        arrays: as `arrays_of` names them.
    """
    if not {"losses", "loss_steps", "good_steps"} <= set(arrays):
        raise ValueError("it is no whole run")
    metrics = [name for name in arrays if name.startswith("observed/")]
    found = {
        name: (array.dtype.kind, array.shape)
        for name, array in arrays.items()
        if name not in metrics
    }
    fits = found == _wanted_arrays(spec, seeds, arrays)
    if spec.metrics and not metrics:
        fits = False
    evals = len(spec.eval_steps())
    for name in metrics:
        if arrays[name].shape[:2] != (seeds, evals):
            fits = False
    if not fits:
        raise ValueError("its arrays are not those of its Spec and seeds")


def _wanted_arrays(
    spec: "Spec", seeds: int, arrays: Mapping[str, np.ndarray]
) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The kind of number and the shape of each array that a run must have, but its metrics."""
    task = spec.task
    parameters = spec.model.parameter_shapes(task.d_vocab, task.n_ctx, task.d_vocab_out)
    snapshots = len(spec.snapshot_steps())
    stops = arrays["loss_steps"].shape  # how many there are is for the run to say
    wanted: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, shape in parameters.items():
        wanted[f"snapshots/{name}"] = ("f", (seeds, snapshots, *shape))
    wanted["losses"] = ("f", (seeds, *stops))
    wanted["loss_steps"] = ("i", stops[:1])
    wanted["good_steps"] = ("i", (seeds,))
    if "world_sha256" in arrays:
        wanted["world_sha256"] = ("u", (seeds, 32))
    return wanted


# ---- the file


def _to_bytes(run: "Run") -> bytes:
    """A run of consecutive seeds as the bytes of its file."""
    about = {"spec": run.spec.canonical_json(), "seeds": f"{run.seeds[0]}-{run.seeds[-1]}"}
    return save(arrays_of(run), about)


def write_run(folder: Path, run: "Run", seconds: float, machine: str) -> RunRow:
    """Write a block's file, and give the row that the index is to have.

    The disk holds the file under its name when this returns; until its row is committed nobody
    knows of it.

    Args:
        folder: the store.
        run: consecutive seeds of one program.
        seconds: how long the training took.
        machine: what trained it, in words.
    """
    data = _to_bytes(run)
    row = _new_row(run, data, seconds, machine)
    path = files.place(folder, row.file)
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace_file(path, data)
    return row


def path_of(folder: Path, row: RunRow) -> Path:
    """Where a block's file lies in a store.

    The index says so too, but what it says is not followed anywhere else.
    """
    if row.file != f"runs/{row.id}.safetensors" or not re.fullmatch("[0-9a-f]{16}", row.spec):
        raise ValueError("its file is not where runs are stored")
    return files.place(folder, row.file)


def read_bytes(folder: Path, row: RunRow) -> bytes:
    """The bytes of a stored block: those that were written, or a ValueError says what is wrong."""
    if not row.intact:
        raise ValueError("its row in the index is not what was written")
    data = files.read_file(path_of(folder, row))
    if len(data) != row.bytes:
        raise ValueError(f"{len(data)} bytes where {row.bytes} were written")
    if sha256(data) != row.sha256:
        raise ValueError("its bytes are not those that were written")
    return data


def load_run(folder: Path, row: RunRow) -> "Run":
    """Read a stored block back; anything that does not fit its row is an error, not a guess."""
    from mnemoscope.training.spec import Spec

    arrays = read_arrays(folder, row)
    try:
        spec = Spec.model_validate_json(row.spec_json)
    except UserError as error:
        # its text is what was written: another Mnemoscope's, or an extension's that is not loaded
        raise UnknownKindError(
            f"stored run {row.id} is of a kind that is unknown here, not damaged ({error})"
        ) from error
    try:
        check_arrays(spec, row.last - row.first + 1, arrays)
        origins = () if spec.imported else (row.origin,)
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(row, error) from error
    return run_of(spec, range(row.first, row.last + 1), arrays, origins)


def read_arrays(folder: Path, row: RunRow) -> dict[str, np.ndarray]:
    """The arrays of a stored block, whose Spec and seeds are those that it is kept under.

    Nothing here reads the Spec: it may be of a kind that this process does not know.
    """
    try:
        arrays = load(read_bytes(folder, row))
        if row.first < 0 or sha256(row.spec_json.encode())[:16] != row.spec:
            raise ValueError("its Spec or its seeds are not those that it is stored under")
    except OSError as error:
        if files.is_missing(error):
            raise DamagedRunError(
                f"stored run {row.id} is damaged (its file is gone); {HOW_TO_REPAIR}"
            ) from error
        why = error.strerror or str(error)
        raise UserError(
            f"stored run {row.id} cannot be read ({why}); it may be as good as ever"
        ) from error
    except (ValueError, SafetensorError) as error:
        raise _damaged(row, error) from error
    return arrays


def _damaged(row: RunRow, error: Exception) -> DamagedRunError:
    """The error that says of a stored block what another one says of its bytes."""
    lines = str(error).splitlines() or [repr(error)]
    return DamagedRunError(f"stored run {row.id} is damaged ({lines[0]}); {HOW_TO_REPAIR}")
