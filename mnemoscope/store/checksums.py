"""Checksums: of a file's bytes, and of a row of the index."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any


def sha256(data: bytes) -> str:
    """The SHA-256 of some bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def row_checksum(fields: Sequence[Any]) -> str:
    """The checksum of a row: of all its fields but the checksum itself."""
    return sha256(json.dumps(list(fields), default=repr).encode())
