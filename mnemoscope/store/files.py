"""Plain files, read and written safely: no link is followed, and what is written is on the disk.

A store may be handed over by somebody else, so a name in it may be a link to anywhere, or a pipe
that never ends.
"""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

# neither flag exists on Windows
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)


def place(folder: Path, name: str) -> Path:
    """Where a file of a folder lies; a name or a link that leads elsewhere is a ValueError."""
    path = folder / name
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder)):
        raise ValueError("it leads out of the store")
    return path


def read_file(path: Path) -> bytes:
    """The bytes of a plain file.

    A link, a pipe or a device in its place is a ValueError, not followed and not waited for.
    """
    handle = os.open(path, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("it is no plain file")
        return file.read()


def write_new(path: Path, data: bytes) -> None:
    """Write a file that was not there, and have the disk hold it.

    What stood under its name is taken away first, not written through: it may be a link to
    anywhere. Others may read it as far as the user's umask lets them.
    """
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW, 0o666)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Give a file these bytes, in one go: under another name first."""
    handle, unfinished = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    os.close(handle)
    try:
        # written anew: the file that `mkstemp` made could be read by its owner alone
        write_new(Path(unfinished), data)
        os.replace(unfinished, path)
        flush(path.parent)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder, before going on."""
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_missing(error: OSError) -> bool:
    """Whether a file is gone, or something else stands in its place.

    Any other error says nothing about what the file holds.
    """
    return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
