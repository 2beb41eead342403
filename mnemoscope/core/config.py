"""Strict, frozen configuration.

Most defects of this field are silence: a misspelt key that vanishes, a size that cannot be. Every
piece of configuration is therefore a `Strict` model: frozen (so it can be hashed and handed to
`jit` as a constant), with unknown keys refused by name, and with one canonical JSON text from which
its identity is computed.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator

from mnemoscope.core.errors import UserError, short, unknown


def _complaint(error: ValidationError) -> str:
    """Why a configuration was refused, in one line: the field, what is allowed, what came."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    if said != first["msg"]:
        return said
    if len(said) > 300:
        said = f"{said[:300]}.."
    came = short(first["input"])
    if not first["loc"]:
        return f"{said}, got {came}"
    field = str(first["loc"][-1])[:100]
    return f"{field}: {said}, got {came}"


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn what pydantic says of a configuration into one line."""
    try:
        yield
    except ValidationError as error:
        said = _complaint(error)
        if not said.startswith(f"{name}: "):
            said = f"{name}: {said}"
        raise UserError(said) from None
    except RecursionError:
        raise UserError(f"{name}: nested too deeply") from None


S = TypeVar("S", bound="Strict")


@cache
def _allowed_classes(annotation: Any) -> tuple[type, ...]:
    """The configuration classes that a field's type names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return (annotation,)
    return tuple(cls for part in get_args(annotation) for cls in _allowed_classes(part))


def _configurations(value: Any) -> Iterator["Strict"]:
    """The configurations that a field holds, in tuples and dictionaries too."""
    if isinstance(value, Strict):
        yield value
    elif isinstance(value, tuple | list | dict):
        parts = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from _configurations(part)


class Strict(BaseModel):
    """A frozen configuration that refuses unknown keys and hashes by its canonical JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    later: ClassVar[frozenset[str]] = frozenset()
    """Fields that came later. At their default they are left out of the JSON, so that a
    configuration written before they existed keeps its identity."""

    def __init__(self, /, **fields: Any) -> None:
        with refusing(type(self).__name__):
            super().__init__(**fields)

    @classmethod
    def model_validate(cls: type[S], *args: Any, **options: Any) -> S:
        """From a dictionary; a refusal is one line here too."""
        with refusing(cls.__name__):
            return super().model_validate(*args, **options)

    @classmethod
    def model_validate_json(cls: type[S], *args: Any, **options: Any) -> S:
        """From JSON; a refusal is one line here too."""
        with refusing(cls.__name__):
            return super().model_validate_json(*args, **options)

    def __eq__(self, other: object) -> bool:
        """By class and fields alone: tables that were computed from them and kept do not count."""
        if type(self) is not type(other):
            return False
        names = type(self).model_fields
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def model_copy(self: S, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> S:
        """The same with some fields changed, checked as any other.

        Pydantic's own copy checks nothing.
        """
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**fields | dict(update or {}))

    @model_serializer(mode="wrap")
    def _leave_out_later(self, to_dict: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.later}
        fields = to_dict(self)
        for name, default in defaults.items():
            if getattr(self, name) == default:
                fields.pop(name, None)
        return fields

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(unknown(f"key of {cls.__name__}", key, cls.model_fields))
        return data

    @model_validator(mode="after")
    def _refuse_relatives(self: S) -> S:
        """A subclass in a field may do anything else under its parent's name.

        It would have its parent's identity and stored runs.
        """
        for name, field in type(self).model_fields.items():
            for value in _configurations(getattr(self, name)):
                allowed = _allowed_classes(field.annotation)
                if type(value) not in allowed:
                    names = ", ".join(cls.__name__ for cls in allowed)
                    raise ValueError(
                        f"{name}: {type(value).__name__} is a class of its own, whose runs could "
                        "not be told from those of the class that it extends; "
                        f"allowed: {names}"
                    )
        return self

    def canonical_json(self) -> str:
        """The same text for the same configuration on every machine.

        Keys are sorted, there are no spaces, and defaults are written out.
        """
        # by runtime type: a field's declared type would drop what a subclass adds
        fields = self.model_dump(mode="json", serialize_as_any=True)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
