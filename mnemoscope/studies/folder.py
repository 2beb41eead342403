"""A study is a folder: which files it has, and how they are read.

    claims.toml      what is claimed, each with its criterion, what measures it and what it needs
    page.toml        the words of its page
    figures.toml     how the series of each claim are drawn
    study.py         STUDY: the claims and what is trained
    ...              whatever else it takes: conditions, the functions that measure, theory

and, where the study wants more than every study has,

    drawings.py      DRAWINGS: by claim, a function that draws the figure of what is exact
    pages.py         STATEMENTS and PAGES: a table on the study's page, and pages of its own
    command.py       command: a command with the name of the study

These three belong to the report and to the command line. Only the layer that uses such a part loads
it; `study.py` imports none of them, so a verdict does not rest on them.
"""

import tomllib
from importlib import import_module, resources
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

Part = Literal["drawings", "pages", "command"]
PARTS: tuple[Part, ...] = ("drawings", "pages", "command")


def read_toml(package: str, file: str) -> dict[str, Any]:
    """What one of the folder's files says.

    Args:
        package: the folder, as Python names it.
        file: its name there.
    """
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    return tomllib.loads(text)


def load_part(package: str | None, part: Part) -> ModuleType | None:
    """A part that a study may have or not; None where it has none.

    Args:
        package: the folder, as Python names it; None for a study without one.
        part: its name.
    """
    if package is None or find_spec(f"{package}.{part}") is None:
        return None
    return import_module(f"{package}.{part}")
