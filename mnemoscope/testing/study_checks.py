"""Checks of a study: its claims, its conditions, what it measures, its ledger and its page.

Everything is tried on a tiny training: a few steps of a few seeds. Whether a claim is true is not
checked; that is what the study is for.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, short
from mnemoscope.core.plugins import Plugin, import_within, is_path, load_path, without_name
from mnemoscope.execution.machine import hardware, versions
from mnemoscope.report.site import write_site
from mnemoscope.store import Store
from mnemoscope.studies.discover import STUDIES, find_study
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.folder import CLAIMS, read_toml
from mnemoscope.studies.ledger_files import write_ledger
from mnemoscope.studies.presentation import require_explored, require_words
from mnemoscope.studies.runner import Finding, measure_claim
from mnemoscope.studies.scales import SCALES
from mnemoscope.studies.study import ClaimTest, Condition, Study, find_function
from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.training.loop import fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.claim import PLAIN, Claim, Part, read_claims
from mnemoscope.verdicts.record import Provenance

STEPS = 4
"""How many steps a tiny training has."""
BATCH = 4
"""Of how many sequences."""
SEEDS = 3
"""Of how many seeds."""


def check_study(study: Study | str | Path, *, raise_on_failure: bool = True) -> CheckResult:
    """Check a study, all of it whatever fails.

    Args:
        study: its folder; or its name, or the study itself.
        raise_on_failure: raise one AssertionError that names every check that failed.
    """
    tried = _Tried(study)
    checks = tried.checks()
    return run_checks(f"study {tried.name!r}", checks, raise_on_failure=raise_on_failure)


def list_study_checks(study: Study | str | Path) -> tuple[Check, ...]:
    """The checks of a study, to be run one at a time.

    Args:
        study: its folder; or its name, or the study itself.
    """
    return _Tried(study).checks()


class _Tried:
    """A study, and what the checks have found out about it so far."""

    def __init__(self, study: Study | str | Path):
        self.given = study if isinstance(study, Study) else None
        self.asked = "" if isinstance(study, Study) else _as_asked(study)
        if self.asked and not is_path(self.asked) and self.asked not in STUDIES:
            find_study(self.asked)  # raises, and says which there are
        self.runs: dict[str, Run] = {}

    def checks(self) -> tuple[Check, ...]:
        """Every check, each after those that it needs."""
        has_claims = Check(f"{CLAIMS} can be read and has a claim", self.check_file)
        covers = Check("the zones of every part cover the line", self.check_zones, (has_claims,))
        claims = Check("every claim is well formed", self.check_claims, (covers,))
        defines = Check("study.py defines STUDY", self.check_module)
        functions = Check("every claim's function exists", self.check_functions, (claims, defines))
        if self.given:
            loads = Check("it has a name and claims", self.check_loads)
        else:
            loads = Check("it can be loaded", self.check_loads, (functions,))
        needs = Check("every need is a condition", self.check_needs, (loads,))
        specs = Check("every condition's Spec comes back from JSON", self.check_specs, (loads,))
        explored = Check("what the explorer shows is trained", self.check_explored, (loads,))
        measured = Check(
            "every claim is measured on a tiny training", self.check_measured, (needs, specs)
        )
        twice = Check("measured twice it is the same", self.check_twice, (measured,))
        words = Check("the words of its page are well formed", self.check_words, (loads,))
        write = partial(self.check_written, (explored, words))
        written = Check("its ledger and its page can be written", write, (measured,))
        of_folder = () if self.given else (has_claims, covers, claims, defines, functions)
        rest = (loads, needs, specs, explored, measured, twice, words, written)
        return (*of_folder, *rest)

    # ---- what is looked at

    @property
    def name(self) -> str:
        """What the study is called."""
        if self.given:
            return self.given.name
        if is_path(self.asked):
            return Path(without_name(self.asked)).expanduser().resolve().name
        return self.asked

    @cached_property
    def package(self) -> str:
        """The study's folder, as Python names it."""
        if not is_path(self.asked):
            place = STUDIES.place(self.asked)
            assert place is not None
            return place.package
        plugin: Plugin = load_path(without_name(self.asked))
        if not hasattr(plugin.module, "__path__"):
            raise UserError(f"{self.asked!r} is a file; needed: a folder with {CLAIMS}")
        return plugin.module.__name__

    @cached_property
    def tables(self) -> dict[str, Any]:
        """What claims.toml says."""
        return read_toml(self.package, CLAIMS)

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """The claims of the folder."""
        return read_claims(self.tables, self.name)

    @cached_property
    def study(self) -> Study:
        """The study itself."""
        return self.given or find_study(self.asked)

    @cached_property
    def conditions(self) -> dict[str, Condition]:
        """What the study trains at its quick scale, made tiny."""
        found = self.study.list_conditions("quick")
        return {name: Condition(_tiny(each.spec), SEEDS) for name, each in found.items()}

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """What the claims measure on tiny trainings."""
        return dict(self.measure_all())

    def run(self, name: str) -> Run:
        """A condition's tiny training."""
        if name not in self.runs:
            spec = self.conditions[name].spec
            self.runs[name] = fit(spec, range(SEEDS))
        return self.runs[name]

    def measure_all(self) -> Iterator[tuple[str, Finding]]:
        """What each claim measures, by its id."""
        evidence = Evidence("quick", self.conditions, self.run)
        for test in self.study.tests:
            with _saying(test.claim.id):
                yield test.claim.id, measure_claim(test, evidence, _provenance(test))

    # ---- checks

    def check_file(self) -> str:
        """Whether there is a file of claims."""
        names = [name for name in self.tables if name != "readings"]
        require(names, f"there is no claim; needed: a table such as [C1] in {CLAIMS}")
        return f"{len(names)} claims"

    def check_zones(self) -> None:
        """Whether each part of each claim has zones that make sense."""
        for name, fields in self.tables.items():
            parts = fields.get("parts", ()) if isinstance(fields, dict) else ()
            for part in parts if name != "readings" else ():
                with _saying(name):
                    Part.model_validate(part)

    def check_claims(self) -> None:
        """Whether each claim can be read."""
        require(self.claims, "there is no claim")

    def check_module(self) -> None:
        """Whether the folder defines a study."""
        study = getattr(import_within(self.package, "study"), "STUDY", None)
        needed = "needed: STUDY = ms.Study(title=.., conditions=..)"
        require(isinstance(study, Study), f"STUDY is {short(study)}; {needed}")

    def check_functions(self) -> None:
        """Whether what each claim names is there."""
        for claim in self.claims.values():
            find_function(self.package, claim)

    def check_loads(self) -> None:
        """Whether the study is whole."""
        require(self.study.name, "it has no name")
        require(self.study.tests, "it has no claim")

    def check_needs(self) -> str:
        """Whether each need names a condition at every scale, each pattern one at some scale."""
        known = {scale: self.study.list_conditions(scale) for scale in SCALES}
        for test in self.study.tests:
            for conditions in known.values():
                test.pick_conditions(conditions)  # raises for a name that is not there
            for need in test.needs:
                every = {name for each in known.values() for name in each}
                alone = ClaimTest(test.claim, (need,), test.measure)
                require(
                    alone.pick_conditions(every),
                    f"{test.claim.id} needs {need!r}, which matches no condition; there are: "
                    f"{', '.join(sorted(every))}",
                )
        return ", ".join(f"{len(each)} at {scale}" for scale, each in known.items())

    def check_specs(self) -> None:
        """Whether each Spec is the same after it was written and read."""
        specs = [
            (f"{name} ({scale})", each.spec)
            for scale in SCALES
            for name, each in self.study.list_conditions(scale).items()
        ]
        if not specs:
            raise NotApplicable("it trains nothing")
        for name, spec in specs:
            with _saying(name):
                again = Spec.model_validate_json(spec.canonical_json())
                same = again == spec and again.digest() == spec.digest()
                require(same, f"it comes back as another one: {short(again, 200)}")

    def check_explored(self) -> None:
        """Whether the explorer's conditions are trained at the quick scale."""
        if not self.study.explore:
            raise NotApplicable("it names no conditions for the explorer")
        require_explored(self.study)

    def check_measured(self) -> str:
        """Whether each claim's function returns what its parts need."""
        silent: list[str] = []
        for test in self.study.tests:
            record = self.findings[test.claim.id].record
            if record.why_not:
                silent.append(f"{test.claim.id}: {record.why_not}")
                continue
            for part in test.claim.parts:
                readings = record.parts.get(part.name, {})
                returned = ", ".join(record.parts) or "nothing"
                require(
                    PLAIN in readings,
                    f"{test.claim.id}: its function does not return the part {part.name!r}; it "
                    f"returned {returned}",
                )
        if len(silent) == len(self.study.tests):
            raise NotApplicable(f"nothing is measured at the quick scale ({silent[0]})")
        said = f"{SEEDS} seeds of {STEPS} steps"
        return f"{said}; not measured: {'; '.join(silent)}" if silent else said

    def check_twice(self) -> None:
        """Whether measuring depends on nothing but what was trained."""
        for name, again in self.measure_all():
            first = self.findings[name].record
            same = again.record.parts == first.parts and _same(again.record, first)
            require(same, f"{name}: another number each time; draw from a fixed key")

    def check_words(self) -> str:
        """Whether page.toml and figures.toml say what such files can say."""
        if self.study.package is None:
            raise NotApplicable("it has no folder")
        files = [
            name for name in ("page.toml", "figures.toml") if read_toml(self.study.package, name)
        ]
        if not files:
            raise NotApplicable("it has neither page.toml nor figures.toml; its page is plain")
        require_words(self.study)
        return ", ".join(files)

    def check_written(self, rests_on: tuple[Check, ...]) -> None:
        """Whether what was measured becomes a ledger and a page.

        Args:
            rests_on: checks that must not have failed.
        """
        for check in rests_on:
            if check.look()[0].outcome == "failed":
                raise NotApplicable(f"{check.name!r} did not pass")
        with tempfile.TemporaryDirectory(prefix="mnemoscope-") as folder:
            store = Store(Path(folder) / "store")
            write_ledger(
                store,
                self.study.name,
                "quick",
                "mnemoscope check-study",
                {test.claim.id: test.claim for test in self.study.tests},
                {name: each.record for name, each in self.findings.items()},
                {name: each.plots for name, each in self.findings.items()},
            )
            written = write_site(
                Path(folder) / "site", store, studies={self.study.name: self.study}
            )
            require(any(page.stat().st_size for page in written), "no page was written")


def _as_asked(study: str | Path) -> str:
    """A folder as a command line has it: what is a folder is no name."""
    if isinstance(study, Path) or (Path(study) / CLAIMS).is_file():
        return str(Path(study).expanduser().resolve())
    return study


def _tiny(spec: Spec) -> Spec:
    """The same Spec with hardly any training."""
    return spec.model_copy(
        update={"steps": min(spec.steps, STEPS), "batch": min(spec.batch, BATCH)}
    )


def _provenance(test: ClaimTest) -> Provenance:
    return Provenance(
        date="2000-01-01T00:00:00Z",
        command="mnemoscope check-study",
        hardware=hardware(),
        versions=versions(),
        code="a check",
        criterion=test.claim.criterion_hash(),
    )


def _same(one: Any, other: Any) -> bool:
    """Whether two records show the same of every unit."""
    return one.by_seed.keys() == other.by_seed.keys() and all(
        np.array_equal(one.by_seed[name], other.by_seed[name], equal_nan=True)
        for name in one.by_seed
    )


@contextmanager
def _saying(what: str) -> Iterator[None]:
    """Say of what an error speaks."""
    try:
        yield
    except Exception as error:
        kind = "" if isinstance(error, UserError | AssertionError) else f"{type(error).__name__}: "
        raise AssertionError(f"{what}: {kind}{error}") from error
