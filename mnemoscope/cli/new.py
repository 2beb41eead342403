"""The command `new`: writes files that work at once, to be changed into what is wanted."""

import keyword
import re
from collections.abc import Mapping
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import tyro

from mnemoscope.cli.console import as_typed
from mnemoscope.core.errors import UserError


class Template(NamedTuple):
    """Files that are written together."""

    files: Mapping[str, str]
    """By the path that is written, the file in `cli/templates`; NAME stands for the name."""
    then: str
    """What to do next."""


TEMPLATES: Mapping[str, Template] = MappingProxyType(
    {
        "study": Template(
            {
                "NAME/claims.toml": "study/claims.toml.txt",
                "NAME/study.py": "study/study.py.txt",
                "NAME/page.toml": "study/page.toml.txt",
                "NAME/test_NAME.py": "study/test_study.py.txt",
            },
            "mnemoscope run ./NAME (about a minute); mnemoscope check-study ./NAME",
        ),
        "task": Template(
            {"NAME.py": "task/task.py.txt", "test_NAME.py": "task/test_task.py.txt"},
            "python -m pytest test_NAME.py; then make `sample` in NAME.py draw what you mean",
        ),
        "model": Template(
            {"NAME.py": "model/model.py.txt", "test_NAME.py": "model/test_model.py.txt"},
            "python -m pytest test_NAME.py; then make `forward` in NAME.py compute what you mean",
        ),
        "metric": Template(
            {"NAME.py": "metric/metric.py.txt", "test_NAME.py": "metric/test_metric.py.txt"},
            "python -m pytest test_NAME.py; then make NAME in NAME.py read what you mean",
        ),
    }
)
What = Literal["study", "task", "model", "metric"]


def new(
    what: Annotated[What, tyro.conf.Positional],
    name: Annotated[str, tyro.conf.Positional],
    /,
    folder: Path = Path(),
) -> None:
    """Write files that work at once, with comments that say how to go on.

    - new study NAME: a folder with a claim, what it trains and measures, and a test
    - new task NAME, new model NAME, new metric NAME: NAME.py and test_NAME.py

    Args:
        what: What is written: a folder for a study, a file and its test for the others.
        name: What it is called: lower case, digits and _, such as my_study.
        folder: Where it is written. Nothing: here.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UserError(f"a name is lower case, digits and _, such as my_{what}, got {name!r}")
    template = TEMPLATES[what]
    paths = {folder / path.replace("NAME", name): file for path, file in template.files.items()}
    # a folder that is there may hold somebody's work
    tops = {folder / path.replace("NAME", name).split("/")[0] for path in template.files}
    for path in sorted(tops):
        if path.exists():
            raise UserError(f"{str(path)!r} is there already; choose another name or --folder")
    if find_spec(name):  # Python would take one for the other
        raise UserError(f"{name!r} is the name of a package that is installed; choose another name")
    for path, file in paths.items():
        _write(path, fill(_read(file), name))
        print(f"Written: {path}")
    print(as_typed(f"Next: {fill(template.then, name)}"))


def fill(text: str, name: str) -> str:
    """A template with the name put in: NAME as Python has it, Name as a class has it, a-name as a
    kind has it.

    Args:
        text: the template.
        name: such as my_study.
    """
    words = name.split("_")
    forms = {"NAME": name, "Name": "".join(map(str.capitalize, words)), "a-name": "-".join(words)}
    return re.sub("NAME|Name(?![a-z])|a-name", lambda found: forms[found[0]], text)


def _read(file: str) -> str:
    return resources.files("mnemoscope.cli").joinpath("templates", file).read_text("utf-8")


def _write(path: Path, text: str) -> None:
    from mnemoscope.report.requested_files import writing

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
