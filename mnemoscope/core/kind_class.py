"""What a class of somebody's own must be to stand as a kind, said in one line when it is defined.

Its `kind` is a Literal with itself as default; its fields are plain values that cannot change; it
defines what its family asks for, under the names that its family has.
"""

import difflib
import inspect
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import PydanticUserError

from mnemoscope.core.errors import UserError, short
from mnemoscope.core.strict import Strict

KIND = re.compile(r"[\w.-]+(/[\w.-]+)?")
MUTABLE = (list, dict, set, bytearray)
PLAIN_FIELDS = (
    "int, float, bool, str, None, a Literal, a tuple of these, another configuration, or a ClassVar"
)
_Meta: Any = type(Strict)


class KindMeta(_Meta):
    """Makes classes; what pydantic refuses in many lines is refused in one."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any):
        try:
            return super().__new__(cls, name, bases, namespace, **options)
        except PydanticUserError as error:
            raise UserError(f"{name}: {_in_our_words(error)}; allowed: {PLAIN_FIELDS}") from None


def _in_our_words(error: PydanticUserError) -> str:
    """Why pydantic cannot make a class."""
    said = str(error).splitlines()[0]
    no_type = re.search(r"non-annotated attribute was detected: `(\w+) = (.*?)`", said)
    if no_type:
        field = no_type[1]
        return f"{field} = {no_type[2]} has no type, as in {field}: int = 3"
    no_schema = re.search(r"schema for (<class '([^']*)'>|\S+)", said)
    if no_schema:
        return f"a field has the type {no_schema[2] or no_schema[1]}, which has no plain values"
    return said


def require_kind_class(cls: type[Strict]) -> None:
    """Raise for a class that could not stand in a Spec under its kind.

    Args:
        cls: a class with a kind of its own.
    """
    _require_name(cls)
    for name, field in cls.model_fields.items():
        _require_free_name(cls, name)
        for part in _parts(field.annotation):
            if part in MUTABLE:
                raise UserError(
                    f"{cls.__name__}: the field {name!r} is a {part.__name__}, which can change "
                    f"under its name; allowed: {PLAIN_FIELDS}"
                )
    _require_members(cls)


def _require_name(cls: type[Strict]) -> None:
    """Raise unless the kind is a Literal, with its one value as default."""
    field = cls.model_fields["kind"]
    default = field.default if isinstance(field.default, str) else ""
    if get_origin(field.annotation) is not Literal or get_args(field.annotation) != (default,):
        wanted = default or cls.__name__.lower()
        raise UserError(
            f"{cls.__name__}: its kind must be one Literal that is its default too, got "
            f"{inspect.formatannotation(field.annotation)} = {short(field.default)}; "
            f"allowed: kind: Literal[{wanted!r}] = {wanted!r}"
        )
    if not KIND.fullmatch(default):
        raise UserError(
            f"{cls.__name__}: {short(default)} is no name of a kind; allowed: letters, digits, "
            "'-', '_' and '.', and a slash after the name of a package"
        )


def _require_free_name(cls: type[Strict], name: str) -> None:
    """Raise for a field that has the name of a property or a method of its family."""
    for base in cls.__mro__[1:]:
        member = inspect.getattr_static(base, name, None)
        if isinstance(member, property):
            raise UserError(
                f"{cls.__name__}: {name} is a property of {base.__name__} and cannot be a field; "
                f"allowed: @property def {name}(self), which may return a field of another name"
            )
        if inspect.isfunction(member):
            raise UserError(
                f"{cls.__name__}: {name} is a method of {base.__name__} and cannot be a field; "
                "allowed: another name"
            )


def _parts(annotation: Any) -> Iterator[Any]:
    """All types that a field's type is made of."""
    yield get_origin(annotation) or annotation
    if get_origin(annotation) is not Literal:
        for part in get_args(annotation):
            yield from _parts(part)


def _require_members(cls: type[Strict]) -> None:
    """Raise for a class that lacks what its family asks for."""
    missing = sorted(getattr(cls, "__abstractmethods__", ()))
    if not missing:
        return
    hint = ""
    for name in missing:
        similar = difflib.get_close_matches(name, vars(cls), n=1)
        if similar:
            hint = f" (is {similar[0]!r} meant as {name!r}?)"
    family = next(base for base in cls.__mro__ if "family" in vars(base))
    needed = sorted(getattr(family, "__abstractmethods__", ()))
    raise UserError(
        f"{cls.__name__} lacks {', '.join(missing)}{hint}; a {family.__name__} defines "
        f"{', '.join(needed)}"
    )
