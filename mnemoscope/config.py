"""Strict, frozen configuration, and the one error that users meet.

Most defects of this field are silence: a misspelt key that vanishes, a size that cannot be. Every piece of
configuration is therefore a `Strict` model: frozen (so it can be hashed and handed to `jit` as a constant), with
unknown keys refused by name, and with one canonical JSON text from which its identity is computed.
"""

import difflib
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_serializer, model_validator


class UserError(ValueError):
    """Something the user asked for cannot be done; the message is one line and says what is allowed."""


def _complaint(error: ValidationError) -> str:
    """The first thing that a configuration was refused for, in one line: the field, what is allowed, what came."""
    first = error.errors()[0]
    said = first["msg"].removeprefix("Value error, ")
    return f"{first['loc'][-1]}: {said}, got {first['input']!r}" if first["loc"] and said == first["msg"] else said


def unknown(kind: str, came: object, allowed: Iterable[object]) -> str:
    """The sentence for a name that matches nothing: what was wrong, what came, what is allowed."""
    names = [str(name) for name in allowed]
    near = difflib.get_close_matches(str(came), names, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {kind} {str(came)!r}{hint}; allowed: {', '.join(names)}"


class Strict(BaseModel):
    """A frozen configuration that refuses unknown keys and hashes by its canonical JSON; a refusal is one line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    # Fields that came later. At their default they are left out of the JSON, so that a configuration written before
    # they existed keeps its identity.
    later: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise UserError(f"{type(self).__name__}: {_complaint(error)}") from None

    @model_serializer(mode="wrap")
    def _leave_out_later(self, to_dict: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.later}
        return {k: v for k, v in to_dict(self).items() if k not in defaults or getattr(self, k) != defaults[k]}

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    raise ValueError(unknown(f"key of {cls.__name__}", key, cls.model_fields))
        return data

    def canonical_json(self) -> str:
        """The same text for the same configuration on every machine: sorted keys, no spaces, defaults written out."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def digest(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the canonical JSON."""
        return hashlib.sha256(self.canonical_json().encode()).hexdigest()[:16]
