"""Every name in an annotation is one that its module knows.

Linters cannot say so here: the shape strings of jaxtyping look like names to them, so undefined
names are not among their rules.
"""

import ast
import builtins
from pathlib import Path

import pytest

import mnemoscope

HOME = Path(mnemoscope.__file__).parent
FILES = sorted(HOME.rglob("*.py"))


def bound_names(tree):
    """All names that a file binds anywhere: imports, definitions, assignments, arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name
            yield from (each.name for each in getattr(node, "type_params", ()))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def annotations(tree):
    """Every annotation of a file, as an expression."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield node.returns


def names_in(annotation):
    """The names that an annotation uses; a whole annotation may be a string, a shape is none."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name):
            yield node.id


def unknown_names(text):
    """Names in the annotations of a file that nothing in it binds."""
    tree = ast.parse(text)
    known = {*bound_names(tree), *dir(builtins)}
    used = {name for annotation in annotations(tree) for name in names_in(annotation)}
    return sorted(used - known)


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(HOME)))
def test_annotations_name_what_exists(file):
    assert unknown_names(file.read_text()) == []


@pytest.mark.parametrize(
    "line",
    ['def f(x: "Missing"): ...', "def f() -> dict[str, Missing]: ...", "x: Missing = 1"],
)
def test_a_missing_name_is_found(line):
    assert unknown_names(line) == ["Missing"]


def test_a_shape_is_no_name():
    assert unknown_names('from x import Float, Array\ndef f(a: Float[Array, "seed"]): ...') == []
