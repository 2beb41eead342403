"""A study: claims of one paper, the models that are trained for them, and what measures each."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import InitVar, dataclass, replace
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from mnemoscope.core.errors import UserError, in_any_case, short, unknown
from mnemoscope.core.plugins import import_within, one_line
from mnemoscope.studies.folder import CLAIMS, read_toml
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.scales import Scale
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.claim import Claim, read_claims

if TYPE_CHECKING:
    from mnemoscope.studies.evidence import Evidence
    from mnemoscope.tasks import Corpus


@dataclass(frozen=True)
class Condition:
    """A Spec that a study trains, and over which seeds."""

    spec: Spec
    """What is trained."""
    seeds: int
    """How many."""
    first_seed: int = 0
    """The first one; seeds that nobody has looked at begin elsewhere."""

    @property
    def seed_range(self) -> range:
        """The seeds themselves."""
        return range(self.first_seed, self.first_seed + self.seeds)


@dataclass(frozen=True)
class ClaimTest:
    """A claim, the conditions it needs, and the function that measures what decides it."""

    claim: Claim
    """What is tested."""
    needs: tuple[str, ...]
    """Names or patterns of conditions; a pattern may match nothing at a scale without such ones."""
    measure: Callable[["Evidence"], Measurement]
    """Measures the parts of the claim's criterion."""

    __test__ = False  # not a pytest class

    def pick_conditions(self, known: Iterable[str]) -> tuple[str, ...]:
        """The conditions that this test needs, out of those that a scale has."""
        known = tuple(known)
        for need in self.needs:
            if "*" not in need and need not in known:
                raise ValueError(unknown(f"condition needed by {self.claim.id}", need, known))
        return tuple(name for name in known if self._needs(name))

    def _needs(self, name: str) -> bool:
        return any(fnmatchcase(name, need) for need in self.needs)


@dataclass(frozen=True, repr=False)
class Study:
    """One paper put to the test.

    In a folder, `study.py` says the title and what is trained; name and claims are the folder's.
    """

    title: str
    """A question."""
    conditions: Callable[[Scale], dict[str, Condition]]
    """What is trained at a scale, by name."""
    paper: str = ""
    """Its title and authors."""
    name: str = ""
    """As the command line has it; in a folder the folder's name."""
    claims: InitVar[Mapping[str, Any] | None] = None
    """The claims as `claims.toml` would have them, where no such file is beside the study; the
    function that measures each stands there itself."""
    tests: tuple[ClaimTest, ...] = ()
    """One for each claim; in a folder those of `claims.toml`."""
    package: str | None = None
    """The folder that has the files of this study, as Python names it."""
    explore: tuple[str, ...] = ()
    """Conditions whose quick runs the site's explorer carries."""
    on_text: Callable[[Scale, "Corpus"], dict[str, Condition]] | None = None
    """The same conditions on a text of the user's."""
    on_model: Callable[[Path], "Study"] | None = None
    """The same study of a language model of the user's."""
    fingerprint: Callable[[], str] = str
    """What its findings rest on besides conditions and code; nothing by default."""

    def __post_init__(self, claims: Mapping[str, Any] | None) -> None:
        if claims is not None:
            object.__setattr__(self, "tests", _tests_of(claims, self.name or self.title))

    def __repr__(self) -> str:
        return f"<Study {self.name}: {short(self.title)}, {len(self.tests)} claims>"

    def list_conditions(self, scale: Scale) -> dict[str, Condition]:
        """What is trained at a scale, by name; what is no Condition is refused.

        Args:
            scale: how much is trained.
        """
        found: object = self.conditions(scale)
        if not isinstance(found, dict):
            raise UserError(
                f"conditions of study {self.name!r} must return a dictionary of Conditions by "
                f"name, got {short(found)}"
            )
        for name, each in cast(dict[object, object], found).items():
            if not isinstance(each, Condition):
                hint = "; allowed: ms.Condition(SPEC, seeds=16)"
                came = "a Spec alone" if isinstance(each, Spec) else short(each)
                raise UserError(f"condition {name!r} of study {self.name!r} is {came}{hint}")
        return cast(dict[str, Condition], found)

    def pick(self, ids: tuple[str, ...] = ()) -> tuple[ClaimTest, ...]:
        """The tests of these claims, in the study's order; none given means all."""
        known = [test.claim.id for test in self.tests]
        chosen = {in_any_case(name, known) for name in ids}
        for name in ids:
            if in_any_case(name, known) not in known:
                raise UserError(unknown(f"claim of study {self.name!r}", name, known))
        return tuple(test for test in self.tests if not ids or test.claim.id in chosen)


def load_study(package: str, name: str) -> Study:
    """The study of a folder.

    Args:
        package: the folder, as Python names it.
        name: what the study is called.
    """
    with one_line(f"the study {name!r}"):
        module = import_within(package, "study")
    study: object = getattr(module, "STUDY", None)
    if not isinstance(study, Study):
        raise UserError(f"study.py of {name!r} defines no study; needed: STUDY = ms.Study(..)")
    if study.name not in ("", name):
        raise UserError(
            f"study.py of {name!r} calls its study {study.name!r}; allowed: {name!r}, or no name"
        )
    tests = study.tests or load_tests(package, name)
    return replace(study, name=name, package=package, tests=tests)


def load_tests(package: str, study: str = "") -> tuple[ClaimTest, ...]:
    """The claims of a study with what measures each, from the `claims.toml` in its folder.

    There a claim names its function, `measure = "heads.measure_division"` for the function of that
    name in `heads.py` beside the file, and the conditions that it `needs`.

    Args:
        package: the study's folder as Python names it.
        study: what the study is called, for messages; the folder's name unless it is given.
    """
    study = study or package.rpartition(".")[2]
    claims = read_claims(read_toml(package, CLAIMS), study)
    return tuple(
        ClaimTest(claim, claim.needs, find_function(package, claim)) for claim in claims.values()
    )


def _tests_of(claims: Mapping[str, Any], study: str) -> tuple[ClaimTest, ...]:
    """The tests of claims that are given with the functions that measure them."""
    measures: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, fields in claims.items():
        if name == "readings" or not isinstance(fields, Mapping):
            tables[name] = fields
            continue
        measure = fields.get("measure")
        if not callable(measure):
            raise UserError(f"{name} of {study}: measure must be a function, got {short(measure)}")
        measures[name] = measure
        tables[name] = {**fields, "measure": getattr(measure, "__name__", "measure")}
    found = read_claims(tables, study)
    return tuple(ClaimTest(each, each.needs, measures[name]) for name, each in found.items())


def find_function(package: str, claim: Claim) -> "Callable[[Evidence], Measurement]":
    """The function that a claim names.

    Args:
        package: the study's folder, as Python names it.
        claim: names it as "file.function".
    """
    module_name, _, name = claim.measure.partition(".")
    module: Any = None
    if module_name and find_spec(f"{package}.{module_name}") is not None:
        with one_line(f"{module_name}.py of {package.rpartition('.')[2]}"):
            module = import_within(package, module_name)
    found: Callable[[Evidence], Measurement] | None = getattr(module, name, None)
    if not callable(found):
        raise UserError(
            f"claims.toml, {claim.id}: there is no function {claim.measure!r}; "
            "'file.function' of this folder is needed"
        )
    return found


def with_seeds(conditions: Mapping[str, Condition], seeds: int) -> dict[str, Condition]:
    """The same conditions with another number of seeds each.

    Args:
        conditions: by name.
        seeds: how many.
    """
    return {name: Condition(each.spec, seeds, each.first_seed) for name, each in conditions.items()}
