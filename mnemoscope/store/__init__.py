"""Where finished work is kept: an SQLite index beside safetensors files. A run counts once its row is committed.

    STORE/index.sqlite3                     runs and findings
    STORE/runs/<spec digest>/<first>-<last>.<program>.safetensors   one block of consecutive seeds
    STORE/runs/<spec digest>/<first>-<last>.<program>.part          one that is being trained, as it was a while ago
    STORE/ledger/<scale>/<study>.json       what a study found
    STORE/locks/                            who is at work on what; empty files, locked by the system

A run's file is written under another name, flushed and renamed, and only then indexed: a power cut or Ctrl-C leaves at worst
an unreferenced file. A file that replaces an older one is flushed, then indexed beside the older one, then renamed: until then
either of them counts. The index has the SHA-256 of every file, and every row of it carries a seal,
the SHA-256 of its own fields: what is read back is what was written, or it is an error that says what to do. `check` looks at
everything.

A block has the fingerprint of the program that trained it (`mnemoscope.core.fingerprint`). Blocks of 0.1 have none; no file of
theirs has one in its name. Seeds of one run come from one program.
"""

import errno
import hashlib
import json
import os
import re
import sqlite3
import stat
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from mnemoscope.core.errors import UserError, parsed
from mnemoscope.core.fingerprint import TrainedBy, described

try:
    import fcntl
except ImportError:  # Windows has no such locks: one process at a time on a store
    fcntl = None

if TYPE_CHECKING:  # reading the index needs no JAX
    from mnemoscope.training.run import Run
    from mnemoscope.training.spec import Spec

FORMAT = 3
RUNS = """
CREATE TABLE IF NOT EXISTS runs (
    spec TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, program TEXT NOT NULL, spec_json TEXT NOT NULL,
    trained_by TEXT NOT NULL, file TEXT NOT NULL, bytes INTEGER NOT NULL, diverged INTEGER NOT NULL, seconds REAL NOT NULL,
    made TEXT NOT NULL, machine TEXT NOT NULL, sha256 TEXT NOT NULL, seal TEXT NOT NULL,
    PRIMARY KEY (spec, first, last, program)) STRICT
"""
FINDINGS = """
CREATE TABLE IF NOT EXISTS findings (key TEXT PRIMARY KEY, body TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '') STRICT
"""
FILES = """
CREATE TABLE IF NOT EXISTS files (
    name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, before TEXT NOT NULL, seal TEXT NOT NULL) STRICT
"""
SCHEMA = (RUNS, FINDINGS, FILES)
# format 1 had neither checksums nor the table of files; formats 1 and 2, of 0.1, did not say which program trained a run
FROM_1 = (
    "ALTER TABLE runs ADD COLUMN sha256 TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE findings ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    FILES,
)
MEND = "'mnemoscope check --repair' takes it out and makes it again"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _seal(fields: Sequence[Any]) -> str:
    """The checksum of a row: of its fields but the seal itself."""
    return _sha(json.dumps(list(fields), default=repr).encode())


def _flush(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder, before going on."""
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _read_file(path: Path) -> bytes:
    """The bytes of a plain file; a link, a pipe or a device in its place is a ValueError, not followed and not waited for."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no plain file")
        return file.read()


def _write_new(path: Path, data: bytes) -> None:
    """Write a file that was not there, and have the disk hold it. What stood under its name is taken away first, not written
    through: it may be a link to anywhere. Others may read it as far as the user's umask lets them."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o666)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _is_missing(error: OSError) -> bool:
    """Whether a file is gone, or something else stands in its place; any other error says nothing about what it holds."""
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)


def _wrong(path: Path, row: tuple[str, str, str, str] | None) -> str:
    """What is wrong with a file that the index knows by this row, or nothing."""
    if row is None:
        return "" if path.suffix == ".md" else "the index does not know it"
    if _seal(row[:-1]) != row[-1]:
        return "its row in the index is not what was written"
    return "" if _sha(_read_file(path)) in row[1:3] else "its bytes are not those that were written"


def wrong_in(folder: Path, name: str) -> str:
    """What is wrong with a file of the store in this folder, or nothing; the store is not opened, so it may be read-only.

    A folder without an index, or with one of format 1, has nothing to hold the file against.
    """
    index = folder / "index.sqlite3"
    if not index.is_file():
        return ""
    for how in (
        "mode=ro",
        "immutable=1",
    ):  # the second needs no file beside the index, which a read-only folder cannot have
        try:
            with closing(sqlite3.connect(f"{index.absolute().as_uri()}?{how}", uri=True)) as db:
                if db.execute("PRAGMA user_version").fetchone()[0] < 2:
                    return ""
                row = db.execute("SELECT name, sha256, before, seal FROM files WHERE name=?", (name,)).fetchone()
            return _wrong(folder / name, row)
        except sqlite3.OperationalError as error:
            why = f"its index cannot be read: {error}"
        except sqlite3.DatabaseError as error:
            return f"its index is damaged: {error}"
    return why


def arrays_of(run: "Run") -> dict[str, np.ndarray]:
    """A run as named arrays, the way a file holds it."""
    arrays = {f"snapshots/{k}": v for k, v in run.snapshots.items()}
    arrays |= {f"observed/{k}": v for k, v in run.observed.items()}
    arrays |= {"loss_steps": run.loss_steps, "losses": run.losses, "good_steps": run.good_steps}
    if run.world_hashes is not None:
        arrays["world_sha256"] = run.world_hashes
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def run_of(
    spec: "Spec", seeds: Iterable[int], arrays: Mapping[str, np.ndarray], origins: "tuple[TrainedBy | None, ...]"
) -> "Run":
    """The run that `arrays_of` took apart."""
    from mnemoscope.training.run import Run

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

    return Run(
        spec, tuple(seeds), under("snapshots/"), arrays["loss_steps"], arrays["losses"], arrays["good_steps"],
        under("observed/"), arrays.get("world_sha256"), origins,
    )  # fmt: skip


class DamagedRunError(UserError):
    """A stored run is not what was written."""


class Damage(NamedTuple):
    """Something that is not what was written: a run, a finding or a file, and why.

    What cannot be read may be as good as ever (it is another user's, or a disk did not answer): it is not `damaged`, and
    no repair touches it.
    """

    kind: str
    name: str
    why: str
    damaged: bool = True


class RunRow(NamedTuple):
    """One stored block of seeds, as the index knows it."""

    spec: str
    first: int
    last: int
    program: str  # fingerprint of what trained it; empty for 0.1's runs and imported models
    spec_json: str
    trained_by: str  # the fingerprint written out, as JSON; empty as above
    file: str
    bytes: int
    diverged: int
    seconds: float
    made: str
    machine: str
    sha256: str
    seal: str

    @property
    def sealed(self) -> bool:
        """Whether the row is as it was written."""
        return _seal(self[:-1]) == self.seal

    @property
    def id(self) -> str:
        return block_id(self.spec, self.first, self.last, self.program)

    @property
    def origin(self) -> TrainedBy | None:
        """What trained it; None where that was not kept."""
        return TrainedBy.model_validate_json(self.trained_by) if self.trained_by else None


KINDS = (str, int, int, str, str, str, str, int, int, float, str, str, str, str)  # of a row's fields


def block_id(spec: str, first: int, last: int, program: str) -> str:
    """The name of a block: Spec, seeds, and the start of the fingerprint of the program that trained it, if there is one."""
    return f"{spec}/{first}-{last}" + (f".{program[:8]}" if program else "")


def check_arrays(spec: "Spec", seeds: int, arrays: Mapping[str, np.ndarray]) -> None:
    """A ValueError unless these are the arrays of such a run: whoever sealed or sent them may have written anything."""
    from mnemoscope.models import parameter_shapes

    snaps, looks = len(spec.snapshot_steps()), len(spec.look_steps())
    if not {"losses", "loss_steps", "good_steps"} <= set(arrays):
        raise ValueError("it is no whole run")
    shapes = parameter_shapes(spec.model, spec.task.d_vocab, spec.task.n_ctx, spec.task.d_vocab_out)
    stops = arrays["loss_steps"].shape
    wanted = {f"snapshots/{name}": ("f", (seeds, snaps, *shape)) for name, shape in shapes.items()}
    wanted |= {"losses": ("f", (seeds, *stops)), "loss_steps": ("i", stops[:1]), "good_steps": ("i", (seeds,))}
    observed = {name for name in arrays if name.startswith("observed/")}
    found = {name: (x.dtype.kind, x.shape) for name, x in arrays.items() if name not in observed}
    if "world_sha256" in arrays:
        wanted["world_sha256"] = ("u", (seeds, 32))
    if (
        found != wanted
        or (spec.watch and not observed)
        or any(arrays[name].shape[:2] != (seeds, looks) for name in observed)
    ):
        raise ValueError("its arrays are not those of its Spec and seeds")


def _cover(rows: list[RunRow], seeds: Sequence[int]) -> tuple[list[RunRow], list[int]]:
    """Blocks that hold wanted seeds, the largest first, each seed once; and the seeds that none holds."""
    missing, useful = set(seeds), []
    for row in sorted(rows, key=lambda row: row.first - row.last):
        held = {seed for seed in missing if row.first <= seed <= row.last}
        if held:
            useful.append(row)
            missing -= held
    return useful, sorted(missing)


class Store:
    """A folder of finished runs and findings."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # SQLite would only say "unable to open"; ask the folder itself
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            with self.alone("index"):  # SQLite does not wait for others when it sets up its journal
                index = self._place("index.sqlite3")
                # SQLite writes into the file that is there: a second name of it elsewhere would be written through
                if index.is_symlink() or (index.exists() and index.stat().st_nlink > 1):
                    raise ValueError(
                        "its index is a link, or has a second name elsewhere; copy the store instead of linking it"
                    )
                self.db = sqlite3.connect(index, timeout=300)
                self._open()
        except (OSError, sqlite3.Error, ValueError, TypeError) as error:
            if hasattr(self, "db"):
                self.db.close()
            if isinstance(error, UserError):
                raise
            raise UserError(f"cannot use {str(self.folder)!r} as a store ({error}); give a writable folder with "
                            "--store or MNEMOSCOPE_STORE") from error  # fmt: skip

    def _open(self) -> None:
        # a trigger or a view in a store that somebody handed over would act when the store is only read
        if self.db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone():
            raise ValueError("its index has views or triggers, which no store has")
        self.db.execute("PRAGMA journal_mode=WAL")
        version = self.db.execute("PRAGMA user_version").fetchone()[0]
        if version not in range(FORMAT + 1):
            raise UserError(f"store {self.folder} has format {version}; this Mnemoscope reads formats 1 to {FORMAT}")
        if 0 < version < FORMAT:
            self._migrate()
        with self.db:
            for table in SCHEMA:
                self.db.execute(table)
            self.db.execute(f"PRAGMA user_version={FORMAT}")

    @contextmanager
    def alone(self, name: str, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold a name: whoever else asks for it, in any process, waits; `waiting` is called if that is us.

        The lock is the system's, so it ends with the process that holds it, however that ends.
        """
        if fcntl is None:
            yield
            return
        with self._writing("a lock"):
            path = self._place(f"locks/{_sha(name.encode())[:16]}")
            path.parent.mkdir(exist_ok=True)
            file = open(path, "a")  # noqa: SIM115
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if waiting:
                    waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _migrate(self) -> None:
        """Bring a store of 0.1 to this format, in one transaction. Its runs stay what they are: 0.1's."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            version = self.db.execute("PRAGMA user_version").fetchone()[0]
            if version == 1:
                self._add_checksums()
            if version < FORMAT:  # else another process was faster
                self._add_programs()
            self.db.execute(f"PRAGMA user_version={FORMAT}")

    def _add_checksums(self) -> None:
        """From format 1: checksums from the files as they are; one of the wrong size gets none and stays wrong."""
        for line in FROM_1:
            self.db.execute(line)
        for spec, first, last, *rest in self.db.execute("SELECT * FROM runs").fetchall():
            path, size = self._place(f"runs/{block_id(spec, first, last, '')}.safetensors"), rest[2]
            whole = path.is_file() and path.stat().st_size == size
            row = (spec, first, last, *rest[:-2], _sha(_read_file(path)) if whole else "lost")
            self._put("runs", (*row, _seal(row)))
        for key, body, _ in self.db.execute("SELECT * FROM findings").fetchall():
            self._put("findings", (key, body, _seal((key, body))))
        for path in (self.folder / "ledger").rglob("*.*"):
            name = path.relative_to(self.folder).as_posix()
            sha = _sha(_read_file(self._place(name)))
            self._put("files", (name, sha, sha, _seal((name, sha, sha))))

    def _add_programs(self) -> None:
        """From format 2: nobody knows what trained its runs, and that is what is written down."""
        rows = self.db.execute("SELECT * FROM runs").fetchall()
        self.db.execute("DROP TABLE runs")
        self.db.execute(RUNS)
        for *old, seal in rows:
            spec, first, last, spec_json, *rest = old
            row = (spec, first, last, "", spec_json, "", *rest)
            # a row that was not as it was written stays so
            self._put("runs", (*row, _seal(row) if _seal(old) == seal else "broken"))

    def _put(self, table: str, row: Sequence[Any]) -> None:
        self.db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({','.join('?' * len(row))})", row)

    def _place(self, name: str) -> Path:
        """Where a file of the store lies; a name or a link that leads elsewhere is a ValueError."""
        path = self.folder / name
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.folder)):
            raise ValueError("it leads out of the store")
        return path

    def _path(self, row: RunRow) -> Path:
        """Where a block's file lies. The index says so too, but what it says is not followed anywhere else."""
        if row.file != f"runs/{row.id}.safetensors" or not re.fullmatch("[0-9a-f]{16}", row.spec):
            raise ValueError("its file is not where runs are kept")
        return self._place(row.file)

    def _read(self, query: str, args: Sequence[Any] = (), kinds: Sequence[type] | None = None) -> list[Any]:
        """Rows whose fields have the right types (text, unless told otherwise): bytes that were changed may give others."""
        with self._reading():
            rows = self.db.execute(query, args).fetchall()
            if any(type(x) is not kind for row in rows for x, kind in zip(row, kinds or [str] * len(row), strict=True)):
                raise sqlite3.DatabaseError("a row holds what no store writes")
        return rows

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn an index that SQLite cannot read into one line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            said = str(error).splitlines()[0]
            # SQLite says this of a damaged file, and also of a disk that does not answer
            how = "cannot be read" if isinstance(error, sqlite3.OperationalError) else "is damaged"
            raise UserError(f"the index of store {str(self.folder)!r} {how} ({said}); if it stays so, move index.sqlite3 away, "
                            "and what it held is trained again") from error  # fmt: skip

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Turn a full or read-only disk into one line that says what was lost, and that the rest was not."""
        try:
            yield
        except (OSError, sqlite3.Error, SafetensorError, ValueError) as error:
            raise UserError(f"could not write {what} into {str(self.folder)!r} ({error}); what was finished before is "
                            "kept") from error  # fmt: skip

    def rows(self, spec: str = "") -> list[RunRow]:
        """The stored blocks whose Spec digest starts with `spec`, oldest first."""
        query = f"SELECT {', '.join(RunRow._fields)} FROM runs WHERE substr(spec, 1, ?) = ? ORDER BY made, spec, first"
        return [RunRow(*row) for row in self._read(query, (len(spec), spec), KINDS)]

    def find(self, start: str) -> RunRow:
        """The one stored block whose id starts so."""
        rows = [row for row in self.rows() if row.id.startswith(start)]
        if len(rows) != 1:
            near = ", ".join(row.id for row in (rows or self.rows())[:8]) or "none are stored"
            kind = f"{len(rows)} stored runs start with" if rows else "no stored run starts with"
            raise UserError(f"{kind} {start!r}; there are: {near}")
        return rows[0]

    def save(self, run: "Run", seconds: float, machine: str) -> None:
        """Keep a run of consecutive seeds. What is stored of the same block already must be part of it.

        Two metrics may have read the same training: storing the second never takes away what the first one read.
        """
        first, last, digest = run.seeds[0], run.seeds[-1], run.spec.digest()
        if run.seeds != tuple(range(first, last + 1)):
            raise UserError(f"a stored run holds consecutive seeds, got {list(run.seeds)}")
        if len(run.origins) > 1:
            raise UserError(f"a stored run comes from one program on one kind of device, got {described(run.origins)}")
        origin = run.origins[0] if run.origins else None
        program = origin.program() if origin else ""
        name = f"runs/{block_id(digest, first, last, program)}.safetensors"
        # of two that store the same block at once, file and row must not come from different ones
        with self.alone(f"save {digest}"):
            self._refuse_to_replace(run, program)
            with self._writing(f"run {digest}/{first}-{last}"):
                path = self._place(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                data = save(arrays_of(run), {"spec": run.spec.canonical_json(), "seeds": f"{first}-{last}"})
                self._replace(path, data)
                made, diverged = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), int((~run.finished).sum())
                row = (
                    digest, first, last, program, run.spec.canonical_json(), origin.canonical_json() if origin else "",
                    name, len(data), diverged, float(seconds), made, machine, _sha(data),
                )  # fmt: skip
                with self.db:
                    self._put("runs", (*row, _seal(row)))

    def _replace(self, path: Path, data: bytes) -> None:
        """Give a file of the store these bytes, in one go: under another name first."""
        handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        os.close(handle)
        try:
            _write_new(Path(unfinished), data)
            os.replace(unfinished, path)
            _flush(path.parent)
        except BaseException:
            Path(unfinished).unlink(missing_ok=True)
            raise

    def _refuse_to_replace(self, run: "Run", program: str) -> None:
        """A UserError if the same block is stored with something observed that this run does not have."""
        wanted = (run.spec.digest(), run.seeds[0], run.seeds[-1], program)
        stored = [row for row in self.rows(run.spec.digest()) if row[:4] == wanted]
        for row in stored:
            try:
                held = self.load(row).observed
            except DamagedRunError:
                return  # what is damaged holds nothing that could be lost
            lost = [
                name for name, x in held.items() if not np.array_equal(x, run.observed.get(name, ()), equal_nan=True)
            ]
            if lost:
                raise UserError(
                    f"run {row.id} is stored with what another metric read ({', '.join(lost)}), which this one lacks or has "
                    "otherwise; read both in one training, under names of their own"
                )

    def load(self, row: RunRow) -> "Run":
        """Read a stored block back; anything that does not fit its row is an error, not a guess."""
        from mnemoscope.training.spec import Spec

        try:
            arrays = load(self._file_of(row))
            if row.first < 0 or _sha(row.spec_json.encode())[:16] != row.spec:
                raise ValueError("its Spec or its seeds are not those that it is kept under")
        except OSError as error:
            if not _is_missing(error):
                why = error.strerror or str(error)
                raise UserError(f"stored run {row.id} cannot be read ({why}); it may be as good as ever") from error
            raise DamagedRunError(f"stored run {row.id} is damaged (its file is gone); {MEND}") from error
        except (ValueError, SafetensorError) as error:
            raise self._damaged(row, error) from error
        try:
            spec = Spec.model_validate_json(row.spec_json)
        except UserError as error:
            # its text is what was written: it is another Mnemoscope's, or an extension's that is not loaded
            raise UserError(f"stored run {row.id} is of a kind that is unknown here, not damaged ({error})") from error
        try:
            check_arrays(spec, row.last - row.first + 1, arrays)
            origins = () if spec.imported else (row.origin,)
        except (ValueError, TypeError, KeyError) as error:
            raise self._damaged(row, error) from error
        return run_of(spec, range(row.first, row.last + 1), arrays, origins)

    def _damaged(self, row: RunRow, error: Exception) -> UserError:
        reason = (str(error).splitlines() or [repr(error)])[0]
        return DamagedRunError(f"stored run {row.id} is damaged ({reason}); {MEND}")

    def _file_of(self, row: RunRow) -> bytes:
        """The bytes of a stored block, which are those that were written, or a ValueError says what is wrong."""
        if not row.sealed:
            raise ValueError("its row in the index is not what was written")
        data = _read_file(self._path(row))
        if len(data) != row.bytes:
            raise ValueError(f"{len(data)} bytes where {row.bytes} were written")
        if _sha(data) != row.sha256:
            raise ValueError("its bytes are not those that were written")
        return data

    def blocks(self, spec: "Spec", seeds: Sequence[int], program: str = "") -> tuple[list[RunRow], list[int]]:
        """Stored blocks of one program that hold wanted seeds, each seed once, and the seeds that none of them holds.

        The program is the one asked for, unless another one has all the seeds and it has not: finished work is not repeated,
        and seeds of two programs are never joined.
        """
        rows = self.rows(spec.digest())
        others = [row.program for row in reversed(rows) if row.program != program]  # the newest first
        chosen = [
            _cover([row for row in rows if row.program == name], seeds) for name in (program, *dict.fromkeys(others))
        ]
        return next((each for each in chosen if not each[1]), chosen[0])

    def delete(self, row: RunRow) -> None:
        """Forget a block: the row first, then its file, and what was kept of it while it was trained."""
        with self._writing(f"the removal of {row.id}"):
            self._delete_row(row)
            for name in self._checkpoints(row):
                self.drop_part(name)
            try:
                path = self._path(row)
            except ValueError:
                return  # a row that names another file has none of ours
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()

    def _delete_row(self, row: RunRow) -> None:
        with self.db:
            self.db.execute("DELETE FROM runs WHERE spec=? AND first=? AND last=? AND program=?", row[:4])

    def _checkpoints(self, row: RunRow) -> list[str]:
        """Blocks under way that hold seeds of a stored one: a training that was cut off just before it was done."""
        found = []
        for (name,) in self._read("SELECT name FROM files WHERE substr(name, -5) = '.part'"):
            parts = re.fullmatch(rf"runs/{re.escape(row.spec)}/(\d+)-(\d+)\..*part", name)
            if parts and int(parts[1]) <= row.last and int(parts[2]) >= row.first:
                found.append(name)
        return found

    def finding(self, key: str) -> dict[str, Any] | None:
        """A finding kept under this key, if there is one."""
        rows = self._read("SELECT key, body, seal FROM findings WHERE key=?", (key,))
        if not rows:
            return None
        if _seal(rows[0][:-1]) != rows[0][-1]:
            raise UserError(f"a stored finding ({key[:12]}) is damaged; {MEND}")
        return parsed(rows[0][1], f"a stored finding ({key[:12]})")

    def keep_finding(self, key: str, body: dict[str, Any]) -> None:
        """Keep a finding under a key that changes when anything it rests on changes."""
        text = json.dumps(body)
        with self._writing("a finding"), self.db:
            self._put("findings", (key, text, _seal((key, text))))

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the store in one go; until it has its name, the one before it counts too."""
        return self._write(name, text.encode())

    def _write(self, name: str, data: bytes) -> Path:
        with self.alone(f"write {name}"), self._writing(name):
            path, sha = self._place(name), _sha(data)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.folder / f"{name}.tmp"
            _write_new(temporary, data)
            # a file that is damaged already, or not there, is no file that counts
            row = self._file_row(name)
            before = _sha(_read_file(path)) if path.is_file() and row and not _wrong(path, row) else ""
            with self.db:
                self._put("files", (name, sha, before, _seal((name, sha, before))))
            os.replace(temporary, path)
            _flush(path.parent)
        return path

    def part(self, name: str) -> tuple[dict[str, np.ndarray], str] | None:
        """A block under way, and who wrote it; none if there is none, or none that is as it was written."""
        try:
            path, row = self._place(name), self._file_row(name)
            if row is None or not path.is_file() or _wrong(path, row):
                return None
            with safe_open(path, framework="numpy") as file:
                return load(_read_file(path)), (file.metadata() or {}).get("by", "")
        except (OSError, ValueError, SafetensorError):
            return None

    def keep_part(self, name: str, arrays: Mapping[str, np.ndarray], by: str) -> None:
        """Keep a block under way, in place of what it was before."""
        self._write(name, save({k: np.ascontiguousarray(v) for k, v in arrays.items()}, {"by": by}))

    def drop_part(self, name: str) -> None:
        """Forget a block under way: its row first, then its file."""
        with self._writing(f"the removal of {name}"):
            with self.db:
                self.db.execute("DELETE FROM files WHERE name=?", (name,))
            self._place(name).unlink(missing_ok=True)

    def read_text(self, name: str) -> str | None:
        """A file of the store, if it is there; one that is not as it was written is an error."""
        if not (self.folder / name).is_file():
            return None
        row = self._file_row(name)
        try:
            path = self._place(name)
            why = _wrong(path, row)
            text = _read_file(path).decode()
        except OSError as error:
            if not _is_missing(error):
                raise UserError(
                    f"{name} in store {str(self.folder)!r} cannot be read ({error.strerror or error})"
                ) from error
            why, text = str(error), ""
        except ValueError as error:
            why, text = str(error), ""
        if why:
            raise UserError(f"{name} in store {str(self.folder)!r} is damaged ({why}); {MEND}")
        return text

    def _file_row(self, name: str) -> tuple[str, str, str, str] | None:
        rows = self._read("SELECT name, sha256, before, seal FROM files WHERE name=?", (name,))
        return rows[0] if rows else None

    def check(self) -> list[Damage]:
        """Everything in the store that is not as it was written."""
        found = []
        with self._reading():
            if (said := self.db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                raise sqlite3.DatabaseError(said)
        findings = self._read("SELECT key, body, seal FROM findings")
        for row in self.rows():
            try:
                self._file_of(row)
            except OSError as error:
                found.append(Damage("run", row.id, error.strerror or str(error), damaged=_is_missing(error)))
            except ValueError as error:
                found.append(Damage("run", row.id, str(error).splitlines()[0]))
        found += [
            Damage("finding", row[0], "it is not what was written") for row in findings if _seal(row[:-1]) != row[-1]
        ]
        known = {row[0] for row in self._read("SELECT name FROM files")}
        # an index that was moved away knows none of the files that are still there
        there = {path.relative_to(self.folder).as_posix() for path in (self.folder / "ledger").rglob("*.json")}
        found += [damage for name in sorted(known | there) if (damage := self._file_damage(name))]
        return found

    def _file_damage(self, name: str) -> Damage | None:
        """What is wrong with a file now, or nothing; another process may be writing it."""
        while True:
            row = self._file_row(name)
            try:
                path = self._place(name)
                cut_off = self._place(f"{name}.tmp").is_file()  # before it had its name: it is written again
                why = _wrong(path, row) if path.is_file() else "it is gone" if row and not cut_off else ""
            except OSError as error:
                if not _is_missing(error):
                    return Damage("file", name, error.strerror or str(error), damaged=False)
                why = str(error)
            except ValueError as error:
                why = str(error)
            if not why:
                return None
            if self._file_row(name) == row:
                return Damage("file", name, why)

    def forget(self, damage: Damage) -> None:
        """Take out what is damaged, so that it is made again when it is next asked for."""
        with self._writing(f"the removal of {damage.name}"), self.db:
            if damage.kind == "run":
                for row in self.rows():
                    if row.id == damage.name:
                        self._delete_row(row)
                return
            column = {"finding": "key", "file": "name"}[damage.kind]
            self.db.execute(f"DELETE FROM {damage.kind}s WHERE {column}=?", (damage.name,))
        # only ledgers are kept under a name of their own; a row that names anything else, here or elsewhere, removes nothing
        if damage.kind == "file" and damage.name.startswith("ledger/"):
            with suppress(OSError, ValueError):
                self._place(damage.name).unlink(missing_ok=True)
