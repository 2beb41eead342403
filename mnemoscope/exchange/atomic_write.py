"""Exports that are there whole or not at all: they are written under another name and renamed when
they are finished."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnemoscope.core.errors import UserError


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Another name in the same folder, for what is not finished; whatever is left there in the end
    is removed."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"cannot write {str(path)!r} ({why}); give another place") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        if unfinished.is_file():
            unfinished.unlink()


def _refuse(path: Path, what: str) -> None:
    raise UserError(f"{str(path)!r} is {what}; --force writes over it, or give another place")


@contextmanager
def new_file(path: Path, force: bool) -> Iterator[Path]:
    """Where to write what becomes the file `path`; one that is there already is only replaced by
    `force`."""
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; allowed: a file")
    if path.exists() and not force:
        _refuse(path, "there already")
    with _beside(path) as unfinished:
        yield unfinished
        os.replace(unfinished, path)


@contextmanager
def new_folder(path: Path, force: bool, last: str) -> Iterator[Path]:
    """Where to write what becomes the folder `path`.

    Args:
        path: The folder, which may be there already if it is empty.
        force: Write into a folder that has files: those of the same name are replaced, and the
            others stay.
        last: The name of the file that says that the folder is whole: it comes last.
    """
    path = Path(os.path.abspath(path))  # "." and "x/.." have no name to stand beside
    if path.exists() and not path.is_dir():
        raise UserError(f"{str(path)!r} is a file; allowed: a folder")
    try:
        is_used = path.is_dir() and any(path.iterdir())
    except OSError as error:
        raise UserError(f"cannot write into {str(path)!r} ({error.strerror})") from error
    if is_used and not force:
        _refuse(path, "a folder with files in it")
    with _beside(path) as unfinished:
        unfinished.mkdir()
        yield unfinished
        if not is_used:
            os.replace(unfinished, path)
            return
        (path / last).unlink(missing_ok=True)  # from here on the old folder is not whole
        for file in sorted(unfinished.iterdir(), key=lambda file: file.name == last):
            os.replace(file, path / file.name)
