"""What is kept in a store: runs, findings, ledgers, and checkpoints of runs that are being trained.

The order of writing is what makes a store safe. A run's file is flushed and renamed, and only then
indexed. A ledger or a checkpoint, which replaces an older file, is flushed, then indexed beside the
older one, then renamed.
"""

import json
import os
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from mnemoscope.core.errors import UserError, parsed
from mnemoscope.core.fingerprint import describe_origins
from mnemoscope.store import files, run_file
from mnemoscope.store.check import (
    FILE_QUERY,
    Damage,
    FileRow,
    file_damage,
    file_error,
    orphans,
    run_damage,
)
from mnemoscope.store.checksums import row_checksum, sha256
from mnemoscope.store.index import Index
from mnemoscope.store.run_file import HOW_TO_REPAIR, DamagedRunError, RunRow
from mnemoscope.store.schema import CHECKSUM, put, put_with_checksum

if TYPE_CHECKING:  # reading the index needs no JAX
    from mnemoscope.training.run import Run
    from mnemoscope.training.spec import Spec


ORPHANED_AFTER = 3600  # seconds after which nobody is still writing a file


def open_store(store: "Store | str | os.PathLike[str]") -> "Store":
    """A store, or the one in this folder, which is made if it is not there."""
    return store if isinstance(store, Store) else Store(Path(store))


class Store(Index):
    """A folder of finished runs and findings."""

    # ---- runs

    def rows(self, spec: str = "") -> list[RunRow]:
        """The stored blocks whose Spec digest starts with `spec`, oldest first."""
        # a range, which the index is sorted by: no digest has a letter after f
        query = (
            f"SELECT {', '.join((*RunRow._fields[:-1], CHECKSUM))} FROM runs "
            "WHERE spec >= ? AND spec < ? || 'g' ORDER BY made, spec, first"
        )
        found = self._read(query, (spec, spec), run_file.COLUMN_TYPES)
        return [RunRow(*row) for row in found]

    def find(self, start: str) -> RunRow:
        """The one stored block whose id starts so, in capitals or not."""
        rows = [row for row in self.rows() if row.starts_with(start)]
        if len(rows) == 1:
            return rows[0]
        kind = f"{len(rows)} stored runs start with" if rows else "no stored run starts with"
        shown = rows or self.rows()
        near = ", ".join(row.id for row in shown[:8]) or "none are stored"
        raise UserError(f"{kind} {start!r}; there are: {near}")

    def blocks(
        self, spec: "Spec", seeds: int | Sequence[int], program: str = ""
    ) -> tuple[list[RunRow], list[int]]:
        """Stored blocks of one program that hold wanted seeds, and the seeds that none of them has.

        Each seed is held once. The program is the one asked for, unless another one has all the
        seeds and it has not: finished work is not repeated, and seeds of two programs are never
        joined.

        Args:
            spec: what was trained.
            seeds: those that are wanted; 16 means 0 to 15.
            program: fingerprint of the program that is asked for first.
        """
        from mnemoscope.core.seeds import different_seeds  # JAX, which other methods do without

        wanted = different_seeds(seeds)
        rows = self.rows(spec.digest())

        def held_by(name: str) -> tuple[list[RunRow], list[int]]:
            return run_file.cover([row for row in rows if row.program == name], wanted)

        newest_first = [row.program for row in reversed(rows)]
        for name in dict.fromkeys([program, *newest_first]):
            useful, missing = held_by(name)
            if not missing:
                return useful, missing
        return held_by(program)

    def load(self, row: RunRow) -> "Run":
        """Read a stored block back; anything that does not fit its row is an error, not a guess."""
        return run_file.load_run(self.folder, row)

    def load_arrays(self, row: RunRow) -> dict[str, np.ndarray]:
        """The arrays of a stored block as they are, also of a kind that is unknown here."""
        return run_file.read_arrays(self.folder, row)

    def save(self, run: "Run", seconds: float, machine: str) -> None:
        """Keep a run of consecutive seeds; what is stored of the block already must be part of it.

        Two metrics may have read the same training: storing the second never takes away what the
        first one read.

        Args:
            run: what was trained, by one program.
            seconds: how long that took.
            machine: what trained it, in words.
        """
        first = run.seeds[0]
        last = run.seeds[-1]
        if run.seeds != tuple(range(first, last + 1)):
            raise UserError(f"a stored run holds consecutive seeds, got {list(run.seeds)}")
        if len(run.origins) > 1:
            raise UserError(
                "a stored run comes from one program on one kind of device, "
                f"got {describe_origins(run.origins)}"
            )
        digest = run.spec.digest()
        # of two that store the same block at once, file and row must not come from different ones
        with self.lock(f"save {digest}"):
            self._refuse_to_replace(run)
            with self._writing(f"run {digest}/{first}-{last}"):
                # the disk holds the file before the index knows of it
                row = run_file.write_run(self.folder, run, seconds, machine)
                with self.db:
                    put(self.db, "runs", row)

    def _refuse_to_replace(self, run: "Run") -> None:
        """A UserError if the same block is stored with a metric that this run lacks."""
        digest = run.spec.digest()
        origin = run_file.origin_of(run)
        program = origin.program() if origin else ""
        block = (digest, run.seeds[0], run.seeds[-1], program)
        stored = [row for row in self.rows(digest) if row[:4] == block]
        for row in stored:
            try:
                held = self.load(row).metrics
            except DamagedRunError:
                return  # what is damaged holds nothing that could be lost
            lost: list[str] = []
            for name, array in held.items():
                if not np.array_equal(array, run.metrics.get(name, ()), equal_nan=True):
                    lost.append(name)
            if lost:
                raise UserError(
                    f"run {row.id} is stored with what another metric read ({', '.join(lost)}), "
                    "which this one lacks or has otherwise; "
                    "read both in one training, under names of their own"
                )

    def delete(self, row: RunRow) -> None:
        """Forget a block: the row first, then its checkpoints and its file."""
        with self._writing(f"the removal of {row.id}"):
            self._delete_row(row)
            for name in self._checkpoints(row):
                self.drop_checkpoint(name)
            try:
                path = run_file.path_of(self.folder, row)
            except ValueError:
                return  # a row that names another file has none of ours
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()

    def _delete_row(self, row: RunRow) -> None:
        with self.db:
            self.db.execute(
                "DELETE FROM runs WHERE spec=? AND first=? AND last=? AND program=?", row[:4]
            )

    def _checkpoints(self, row: RunRow) -> list[str]:
        """Checkpoints with seeds of a stored block: a training cut off just before it was done."""
        found: list[str] = []
        for (name,) in self._read("SELECT name FROM files WHERE substr(name, -5) = '.part'"):
            seeds = re.fullmatch(rf"runs/{re.escape(row.spec)}/(\d+)-(\d+)\..*part", name)
            if seeds and int(seeds[1]) <= row.last and int(seeds[2]) >= row.first:
                found.append(name)
        return found

    # ---- findings

    def finding(self, key: str) -> dict[str, Any] | None:
        """A finding kept under this key, if there is one."""
        rows = self._read(f"SELECT key, body, {CHECKSUM} FROM findings WHERE key=?", (key,))
        if not rows:
            return None
        _, body, checksum = rows[0]
        if row_checksum((key, body)) != checksum:
            raise UserError(f"a stored finding ({key[:12]}) is damaged; {HOW_TO_REPAIR}")
        return parsed(body, f"a stored finding ({key[:12]})")

    def finding_keys(self) -> list[str]:
        """The keys of all findings."""
        return [key for (key,) in self._read("SELECT key FROM findings ORDER BY key")]

    def keep_finding(self, key: str, body: dict[str, Any]) -> None:
        """Keep a finding under a key that changes when anything it rests on changes."""
        text = json.dumps(body)
        with self._writing("a finding"), self.db:
            put_with_checksum(self.db, "findings", (key, text))

    # ---- ledgers

    def read_text(self, name: str) -> str | None:
        """A file of the store, if it is there; one that is not as it was written is an error."""
        if not (self.folder / name).is_file():
            return None
        row = self._file_row(name)
        text = ""
        try:
            path = self._place(name)
            why = file_error(path, row)
            text = files.read_file(path).decode()
        except OSError as error:
            if not files.is_missing(error):
                raise UserError(
                    f"{name} in store {str(self.folder)!r} cannot be read "
                    f"({error.strerror or error})"
                ) from error
            why = str(error)
        except ValueError as error:
            why = str(error)
        if why:
            raise UserError(
                f"{name} in store {str(self.folder)!r} is damaged ({why}); {HOW_TO_REPAIR}"
            )
        return text

    def write_text(self, name: str, text: str) -> Path:
        """Write a file of the store in one go; until it has its name, the one before counts too."""
        return self._write(name, text.encode())

    def _write(self, name: str, data: bytes) -> Path:
        """Flush the file under another name, index it beside the one before it, then rename it."""
        with self.lock(f"write {name}"), self._writing(name):
            path = self._place(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = self.folder / f"{name}.tmp"
            files.write_new(temporary, data)
            before = self._standing(name, path)
            with self.db:
                put_with_checksum(self.db, "files", (name, sha256(data), before))
            os.replace(temporary, path)
            files.flush(path.parent)
        return path

    def _standing(self, name: str, path: Path) -> str:
        """The checksum of the file that stands there now.

        Empty for one that is damaged already, or not there: it is no file that counts.
        """
        row = self._file_row(name)
        if path.is_file() and row and not file_error(path, row):
            return sha256(files.read_file(path))
        return ""

    def _file_row(self, name: str) -> FileRow | None:
        rows = self._read(FILE_QUERY, (name,))
        return FileRow(*rows[0]) if rows else None

    # ---- checkpoints of blocks that are being trained

    def read_checkpoint(self, name: str) -> tuple[dict[str, np.ndarray], str] | None:
        """A block under way, and who wrote it; none if there is none that is as it was written."""
        try:
            path = self._place(name)
            row = self._file_row(name)
            if row is None or not path.is_file() or file_error(path, row):
                return None
            opened: Any = safe_open(path, framework="numpy")  # it does not say what it opens
            with opened as file:
                about: dict[str, str] = file.metadata() or {}
            return load(files.read_file(path)), about.get("by", "")
        except (OSError, ValueError, SafetensorError):
            return None

    def save_checkpoint(self, name: str, arrays: Mapping[str, np.ndarray], by: str) -> None:
        """Keep a block under way, in place of what it was before.

        Args:
            name: of its file, relative to the store.
            arrays: the state of the training.
            by: who wrote it: only the same program on the same machine goes on from there.
        """
        contiguous = {key: np.ascontiguousarray(array) for key, array in arrays.items()}
        self._write(name, save(contiguous, {"by": by}))

    def drop_checkpoint(self, name: str) -> None:
        """Forget a block under way: its row first, then its file."""
        with self._writing(f"the removal of {name}"):
            with self.db:
                self.db.execute("DELETE FROM files WHERE name=?", (name,))
            self._place(name).unlink(missing_ok=True)

    # ---- damage

    def check(self) -> list[Damage]:
        """Everything in the store that is not as it was written."""
        with self._reading():
            said = self.db.execute("PRAGMA integrity_check").fetchone()[0]
            if said != "ok":
                raise sqlite3.DatabaseError(said)
        findings = self._read(f"SELECT key, body, {CHECKSUM} FROM findings")
        found = [run_damage(self.folder, row) for row in self.rows()]
        for key, body, checksum in findings:
            if row_checksum((key, body)) != checksum:
                found.append(Damage("finding", key, "it is not what was written"))
        names = {name for (name,) in self._read("SELECT name FROM files")}
        # an index that was moved away knows none of the files that are still there
        for path in (self.folder / "ledger").rglob("*.json"):
            names.add(path.relative_to(self.folder).as_posix())
        found += [file_damage(self.folder, name, self._file_row) for name in sorted(names)]
        return [damage for damage in found if damage]

    def orphans(self) -> list[str]:
        """Files among the runs that the index does not know, and that nobody is writing now."""
        known = {row.file for row in self.rows()}
        known |= {name for (name,) in self._read("SELECT name FROM files")}
        return orphans(self.folder, known, time.time() - ORPHANED_AFTER)

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
        # only ledgers are kept under a name of their own; a row that names anything else, here or
        # elsewhere, removes nothing
        if damage.kind == "file" and damage.name.startswith("ledger/"):
            with suppress(OSError, ValueError):
                self._place(damage.name).unlink(missing_ok=True)
