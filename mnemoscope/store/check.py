"""Damage: whatever in a store is not what was written, and how it is found.

A file is held against its checksum in the index, and a row of the index against its own checksum.
"""

import sqlite3
import stat
from collections.abc import Callable, Collection
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from mnemoscope.store import files
from mnemoscope.store.checksums import row_checksum, sha256
from mnemoscope.store.run_file import RunRow, read_bytes
from mnemoscope.store.schema import CHECKSUM, format_of


class Damage(NamedTuple):
    """Something that is not what was written: a run, a finding or a file, and why.

    What cannot be read may be as good as ever (it is another user's, or a disk did not answer): it
    is not `damaged`, and no repair touches it.
    """

    kind: str  # run, finding or file
    name: str  # of the block, the finding's key, or the file's name in the store
    why: str  # what is wrong with it
    damaged: bool = True  # or it cannot be read, which says nothing about it


class FileRow(NamedTuple):
    """A ledger or a checkpoint, as the index knows it."""

    name: str  # where it is, relative to the store
    sha256: str  # of the file
    before: str  # of the file that it replaces: until the new one has its name, that one counts too
    checksum: str  # checksum of the fields above


FILE_COLUMNS = (*FileRow._fields[:-1], CHECKSUM)
FILE_QUERY = f"SELECT {', '.join(FILE_COLUMNS)} FROM files WHERE name=?"


def file_error(path: Path, row: FileRow | None) -> str:
    """What is wrong with a file that the index knows by this row, or nothing."""
    if row is None:
        return "" if path.suffix == ".md" else "the index does not know it"
    if row_checksum(row[:-1]) != row.checksum:
        return "its row in the index is not what was written"
    if sha256(files.read_file(path)) not in (row.sha256, row.before):
        return "its bytes are not those that were written"
    return ""


def integrity_error(folder: Path, name: str) -> str:
    """What is wrong with a file of the store in this folder, or nothing.

    The store is not opened, so it may be read-only. A folder without an index, or with one of
    format 1, has nothing to hold the file against.
    """
    index = folder / "index.sqlite3"
    if not index.is_file():
        return ""
    why = ""
    # the second way needs no file beside the index, which a read-only folder cannot have
    for how in ("mode=ro", "immutable=1"):
        try:
            with closing(sqlite3.connect(f"{index.absolute().as_uri()}?{how}", uri=True)) as db:
                if format_of(db) < 2:
                    return ""
                found = db.execute(FILE_QUERY, (name,)).fetchone()
        except sqlite3.OperationalError as error:
            why = f"its index cannot be read: {error}"
        except sqlite3.DatabaseError as error:
            return f"its index is damaged: {error}"
        else:
            return file_error(folder / name, FileRow(*found) if found else None)
    return why


def run_damage(folder: Path, row: RunRow) -> Damage | None:
    """What is wrong with a stored block, or nothing."""
    try:
        read_bytes(folder, row)
    except OSError as error:
        why = error.strerror or str(error)
        return Damage("run", row.id, why, damaged=files.is_missing(error))
    except ValueError as error:
        return Damage("run", row.id, str(error).splitlines()[0])
    return None


def file_damage(folder: Path, name: str, row_of: Callable[[str], FileRow | None]) -> Damage | None:
    """What is wrong with a file now, or nothing.

    Args:
        folder: the store.
        name: of the file, relative to the store.
        row_of: reads the row of a file; asked twice, since another process may be writing the file.
    """
    while True:
        row = row_of(name)
        try:
            why = _file_error_now(folder, name, row)
        except OSError as error:
            if not files.is_missing(error):
                return Damage("file", name, error.strerror or str(error), damaged=False)
            why = str(error)
        except ValueError as error:
            why = str(error)
        if not why:
            return None
        if row_of(name) == row:
            return Damage("file", name, why)


def _file_error_now(folder: Path, name: str, row: FileRow | None) -> str:
    """What is wrong with a file that may not be there, or nothing."""
    path = files.place(folder, name)
    # a writing that was cut off before the file had its name: it is written again
    cut_off = files.place(folder, f"{name}.tmp").is_file()
    if path.is_file():
        return file_error(path, row)
    return "it is gone" if row and not cut_off else ""


def orphans(folder: Path, known: Collection[str], older_than: float) -> list[str]:
    """Files among the runs that the index does not know, by name: what a cut-off writing left, or
    what an index knew that is no longer there.

    Args:
        folder: the store.
        known: the names of the files that the index knows.
        older_than: when a file must have been written, in seconds since 1970; a younger one may be
            on its way into the index.
    """
    found: list[str] = []
    for path in sorted((folder / "runs").rglob("*")):
        name = path.relative_to(folder).as_posix()
        about = path.lstat()
        if stat.S_ISREG(about.st_mode) and about.st_mtime < older_than and name not in known:
            found.append(name)
    return found
