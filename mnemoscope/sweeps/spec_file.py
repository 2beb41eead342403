"""A Spec from a file: TOML, JSON, or an object in a Python file.

    spec.toml            steps = 2000            my_tasks.py@SPEC      a Spec
                         [task]                  my_tasks.py@CopyBack  a task: the rest of the Spec
                         kind = "cycle"                                is what it is by default

A kind from outside is written by its name alone; its code is that of what is loaded now.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.core.kinds import Kind, find_kind, known_kinds
from mnemoscope.core.plugins import load_path
from mnemoscope.tasks import Task
from mnemoscope.training.spec import Spec

ALLOWED = "a file in TOML or JSON (spec.toml), or an object in a Python file (my_tasks.py@NAME)"
# by field, the family of the kinds that it takes
FAMILIES = {
    "task": "task",
    "model": "model",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "loss": "loss",
    "metrics": "metric",
}


def read_spec(asked: str) -> Spec:
    """The Spec that a command line names.

    Args:
        asked: `spec.toml`, `spec.json` or `FILE.py@NAME`.
    """
    path, at, name = asked.rpartition("@")
    if at and path.endswith(".py"):
        return _from_python(path, name)
    file = Path(asked).expanduser()
    if not file.is_file():
        raise UserError(f"there is no Spec {asked!r}; allowed: {ALLOWED}")
    try:
        text = file.read_text(encoding="utf-8")
        fields: Any = _parsers()[file.suffix](text)
    except KeyError:
        raise UserError(f"{asked!r} is no Spec; allowed: {ALLOWED}") from None
    except (ValueError, OSError) as error:  # both parsers' errors are ValueErrors
        raise UserError(f"{asked!r} cannot be read ({error})") from None
    if not isinstance(fields, dict):
        raise UserError(f"{asked!r} holds no Spec, but {short(fields)}")
    return Spec.model_validate(_with_codes(cast(dict[str, Any], fields)))


def _parsers() -> dict[str, Any]:
    return {".toml": tomllib.loads, ".json": json.loads}


def _from_python(path: str, name: str) -> Spec:
    """A Spec, or a task for one, that a Python file defines."""
    module = load_path(path).module
    usable: dict[str, Spec | Task] = {}
    for each, value in vars(module).items():
        if isinstance(value, Spec | Task):
            usable[each] = value
        elif isinstance(value, type) and issubclass(value, Task) and _is_of(value, module):
            usable[each] = value()
    if name not in usable:
        raise UserError(unknown(f"Spec or task in {path}", name, usable))
    found = usable[name]
    return found if isinstance(found, Spec) else Spec(task=found)


def _is_of(task: type[Task], module: ModuleType) -> bool:
    """Whether a class is a task that a file defines, not one that it imports or builds on."""
    return bool(task.kind_name()) and task.__module__ == module.__name__


def _with_codes(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields in which each kind from outside has its code, as a stored Spec has."""
    found = dict(fields)
    for field, family in FAMILIES.items():
        value = found.get(field)
        if isinstance(value, dict):
            found[field] = _with_code(family, _with_codes(cast(dict[str, Any], value)))
        elif field == "metrics" and value is not None:
            several = cast(list[Any], value if isinstance(value, list) else [value])
            found[field] = [
                _with_code(family, each if isinstance(each, dict) else {"kind": each})
                for each in several
            ]
    return found


def _with_code(family: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a kind, with its code where it has one that is not written down."""
    kind = fields.get("kind")
    if "code" in fields or not isinstance(kind, str) or kind not in known_kinds(family):
        return fields  # a kind that is missing or unknown is refused where it is read
    cls: type[Kind] = find_kind(family, kind)
    code = cls.code()
    return {**fields, "code": code} if code else fields
