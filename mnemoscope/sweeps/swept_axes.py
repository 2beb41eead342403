"""The axes of a sweep: fields of a Spec, each with the values that it takes.

    {"model.d_model": [8, 16, 32], "optimizer.lr": geomspace(1e-4, 1e-2, 8), "steps": range(1, 4)}

A field is named as in Python, from the Spec inwards. On a command line the same is

    model.d_model=8,16,32      optimizer.lr=1e-4..1e-2x8      task.n_symbols=3..6
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any, cast

import numpy as np

from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.core.strict import Strict
from mnemoscope.training.spec import Spec

DIGITS = 4  # of a value between two ends: as many as a person would write
MOST_CELLS = 100_000
NOT_SWEPT = ("format", "imported", "kind")  # what is no choice of whoever trains

At = dict[str, Any]  # by axis, a value of it


# ---- values


def geomspace(first: float | int, last: float | int, n: int) -> tuple[float | int, ...]:
    """So many values from the first to the last, each the same multiple of the one before.

    Those between the ends have four digits, and are whole numbers if both ends are.

    Args:
        first: above 0.
        last: above 0.
        n: how many, at least 2.
    """
    if not (first > 0 and last > 0 and math.isfinite(first) and math.isfinite(last)):
        raise UserError(f"geomspace goes from one number above 0 to another, got {first}, {last}")
    if n < 2:
        raise UserError(f"geomspace needs at least 2 values, got {n}")
    between = [float(f"{x:.{DIGITS}g}") for x in np.geomspace(first, last, n)[1:-1]]
    if isinstance(first, int) and isinstance(last, int):
        return (first, *(round(x) for x in between), last)
    return (first, *between, last)


def parse_over(text: str) -> tuple[str, tuple[Any, ...]]:
    """An axis and its values, as a command line says them.

    Args:
        text: `model.d_model=8,16,32`, `task.n_symbols=3..6` or `optimizer.lr=1e-4..1e-2x8`.
    """
    axis, equals, said = text.partition("=")
    parts = [part.strip() for part in said.split(",")]
    if not equals or not axis.strip() or not all(parts):
        raise UserError(
            f"--over names an axis and its values, got {short(text)}; allowed: "
            "model.d_model=8,16,32, or task.n_symbols=3..6, or optimizer.lr=1e-4..1e-2x8"
        )
    return axis.strip(), tuple(value for part in parts for value in _parse_part(part))


def _parse_part(part: str) -> Iterable[Any]:
    """One value, or all those from one number to another."""
    ends = re.fullmatch(r"(.+?)\.\.(.+?)(?:x(\d+))?", part)
    if not ends:
        return [_parse_value(part)]
    first, last = (_parse_value(end) for end in ends.groups()[:2])
    if isinstance(first, str | bool) or isinstance(last, str | bool):
        raise UserError(f"{part!r} goes from one number to another; allowed: 3..6, 1e-4..1e-2x8")
    if ends[3]:
        return geomspace(first, last, int(ends[3]))
    if not (isinstance(first, int) and isinstance(last, int)) or first > last:
        raise UserError(
            f"{part!r} is for whole numbers, from the smaller to the larger; allowed: 3..6, or "
            f"{part}x8 for 8 values each the same multiple of the one before"
        )
    if last - first >= MOST_CELLS:
        raise UserError(f"{part!r} has more than {MOST_CELLS:,} values; allowed: fewer")
    return range(first, last + 1)


def _parse_value(text: str) -> int | float | bool | str:
    """A number, true or false, or a word."""
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def as_axes(over: Mapping[str, Iterable[Any]]) -> dict[str, tuple[Any, ...]]:
    """Axes with their values in order; one that is empty or says something twice is refused.

    Args:
        over: by axis, its values.
    """
    axes: dict[str, tuple[Any, ...]] = {}
    for axis, values in over.items():
        if isinstance(values, str | bytes) or not isinstance(values, Iterable):
            raise UserError(f"axis {axis} needs a list of values, got {short(values)}")
        found = tuple(x.item() if isinstance(x, np.generic | np.ndarray) else x for x in values)
        if not found:
            raise UserError(f"axis {axis} is empty; allowed: one value or more")
        axes[axis] = found
    if not axes:
        raise UserError("a sweep needs an axis, such as model.d_model=8,16,32")
    n_cells = math.prod(map(len, axes.values()))
    if n_cells > MOST_CELLS:
        raise UserError(f"a sweep has at most {MOST_CELLS:,} cells, got {n_cells:,}")
    for axis, values in axes.items():
        twice = [value for value, times in Counter(values).items() if times > 1]
        if twice:
            raise UserError(f"axis {axis} has {twice[0]!r} twice; allowed: different values")
    return axes


def points(axes: Mapping[str, tuple[Any, ...]]) -> Iterator[At]:
    """Every point of the axes, the last axis first."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


# ---- fields


def allowed_axes(spec: Strict, prefix: str = "") -> list[str]:
    """Every field that an axis can be, by its name from the Spec inwards.

    Args:
        spec: a Spec, or a configuration in it.
        prefix: where it stands.
    """
    found: list[str] = []
    for name in type(spec).model_fields:
        if name in NOT_SWEPT:
            continue
        found.append(f"{prefix}{name}")
        value = getattr(spec, name)
        if isinstance(value, Strict):
            found += allowed_axes(value, f"{prefix}{name}.")
    return found


def require_axes(spec: Spec, axes: Iterable[str]) -> None:
    """Raise for an axis that is no field of the Spec, or that lies in another one.

    Args:
        spec: what is swept.
        axes: their names.
    """
    names = list(axes)
    allowed = allowed_axes(spec)
    for name in names:
        if name not in allowed:
            beside = [other for other in allowed if _parent(other) == _parent(name)]
            raise UserError(unknown("axis", name, beside or allowed))
        for other in names:
            if name.startswith(f"{other}."):
                raise UserError(f"axis {name} is a part of axis {other}; allowed: one of them")


def _parent(axis: str) -> str:
    """In what a field stands."""
    return axis.rpartition(".")[0]


def with_values(spec: Spec, at: Mapping[str, Any]) -> Spec:
    """The Spec of a point: with these values for these fields, all of them at once.

    Args:
        spec: what is swept.
        at: by axis, a value.
    """
    return cast(Spec, _updated(spec, {tuple(axis.split(".")): at[axis] for axis in at}))


def _updated(config: Strict, values: Mapping[tuple[str, ...], Any]) -> Strict:
    """A configuration with values for fields of it and of what stands in it."""
    update: dict[str, Any] = {}
    inside: dict[str, dict[tuple[str, ...], Any]] = {}
    for (name, *rest), value in values.items():
        if rest:
            inside.setdefault(name, {})[tuple(rest)] = value
        else:
            update[name] = value
    for name, deeper in inside.items():
        update[name] = _updated(getattr(config, name), deeper)
    return config.model_copy(update=update)
