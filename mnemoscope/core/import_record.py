"""What our modules held when they were imported: what somebody puts in its place is noticed.

A training is another program once one of its functions is another (`loss.cross_entropy = mine`).
To see that at any later time, every module of the package is remembered in the moment it has run,
before anybody can reach it, and without loading any module for it.
"""

import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# what stood under each name: the module, and the name in it
AS_IMPORTED: dict[tuple[str, str], Any] = {}


def names_of(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Every name of a module with what it stands for, and the members of the module's classes."""
    for name, value in vars(module).copy().items():
        if isinstance(value, type) and value.__module__ == module.__name__:
            for member, inside in vars(value).copy().items():
                yield f"{name}.{member}", inside
        yield name, value


def remember_imports() -> None:
    """From here on, remember each module of the package when it is imported."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder:
    """Finds modules of the package as Python would, and has them remembered."""

    def find_spec(
        self, name: str, path: Any = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the package is; nothing for all others.

        Args:
            name: of the module.
            path: the folders of its package.
            target: the module, where it is loaded again.
        """
        if not name.startswith("mnemoscope."):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = _Loader(spec.loader)  # pyright: ignore[reportAttributeAccessIssue]
                return spec
        return None


class _Loader:
    """Runs a module as `loader` does, and then remembers it."""

    def __init__(self, loader: Any):
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)  # whatever else is asked, as `python -m` does

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The empty module; None leaves it to Python."""
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run it."""
        # whoever asks the module for its loader, as for files beside it, gets the usual one
        module.__loader__ = self.loader
        if module.__spec__:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        for name, value in names_of(module):
            AS_IMPORTED[module.__name__, name] = value


_FINDER = _Finder()
