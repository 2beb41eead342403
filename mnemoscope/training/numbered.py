"""Configuration whose numbers are arguments of a compiled program, not constants in it.

Shapes compile, numbers do not: two optimizers that differ in their learning rate are one program.
Inside that program an optimizer is a copy of itself (`with_numbers`) in which every number is an
array that is known only at run time: code reads `self.lr` as ever, and `if self.lr > 1` raises
instead of deciding for all of them. What decides which operations there are stays a constant:

    text, True and False, None; 0 where 0 is the default; the fields that `structure` names
"""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BaseModel

from mnemoscope.core.axes import Array
from mnemoscope.core.kinds import Kind

Numbers = Mapping[str, Any]  # by field: a number, or the numbers of a configuration inside
Number = int | float | Array | np.ndarray

N = TypeVar("N", bound="Numbered")


class Numbered(Kind):
    """A configuration that hands its numbers to a compiled program as arguments."""

    structure: ClassVar[frozenset[str]] = frozenset()
    """Fields that are numbers and yet decide which operations there are, such as how often
    something is repeated."""

    def numbers(self) -> dict[str, Any]:
        """The arguments of a program, by field; for each share x also 1 - x.

        1 - x is taken here because the float nearest to it is not 1 less the float nearest to x.
        """
        found: dict[str, Any] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Numbered):
                found[name] = value.numbers()
            elif self._is_argument(name, value):
                found[name] = np.asarray(value, np.int32 if isinstance(value, int) else np.float32)
                if isinstance(value, float):
                    found[_complement(name)] = np.asarray(1 - value, np.float32)
        return found

    def with_numbers(self: N, numbers: Numbers) -> N:
        """The same configuration inside a program, with arrays for its numbers.

        Args:
            numbers: what `numbers` gave, perhaps traced.
        """
        inside = {
            name: getattr(self, name).with_numbers(value) if isinstance(value, Mapping) else value
            for name, value in numbers.items()
        }
        # pydantic's own copy, which checks nothing: arrays are no numbers to it
        return cast(N, BaseModel.model_copy(self, update=inside))

    def compile_key(self) -> tuple[Any, ...]:
        """What a program depends on: the class, and every field but the numbers."""
        key: list[Any] = [type(self), self.code()]
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, Numbered):
                key.append((name, value.compile_key()))
            elif self._is_argument(name, value):
                key.append((name, "argument"))
            else:
                key.append((name, value))
        return tuple(key)

    def uses(self, name: str) -> bool:
        """Whether a field is in use: neither None nor 0. Known when a program is compiled."""
        value = getattr(self, name)
        return isinstance(value, jax.Array | np.ndarray) or bool(value)

    def one_minus(self, name: str) -> Number:
        """1 - x for a field x, rounded once."""
        complement: Number | None = self.__dict__.get(_complement(name))
        return 1 - getattr(self, name) if complement is None else complement

    def _is_argument(self, name: str, value: object) -> bool:
        """Whether a field is an argument of the program."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        is_left_out = value == 0 and type(self).model_fields[name].default == 0
        return name not in self.structure and not is_left_out


def _complement(name: str) -> str:
    """Where 1 - x stands among the numbers."""
    return f"1 - {name}"


def as_float(x: Number) -> Array:
    """A number or an array of whole numbers as a float."""
    return jnp.asarray(x, float)
