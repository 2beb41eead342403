"""The studies by name, and the same studies on a text or a language model of the user's.

Every folder of `mnemoscope.studies.library` that has a `claims.toml` is a study. A study is loaded
when it is asked for: names, claims and commands are known without JAX.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.studies.folder import load_part, read_toml

if TYPE_CHECKING:
    from mnemoscope.studies.scales import Scale
    from mnemoscope.studies.study import Condition, Study
    from mnemoscope.verdicts.claim import Claim

LIBRARY = "mnemoscope.studies.library"


class Library(Mapping[str, "Study"]):
    """The studies in the folders of a package, by name."""

    def __init__(self, package: str):
        self.package = package

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all folders that hold a study, in the order of their pages."""
        folders = resources.files(self.package).iterdir()
        names = [each.name for each in folders if each.joinpath("claims.toml").is_file()]
        return tuple(sorted(names, key=self._place))

    def _place(self, name: str) -> tuple[int, str]:
        """Where a study stands among all."""
        return read_toml(f"{self.package}.{name}", "page.toml")["order"], name

    def __getitem__(self, name: str) -> "Study":
        if name not in self.names:
            raise KeyError(name)
        return import_module(f"{self.package}.{name}.study").STUDY

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


STUDIES: Mapping[str, "Study"] = Library(LIBRARY)


def find_study(name: str) -> "Study":
    """The study of this name."""
    if name not in STUDIES:
        raise UserError(unknown("study", name, STUDIES))
    return STUDIES[name]


def all_claims() -> dict[str, dict[str, "Claim"]]:
    """The claims of every study by its name and theirs; known without JAX."""
    from mnemoscope.verdicts.claim import read_claims

    return {
        name: read_claims(read_toml(f"{LIBRARY}.{name}", "claims.toml"), name) for name in STUDIES
    }


def claim_ids(study: str) -> list[str]:
    """The ids of a study's claims; known without JAX, and without reading what they say."""
    return [each for each in read_toml(f"{LIBRARY}.{study}", "claims.toml") if each != "readings"]


def find_claim(claim_id: str) -> tuple["Study", str]:
    """The study that has this claim."""
    known = {each: name for name in STUDIES for each in claim_ids(name)}
    if claim_id not in known:
        raise UserError(unknown("claim", claim_id, known))
    return STUDIES[known[claim_id]], claim_id


def load_commands() -> dict[str, Callable[..., None]]:
    """The commands that studies have, by their name, which is the study's."""
    found: dict[str, Callable[..., None]] = {}
    for name in STUDIES:
        part = load_part(f"{LIBRARY}.{name}", "command")
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
