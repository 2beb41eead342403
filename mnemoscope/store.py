"""Where finished work is kept: an SQLite index beside safetensors files. A run counts once its row is committed.

    STORE/index.sqlite3                     runs and findings
    STORE/runs/<spec digest>/<first>-<last>.safetensors   one block of consecutive seeds
    STORE/runs/<spec digest>/<first>-<last>.part          a block that is being trained, as it was a while ago
    STORE/ledger/<scale>/<study>.json       what a study found
    STORE/locks/                            who is at work on what; empty files, locked by the system

A run's file is written under another name, flushed and renamed, and only then indexed: a power cut or Ctrl-C leaves at worst
an unreferenced file. A file that replaces an older one is flushed, then indexed beside the older one, then renamed: until then
either of them counts. The index has the SHA-256 of every file, and every row of it carries a seal,
the SHA-256 of its own fields: what is read back is what was written, or it is an error that says what to do. `check` looks at
everything.
"""

import hashlib
import json
import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save, save_file

from mnemoscope.config import UserError, parsed

try:
    import fcntl
except ImportError:  # Windows has no such locks: one process at a time on a store
    fcntl = None

if TYPE_CHECKING:  # reading the index needs no JAX
    from mnemoscope.spec import Spec
    from mnemoscope.train import Run

FORMAT = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    spec TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, spec_json TEXT NOT NULL, file TEXT NOT NULL,
    bytes INTEGER NOT NULL, diverged INTEGER NOT NULL, seconds REAL NOT NULL, made TEXT NOT NULL, machine TEXT NOT NULL,
    sha256 TEXT NOT NULL DEFAULT '', seal TEXT NOT NULL DEFAULT '', PRIMARY KEY (spec, first, last)) STRICT;
CREATE TABLE IF NOT EXISTS findings (key TEXT PRIMARY KEY, body TEXT NOT NULL, seal TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE IF NOT EXISTS files (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, before TEXT NOT NULL, seal TEXT NOT NULL) STRICT;
"""
# format 1 had neither checksums nor the table of files
FROM_1 = """
ALTER TABLE runs ADD COLUMN sha256 TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN seal TEXT NOT NULL DEFAULT '';
ALTER TABLE findings ADD COLUMN seal TEXT NOT NULL DEFAULT '';
"""
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


def _wrong(path: Path, row: tuple[str, str, str, str] | None) -> str:
    """What is wrong with a file that the index knows by this row, or nothing."""
    if row is None:
        return "" if path.suffix == ".md" else "the index does not know it"
    if _seal(row[:-1]) != row[-1]:
        return "its row in the index is not what was written"
    return "" if _sha(path.read_bytes()) in row[1:3] else "its bytes are not those that were written"


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
                if db.execute("PRAGMA user_version").fetchone()[0] < FORMAT:
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
    return {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def run_of(spec: "Spec", seeds: Iterable[int], arrays: Mapping[str, np.ndarray]) -> "Run":
    """The run that `arrays_of` took apart."""
    from mnemoscope.train import Run

    def under(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

    return Run(
        spec, tuple(seeds), under("snapshots/"), arrays["loss_steps"], arrays["losses"], arrays["good_steps"],
        under("observed/"),
    )  # fmt: skip


class Damage(NamedTuple):
    """Something that is not what was written: a run, a finding or a file, and why."""

    kind: str
    name: str
    why: str


class RunRow(NamedTuple):
    """One stored block of seeds, as the index knows it."""

    spec: str
    first: int
    last: int
    spec_json: str
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
        return f"{self.spec}/{self.first}-{self.last}"


KINDS = (str, int, int, str, str, int, int, float, str, str, str, str)  # of a row's fields


def check_arrays(spec: "Spec", seeds: int, arrays: Mapping[str, np.ndarray]) -> None:
    """A ValueError unless these are the arrays of such a run: whoever sealed or sent them may have written anything."""
    from mnemoscope.model import parameter_shapes

    snaps, looks = len(spec.snapshot_steps()), len(spec.look_steps())
    if not {"losses", "loss_steps", "good_steps"} <= set(arrays):
        raise ValueError("it is no whole run")
    shapes = parameter_shapes(spec.model, spec.task.d_vocab, spec.task.n_ctx, spec.task.d_vocab_out)
    stops = arrays["loss_steps"].shape
    wanted = {f"snapshots/{name}": ("f", (seeds, snaps, *shape)) for name, shape in shapes.items()}
    wanted |= {"losses": ("f", (seeds, *stops)), "loss_steps": ("i", stops[:1]), "good_steps": ("i", (seeds,))}
    observed = {name for name in arrays if name.startswith("observed/")}
    found = {name: (x.dtype.kind, x.shape) for name, x in arrays.items() if name not in observed}
    if (
        found != wanted
        or (spec.watch and not observed)
        or any(arrays[name].shape[:2] != (seeds, looks) for name in observed)
    ):
        raise ValueError("its arrays are not those of its Spec and seeds")


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
                self.db = sqlite3.connect(self._place("index.sqlite3"), timeout=300)
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
        if version not in (0, 1, FORMAT):
            raise UserError(f"store {self.folder} has format {version}; this Mnemoscope reads formats 1 to {FORMAT}")
        if version == 1:
            self._migrate()
        if version != FORMAT:
            self.db.executescript(SCHEMA)
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
        """Give a store of format 1 its checksums, from the files as they are; one of the wrong size gets none and stays wrong."""
        with self.db:
            self.db.execute("BEGIN IMMEDIATE")
            if self.db.execute("PRAGMA user_version").fetchone()[0] != 1:  # another process was faster
                return
            for line in FROM_1.strip().splitlines() + SCHEMA.strip().split(";\n")[2:]:
                self.db.execute(line)
            for row in map(RunRow._make, self.db.execute("SELECT * FROM runs").fetchall()):
                path = self._path(row)
                whole = path.is_file() and path.stat().st_size == row.bytes
                row = row._replace(sha256=_sha(path.read_bytes()) if whole else "lost")
                self._put("runs", (*row[:-1], _seal(row[:-1])))
            for key, body, _ in self.db.execute("SELECT * FROM findings").fetchall():
                self._put("findings", (key, body, _seal((key, body))))
            for path in (self.folder / "ledger").rglob("*.*"):
                name = path.relative_to(self.folder).as_posix()
                sha = _sha(self._place(name).read_bytes())
                self._put("files", (name, sha, sha, _seal((name, sha, sha))))
            self.db.execute(f"PRAGMA user_version={FORMAT}")

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
        """Keep a run of consecutive seeds."""
        first, last, digest = run.seeds[0], run.seeds[-1], run.spec.digest()
        if run.seeds != tuple(range(first, last + 1)):
            raise UserError(f"a stored run holds consecutive seeds, got {list(run.seeds)}")
        name = f"runs/{digest}/{first}-{last}.safetensors"
        # of two that store the same block at once, file and row must not come from different ones
        with self.alone(f"save {digest}"), self._writing(f"run {digest}/{first}-{last}"):
            path = self._place(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            os.close(handle)
            try:
                header = {"spec": run.spec.canonical_json(), "seeds": f"{first}-{last}"}
                save_file(arrays_of(run), temporary, header)
                with open(temporary, "rb") as written:
                    os.fsync(written.fileno())
                    sha256 = _sha(written.read())
                os.replace(temporary, path)
                _flush(path.parent)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            made, diverged = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), int((~run.finished).sum())
            size, spec_json = path.stat().st_size, run.spec.canonical_json()
            row = digest, first, last, spec_json, name, size, diverged, float(seconds), made, machine, sha256
            with self.db:
                self._put("runs", (*row, _seal(row)))

    def load(self, row: RunRow) -> "Run":
        """Read a stored block back; anything that does not fit its row is an error, not a guess."""
        from mnemoscope.spec import Spec

        try:
            arrays = load(self._file_of(row))
            spec = Spec.model_validate_json(row.spec_json)
            if row.first < 0 or spec.digest() != row.spec:
                raise ValueError("its Spec or its seeds are not those that it is kept under")
            check_arrays(spec, row.last - row.first + 1, arrays)
        except (OSError, ValueError, TypeError, KeyError, SafetensorError) as error:
            reason = (str(error).splitlines() or [repr(error)])[0]
            raise UserError(f"stored run {row.id} is damaged ({reason}); {MEND}") from error
        return run_of(spec, range(row.first, row.last + 1), arrays)

    def _file_of(self, row: RunRow) -> bytes:
        """The bytes of a stored block, which are those that were written, or a ValueError says what is wrong."""
        if not row.sealed:
            raise ValueError("its row in the index is not what was written")
        data = self._path(row).read_bytes()
        if len(data) != row.bytes:
            raise ValueError(f"{len(data)} bytes where {row.bytes} were written")
        if _sha(data) != row.sha256:
            raise ValueError("its bytes are not those that were written")
        return data

    def blocks(self, spec: "Spec", seeds: Sequence[int]) -> tuple[list[RunRow], list[int]]:
        """Stored blocks that hold wanted seeds, each seed once, and the seeds that no block holds."""
        missing, useful = set(seeds), []
        for row in sorted(self.rows(spec.digest()), key=lambda row: row.first - row.last):
            held = {seed for seed in missing if row.first <= seed <= row.last}
            if held:
                useful.append(row)
                missing -= held
        return useful, sorted(missing)

    def delete(self, row: RunRow) -> None:
        """Forget a block: the row first, then its file."""
        with self._writing(f"the removal of {row.id}"):
            with self.db:
                self.db.execute("DELETE FROM runs WHERE spec=? AND first=? AND last=?", (row.spec, row.first, row.last))
            try:
                path = self._path(row)
            except ValueError:
                return  # a row that names another file has none of ours
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()

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
            temporary = self._place(f"{name}.tmp")
            temporary.write_bytes(data)
            _flush(temporary)
            # a file that is damaged already, or not there, is no file that counts
            row = self._file_row(name)
            before = _sha(path.read_bytes()) if path.is_file() and row and not _wrong(path, row) else ""
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
                return load(path.read_bytes()), (file.metadata() or {}).get("by", "")
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
            why, text = _wrong(path := self._place(name), row), path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
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
            except (OSError, ValueError) as error:
                found.append(Damage("run", row.id, str(error).splitlines()[0]))
        found += [
            Damage("finding", row[0], "it is not what was written") for row in findings if _seal(row[:-1]) != row[-1]
        ]
        known = {row[0] for row in self._read("SELECT name FROM files")}
        # an index that was moved away knows none of the files that are still there
        there = {path.relative_to(self.folder).as_posix() for path in (self.folder / "ledger").rglob("*.json")}
        found += [Damage("file", name, why) for name in sorted(known | there) if (why := self._file_damage(name))]
        return found

    def _file_damage(self, name: str) -> str:
        """What is wrong with a file now, or nothing; another process may be writing it."""
        while True:
            row = self._file_row(name)
            try:
                path = self._place(name)
                cut_off = self._place(f"{name}.tmp").is_file()  # before it had its name: it is written again
                why = _wrong(path, row) if path.is_file() else "it is gone" if row and not cut_off else ""
            except (OSError, ValueError) as error:
                why = str(error)
            if not why or self._file_row(name) == row:
                return why

    def forget(self, damage: Damage) -> None:
        """Take out what is damaged, so that it is made again when it is next asked for."""
        with self._writing(f"the removal of {damage.name}"), self.db:
            if damage.kind == "run":
                spec, first, last = re.fullmatch(r"(.*)/(-?\d+)-(-?\d+)", damage.name, re.DOTALL).groups()  # pyright: ignore[reportOptionalMemberAccess]
                self.db.execute("DELETE FROM runs WHERE spec=? AND first=? AND last=?", (spec, int(first), int(last)))
                return
            column = {"finding": "key", "file": "name"}[damage.kind]
            self.db.execute(f"DELETE FROM {damage.kind}s WHERE {column}=?", (damage.name,))
        # only ledgers are kept under a name of their own; a row that names anything else, here or elsewhere, removes nothing
        if damage.kind == "file" and damage.name.startswith("ledger/"):
            with suppress(OSError, ValueError):
                self._place(damage.name).unlink(missing_ok=True)
