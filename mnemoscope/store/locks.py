"""Locks between processes: an empty file each, locked by the system.

The system lets go of a lock when the process that holds it ends, however that ends.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from mnemoscope.store.checksums import sha256

try:
    import fcntl
except ImportError:  # Windows has no such locks: one process at a time on a store
    fcntl = None

AVAILABLE = fcntl is not None


def lock_file(name: str) -> str:
    """The file of a lock, relative to the store: any text may be the name of a lock."""
    return f"locks/{sha256(name.encode())[:16]}"


def open_lock(path: Path) -> IO[str]:
    """Open a lock's file, which is made if it is not there; nothing is held yet."""
    path.parent.mkdir(exist_ok=True)
    return open(path, "a")


@contextmanager
def held(file: IO[str], waiting: Callable[[], None] | None = None) -> Generator[None]:
    """Hold a lock until the end of the block; `waiting` is called if another process has it."""
    assert fcntl is not None, "ask AVAILABLE first"
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
