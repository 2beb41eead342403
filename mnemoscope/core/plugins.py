"""What comes from outside is loaded here: a file, a folder, a module, an installed package.

    load_plugin("./my_tasks.py")      a file or a folder, because somebody named it
    load_plugin("my_tasks")           a module that Python can import
    load_plugin("outside")            an installed package that announces itself by an entry point

An installed package announces the module that defines its kinds, or the package that has its
studies, under its own name:

    [project.entry-points.mnemoscope]
    outside = "outside.kinds"

Entry points are read when a name is looked up that is not ours, and never because a stored file
holds a name. A file is a module of its folder, and the folder a package under a name made of its
own and of where it is: so two folders of one name do not meet, and files of one folder import each
other with a dot (`from .helpers import turn`). What Python can import under a name of its own keeps
that name.
"""

import hashlib
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from mnemoscope.core.errors import Notice, UserError

GROUP = "mnemoscope"
"""The group of entry points."""
VARIABLE = "MNEMOSCOPE_PLUGINS"
"""The environment variable that names plugins, separated as in PATH."""


class Plugin(NamedTuple):
    """Something from outside that is loaded."""

    asked: str
    """What it was asked for by."""
    module: ModuleType
    """What was imported."""
    package: str = ""
    """The installed package that announced it, whose names begin with its own; empty for others."""


_loaded: dict[str, Plugin] = {}  # by the name of the module
_broken: dict[str, str] = {}  # installed packages that cannot be loaded, and why
_texts: dict[str, dict[Path, str]] = {}  # by made package: what its files held when it was loaded


def loaded_plugins() -> tuple[Plugin, ...]:
    """Every plugin that is loaded, in the order in which they were."""
    return tuple(_loaded.values())


def load_plugin(asked: str) -> Plugin:
    """Load a plugin; what cannot be loaded is one line.

    Args:
        asked: a file, a folder, an installed package that announces itself, or a module.
    """
    if is_path(asked):
        plugin = load_path(asked)
        if (Path(asked).expanduser() / "study.py").is_file():
            with one_line(f"{asked!r}"):  # the kinds that the study uses are wanted too
                import_within(plugin.module.__name__, "study")
        return plugin
    announced = {each.name: each for each in _announcements()}
    if asked in announced:
        return _load_announced(announced[asked])
    if not re.fullmatch(r"\w+(\.\w+)*", asked) or not _can_find(asked):
        here = f" (there is {'./' + asked!r})" if Path(asked).exists() else ""
        allowed = "a file or a folder, a module, or an installed package"
        if announced:
            allowed += f" ({', '.join(announced)})"
        raise UserError(f"unknown plugin {asked!r}{here}; allowed: {allowed}")
    with one_line(f"the plugin {asked!r}"):
        return _remember(Plugin(asked, import_module(asked)))


def load_path(asked: str) -> Plugin:
    """Load a file or a folder.

    Args:
        asked: where it is.
    """
    with one_line(f"{asked!r}"):
        return _remember(Plugin(asked, _import_path(asked)))


def load_chosen(asked: Iterable[str] = ()) -> None:
    """Load the plugins that the environment names, and then these.

    Of those that the environment names one that cannot be loaded is said and left out.

    Args:
        asked: as `load_plugin` takes them.
    """
    for each in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        try:
            load_plugin(each)
        except UserError as error:
            say_broken(each, f"{error} (named by {VARIABLE})")
    for each in asked:
        load_plugin(each)


def load_installed() -> None:
    """Load every installed package that announces itself.

    One that cannot be loaded is said once and left out.
    """
    for each in _announcements():
        try:
            _load_announced(each)
        except UserError as error:
            say_broken(each.name, str(error))


def load_package(name: str) -> Plugin | None:
    """Load the installed package of this name; None where none announces itself under it.

    Args:
        name: the package's.
    """
    found = next((each for each in _announcements() if each.name == name), None)
    return None if found is None else _load_announced(found)


def is_path(asked: str) -> bool:
    """Whether what was asked for is a file or a folder, and no name.

    Args:
        asked: what a user wrote.
    """
    place = without_name(asked)
    if (
        place.endswith(".py")
        or asked.startswith((".", "/", "~", os.sep))
        or Path(place).is_absolute()
    ):
        return True
    return re.search(r"[/\\]", place) is not None and Path(place).exists()


def without_name(asked: str) -> str:
    """The file or folder of `my_studies.py@copying`.

    Args:
        asked: what a user wrote.
    """
    place, at, _ = asked.rpartition("@")
    return place if at and not Path(asked).expanduser().exists() else asked


# ---- installed packages


# a library may have put a finder of its own in, whose entry points are of another class
def _announcements() -> tuple[Any, ...]:
    return tuple(entry_points(group=GROUP))


def _load_announced(point: Any) -> Plugin:
    """Load what an entry point names, whose names must begin with the package's."""
    package = point.value.split(":")[0].split(".")[0]
    if point.name != package:
        raise UserError(
            f"the plugin {point.name!r} announces the package {package!r}; an entry point of the "
            f"group {GROUP!r} must have its package's name"
        )
    twice = [each for each in _announcements() if each.name == point.name]
    if any(each.value != point.value for each in twice):
        values = ", ".join(each.value for each in twice)
        raise UserError(f"the plugin {point.name!r} is announced more than once: {values}")
    if point.module in _loaded and _loaded[point.module].package:
        return _loaded[point.module]
    with one_line(f"the plugin {point.name!r}"):
        module = import_module(point.module)
        _refuse_bare_kinds(package)
        return _remember(Plugin(package, module, package))


def _refuse_bare_kinds(package: str) -> None:
    """Raise where an installed package has defined kinds without its name in front."""
    kinds = sys.modules.get("mnemoscope.core.kinds")
    if kinds is None:
        return  # nothing that was imported defines a kind
    bare = [kind for _, kind in kinds.kinds_of(package) if not kind.startswith(f"{package}/")]
    if bare:
        kinds.forget_kinds(package)
        raise UserError(
            f"its kind {bare[0]!r} must begin with the package's name: {package + '/' + bare[0]!r}"
        )


def say_broken(name: str, why: str) -> None:
    """Say once that a plugin is left out.

    Args:
        name: the plugin's.
        why: in one line.
    """
    if _broken.get(name) != why:
        _broken[name] = why
        warnings.warn(f"{why}; left out", Notice, stacklevel=3)


# ---- files and folders


def _import_path(asked: str) -> ModuleType:
    """The module of a file, or the package of a folder."""
    path = Path(asked).expanduser().resolve()
    if not path.exists():
        raise UserError(f"there is no such file or folder: {str(path)!r}")
    if path.is_dir():
        return _import_folder(path)
    if path.suffix != ".py" or not re.fullmatch(r"[\w-]+", path.stem):
        raise UserError(f"a file of Python is needed, such as my_tasks.py, got {path.name!r}")
    if path.stem == "__init__":
        return _import_folder(path.parent)
    own_name = path.stem if _origin(path.stem) == path else ""
    if own_name:
        return import_module(own_name)
    package = _import_folder(path.parent)
    return import_within(package.__name__, path.stem)


def _import_folder(folder: Path) -> ModuleType:
    """A folder as a package."""
    own_name = _own_name(folder)
    if own_name:
        return import_module(own_name)
    name = made_name(folder)
    for module in sys.modules.copy().values():
        if module.__name__ != name and str(folder) in getattr(module, "__path__", ()):
            return module  # imported already under another name, without an `__init__.py`
    if name in sys.modules and _was_edited(name):
        forget_modules(name)
    if name not in sys.modules:
        _import_as(folder, name)
    return sys.modules[name]


def made_name(folder: Path) -> str:
    """What a folder is called as a package: by its name and a hash of where it is.

    Args:
        folder: its resolved path.
    """
    stem = re.sub(r"\W", "_", folder.name) or "folder"
    return f"{stem}_{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"


def _import_as(folder: Path, name: str) -> None:
    """Import a folder as a package of this name; what stands in its `__init__.py` runs."""
    init = folder / "__init__.py"
    if init.is_file():
        spec = spec_from_file_location(name, init, submodule_search_locations=[str(folder)])
    else:
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    _texts[name] = {}
    try:
        if spec.loader is not None:
            spec.loader.exec_module(module)
    except BaseException:
        forget_modules(name)
        raise


def _own_name(folder: Path) -> str:
    """The name under which Python imports a folder; empty where it does not."""
    if not (folder / "__init__.py").is_file():
        return ""
    parts: list[str] = []
    place = folder
    while (place / "__init__.py").is_file():
        parts.insert(0, place.name)
        place = place.parent
    name = ".".join(parts)
    return name if _origin(name) == folder / "__init__.py" else ""


def _origin(name: str) -> Path | None:
    """The file of a module that Python would import under a name."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    return Path(spec.origin).resolve() if spec and spec.origin else None


def _can_find(name: str) -> bool:
    """Whether there is a module of this name."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


# ---- a file that is edited while Python runs


def _modules_of(package: str) -> dict[str, ModuleType]:
    """A package and its modules that are loaded."""
    return {
        name: module
        for name, module in sys.modules.copy().items()
        if name == package or name.startswith(f"{package}.")
    }


def files_of(package: str) -> dict[str, Path]:
    """The files of a package that were loaded, by the name of the module, in their order.

    Args:
        package: its name.
    """
    found: dict[str, Path] = {}
    for name, module in _modules_of(package).items():
        file = getattr(module, "__file__", None)
        if file:
            found[name] = Path(file)
    return found


def import_within(package: str, name: str) -> ModuleType:
    """Import a module of a package, and remember what its files hold now.

    Args:
        package: its name.
        name: of the module inside it.
    """
    module = import_module(f"{package}.{name}")
    root = package.split(".")[0]
    for file in files_of(root).values() if root in _texts else ():
        _texts[root].setdefault(file, _text_hash(file))
    return module


def _was_edited(package: str) -> bool:
    """Whether a file of a package is not what was loaded."""
    return any(_text_hash(file) != text for file, text in _texts.get(package, {}).items())


def _text_hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def forget_modules(package: str) -> None:
    """Let a package be imported anew.

    Args:
        package: its name.
    """
    for name in _modules_of(package):
        del sys.modules[name]
        _loaded.pop(name, None)
    _texts.pop(package, None)
    invalidate_caches()


# ---- what went wrong


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Turn whatever an import raises into one line that says where.

    Args:
        what: is imported, for the message.
    """
    try:
        yield
    except UserError as error:
        said = str(error)
        raise UserError(said if what in said else f"{what} cannot be loaded: {said}") from error
    except Exception as error:
        raise UserError(f"{what} cannot be loaded: {_describe(error)}") from error


def _describe(error: Exception) -> str:
    """An exception of somebody's code in one line, with its place."""
    lines = str(error).splitlines() or [""]
    said = f"{type(error).__name__}: {lines[0][:200]}"
    if isinstance(error, SyntaxError) and error.filename:
        place = f"{Path(error.filename).name}, line {error.lineno}"
        return f"{type(error).__name__}: {error.msg} ({place})"
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parents[1])
    theirs = [each for each in frames if not each.filename.startswith(("<", ours))]
    # what an installed library raises says less than the line of theirs that asked for it
    theirs = [each for each in theirs if "site-packages" not in each.filename] or theirs
    if theirs:
        said += f" ({Path(theirs[-1].filename).name}, line {theirs[-1].lineno})"
        beside = Path(theirs[-1].filename).parent / f"{getattr(error, 'name', None)}.py"
        if isinstance(error, ModuleNotFoundError) and beside.is_file():
            said += f"; a file beside it is imported with a dot: from .{error.name} import .."
    return said


def _remember(plugin: Plugin) -> Plugin:
    """Keep what was loaded; what a package announces is known as the package's."""
    name = plugin.module.__name__
    if name not in _loaded or (plugin.package and not _loaded[name].package):
        _loaded[name] = plugin
    return _loaded[name]
