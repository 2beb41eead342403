"""The studies by name, and the same studies on a text or a language model of the user's.

A folder with `claims.toml` is a study: those of `mnemoscope.studies.library`, those of a plugin
(the folder itself, or the folders in it), those of an installed package that announces itself
(`mnemoscope.core.plugins`), whose names begin with the package's. A file may define studies too, as
`Study` objects. A study is loaded when it is asked for: names, claims and commands of ours are
known without JAX.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, cast
from weakref import WeakKeyDictionary

from mnemoscope.core import plugins
from mnemoscope.core.errors import UserError, in_any_case, unknown
from mnemoscope.studies.folder import CLAIMS, LAST, load_part, path_of, read_toml

if TYPE_CHECKING:
    from mnemoscope.studies.scales import Scale
    from mnemoscope.studies.study import Condition, Study
    from mnemoscope.verdicts.claim import Claim

LIBRARY = "mnemoscope.studies.library"

# what was loaded from a folder, by its `study` module: loaded again, it is another one
_complete: "WeakKeyDictionary[ModuleType, Study]" = WeakKeyDictionary()


class Place(NamedTuple):
    """Where a study is."""

    package: str = ""
    """Its folder, as Python names it; empty for one that a file defines."""
    study: "Study | None" = None
    """The study that a file defines."""
    asked: str = ""
    """What it was asked for by, where its name alone does not do."""


class Library(Mapping[str, "Study"]):
    """The studies in a folder, or in the folders inside it, by name.

    Args:
        package: the folder, as Python names it.
        prefix: what their names begin with: that of an installed package, and a slash.
    """

    def __init__(self, package: str, prefix: str = ""):
        self.package = package
        self.prefix = prefix

    @cached_property
    def packages(self) -> dict[str, str]:
        """The folders of all studies by name, in the order of their pages."""
        home = path_of(self.package)
        if (home / CLAIMS).is_file():
            return {f"{self.prefix}{home.name}": self.package}
        found = {
            f"{self.prefix}{each.name}": f"{self.package}.{each.name}"
            for each in home.iterdir()
            if (each / CLAIMS).is_file()
        }
        return {name: found[name] for name in sorted(found, key=lambda n: _order(found[n], n))}

    def __getitem__(self, name: str) -> "Study":
        return _load(self.packages[name], name)

    def __contains__(self, name: object) -> bool:
        return name in self.packages

    def __iter__(self) -> Iterator[str]:
        return iter(self.packages)

    def __len__(self) -> int:
        return len(self.packages)


def _order(package: str, name: str) -> tuple[int, str]:
    """Where a study stands among those of its library."""
    return read_toml(package, "page.toml").get("order", LAST), name


def _load(package: str, name: str) -> "Study":
    """The study of a folder, loaded once."""
    module = import_module(package)
    found = _complete.get(module)
    if found is None:
        from mnemoscope.core.fingerprint import forget_files
        from mnemoscope.studies.study import load_study

        forget_files(path_of(package))
        found = _complete[module] = load_study(package, name)
    return found


class Studies(Mapping[str, "Study"]):
    """All studies that there are: ours, those of plugins, those of installed packages.

    Installed packages are asked when a name is looked up that is nobody else's, and when all are
    listed.
    """

    def __init__(self) -> None:
        self.ours = Library(LIBRARY)

    def places(self) -> dict[str, Place]:
        """Where ours are, and those of the plugins that are loaded."""
        found = {name: Place(package) for name, package in self.ours.packages.items()}
        for plugin in plugins.loaded_plugins():
            for name, place in _brought_by(plugin).items():
                there = found.get(name)
                if there is not None and not _is_same(there, place):
                    both = f"{_where(there)} and {_where(place)}"
                    raise UserError(f"two studies are called {name!r}: {both}; allowed: one")
                found.setdefault(name, place)
        return found

    def place(self, name: str) -> Place | None:
        """Where a study is; None if there is none of this name.

        Args:
            name: the study's.
        """
        found = self.places().get(name)
        package, slash, _ = name.partition("/")
        if found is None and slash and plugins.load_package(package) is not None:
            found = self.places().get(name)
        return found

    def __getitem__(self, name: str) -> "Study":
        place = self.place(name)
        if place is None:
            raise KeyError(name)
        return place.study or _load(place.package, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.place(name) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self.ours
        plugins.load_installed()
        yield from (name for name in self.places() if name not in self.ours)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _brought_by(plugin: plugins.Plugin) -> dict[str, Place]:
    """The studies that a plugin brings; an installed package's are left out where a name is not
    its own, and that is said."""
    try:
        return _places_in(plugin)
    except UserError as error:
        if not plugin.package:
            raise
        plugins.say_broken(plugin.package, str(error))
        return {}


def _places_in(plugin: plugins.Plugin) -> dict[str, Place]:
    """The studies that a plugin brings."""
    prefix = f"{plugin.package}/" if plugin.package else ""
    asked = plugin.asked if plugins.is_path(plugin.asked) else ""
    module = plugin.module
    found: dict[str, Place] = {}
    if hasattr(module, "__path__") and not plugins.without_name(asked).endswith(".py"):
        library = Library(module.__name__, prefix)
        alone = (path_of(module.__name__) / CLAIMS).is_file()
        for name, package in library.packages.items():
            found[name] = Place(package, asked=asked if alone else _inside(asked, name))
    for study in _defined_in(module):
        name = study.name or module.__name__.rpartition(".")[2]
        if not name.startswith(prefix):
            raise UserError(
                f"the plugin {plugin.asked!r}: its study {name!r} must begin with the package's "
                f"name: {prefix + name!r}"
            )
        complete = study if study.name else replace(study, name=name)
        found[name] = Place(study=complete, asked=_inside(asked, name))
    return found


def _defined_in(module: ModuleType) -> "Iterator[Study]":
    """The studies that a module defines; the `STUDY` of a folder has its claims elsewhere."""
    loaded = sys.modules.get("mnemoscope.studies.study")
    if loaded is None:
        return  # nothing that was imported defines a study
    for value in vars(module).copy().values():
        if isinstance(value, loaded.Study) and value.tests:
            yield cast("Study", value)


def _inside(asked: str, name: str) -> str:
    """How a study inside a file or a folder is asked for."""
    return f"{plugins.without_name(asked)}@{name}" if asked else ""


def _is_same(one: Place, other: Place) -> bool:
    """Whether two places hold one study."""
    if one.package and other.package:
        return path_of(one.package) == path_of(other.package)
    return one.study is not None and one.study == other.study


def _where(place: Place) -> str:
    """A place in words."""
    return repr(place.asked or place.package or "a file's")


STUDIES = Studies()


def find_study(asked: str) -> "Study":
    """The study of this name, or the one that a file or a folder has.

    Args:
        asked: its name; or a path, with `@NAME` where there are several studies.
    """
    if plugins.is_path(asked):
        return _study_at(asked)
    if asked not in STUDIES:
        here = plugins.without_name(asked)
        hint = f"; there is a folder {'./' + here!r}" if (Path(here) / CLAIMS).is_file() else ""
        raise UserError(unknown("study", asked, STUDIES) + hint)
    return STUDIES[asked]


def _study_at(asked: str) -> "Study":
    """The study of a path, with the name of one where there are several."""
    place = plugins.without_name(asked)
    wanted = asked[len(place) + 1 :]
    path = Path(place).expanduser()
    if wanted and (path / wanted / CLAIMS).is_file():
        place = str(path / wanted)  # the same package as when it is named by itself
        wanted = ""
    elif path.name == "study.py" and (path.parent / CLAIMS).is_file():
        place = str(path.parent)
    plugin = plugins.load_path(place)
    found = _places_in(plugin)
    if not found:
        raise UserError(
            f"{place!r} has no study; needed: a folder with {CLAIMS} and study.py, or a file "
            "with a Study that has claims"
        )
    if wanted and wanted not in found:
        raise UserError(unknown(f"study of {place!r}", wanted, found))
    if not wanted and len(found) > 1:
        raise UserError(
            f"{place!r} has several studies; needed: {place}@NAME of {', '.join(found)}"
        )
    return STUDIES[wanted or next(iter(found))]


def command_name(study: str) -> str:
    """What a command must be given to mean a study: its name, or the path that it was loaded from.

    Args:
        study: its name.
    """
    place = STUDIES.places().get(study)
    return place.asked if place is not None and place.asked else study


def packages() -> dict[str, str]:
    """The folders of all studies that have one, by name, as Python names them."""
    plugins.load_installed()
    return {name: place.package for name, place in STUDIES.places().items() if place.package}


def all_claims() -> dict[str, dict[str, "Claim"]]:
    """The claims of every study by its name and theirs; those of folders known without JAX."""
    from mnemoscope.verdicts.claim import read_claims

    found: dict[str, dict[str, Claim]] = {}
    for name in STUDIES:
        place = STUDIES.places()[name]
        if place.study is not None:
            found[name] = {test.claim.id: test.claim for test in place.study.tests}
        else:
            found[name] = read_claims(read_toml(place.package, CLAIMS), name)
    return found


def claim_ids(study: str) -> list[str]:
    """The ids of a study's claims; known without JAX, and without reading what they say.

    Args:
        study: its name.
    """
    place = STUDIES.place(study)
    assert place is not None
    if place.study is not None:
        return [test.claim.id for test in place.study.tests]
    return [each for each in read_toml(place.package, CLAIMS) if each != "readings"]


def find_claim(asked: str) -> tuple["Study", str]:
    """The study that has a claim, and the claim's id.

    Args:
        asked: the id, in capitals or not; after a path and `@` where the study is not known by
            name.
    """
    path, at, claim_id = asked.rpartition("@")
    if at and (plugins.is_path(path) or path in STUDIES):
        study = find_study(path)
        return study, study.pick((claim_id,))[0].claim.id
    known = _studies_of_claims(STUDIES.places())
    if in_any_case(asked, known) not in known:
        known = _studies_of_claims(STUDIES)
    asked = in_any_case(asked, known)
    if asked not in known:
        raise UserError(unknown("claim", asked, known))
    if len(known[asked]) > 1:
        both = ", ".join(f"{command_name(name)}@{asked}" for name in known[asked])
        raise UserError(f"{asked} is a claim of several studies; needed: one of {both}")
    return STUDIES[known[asked][0]], asked


def _studies_of_claims(names: Iterable[str]) -> dict[str, list[str]]:
    """The studies that have each claim, by its id."""
    found: dict[str, list[str]] = {}
    for name in names:
        for claim in claim_ids(name):
            found.setdefault(claim, []).append(name)
    return found


def load_commands() -> dict[str, Callable[..., None]]:
    """The commands that our studies and those of plugins have, by their name, which is the
    study's."""
    found: dict[str, Callable[..., None]] = {}
    for name, place in STUDIES.places().items():
        part = load_part(place.package, "command") if place.package else None
        if part:
            found[name] = part.command
    return found


def on_corpus(study: "Study", path: Path) -> "Study":
    """A study of text on a text file of the user's.

    Its ledger is kept apart, under the study's and the file's name and the start of a hash of what
    the text holds: another text may have the same name.
    """
    if study.on_text is None:
        texts = ", ".join(s.name for s in STUDIES.values() if s.on_text)
        raise UserError(
            f"study {study.name!r} is not about text, so it takes no --corpus; allowed: {texts}"
        )
    from mnemoscope.tasks import read_corpus

    conditions = study.on_text
    corpus = read_corpus(path)

    def of_corpus(scale: "Scale") -> dict[str, "Condition"]:
        try:
            return conditions(scale, corpus)
        except UserError as error:
            raise UserError(
                f"the corpus {str(path)!r} does not do for {study.name!r}: {error}"
            ) from None

    return replace(
        study,
        name=_name_on(study, path, corpus.digest()),
        title=f"{study.title} ({path.name})",
        conditions=of_corpus,
    )


def _name_on(study: "Study", path: Path, content: str) -> str:
    """The name of a study of a file of the user's, by the file's name and a hash of its content."""
    stem = re.sub(r"[^0-9A-Za-z._-]", "_", path.stem)
    digest = (content or "unread")[:8]
    return f"{study.name}@{stem}-{digest}"


def on_model(study: "Study", path: Path) -> "Study":
    """A study of a language model on the user's own. Its ledger is kept apart, as for a text."""
    if study.on_model is None:
        those = ", ".join(s.name for s in STUDIES.values() if s.on_model)
        raise UserError(
            f"study {study.name!r} is not about a language model, so it takes no --model; "
            f"allowed: {those}"
        )
    if not path.exists():
        raise UserError(
            f"there is no language model at {str(path)!r}; "
            "allowed: a GGUF file, or a folder with *.safetensors"
        )
    made = study.on_model(path)
    return replace(
        made,
        name=_name_on(study, path, made.fingerprint()),
        title=f"{study.title} ({path.name})",
    )
