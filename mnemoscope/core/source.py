"""The text of a function or a class as a syntax tree: what it does, on any version of Python.

Two programs are the same if their trees are. Comments, docstrings and layout are no part of a tree,
and neither is what a version of Python adds to it.

What runs is a code object; the text that it was made from is looked up by it, in its file or in
the cell of a notebook. A file may have been edited since: a text counts only if it compiles to what
runs.
"""

import ast
import functools
import json
import linecache
import re
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

# a syntax tree as lists, numbers and texts
Tree = Any

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

# files as they were when a class in them was defined: what runs, also where they are edited later
_remembered: dict[str, str] = {}
# by the id of the code object, which is kept so that no other one gets its id
_definitions: dict[int, "tuple[types.CodeType, Text | None]"] = {}


class Text(NamedTuple):
    """What a function's text says."""

    tree: str
    """Its syntax tree, as JSON."""
    names: frozenset[str]
    """Every name that it reads or writes, global names among them."""


def plain_tree(node: Any) -> Tree:
    """A syntax tree as lists: names of nodes and their fields.

    Docstrings are left out, those of fields too, and what a version of Python adds.
    """
    if isinstance(node, list):
        return [plain_tree(each) for each in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, DOCUMENTED):
        fields["body"] = [part for part in node.body if not _is_docstring(part)]
    kept = {}
    for name, value in fields.items():
        if value not in (None, []) and name != "kind":
            kept[name] = plain_tree(value)
    return [type(node).__name__, sorted(kept.items())]


def _is_docstring(statement: ast.stmt) -> bool:
    """Whether a statement is a text alone, which does nothing."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return False
    return isinstance(statement.value.value, str)


def remember_file(file: str) -> None:
    """Keep the text of a file, or of a notebook's cell, as it is now.

    Args:
        file: as the code objects that were made from it name it.
    """
    text = _read(file)
    if text:
        _remembered[file] = text


def text_of(code: types.CodeType) -> Text | None:
    """What the `def` or `lambda` that a code object was made from says.

    None where it cannot be read, or is not what runs any more.

    Args:
        code: of a function.
    """
    if id(code) not in _definitions:
        found = _find_definition(code)
        text = None
        if found is not None:
            names = {node.id for node in ast.walk(found) if isinstance(node, ast.Name)}
            text = Text(json.dumps(plain_tree(found)), frozenset(names))
        _definitions[id(code)] = (code, text)
    return _definitions[id(code)][1]


def is_generated(code: types.CodeType) -> bool:
    """Whether a code object has no text because a library made it up, as dataclasses do."""
    return code.co_filename.startswith("<") and not _read(code.co_filename)


def _find_definition(code: types.CodeType) -> Definition | None:
    texts = [_remembered.get(code.co_filename, ""), _read(code.co_filename)]
    for text in dict.fromkeys(texts):
        found = _find_in(text, code) if text else None
        if found is not None:
            return found
    return None


def _read(file: str) -> str:
    """A file or a notebook's cell as it is now; empty where there is none."""
    linecache.checkcache(file)
    return "".join(linecache.getlines(file))


@functools.lru_cache(maxsize=256)
def _parse(text: str, file: str) -> tuple[ast.Module, tuple[types.CodeType, ...]] | None:
    """A text's syntax tree, and what it compiles to: as a whole, and each statement alone.

    A notebook compiles the statements of a cell one by one. What a name was imported as is then not
    known to the compiler, which takes other instructions for it.
    """
    try:
        tree = ast.parse(text)
        parts = [tree, *(ast.Module([statement], []) for statement in tree.body)]
        return tree, tuple(compile(part, file, "exec", dont_inherit=True) for part in parts)
    except (SyntaxError, ValueError):
        return None  # a cell that begins with a command of the notebook, say


def _find_in(text: str, code: types.CodeType) -> Definition | None:
    """The definition of a code object in a text, if the text compiles to it."""
    parsed = _parse(text, code.co_filename)
    if parsed is None:
        return None
    tree, compiled = parsed
    name = _qualified_name(code)
    codes = [each for part in compiled for each in _code_objects(part)]
    same_name = [each for each in codes if _qualified_name(each) == name]
    alike = [each for each in same_name if _runs_alike(each, code)]
    # of several, such as functions of one name that stand one below the other, the one that stands
    # where the code object says
    alike.sort(key=lambda each: abs(each.co_firstlineno - code.co_firstlineno))
    for each in alike:
        for node_name, node in _named_definitions(tree):
            if node_name == name and _is_around(node, each):
                return node
    return None


def _qualified_name(code: types.CodeType) -> str:
    """The name of a function with all that it stands in but comprehensions.

    Some versions of Python make functions of these.
    """
    return re.sub(r"<(list|set|dict)comp>\.<locals>\.|<genexpr>\.<locals>\.", "", code.co_qualname)


def _named_definitions(node: ast.AST, within: str = "") -> Iterator[tuple[str, Definition]]:
    """Every function and lambda of a syntax tree, by its name with all that it stands in.

    Args:
        node: the tree.
        within: what the names begin with.
    """
    for child in ast.iter_child_nodes(node):
        inside = within
        if isinstance(child, ast.ClassDef):
            inside = f"{within}{child.name}."
        elif isinstance(child, Definition):
            name = within + ("<lambda>" if isinstance(child, ast.Lambda) else child.name)
            yield name, child
            inside = f"{name}.<locals>."
        yield from _named_definitions(child, inside)


def _code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all those inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_objects(constant)


def _runs_alike(text: types.CodeType, runs: types.CodeType) -> bool:
    """Whether what a text compiles to is what runs.

    Args:
        text: a code object made from a text now.
        runs: the code object that runs.
    """
    if any(name.startswith("@py") for name in (*runs.co_names, *runs.co_varnames)):
        return True  # pytest rewrites assertions
    if (text.co_code, text.co_names) != (runs.co_code, runs.co_names):
        return False
    if len(text.co_consts) != len(runs.co_consts):
        return False
    for one, other in zip(text.co_consts, runs.co_consts, strict=True):
        if isinstance(one, types.CodeType) and isinstance(other, types.CodeType):
            if not _runs_alike(one, other):
                return False
        elif type(one) is not type(other) or repr(one) != repr(other):
            return False
    return True


def _is_around(node: Definition, code: types.CodeType) -> bool:
    """Whether a definition spans all the text that a code object was made from."""
    begin, end = _span(node)
    return all(begin <= place < end for place in _places(code))


def _places(code: types.CodeType) -> Iterator[tuple[int, int]]:
    """Line and column of each instruction that stands for a piece of text."""
    for line, end_line, column, end_column in code.co_positions():
        if line is None or column is None:
            continue
        if (line, column) != (end_line, end_column):  # the entry of a function has no width
            yield line, column


def _span(node: Definition) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where a definition begins, decorators included, and where it ends."""
    begin = (node.lineno, node.col_offset)
    for decorator in getattr(node, "decorator_list", []):
        begin = min(begin, (decorator.lineno, 0))
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return begin, (node.end_lineno, node.end_col_offset)
