"""Arrays that a Spec names by their content: what that is, and where it is found.

    identity = (SHA-256 of the numbers in row-major order, little-endian; shape; type)

A path is no part of it: the same content elsewhere is the same data. So this process keeps by
SHA-256 where it has seen an array, and looks nowhere else but in the folders of MNEMOSCOPE_DATA: no
stored Spec leads to a file. Content is held against its name before it is used; a file that was is
not read again as long as its size and its time stay.
"""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from mnemoscope.core.axes import Int, UInt
from mnemoscope.core.errors import UserError, short

FOLDERS = "MNEMOSCOPE_DATA"  # folders, separated as in PATH
CHUNK = 1 << 22  # numbers that are hashed at once
LARGEST = 2**31 - 1  # numbers of an array: places in it are counted in 32 bits

Source = str | os.PathLike[str] | np.ndarray
Tokens = Int[np.ndarray, "..."] | UInt[np.ndarray, "..."]


class Content(NamedTuple):
    """What an array is, wherever it stands."""

    sha256: str  # of its numbers
    shape: tuple[int, ...]  # its axes
    dtype: str  # the name of its type

    def __str__(self) -> str:
        return f"{self.sha256[:8]} ({self.dtype}[{','.join(map(str, self.shape))}])"


class _Seen(NamedTuple):
    """A file as it was when its content was hashed."""

    sign: tuple[int, ...]  # size and times
    sha256: str


# by SHA-256, where this process has seen an array: a file or the array itself
_places: dict[str, Path | np.ndarray] = {}
_seen: dict[Path, _Seen] = {}


def content_of(source: Source) -> Content:
    """What an array is; this process then knows where it stands.

    Args:
        source: a .npy file, or an array of whole numbers.
    """
    place = place_of(source)
    array = open_array(place)
    found = Content(_hash(place, array), array.shape, array.dtype.name)
    _places[found.sha256] = place
    return found


def place_of(source: Any) -> Path | np.ndarray:
    """Where an array stands: the array itself, or the full path of a file."""
    try:
        return cast(np.ndarray, source) if _is_array(source) else Path(source).absolute()
    except TypeError:
        raise UserError(
            f"token ids are a NumPy array or the path of a .npy file, got {short(source)}"
        ) from None


def _is_array(source: Any) -> bool:
    return isinstance(source, np.ndarray)


def find_array(content: Content) -> Tokens:
    """The array of this content, or one line that says what is wrong.

    Args:
        content: what it must be.
    """
    place = _places.get(content.sha256)
    if place is None:
        place = next(_in_folders(content), None)
    if place is None:
        raise UserError(
            f"the data {content} is not known here; say where it is with ms.TokenArray('FILE.npy') "
            f"or a folder in {FOLDERS}"
        )
    array = open_array(place)
    sha256 = _hash(place, array)
    if sha256 != content.sha256 or array.shape != content.shape:
        where = "the array in memory" if isinstance(place, np.ndarray) else repr(str(place))
        now = Content(sha256, array.shape, array.dtype.name)
        raise UserError(
            f"{where} was changed: it was {content} and is {now}; allowed: the content that the "
            "Spec names, or a new Spec"
        )
    _places[content.sha256] = place
    return array


def file_of(content: Content) -> Path | None:
    """The file that holds this content; None where it is an array in memory, or not known."""
    place = _places.get(content.sha256)
    if place is None:
        place = next(_in_folders(content), None)
    return place if isinstance(place, Path) else None


def remember_file(sha256: str, path: str) -> None:
    """Be told where some content is; whether it is that is seen when it is used."""
    _places.setdefault(sha256, Path(path))


def open_array(place: Path | np.ndarray) -> Tokens:
    """Whole numbers from a .npy file, mapped and not read; nothing in it is ever run.

    Args:
        place: the file, or an array that is there already.
    """
    where = repr(str(place)) if isinstance(place, Path) else short(place)
    array: np.ndarray = place if isinstance(place, np.ndarray) else _map_file(place)
    if array.dtype.kind not in "iu" or array.ndim not in (1, 2) or not array.size:
        raise UserError(
            f"token ids are whole numbers, a row for each sequence or one long row; got {where} "
            f"with {array.dtype}[{','.join(map(str, array.shape))}]"
        )
    if array.size > LARGEST:
        raise UserError(f"{where} has {array.size:,} numbers; at most {LARGEST:,} are allowed")
    return array


def _map_file(path: Path) -> np.ndarray:
    """The array that a .npy file holds, as a memory map."""
    if not path.is_file():
        why = "there is no such file" if not path.exists() else "it is no plain file"
        raise UserError(f"cannot read the token ids {str(path)!r} ({why})")
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError) as error:
        why = (str(error).splitlines() or [repr(error)])[0]
        raise UserError(
            f"cannot read the token ids {str(path)!r} ({why}); allowed: what numpy.save wrote"
        ) from None


def _hash(place: Path | np.ndarray, array: np.ndarray) -> str:
    """The SHA-256 of an array's numbers; that of a file which did not change is remembered."""
    if isinstance(place, np.ndarray):
        return _hash_numbers(array)
    about = place.stat()
    sign = (about.st_size, about.st_mtime_ns, about.st_ctime_ns, about.st_ino)
    seen = _seen.get(place)
    if seen is None or seen.sign != sign:
        seen = _Seen(sign, _hash_numbers(array))
        _seen[place] = seen
    return seen.sha256


def _hash_numbers(array: np.ndarray) -> str:
    digest = hashlib.sha256()
    rows = max(1, CHUNK // max(1, int(np.prod(array.shape[1:]))))
    for begin in range(0, len(array), rows):
        part: Any = np.ascontiguousarray(array[begin : begin + rows])
        digest.update(part.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
    return digest.hexdigest()


def _in_folders(content: Content) -> Iterator[Path]:
    """Files of the folders that the user named which have this content."""
    for folder in os.environ.get(FOLDERS, "").split(os.pathsep):
        for path in sorted(Path(folder).glob("*.npy")) if folder else ():
            try:
                array = open_array(path.absolute())
            except UserError:
                continue  # what is no array of token ids is not meant
            fits = (array.shape, array.dtype.name) == content[1:]
            if fits and _hash(path.absolute(), array) == content.sha256:
                yield path.absolute()
