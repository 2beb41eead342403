"""What a function or a class does, as a hash: its text, and the text of all that it reaches.

    code_of(thing) = SHA-256 of its syntax tree, of the constants and helpers it uses, of theirs

Comments, docstrings and layout do not count, nor does the version of Python or the module in which
something stands: a class is the same in a notebook and in a file. Functions of installed packages
are named, not read, since they have versions; those of the package that the thing itself is from
are read, and so are those of the packages that its base classes are from.
"""

import dis
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, short
from mnemoscope.core.source import is_generated, text_of
from mnemoscope.core.strict import Strict

READS_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
PLAIN = str | bytes | int | float | complex | bool | None
# what Python or a library writes into a class, or what changes nothing of what it does
NOT_READ = ("__abstractmethods__", "__annotations__", "__class_getitem__", "__hash__", "__slots__")


def code_of(thing: Any, *, must_read: bool = False) -> str:
    """The hash of what a function or a class does: 16 hexadecimal digits.

    Args:
        thing: a function, a class, or an object that is called.
        must_read: raise where something that it reaches has no text to be told by; otherwise a
            function without a text is told by what it was compiled to.
    """
    reader = _Reader(_packages_of(thing), must_read)
    return hashlib.sha256("\n".join(reader.describe(thing)).encode()).hexdigest()[:16]


def is_installed(module: str) -> bool:
    """Whether a module is part of Python or of an installed package.

    What it does is then told by a version.

    Args:
        module: its full name.
    """
    root = module.split(".")[0]
    if root in sys.stdlib_module_names or root == "mnemoscope":
        return root != "__main__"
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def inner_function(thing: Any) -> Any:
    """The function inside a property, a class or static method, or a jitted function.

    A function that wraps another stays as it is: the other one is in its closure, and what it does
    with it counts too.
    """
    if inspect.isfunction(thing):
        return thing
    thing = (
        getattr(thing, "fget", None)
        or getattr(thing, "__func__", None)
        or getattr(thing, "func", None)
        or thing
    )
    return inspect.unwrap(thing) if callable(thing) and not inspect.isfunction(thing) else thing


def _packages_of(thing: Any) -> frozenset[str]:
    """The packages that are read: that of a thing, and those of its base classes."""
    bases = thing.__mro__ if inspect.isclass(thing) else (inner_function(thing),)
    roots = {_root(each) for each in bases}
    return frozenset(roots - set(sys.stdlib_module_names) - {"mnemoscope", "pydantic", ""})


def _root(thing: Any) -> str:
    """The package that a thing is from."""
    return (getattr(thing, "__module__", None) or "").split(".")[0]


class _Reader:
    """Reads things, each once, as texts that say what they do."""

    def __init__(self, packages: frozenset[str], must_read: bool):
        self.packages = packages  # those that are read although they are installed
        self.must_read = must_read
        self.seen: dict[int, Any] = {}  # kept, so that no other thing gets the id of one

    def describe(self, thing: Any) -> Iterator[str]:
        """All that decides what a function, a class or a constant does, as texts."""
        if isinstance(thing, PLAIN):
            yield repr(thing)
        elif id(thing) not in self.seen:
            self.seen[id(thing)] = thing
            yield from self._describe_new(thing)

    def _describe_new(self, thing: Any) -> Iterator[str]:
        if isinstance(thing, functools.partial):
            yield from self._describe_all((thing.func, thing.args, thing.keywords))
        elif inspect.ismethod(thing):
            yield from self._describe_all((thing.__func__, thing.__self__))
        elif inspect.isfunction(function := inner_function(thing)):
            yield from self._function(function)
        elif inspect.isclass(thing):
            yield from self._class(thing)
        elif inspect.ismodule(thing):
            yield from self._module(thing)
        elif isinstance(thing, tuple | list):
            yield from self._describe_all(thing)
        elif isinstance(thing, set | frozenset):
            yield from self._describe_all(sorted(thing, key=repr))
        elif isinstance(thing, dict):
            for key, value in thing.items():
                yield from self._describe_all((key, value))
        elif hasattr(thing, "shape") and hasattr(thing, "dtype"):
            array = np.asarray(thing)
            yield f"{array.dtype}{array.shape}{hashlib.sha256(array.tobytes()).hexdigest()}"
        elif isinstance(thing, Strict):
            yield f"{type(thing).__qualname__}{thing.canonical_json()}"
        elif not self._is_read(type(thing).__module__):
            # an object of an installed class: what it holds is not ours to read
            text = repr(thing)
            yield type(thing).__qualname__ if " at 0x" in text else text
        else:
            yield from self.describe(type(thing))
            yield from self.describe(vars(thing) if hasattr(thing, "__dict__") else repr(thing))

    def _describe_all(self, things: Any) -> Iterator[str]:
        for thing in things:
            yield from self.describe(thing)

    def _is_read(self, module: str) -> bool:
        """Whether what stands in a module is read, and not only named."""
        return not is_installed(module) or module.split(".")[0] in self.packages

    def _function(self, thing: types.FunctionType) -> Iterator[str]:
        """A function's text, defaults and closure, and the globals that it reaches."""
        is_read = self._is_read(thing.__module__ or "")
        if not is_read:
            # what wraps a function that is only named (a check of its types, say) is not read
            thing = inspect.unwrap(thing)
            ours = _root(thing) == "mnemoscope"  # the modules of other libraries may move
            yield f"{thing.__module__ if ours else _root(thing)}.{thing.__qualname__}"
        yield from self._describe_all((thing.__defaults__, thing.__kwdefaults__))
        for cell in thing.__closure__ or ():
            try:
                yield from self.describe(cell.cell_contents)
            except ValueError:  # a name that is not bound yet
                yield "None"
        if not is_read:
            return
        yield thing.__qualname__.rpartition(".")[2]
        text = text_of(thing.__code__)
        if text is not None:
            yield text.tree
            # an argument that is called as a global is, `model` in a notebook, is not that global
            names = text.names & _global_names(thing.__code__)
        elif self.must_read:
            raise UserError(
                f"the text of {thing.__qualname__!r} cannot be read, or is another than the one "
                "that runs, so its runs could not be told apart; allowed: functions and classes "
                "from a file that was not changed since it was imported, or from a notebook's cell"
            )
        else:
            yield from _compiled(thing.__code__, thing.__doc__)
            names = _compiled_names(thing.__code__)
        for name in sorted(names & thing.__globals__.keys()):
            yield name
            yield from self.describe(thing.__globals__[name])

    def _class(self, thing: type) -> Iterator[str]:
        """A class by its name, its bases, its fields, its functions and its constants."""
        if not self._is_read(thing.__module__):
            yield f"{_root(thing)}.{thing.__qualname__}"
            return
        yield thing.__qualname__.rpartition(".")[2]
        yield from self._describe_all(thing.__bases__)
        fields = getattr(thing, "model_fields", {})
        for name in sorted(fields.keys() & inspect.get_annotations(thing).keys()):
            yield f"{name}: {_without_address(fields[name])}"
        for name, value in sorted(vars(thing).items()):
            if self._decides(thing, name, value):
                yield name
                yield from self.describe(value)

    def _decides(self, thing: type, name: str, value: Any) -> bool:
        """Whether a member of a class may decide what it does."""
        function = inner_function(value)
        if name in NOT_READ or name.startswith(("_abc", "__pydantic", "model_")):
            return False
        if name.startswith("__"):  # somebody's own, not one that Python or a library made
            is_own = inspect.isfunction(function) and function.__module__ == thing.__module__
            return is_own and not is_generated(function.__code__)
        return callable(function) or isinstance(value, int | float | str | tuple)

    def _module(self, thing: types.ModuleType) -> Iterator[str]:
        """A module by its name; one that is read by all that it defines."""
        if not self._is_read(thing.__name__):
            yield thing.__name__
            return
        for name, value in sorted(vars(thing).items()):
            if not name.startswith("__") and not inspect.ismodule(value):
                yield name
                yield from self.describe(value)


def _without_address(thing: object) -> str:
    """What a thing prints as, if that says what it is."""
    text = repr(thing)
    if " at 0x" in text:
        raise UserError(
            f"what {short(thing)} does cannot be read off, so runs that rest on it could not be "
            "told apart; allowed: fields with plain defaults and limits"
        )
    return text


# ---- functions without a text


def _compiled(code: types.CodeType, doc: str | None) -> Iterator[str]:
    """What a code object does on this version of Python, as texts, without its docstring."""
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _compiled(constant, None)
        elif constant is None or constant != doc:
            yield repr(constant)


def _global_names(code: types.CodeType) -> set[str]:
    """The global names that a code object and those inside it read."""
    read = {each.argval for each in dis.get_instructions(code) if each.opname in READS_GLOBAL}
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return read.union(*(_global_names(part) for part in inner))


def _compiled_names(code: types.CodeType) -> set[str]:
    """The global names that a code object and those inside it use."""
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return set(code.co_names).union(*(_compiled_names(part) for part in inner))
