"""Strict, frozen configuration.

Most defects of this field are silence: a misspelled key that vanishes, a size that cannot be. Every
piece of configuration is therefore a `Strict` model: frozen (so it can be hashed and handed to
`jit` as a constant), with unknown keys refused by name, and with one canonical JSON text from which
its identity is computed.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationError,
    model_serializer,
    model_validator,
)

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
    if first["type"] == "missing":
        return f"{field} is needed, since it has no default; got {came}"
    return f"{field}: {said}, got {came}"


@contextmanager
def refusing(name: str) -> Generator[None]:
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


def _by_name_alone(cls: "type[Strict]", came: object) -> str:
    """What is said where a field was given without its name."""
    fields = ", ".join(name for name in cls.model_fields if name != "kind")
    return (
        f"{cls.__name__} takes its fields by name, got {short(came)}; allowed: {fields or 'none'}"
    )


def _never_changes(cls: "type[Strict]", name: str, *values: object) -> str:
    """What is said where a field was set, or deleted."""
    if name not in cls.model_fields:
        return unknown(f"field of {cls.__name__}", name, cls.model_fields)
    new = short(values[0]) if values else "..."
    return (
        f"a {cls.__name__} never changes, so {name} stays as it is; allowed: a changed copy, "
        f".model_copy(update={{{name!r}: {new}}})"
    )


class _AsItIs(str):
    """Text that prints without quotation marks."""

    def __repr__(self) -> str:
        return str(self)


S = TypeVar("S", bound="Strict")
AS_STORED = {"names": "stored"}  # asks for the names that stored configurations have
_reading_stored: ContextVar[bool] = ContextVar("reading_stored", default=False)


@cache
def _allowed_classes(annotation: Any) -> "tuple[type[Strict], ...]":
    """The configuration classes that a field's type names, however deep."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        return (annotation,)
    return tuple(cls for part in get_args(annotation) for cls in _allowed_classes(part))


def configurations_in(value: object) -> Iterator["Strict"]:
    """The configurations that a field holds, in tuples and dictionaries too."""
    parts: Iterable[object] = ()
    if isinstance(value, Strict):
        yield value
    elif isinstance(value, dict):
        parts = cast(dict[object, object], value).values()
    elif isinstance(value, tuple | list):
        parts = cast(Iterable[object], value)
    for part in parts:
        yield from configurations_in(part)


class Strict(BaseModel):
    """A frozen configuration that refuses unknown keys and hashes by its canonical JSON."""

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False
    )

    omit_if_default: ClassVar[frozenset[str]] = frozenset()
    """Fields that came later. At their default they are left out of the JSON, so that a
    configuration written before they existed keeps its identity."""

    stored_names: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields whose name changed, each with the name that stored configurations have for it. The
    canonical JSON has these names, so that what was stored under a digest is found again."""

    renamed: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names that fields had once, each with what to write instead, for who still uses them."""

    @classmethod
    def to_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields as stored configurations have them."""
        return {cls.stored_names.get(name, name): value for name, value in fields.items()}

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Fields from those of a stored configuration."""
        new_names = {old: new for new, old in cls.stored_names.items()}
        return {new_names.get(name, name): value for name, value in fields.items()}

    # not in `__init__`, whose signature is what `help` and an editor show
    def __new__(cls: type[S], /, *values: Any, **_: Any) -> S:
        if values and cls.__init__ is Strict.__init__:
            raise UserError(_by_name_alone(cls, values[0]))
        return object.__new__(cls)

    def __init__(self, /, **fields: Any) -> None:
        with refusing(type(self).__name__):
            super().__init__(**fields)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            super().__setattr__(name, value)
        else:
            raise UserError(_never_changes(type(self), name, value))

    def __delattr__(self, name: str) -> None:
        raise UserError(_never_changes(type(self), name))

    @classmethod
    def model_validate(cls: type[S], *args: Any, **options: Any) -> S:
        """From a dictionary; a refusal is one line here too."""
        with refusing(cls.__name__):
            return super().model_validate(*args, **options)

    @classmethod
    def model_validate_json(cls: type[S], *args: Any, **options: Any) -> S:
        """From stored JSON, by the names that it has for fields; a refusal is one line here too."""
        token = _reading_stored.set(True)
        try:
            with refusing(cls.__name__):
                return super().model_validate_json(*args, **options)
        finally:
            _reading_stored.reset(token)

    def __repr_args__(self) -> Iterator[tuple[str, object]]:
        """What is printed, for pydantic: every field; one that would fill the screen is cut."""
        for name in type(self).model_fields:
            value = getattr(self, name)
            yield name, value if isinstance(value, Strict) else _AsItIs(short(value))

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
        stated = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**stated | dict(update or {}))

    @model_serializer(mode="wrap")
    def _serialize(self, to_dict: Callable[[Any], dict[str, Any]], info: Any) -> dict[str, Any]:
        return self._write(to_dict(self), info)

    def _write(self, fields: dict[str, Any], info: Any) -> dict[str, Any]:
        """Fields as JSON has them: without those that say nothing, under the names asked for."""
        said = {name: value for name, value in fields.items() if not self._is_omitted(name)}
        return self.to_stored(said) if info.context == AS_STORED else said

    def _is_omitted(self, name: str) -> bool:
        """Whether a field is left out of the JSON: one that came later, and that says nothing."""
        if name not in self.omit_if_default:
            return False
        default = type(self).model_fields[name].default
        return name not in self.model_fields_set or getattr(self, name) == default

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        fields = cast(dict[str, Any], data)
        if _reading_stored.get():
            fields = cls.from_stored(fields)
        new_names = {old: new for new, old in cls.stored_names.items()} | dict(cls.renamed)
        for key in fields:
            if key not in cls.model_fields:
                what = f"key of {cls.__name__}"
                raise ValueError(unknown(what, key, cls.model_fields, near=new_names.get(key)))
        return fields

    @model_validator(mode="after")
    def _refuse_relatives(self: S) -> S:
        """A subclass in a field may do anything else under its parent's name.

        It would have its parent's identity and stored runs.
        """
        for name, field in type(self).model_fields.items():
            for value in configurations_in(getattr(self, name)):
                allowed = _allowed_classes(field.annotation)
                if not any(cls.accepts(value) for cls in allowed):
                    names = ", ".join(cls.__name__ for cls in allowed)
                    raise ValueError(
                        f"{name}: {type(value).__name__} is a class of its own, whose runs could "
                        "not be told from those of the class that it extends; "
                        f"allowed: {names}"
                    )
        return self

    @classmethod
    def accepts(cls, value: "Strict") -> bool:
        """Whether a field of this type takes an object; one of a subclass is another thing."""
        return type(value) is cls

    def canonical_json(self) -> str:
        """The same text for the same configuration on every machine.

        Keys are sorted, there are no spaces, and defaults are written out.
        """
        # by runtime type: a field's declared type would drop what a subclass adds
        fields = self.model_dump(mode="json", serialize_as_any=True, context=AS_STORED)
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
