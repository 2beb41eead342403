"""A study is a folder: which files it has, and how they are read.

    claims.toml      what is claimed, each with its criterion, what measures it and what it needs
    study.py         STUDY: its title and what is trained

and, where there is more to say,

    page.toml        the words of its page
    figures.toml     how the series of each claim are drawn
    prompts.toml     prompts that the explorer offers
    tour.toml        a tour through its models in the explorer
    train_here.toml  trainings that it offers, to be done in the browser
    ...              whatever else it takes: conditions, the functions that measure, theory, data

and, where the study wants more than every study has,

    drawings.py      DRAWINGS: by claim, a function that draws the figure of what is exact
    pages.py         STATEMENTS and PAGES: a table on the study's page, and pages of its own
    command.py       command: a command with the name of the study
    explorer.py      models: a function of nothing that says which conditions are trained for the
                     explorer, by name
    explorer_models  a folder with these models as they were trained, which travels with the study

These belong to the report, to the command line and to the explorer. Only the layer that uses such a
part loads it; `study.py` imports none of them, so a verdict does not rest on them.
"""

import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from mnemoscope.core.errors import UserError
from mnemoscope.core.plugins import one_line

Part = Literal["drawings", "pages", "command", "explorer"]
PARTS: tuple[Part, ...] = ("drawings", "pages", "command", "explorer")
EXPLORER_MODELS = "explorer_models"
CLAIMS = "claims.toml"
LAST = 1000  # the place of a study whose page says none
# how a study is shown, asked for and judged: no measurement rests on it
SHOWN = (
    *(f"{part}.py" for part in PARTS),
    CLAIMS,
    "page.toml",
    "figures.toml",
    "prompts.toml",
    "tour.toml",
    "train_here.toml",
)
# what people and programs leave beside a study; no measurement rests on it either
LEFT_OUT = (".md", ".rst", ".ipynb", ".html", ".svg", ".png", ".pdf", ".tex", ".log", ".pyc")
STORE_INDEX = "index.sqlite3"


def path_of(package: str) -> Path:
    """Where a folder is.

    Args:
        package: the folder, as Python names it.
    """
    spec = find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None, f"{package} is no folder"
    return Path(next(iter(spec.submodule_search_locations)))


def read_toml(package: str, file: str) -> dict[str, Any]:
    """What one of the folder's files says; nothing where there is no such file.

    Args:
        package: the folder, as Python names it.
        file: its name there.
    """
    path = path_of(package) / file
    if not path.is_file():
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file} of {path.parent.name} cannot be read: {error}") from None


def load_part(package: str | None, part: Part) -> ModuleType | None:
    """A part that a study may have or not; None where it has none.

    Args:
        package: the folder, as Python names it; None for a study without one.
        part: its name.
    """
    if package is None or find_spec(f"{package}.{part}") is None:
        return None
    with one_line(f"{part}.py of {package.rpartition('.')[2]}"):
        return import_module(f"{package}.{part}")


def judging_files(folder: Path) -> Iterator[Path]:
    """The files of a study's folder on which its findings rest: programs, and what they read.

    Left out is how a study is shown, asked for and judged; its tests; and what a command leaves
    behind: stores, pages and figures.

    Args:
        folder: of the study.
    """
    for file in sorted(folder.iterdir()):
        if file.name.startswith((".", "__pycache__")):
            continue
        if file.is_dir():
            if file.name != EXPLORER_MODELS and not (file / STORE_INDEX).is_file():
                yield from judging_files(file)
        elif not (file.name in SHOWN or file.suffix in LEFT_OUT or file.name.startswith("test_")):
            yield file
