"""The layout of the house: imports run downwards only, and every public function says its shapes."""

import ast
from pathlib import Path

import pytest

import mnemoscope

HOME = Path(mnemoscope.__file__).parent
ORDER = [
    {"config", "arrays", "options", "sinks", "html", "cpu", "numerics"},
    {"fingerprint"},
    {"seeds", "tasks", "model"},
    {"language", "spec", "loss"},
    {"train"},
    {"probes", "theory", "profile"},
    {"store"},
    {"engine"},
    {"cluster", "audit"},
    {"studies"},
    {"report", "explorer", "exchange"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
FILES = sorted(HOME.rglob("*.py"))


def room_of(file):
    return file.relative_to(HOME).parts[0].removesuffix(".py")


def imported_rooms(tree):
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name and name.startswith("mnemoscope."):
                yield name.split(".")[1]


def climbs(room, tree):
    """Rooms above its own that a file imports."""
    return [other for other in imported_rooms(tree) if LEVEL[other] > LEVEL[room]]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(HOME)))
def test_imports_run_downwards(file):
    room = room_of(file)
    if room == "__init__":
        return  # the public names: it may point anywhere, and loads nothing by itself
    assert room in LEVEL, f"{room} has no place in the order of rooms"
    tree = ast.parse(file.read_text())
    # the store names Spec and Run in its signatures and loads them only when it reads a run; both lie below it
    assert climbs(room, tree) == []


def test_the_order_test_can_fail():
    tree = ast.parse("from mnemoscope.studies import STUDIES")
    assert climbs("model", tree) == ["studies"]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(HOME)))
def test_every_file_opens_with_its_idea(file):
    tree = ast.parse(file.read_text())
    assert ast.get_docstring(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), f"{node.name} has no docstring"
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            arguments = [a for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
            assert all(a.annotation for a in arguments), f"{node.name} has an argument without a type"
