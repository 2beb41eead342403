"""The public names: the table that loads them and the stub that type checkers read say the same."""

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

import mnemoscope

HOME = Path(mnemoscope.__file__).parent


def stubbed_names():
    """Every name that the stub exports, with the module that it is from."""
    tree = ast.parse((HOME / "__init__.pyi").read_text())
    found = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                assert alias.asname == alias.name, f"{alias.name} is imported, not exported"
                found[alias.name] = node.module
    return found


def test_the_stub_and_the_table_agree():
    assert stubbed_names() == mnemoscope._MODULE_OF


@pytest.mark.parametrize("name", mnemoscope.__all__)
def test_every_name_loads(name):
    module = import_module(mnemoscope._MODULE_OF[name])
    assert getattr(mnemoscope, name) is getattr(module, name)
    assert name in dir(mnemoscope)


def test_an_unknown_name_says_what_there_is():
    with pytest.raises(AttributeError, match=r"no attribute 'Hop'; it has: .*Hops"):
        _ = mnemoscope.Hop


def test_the_import_alone_does_not_load_jax():
    code = "import sys, mnemoscope; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_type_checkers_may_read_the_types():
    assert (HOME / "py.typed").exists()


def undocumented_fields(tree):
    """The fields of a class with no text under them, which is where editors look."""
    left = []
    for field, after in pairwise([*tree.body, ast.Pass()]):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not isinstance(field, ast.AnnAssign) or is_text:
            continue
        # a constant of the class is documented where it is declared
        if not ast.unparse(field.annotation).startswith("ClassVar"):
            left.append(field.target.id)
    return left


CLASSES = [getattr(mnemoscope, name) for name in mnemoscope.__all__]
CLASSES = [cls for cls in CLASSES if inspect.isclass(cls)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_field_is_documented_where_editors_look(cls):
    (tree,) = ast.parse(inspect.getsource(cls)).body
    assert undocumented_fields(tree) == []


def test_a_field_without_documentation_is_noticed():
    (tree,) = ast.parse(
        'class A:\n    one: int = 1\n    """One."""\n    # two\n    two: int\n'
    ).body
    assert undocumented_fields(tree) == ["two"]
