"""The one error that users meet, notices that stop nothing, and the words of both.

A message is one line: what was wrong, what came, what is allowed.
"""

import difflib
import json
import math
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any, cast

FEW = 16  # numbers of an array that are written out


class UserError(ValueError):
    """What the user asked for cannot be done; the message is one line that says what is allowed."""

    def __init__(self, message: str):
        # names from files and prompts may hold line ends and codes that a terminal obeys: they are
        # shown, not printed
        printable = [c if c.isprintable() else repr(c)[1:-1] for c in message]
        super().__init__("".join(printable))


class NoSuchNameError(UserError, AttributeError):
    """A name that is not there, in one line that says what is; `hasattr` answers False."""


class Notice(RuntimeWarning):
    """What the user should know and stops nothing; the command line says it in one line."""


def short(value: object, most: int = 100) -> str:
    """A value as it would be written, cut where it would fill the screen.

    Of an array with more than a few numbers it is type and shape: float32[5,64].
    """
    n_parts = 0
    if isinstance(value, tuple | list | set | frozenset):
        parts = cast(Collection[object], value)
        n_parts = len(parts)
        if n_parts > most:  # a table of millions is not written out to be cut
            beginning = islice(parts, most)
            parts = list(beginning) if isinstance(parts, list) else tuple(beginning)
        value = parts
    try:
        text = _array(value) or repr(value)
    except RecursionError:
        return "what is nested too deeply"
    if len(text) <= most:
        return text
    return f"{text[:most]}.. ({n_parts:,} in all)" if n_parts else f"{text[:most]}.."


def _array(value: Any) -> str:
    """An array in one line; empty for what is none."""
    dtype = getattr(value, "dtype", None)
    shape = getattr(value, "shape", None)
    if dtype is None or not isinstance(shape, tuple):
        return ""
    sizes = cast(tuple[int, ...], shape)
    try:
        numbers = value.tolist() if math.prod(sizes) <= FEW else None
    except (TypeError, AttributeError):  # what `jit` traces has no numbers, nor has a random key
        numbers = None
    return f"{dtype}[{','.join(map(str, sizes))}]" if numbers is None else repr(numbers)


def in_one_line(kind: str, fields: Mapping[str, object]) -> str:
    """What an object prints as: the name of its class, and each field in short."""
    written = [f"{name}={short(value)}" for name, value in fields.items()]
    return f"{kind}({', '.join(written)})"


def unknown(kind: str, came: object, allowed: Iterable[object], near: str | None = None) -> str:
    """The sentence for a name that matches nothing: what was wrong, what came, what is allowed.

    Args:
        kind: What the name should have been the name of.
        came: The name that came.
        allowed: The names that there are.
        near: The name that was meant, where that is known; else the most similar one is suggested.
    """
    names = [str(name) for name in allowed]
    similar = difflib.get_close_matches(str(came)[:100], names, n=1)
    meant = near or (similar[0] if similar else None)
    hint = f" (did you mean {meant!r}?)" if meant else ""
    return f"unknown {kind} {short(str(came))}{hint}; allowed: {', '.join(names)}"


def in_any_case(came: str, names: Iterable[str]) -> str:
    """The name that was meant, where it is alone in being the same but for capitals; else what
    came.

    Args:
        came: as somebody wrote it.
        names: as they are.
    """
    names = list(names)
    meant = [name for name in names if name.casefold() == came.casefold()]
    return meant[0] if len(meant) == 1 and came not in names else came


def counted(number: int, noun: str, plural: str = "") -> str:
    """So many of something: 1 run, 2 runs.

    Args:
        number: how many.
        noun: of one.
        plural: of several, where it is not the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def parsed(text: str, where: str) -> dict[str, Any]:
    """A JSON object from a file, or one line that says which file holds none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} holds no JSON ({error})") from None
    if not isinstance(found, dict):
        raise UserError(f"{where} holds no JSON object, but {short(found)}")
    return cast(dict[str, Any], found)
