"""Files that a user asked for: what cannot be written is one line, not a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mnemoscope.core.errors import UserError


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around whatever writes `path`, which `--out` named."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {str(path)!r} ({error.strerror}); give another place with --out"
        ) from error
