"""The layout of the package: imports run downwards only,
and every public function says its shapes.
"""

import ast
from pathlib import Path

import pytest

import mnemoscope

HOME = Path(mnemoscope.__file__).parent
# lowest first: a module imports from its own package and from those before it
ORDER = (
    "core",
    "verdicts",
    "tasks",
    "models",
    "probes",
    "training",
    "theory",
    "store",
    "execution",
    "sweeps",
    "studies",
    "explorer",
    "exchange",
    "report",
    "testing",
    "cli",
    "__main__",
)
LEVEL = {package: level for level, package in enumerate(ORDER)}
FILES = sorted(HOME.rglob("*.py"))
# parts of a study that belong to a higher package, which alone loads them
# (`mnemoscope.studies.folder`)
HIGHER = {"drawings": "report", "pages": "report", "command": "cli"}


def package_of(module):
    """The package whose place in the order a module has."""
    parts = module.split(".")
    if parts[1:3] == ["studies", "library"] and parts[-1] in HIGHER:
        return HIGHER[parts[-1]]
    return parts[1]


def module_of(file):
    parts = file.relative_to(HOME).with_suffix("").parts
    return ".".join(("mnemoscope", *parts)).removesuffix(".__init__")


MODULES = {module_of(file) for file in FILES}


def imported_modules(tree):
    """The modules of ours that a file imports; `from mnemoscope import x` imports the module x,
    if there is one.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def climbs(package, tree):
    """The modules of packages above its own that a file imports."""
    above = [name for name in imported_modules(tree) if name != "mnemoscope"]
    return [name for name in above if LEVEL[package_of(name)] > LEVEL[package]]


def test_imports_run_one_way():
    # the public names may point anywhere; their module loads nothing by itself
    packages = {
        file: package_of(module_of(file)) for file in FILES if module_of(file) != "mnemoscope"
    }
    assert set(packages.values()) <= set(ORDER), "every package has a place in the order"
    wrong = {
        module_of(file): climbs(package, ast.parse(file.read_text()))
        for file, package in packages.items()
    }
    assert {name: above for name, above in wrong.items() if above} == {}


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("from mnemoscope.studies.discover import STUDIES", "mnemoscope.studies.discover"),
        ("from mnemoscope import report", "mnemoscope.report"),
        ("from mnemoscope.training import loop", "mnemoscope.training.loop"),
        ("import mnemoscope.cli", "mnemoscope.cli"),
    ],
)
def test_the_order_test_can_fail(line, module):
    assert climbs("models", ast.parse(line)) == [module]
    assert climbs("cli", ast.parse(line)) == []


def test_a_study_does_not_load_how_it_is_shown():
    tree = ast.parse("from mnemoscope.studies.library.walk import drawings, judges")
    assert climbs("studies", tree) == ["mnemoscope.studies.library.walk.drawings"]


def graph():
    """Which modules each module imports when it is loaded:
    imports inside functions do not count.
    """
    found = {}
    for file in FILES:
        name = module_of(file)
        top = ast.Module(
            [
                node
                for node in ast.parse(file.read_text()).body
                if not isinstance(node, ast.FunctionDef)
            ],
            [],
        )
        found[name] = {
            other for other in imported_modules(top) if other not in (name, "mnemoscope")
        }
    return found


def test_no_two_modules_import_each_other():
    imports = graph()
    for name, others in imports.items():
        back = [other for other in others if name in imports[other] and not _guarded(name, other)]
        assert not back, f"{name} and {back} import each other"


# of each pair one names the other in its signatures alone, under TYPE_CHECKING
FOR_TYPES = (
    {"mnemoscope.studies.study", "mnemoscope.studies.evidence"},
    {"mnemoscope.models.config", "mnemoscope.models.forward_pass"},
    {"mnemoscope.models.config", "mnemoscope.models.initialize"},
    {"mnemoscope.models.config", "mnemoscope.models.layer"},
    {"mnemoscope.models.config", "mnemoscope.models.positions"},
    {"mnemoscope.models.config", "mnemoscope.models.shapes"},
    {"mnemoscope.models.config", "mnemoscope.models.sites"},
    {"mnemoscope.models.parts", "mnemoscope.models.weights"},
    {"mnemoscope.sweeps.draw", "mnemoscope.sweeps.grid"},
    {"mnemoscope.sweeps.laid_out", "mnemoscope.sweeps.grid"},
    {"mnemoscope.training.run", "mnemoscope.training.evaluation"},
)


def _guarded(name, other):
    """Imports for types alone; and a package's own __init__, which may name its parts."""
    return (
        name.startswith(f"{other}.") or other.startswith(f"{name}.") or {name, other} in FOR_TYPES
    )


def test_every_file_opens_with_its_idea():
    for file in FILES:
        tree = ast.parse(file.read_text())
        assert ast.get_docstring(tree), f"{file} has no docstring"
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                assert ast.get_docstring(node), f"{file}: {node.name} has no docstring"
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = [a for a in node.args.args + node.args.kwonlyargs if a.arg != "self"]
                assert all(a.annotation for a in arguments), (
                    f"{file}: {node.name} has an argument without a type"
                )


# ---- one name, one thing

# studies are alike on purpose: each has its `study`, its `conditions`, its `command`
NAMED_ONCE = [file for file in FILES if "library" not in file.parts and file.stem != "__init__"]


def same_names(files):
    """Groups of modules that have one name."""
    by_name = {}
    for file in files:
        by_name.setdefault(file.stem, []).append(file)
    return [group for group in by_name.values() if len(group) > 1]


def test_no_two_modules_have_one_name():
    assert same_names(NAMED_ONCE) == []
    assert same_names([HOME / "models/choose.py", HOME / "report/choose.py"]), "it can fail"


def hidden_modules(tree, submodules):
    """Names by which a package's own `__init__` hides modules of the package."""
    bound = {
        alias.asname or alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    bound |= {node.name: "" for node in tree.body if isinstance(node, ast.FunctionDef)}
    return [
        name
        for name, module in bound.items()
        if name in submodules and f"{module}.{name}" not in MODULES
    ]


def test_no_package_hides_a_module_of_its_own():
    for file in FILES:
        if file.stem == "__init__":
            submodules = {other.stem for other in file.parent.glob("*.py")}
            assert hidden_modules(ast.parse(file.read_text()), submodules) == [], file
    hides = ast.parse("from mnemoscope.report.walk.page import page")
    assert hidden_modules(hides, {"page", "text"}) == ["page"], "it can fail"


def functions_named_like(tree, modules):
    """Public functions of a file that have the name of one of these modules."""
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [name for name in functions if name in modules]


def test_no_function_has_the_name_of_another_module_of_its_package():
    for file in NAMED_ONCE:
        package = file.relative_to(HOME).parts[0]
        others = {
            other.stem
            for other in NAMED_ONCE
            if other != file and other.relative_to(HOME).parts[0] == package
        }
        assert functions_named_like(ast.parse(file.read_text()), others) == [], file
    assert functions_named_like(ast.parse("def plane(): ..."), {"plane"}) == ["plane"]
