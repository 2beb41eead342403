"""The folder of a store and its SQLite index: opening, reading rows, the words for what fails."""

import sqlite3
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from mnemoscope.core.errors import UserError
from mnemoscope.store import files, locks, schema


class Index:
    """A folder with an index; `Store` says what is kept there."""

    folder: Path  # the store
    db: sqlite3.Connection  # its index

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # SQLite would only say "unable to open"; ask the folder itself
            with tempfile.TemporaryFile(dir=self.folder):
                pass
            # SQLite does not wait for others when it sets up its journal
            with self.lock("index"):
                self.db = sqlite3.connect(self._index_path(), timeout=300)
                schema.make_current(self.db, self.folder)
        except (OSError, sqlite3.Error, ValueError, TypeError) as error:
            if hasattr(self, "db"):
                self.db.close()
            if isinstance(error, UserError):
                raise
            raise UserError(
                f"cannot use {str(self.folder)!r} as a store ({error}); give a writable folder "
                "with --store or MNEMOSCOPE_STORE"
            ) from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def _index_path(self) -> Path:
        """The file of the index, which is a file of this folder alone."""
        path = self._place("index.sqlite3")
        # SQLite writes into the file that is there, and so into what has a second name elsewhere
        if path.is_symlink() or (path.exists() and path.stat().st_nlink > 1):
            raise ValueError(
                "its index is a link, or has a second name elsewhere; "
                "copy the store instead of linking it"
            )
        return path

    def _place(self, name: str) -> Path:
        """Where a file of the store lies; a name or a link that leads elsewhere is a ValueError."""
        return files.place(self.folder, name)

    @contextmanager
    def lock(self, name: str, waiting: Callable[[], None] | None = None) -> Generator[None]:
        """Hold a name: whoever else asks for it, in any process, waits.

        The lock is the system's, so it ends with the process that holds it, however that ends.

        Args:
            name: any text.
            waiting: called if we are the ones who wait.
        """
        if not locks.AVAILABLE:
            yield
            return
        with self._writing("a lock"):
            file = locks.open_lock(self._place(locks.lock_file(name)))
        with locks.held(file, waiting):
            yield

    def _read(
        self, query: str, args: Sequence[Any] = (), types: Sequence[type] | None = None
    ) -> list[Any]:
        """Rows whose fields have the right types: bytes that were changed may give others.

        Args:
            query: in SQL.
            args: what stands for its question marks.
            types: of the columns; text, unless told otherwise.
        """
        with self._reading():
            rows = self.db.execute(query, args).fetchall()
            for row in rows:
                wanted = types or [str] * len(row)
                for value, kind in zip(row, wanted, strict=True):
                    if type(value) is not kind:
                        raise sqlite3.DatabaseError("a row holds what no store writes")
        return rows

    @contextmanager
    def _reading(self) -> Generator[None]:
        """Turn an index that SQLite cannot read into one line."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            said = str(error).splitlines()[0]
            # SQLite says this of a damaged file, and also of a disk that does not answer
            unreadable = isinstance(error, sqlite3.OperationalError)
            how = "cannot be read" if unreadable else "is damaged"
            raise UserError(
                f"the index of store {str(self.folder)!r} {how} ({said}); if it stays so, move "
                "index.sqlite3 away, and what it held is trained again"
            ) from error

    @contextmanager
    def _writing(self, what: str) -> Generator[None]:
        """Turn a full or read-only disk into one line: what was lost, and that the rest was not."""
        try:
            yield
        except (OSError, sqlite3.Error, SafetensorError, ValueError) as error:
            raise UserError(
                f"could not write {what} into {str(self.folder)!r} ({error}); what was finished "
                "before is still stored"
            ) from error
