"""The tables of the index, and how an index of an older format becomes one of this format.

| format | of   | what is new |
|--------|------|-------------|
| 1      | 0.1  | runs and findings |
| 2      | 0.1  | checksums of files and rows; the table of files |
| 3      | 0.2  | which program trained a run |
"""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mnemoscope.core.errors import UserError
from mnemoscope.store import files
from mnemoscope.store.checksums import row_checksum, sha256
from mnemoscope.store.run_file import file_name

FORMAT = 3
CHECKSUM = "seal"  # the column that has a row's checksum
# the columns are explained at `runs.RunRow`
RUNS = """
CREATE TABLE IF NOT EXISTS runs (
    spec TEXT NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    program TEXT NOT NULL,
    spec_json TEXT NOT NULL,
    trained_by TEXT NOT NULL,
    file TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    diverged INTEGER NOT NULL,
    seconds REAL NOT NULL,
    made TEXT NOT NULL,
    machine TEXT NOT NULL,
    sha256 TEXT NOT NULL,
    seal TEXT NOT NULL,
    PRIMARY KEY (spec, first, last, program)) STRICT
"""
FINDINGS = """
CREATE TABLE IF NOT EXISTS findings (
    key TEXT PRIMARY KEY,
    body TEXT NOT NULL,
    seal TEXT NOT NULL DEFAULT '') STRICT
"""
# the columns are explained at `check.FileRow`
FILES = """
CREATE TABLE IF NOT EXISTS files (
    name TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL,
    before TEXT NOT NULL,
    seal TEXT NOT NULL) STRICT
"""
SCHEMA = (RUNS, FINDINGS, FILES)
FROM_1 = (
    "ALTER TABLE runs ADD COLUMN sha256 TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE runs ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE findings ADD COLUMN seal TEXT NOT NULL DEFAULT ''",
    FILES,
)


def put(db: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
    """Write a row into a table, in place of the one that has its key.

    Args:
        db: the index.
        table: runs, findings or files.
        row: all columns, the checksum last.
    """
    marks = ",".join("?" * len(row))
    db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", row)


def put_with_checksum(db: sqlite3.Connection, table: str, fields: Sequence[Any]) -> None:
    """Write a row with its checksum.

    Args:
        db: the index.
        table: runs, findings or files.
        fields: all columns but the checksum.
    """
    put(db, table, (*fields, row_checksum(fields)))


def make_current(db: sqlite3.Connection, folder: Path) -> None:
    """Give an index, new or old, the tables of this format."""
    # a trigger or a view in a store that somebody handed over would act when the store is only read
    if db.execute("SELECT 1 FROM sqlite_master WHERE type IN ('view', 'trigger')").fetchone():
        raise ValueError("its index has views or triggers, which no store has")
    db.execute("PRAGMA journal_mode=WAL")
    version = format_of(db)
    if version not in range(FORMAT + 1):
        raise UserError(
            f"store {folder} has format {version}; this Mnemoscope reads formats 1 to {FORMAT}"
        )
    if 0 < version < FORMAT:  # 0 is a new one, without tables
        _migrate(db, folder)
    with db:
        for table in SCHEMA:
            db.execute(table)
        db.execute(f"PRAGMA user_version={FORMAT}")


def format_of(db: sqlite3.Connection) -> int:
    """The format that an index says it has; 0 for a new one."""
    return db.execute("PRAGMA user_version").fetchone()[0]


def _migrate(db: sqlite3.Connection, folder: Path) -> None:
    """Bring a store of 0.1 to this format, in one transaction. Its runs stay 0.1's."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        version = format_of(db)
        if version == 1:
            _add_checksums(db, folder)
        if version < FORMAT:  # else another process was faster
            _add_programs(db)
        db.execute(f"PRAGMA user_version={FORMAT}")


def _add_checksums(db: sqlite3.Connection, folder: Path) -> None:
    """From format 1: checksums from the files as they are.

    A file of the wrong size gets none and stays wrong.
    """
    for line in FROM_1:
        db.execute(line)
    # the two columns that are new are still empty
    for *fields, _, _ in db.execute("SELECT * FROM runs").fetchall():
        spec, first, last, _, _, size = fields[:6]
        path = files.place(folder, file_name(spec, first, last, program=""))
        whole = path.is_file() and path.stat().st_size == size
        sha = sha256(files.read_file(path)) if whole else "lost"
        put_with_checksum(db, "runs", (*fields, sha))
    for key, body, _ in db.execute("SELECT * FROM findings").fetchall():
        put_with_checksum(db, "findings", (key, body))
    for path in (folder / "ledger").rglob("*.*"):
        name = path.relative_to(folder).as_posix()
        sha = sha256(files.read_file(files.place(folder, name)))
        put_with_checksum(db, "files", (name, sha, sha))


def _add_programs(db: sqlite3.Connection) -> None:
    """From format 2: nobody knows what trained its runs, and that is what is written down."""
    rows = db.execute("SELECT * FROM runs").fetchall()
    db.execute("DROP TABLE runs")
    db.execute(RUNS)
    for *old, checksum in rows:
        spec, first, last, spec_json, *rest = old
        new = (spec, first, last, "", spec_json, "", *rest)
        if row_checksum(old) == checksum:
            put_with_checksum(db, "runs", new)
        else:  # a row that was not as it was written stays so
            put(db, "runs", (*new, "broken"))
