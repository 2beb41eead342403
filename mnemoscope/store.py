"""Where finished work is kept: an SQLite index beside safetensors files. A run counts once its row is committed.

    STORE/index.sqlite3                     runs and findings
    STORE/runs/<spec digest>/<first>-<last>.safetensors   one block of consecutive seeds
    STORE/ledger/<scale>/<study>.json       what a study found

A file is written under another name, flushed and renamed, and only then indexed: a power cut or Ctrl-C leaves at worst
an unreferenced file, never a row without its file. What is read back is checked: Specs strictly, files by their size.
"""

import json
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from mnemoscope.config import UserError

if TYPE_CHECKING:  # reading the index needs no JAX
    from mnemoscope.spec import Spec
    from mnemoscope.train import Run

FORMAT = 1
SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
    spec TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, spec_json TEXT NOT NULL, file TEXT NOT NULL,
    bytes INTEGER NOT NULL, diverged INTEGER NOT NULL, seconds REAL NOT NULL, made TEXT NOT NULL, machine TEXT NOT NULL,
    PRIMARY KEY (spec, first, last)) STRICT;
CREATE TABLE IF NOT EXISTS findings (key TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
"""


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

    @property
    def id(self) -> str:
        return f"{self.spec}/{self.first}-{self.last}"


class Store:
    """A folder of finished runs and findings."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # SQLite would only say "unable to open"; ask the folder itself
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            self.db = sqlite3.connect(self.folder / "index.sqlite3", timeout=30)
            self.db.execute("PRAGMA journal_mode=WAL")
            version = self.db.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, FORMAT):
                raise UserError(f"store {self.folder} has format {version}; this Mnemoscope reads format {FORMAT}")
            self.db.executescript(SCHEMA)
            self.db.execute(f"PRAGMA user_version={FORMAT}")
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"cannot use {str(self.folder)!r} as a store ({error}); give a writable folder with "
                            "--store or MNEMOSCOPE_STORE") from error  # fmt: skip

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Turn a full or read-only disk into one line that says what was lost, and that the rest was not."""
        try:
            yield
        except (OSError, sqlite3.Error, SafetensorError) as error:
            raise UserError(f"could not write {what} into {str(self.folder)!r} ({error}); what was finished before is "
                            "kept") from error  # fmt: skip

    def rows(self, spec: str = "") -> list[RunRow]:
        """The stored blocks whose Spec digest starts with `spec`, oldest first."""
        query = "SELECT * FROM runs WHERE substr(spec, 1, ?) = ? ORDER BY made, spec, first"
        return [RunRow(*row) for row in self.db.execute(query, (len(spec), spec))]

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
        arrays = {f"snapshots/{k}": v for k, v in run.snapshots.items()}
        arrays |= {f"observed/{k}": v for k, v in run.observed.items()}
        arrays |= {"loss_steps": run.loss_steps, "losses": run.losses, "good_steps": run.good_steps}
        path = self.folder / name
        with self._writing(f"run {digest}/{first}-{last}"):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
            os.close(handle)
            try:
                header = {"spec": run.spec.canonical_json(), "seeds": f"{first}-{last}"}
                save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, temporary, header)
                with open(temporary, "rb") as written:
                    os.fsync(written.fileno())
                os.replace(temporary, path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
            row = RunRow(digest, first, last, run.spec.canonical_json(), name, path.stat().st_size,
                         int((~run.finished).sum()), seconds, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                         machine)  # fmt: skip
            with self.db:
                self.db.execute(f"INSERT OR REPLACE INTO runs VALUES ({','.join('?' * len(row))})", row)

    def load(self, row: RunRow) -> "Run":
        """Read a stored block back; anything that does not fit its row is an error, not a guess."""
        from mnemoscope.spec import Spec
        from mnemoscope.train import Run

        path = self.folder / row.file
        try:
            if path.stat().st_size != row.bytes:
                raise ValueError(f"{path.stat().st_size} bytes where {row.bytes} were written")
            arrays = load_file(path)
            spec = Spec.model_validate_json(row.spec_json)
        except (OSError, ValueError, SafetensorError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"stored run {row.id} is damaged ({reason}); delete it with 'mnemoscope runs --delete "
                            f"{row.id}' and it will be trained again") from error  # fmt: skip

        def under(prefix: str) -> dict[str, np.ndarray]:
            return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

        return Run(
            spec, tuple(range(row.first, row.last + 1)), under("snapshots/"), arrays["loss_steps"], arrays["losses"],
            arrays["good_steps"], under("observed/"),
        )  # fmt: skip

    def blocks(self, spec: "Spec", seeds: Sequence[int]) -> tuple[list[RunRow], list[int]]:
        """Stored blocks that hold wanted seeds, each seed once, and the seeds that no block holds."""
        missing, useful = set(seeds), []
        for row in sorted(self.rows(spec.digest()), key=lambda row: row.first - row.last):
            held = missing & set(range(row.first, row.last + 1))
            if held:
                useful.append(row)
                missing -= held
        return useful, sorted(missing)

    def delete(self, row: RunRow) -> None:
        """Forget a block: the row first, then its file."""
        with self._writing(f"the removal of {row.id}"):
            with self.db:
                self.db.execute("DELETE FROM runs WHERE spec=? AND first=? AND last=?", (row.spec, row.first, row.last))
            (self.folder / row.file).unlink(missing_ok=True)
            folder = (self.folder / row.file).parent
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def finding(self, key: str) -> dict[str, Any] | None:
        """A finding kept under this key, if there is one."""
        row = self.db.execute("SELECT body FROM findings WHERE key=?", (key,)).fetchone()
        return json.loads(row[0]) if row else None

    def keep_finding(self, key: str, body: dict[str, Any]) -> None:
        """Keep a finding under a key that changes when anything it rests on changes."""
        with self._writing("a finding"), self.db:
            self.db.execute("INSERT OR REPLACE INTO findings VALUES (?, ?)", (key, json.dumps(body)))

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the store in one go."""
        path = self.folder / name
        with self._writing(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(path.suffix + ".tmp")
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, path)
        return path

    def read_text(self, name: str) -> str | None:
        """A file of the store, if it is there."""
        path = self.folder / name
        return path.read_text(encoding="utf-8") if path.is_file() else None
