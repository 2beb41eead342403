"""Names for stored runs: STUDY/CONDITION, as the study calls what it trains.

    walk/abc             the condition `abc` of the study `walk`
    walk/abc:full        that of its full scale, where both scales are stored
    walk/abc/0-7         one of several blocks of seeds

A store's ledgers say which Spec each condition was, so that names are known without JAX and without
the study. What has not been judged yet is looked up in the study itself.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from mnemoscope.core.errors import UserError, counted, parsed, short
from mnemoscope.store import RunRow, Store
from mnemoscope.studies.scales import SCALES, Scale

EVIDENCE = ".evidence.json"
FEW = 8  # runs that a message lists


class RunName(NamedTuple):
    """What a study calls a Spec."""

    study: str
    """The study's name."""
    condition: str
    """What the study calls it."""
    scale: Scale
    """At which it is trained."""

    @property
    def name(self) -> str:
        """STUDY/CONDITION."""
        return f"{self.study}/{self.condition}"


class RunNames:
    """The names of the Specs whose runs a store holds.

    Args:
        by_spec: what each digest is called.
    """

    def __init__(self, by_spec: Mapping[str, Iterable[RunName]]):
        self.by_spec = {spec: tuple(dict.fromkeys(names)) for spec, names in by_spec.items()}

    def specs(self, name: str, scale: str = "") -> list[str]:
        """The digests that a name stands for.

        Args:
            name: in capitals or not.
            scale: one alone; all if empty.
        """
        return [
            spec
            for spec, names in self.by_spec.items()
            if any(
                each.name.lower() == name.lower() and scale in ("", each.scale) for each in names
            )
        ]

    def names_of(self, spec: str) -> list[str]:
        """What a run of this Spec is called, each as a command takes it: with the scale where the
        name alone means another Spec too."""
        found: list[str] = []
        for each in self.by_spec.get(spec, ()):
            is_alone = len(self.specs(each.name)) == 1
            found.append(each.name if is_alone else f"{each.name}:{each.scale}")
        return list(dict.fromkeys(found))

    def name_of(self, row: RunRow) -> str:
        """What a block is called first; empty where no study has it."""
        return next(iter(self.names_of(row.spec)), "")

    def all_names(self) -> list[str]:
        """Every name, in the order of the ledgers."""
        return [name for spec in self.by_spec for name in self.names_of(spec)]


def read_run_names(store: Store) -> RunNames:
    """The names that a store's own ledgers give to what it holds; of the others, none.

    Args:
        store: whose runs have names.
    """
    stored = {row.spec for row in store.rows()}
    found: dict[str, list[RunName]] = {}
    for scale in SCALES:
        for path in sorted((store.folder / "ledger" / scale).glob(f"*{EVIDENCE}")):
            study = path.name.removesuffix(EVIDENCE).replace("~", "/")
            # one that cannot be read names nothing; `mnemoscope check` says why
            with suppress(ValueError, OSError):
                text = store.read_text(f"ledger/{scale}/{path.name}")
                for condition, spec in _conditions(parsed(text or "{}", path.name)):
                    if spec in stored:
                        found.setdefault(spec, []).append(RunName(study, condition, scale))
    return RunNames(found)


def _conditions(evidence: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every condition in a file of evidence, with its Spec; the file may be anybody's."""
    for record in _dict(evidence.get("claims")).values():
        for name, trained in _dict(_dict(record).get("conditions")).items():
            spec: object = _dict(trained).get("spec")
            if isinstance(spec, str):
                yield name, spec


def _dict(value: object) -> dict[str, Any]:
    """A dictionary, or an empty one in place of anything else."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


# ---- what a command was given


def find_run(store: Store, asked: str) -> RunRow:
    """The one stored block that is meant.

    Args:
        store: where it is looked for.
        asked: its id, or how it starts; or its name, with `:SCALE` and `/FIRST-LAST` where the name
            alone stands for several. In capitals or not.
    """
    rows = store.rows()
    found = [row for row in rows if asked and row.starts_with(asked)]
    names = RunNames({})
    if not found:
        names = read_run_names(store)
        found = named_rows(rows, names, asked) or named_rows(rows, _from_study(asked), asked)
    if len(found) == 1:
        return found[0]
    if not found:
        raise UserError(_not_stored(store, rows, names, asked))
    names = names if names.by_spec else read_run_names(store)
    listed = "; ".join(_describe(row, names) for row in found[:FEW])
    more = f"; and {len(found) - FEW} more" if len(found) > FEW else ""
    raise UserError(
        f"{asked!r} is {counted(len(found), 'stored run')}: {listed}{more}; needed: one"
    )


def named_rows(rows: Iterable[RunRow], names: RunNames, asked: str) -> list[RunRow]:
    """The blocks that a name stands for.

    Args:
        rows: all that are stored.
        names: of their Specs.
        asked: a name, with `:SCALE` and `/FIRST-LAST` or not.
    """
    with_seeds = re.fullmatch(r"(.+?)/(\d+-\d+(\.\w*)?)", asked)
    for name, seeds in ((asked, ""), (with_seeds[1], with_seeds[2]) if with_seeds else ("", "")):
        plain, colon, scale = name.rpartition(":")
        is_scale = bool(colon) and scale in SCALES
        specs = names.specs(plain, scale) if is_scale else names.specs(name)
        if specs:
            return [row for row in rows if row.spec in specs and _has_seeds(row, seeds)]
    return []


def matching_rows(rows: Iterable[RunRow], names: RunNames, pattern: str) -> list[RunRow]:
    """The blocks that a list is asked for: those that a name stands for, or else those of a study,
    or else those whose id starts so.

    Args:
        rows: all that are stored.
        names: of their Specs.
        pattern: a name, a study or the start of an id; empty for all.
    """
    rows = list(rows)
    if not pattern:
        return rows
    named = named_rows(rows, names, pattern)
    if named:
        return named
    begin = f"{pattern.lower().rstrip('/')}/"
    of_study = {
        spec
        for spec, each in names.by_spec.items()
        if any(name.name.lower().startswith(begin) for name in each)
    }
    found = [row for row in rows if row.spec in of_study]
    return found or [row for row in rows if row.starts_with(pattern)]


def _has_seeds(row: RunRow, seeds: str) -> bool:
    """Whether a block is that of these seeds, as the end of its id says them."""
    said = row.id.partition("/")[2]
    return said == seeds or said.startswith(f"{seeds}." if "." not in seeds else seeds) or not seeds


def _from_study(asked: str) -> RunNames:
    """The names that a study gives to what it trains, where one begins like what was asked for."""
    from mnemoscope.studies.discover import STUDIES

    found: dict[str, list[RunName]] = {}
    parts = asked.split("/")
    for n in range(1, len(parts)):
        study = "/".join(parts[:n]).lower()
        if study not in STUDIES:
            continue
        for scale in SCALES:
            for name, condition in STUDIES[study].list_conditions(scale).items():
                spec = condition.spec.digest()
                found.setdefault(spec, []).append(RunName(study, name, scale))
    return RunNames(found)


def _describe(row: RunRow, names: RunNames) -> str:
    """A block by its name, where it has one, and its id."""
    name = names.name_of(row)
    return f"{name}/{row.first}-{row.last} ({row.id})" if name else row.id


def _not_stored(store: Store, rows: list[RunRow], names: RunNames, asked: str) -> str:
    """The sentence for what is no stored run."""
    in_study = _from_study(asked)
    plain = asked.partition(":")[0]
    if in_study.specs(plain):
        study = in_study.by_spec[in_study.specs(plain)[0]][0].study
        return (
            f"{asked!r} is not stored in {str(store.folder)!r}; train it with "
            f"'mnemoscope run {study}'"
        )
    known = names.all_names() or in_study.all_names()
    ids = [row.id for row in rows]
    allowed = [*dict.fromkeys(known), *ids][:FEW] or ["none are stored"]
    near = difflib.get_close_matches(asked[:100], [*known, *ids], n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"no stored run starts with {short(asked)}{hint}; there are: {', '.join(allowed)}"
