"""What a cluster's workers must load before they train: the plugins that the client has loaded.

An installed package or a module is sent by its name: the worker must have it. Files and folders are
sent as text, with a hash, because the user named them on the command line; a worker imports them
under the names that they have here. Whether it then has the same kinds as the client is told by
their codes, which stand in each Spec.
"""

import hashlib
import sys
from collections.abc import Sequence
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import NamedTuple

from mnemoscope.core.errors import UserError
from mnemoscope.core.kinds import find_kind, kinds_of
from mnemoscope.core.plugins import (
    Plugin,
    files_of,
    forget_modules,
    is_path,
    loaded_plugins,
    one_line,
)


class SentPlugin(NamedTuple):
    """A plugin on its way to a worker."""

    asked: str
    """What the user named it."""
    modules: tuple[str, ...]
    """What is imported, in this order."""
    texts: tuple[str, ...] = ()
    """What their files hold, where the user named a file or a folder."""
    is_folder: tuple[bool, ...] = ()
    """Whether the file of each is the `__init__.py` of a folder."""
    sha256: str = ""
    """The hash of the texts."""


def pack_plugins() -> tuple[SentPlugin, ...]:
    """Every plugin that is loaded, as it is sent."""
    return tuple(map(_pack, loaded_plugins()))


def _pack(plugin: Plugin) -> SentPlugin:
    name = plugin.module.__name__
    root = name.split(".")[0]
    if not is_path(plugin.asked):
        defining = [find_kind(*kind).__module__ for kind in kinds_of(root)]
        return SentPlugin(plugin.asked, tuple(dict.fromkeys([name, *defining])))
    files = files_of(root)
    texts = tuple(file.read_text(encoding="utf-8") for file in files.values())
    folders = tuple(file.name == "__init__.py" for file in files.values())
    return SentPlugin(plugin.asked, tuple(files), texts, folders, _hash(texts))


def _hash(texts: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def load_sent(sent: Sequence[SentPlugin], folder: Path) -> None:
    """Load plugins on a worker.

    Args:
        sent: as `pack_plugins` made them.
        folder: of the worker, where texts are written to be imported.
    """
    for plugin in sent:
        with one_line(f"the plugin {plugin.asked!r}"):
            if plugin.texts:
                _write(plugin, folder)
            for name in plugin.modules:
                import_module(name)


def _write(plugin: SentPlugin, folder: Path) -> None:
    """Write a plugin's texts where Python finds them, unless they are there."""
    if _hash(plugin.texts) != plugin.sha256:
        raise UserError("the texts that came are not those that were sent")
    home = folder / "mnemoscope-plugins" / plugin.sha256[:16]
    if str(home) in sys.path:
        return
    for name, text, is_folder in zip(plugin.modules, plugin.texts, plugin.is_folder, strict=True):
        place = home.joinpath(*name.split("."))
        file = place / "__init__.py" if is_folder else place.with_name(f"{place.name}.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    # an older text of the same files may be loaded
    for root in {name.split(".")[0] for name in plugin.modules}:
        forget_modules(root)
    sys.path.insert(0, str(home))
    invalidate_caches()
