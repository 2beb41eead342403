"""A study is a folder: nothing outside it names it, and what it brings is found there."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mnemoscope
from mnemoscope.cli.main import all_commands
from mnemoscope.explorer.paper_prompts import list_prompts
from mnemoscope.report.claim_figures import load_drawings
from mnemoscope.report.site.extra import load_extra_pages, load_statements
from mnemoscope.studies.discover import LIBRARY, STUDIES, Library
from mnemoscope.studies.presentation import load_page
from mnemoscope.studies.study import Study
from mnemoscope.tasks import Cycle, Permutation

HOME = Path(mnemoscope.__file__).parent
FOLDERS = HOME / "studies" / "library"
OUTSIDE = sorted(file for file in HOME.rglob("*.py") if not file.is_relative_to(FOLDERS))
CLAIMS = {test.claim.id for study in STUDIES.values() for test in study.tests}
# below the studies nobody knows of them; there these words are tasks, metrics and matrices
BELOW = ("core", "tasks", "models", "probes", "training", "theory", "store", "execution")


def names_of_studies(file, tree):
    """Modules of a study that a file imports, and studies and claims that are its strings.

    What sentences name is looked for by `names_in_text`.
    """
    documentation = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names]
            if isinstance(node, ast.ImportFrom):
                modules = [f"{node.module}.{name}" for name in modules]
            yield from (name for name in modules if name.startswith(f"{LIBRARY}."))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation.add(node.value)
    if file.relative_to(HOME).parts[0] in BELOW:
        return
    names = CLAIMS | set(STUDIES)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in names and node not in documentation:
            yield node.value


@pytest.mark.parametrize("file", OUTSIDE, ids=lambda f: str(f.relative_to(HOME)))
def test_nothing_outside_a_study_names_it(file):
    assert list(names_of_studies(file, ast.parse(file.read_text()))) == []


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("from mnemoscope.studies.library.walk import published", f"{LIBRARY}.walk.published"),
        ("from mnemoscope.studies.library import walk", f"{LIBRARY}.walk"),
        ("import mnemoscope.studies.library.walk.study", f"{LIBRARY}.walk.study"),
        ("shown = study.name == 'walk'", "walk"),
        ("EXACT = {'R1': draw}", "R1"),
    ],
)
def test_the_test_of_names_can_fail(line, named):
    file = HOME / "report" / "figures.py"
    assert list(names_of_studies(file, ast.parse(line))) == [named]
    assert list(names_of_studies(file, ast.parse("'''walk'''\nhelp = 'run walk or R1'"))) == []


KINDS = (".py", ".pyi", ".js", ".css", ".html")
TEXTS = sorted(
    file for file in HOME.rglob("*.*") if file.suffix in KINDS and not file.is_relative_to(FOLDERS)
)
COMMAND = re.compile(rf"mnemoscope \w+ ({'|'.join(STUDIES)})\b")
IN_BRACKETS = re.compile(rf" \(({'|'.join(STUDIES)})\)")
FOLDER = re.compile(rf"library[./]({'|'.join(STUDIES)})\b")
CLAIM = re.compile(rf"\b({'|'.join(CLAIMS)})\b")
# of a walk: the second norm of a block
NOT_CLAIMS = {"explorer/static/walk_mlp.js": {"N2"}, "probes/walk_steps.py": {"N2"}}


def names_in_text(text):
    """Studies and claims that a text names, as an example or otherwise.

    A study is known by what stands around its name: "noise" and "facts" are tasks too.
    """
    found = [name for each in (COMMAND, IN_BRACKETS, FOLDER) for name in each.findall(text)]
    return {*found, *CLAIM.findall(text)}


def test_no_sentence_outside_a_study_names_one():
    named = {str(file.relative_to(HOME)): names_in_text(file.read_text()) for file in TEXTS}
    assert {name: found for name, found in named.items() if found} == NOT_CLAIMS


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("make some with 'mnemoscope run remember'", "remember"),
        ("for studies of text (birth).", "birth"),
        ("claims in studies/library/facts/claims.toml", "facts"),
        ("Judge only these: R8,R13.", "R13"),
    ],
)
def test_the_test_of_sentences_can_fail(sentence, name):
    assert name in names_in_text(sentence)
    assert names_in_text("noise and facts remember the language") == set()


@pytest.mark.parametrize("file", sorted((HOME / "report").rglob("*.html")), ids=lambda f: f.name)
def test_no_page_asks_which_study_it_is(file):
    asked = re.findall(r"\{[{%](.*?)[%}]\}", file.read_text())
    strings = {text for expression in asked for text in re.findall(r"[\"'](\w+)[\"']", expression)}
    assert not strings & (CLAIMS | set(STUDIES))


def test_papers_prompts_are_offered_with_their_tasks():
    names = [prompt["name"] for prompt in list_prompts(Permutation())]
    assert names == ["the paper's trap", "the paper's example"]
    assert list_prompts(Permutation(n_symbols=4)) == []
    assert list_prompts(Cycle()) == []


def test_every_folder_is_a_study_in_the_order_of_its_page():
    folders = {path.parent.name for path in FOLDERS.glob("*/claims.toml")}
    assert set(STUDIES) == folders
    assert len(STUDIES) == len(folders) == 8
    assert next(iter(STUDIES)) == "remember"
    for name, study in STUDIES.items():
        assert (study.name, study.package) == (name, f"{LIBRARY}.{name}")
    assert "remembr" not in STUDIES
    with pytest.raises(KeyError):
        STUDIES["remembr"]


@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_a_page_answers_what_the_authors_would_object(study):
    assert len(load_page(study).objections) >= 3


def test_names_claims_and_commands_are_known_without_jax():
    script = """
import sys

from mnemoscope.cli.main import all_commands
from mnemoscope.core.errors import UserError
from mnemoscope.studies.discover import STUDIES, find_claim
try:
    find_claim("X1")
except UserError as error:
    print(error)
print(*STUDIES, *all_commands())
heavy = [name for name in sys.modules if name.split(".")[0] in ("jax", "numpy", "pydantic")]
loaded = [name for name in sys.modules if name.startswith("mnemoscope.studies.library.")]
print(heavy, sorted(loaded))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said, names, loaded = done.stdout.splitlines()
    assert said.startswith("unknown claim 'X1'; allowed: R1, R2")
    assert {"remember", "walk", "memories", "run"} <= set(names.split())
    heavy, modules = loaded.split("] [")
    assert heavy == "["
    assert "study" not in modules


# ---- what a study brings: a folder from anywhere will do


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder of studies that is not the package's, with one study in it."""
    folder = tmp_path / "somebodys" / "copying"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").touch()
    (folder / "claims.toml").write_text("")
    (folder / "page.toml").write_text("order = 3\n")
    (folder / "study.py").write_text(
        "from mnemoscope.studies.study import Study\n"
        "STUDY = Study(name='copying', package=__package__, title='t', paper='p',\n"
        "    conditions=lambda scale: {}, tests=())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "somebodys"]:
        del sys.modules[name]


def test_a_study_may_bring_nothing_of_its_own(elsewhere):
    study = Library("somebodys")["copying"]
    assert load_drawings(study) == {}
    assert load_statements(study) == ()
    assert load_extra_pages(study) == ()
    made = Study(name="made", title="t", paper="p", conditions=lambda scale: {}, tests=())
    assert load_drawings(made) == {}


def test_what_a_study_brings_is_found_in_its_folder(elsewhere):
    (elsewhere / "drawings.py").write_text("DRAWINGS = {'C1': lambda: 'a figure'}\n")
    (elsewhere / "pages.py").write_text(
        "from mnemoscope.report.site.extra import ExtraPage\n"
        "PAGES = (ExtraPage('copying-more.html', 'More', 'More of it.', lambda runs: 'text'),)\n"
    )
    study = Library("somebodys")["copying"]
    assert load_drawings(study)["C1"]() == "a figure"
    assert load_statements(study) == ()
    (page,) = load_extra_pages(study)
    assert (page.file, page.make({})) == ("copying-more.html", "text")


def test_the_studies_bring_what_they_brought():
    brought = {name: sorted(load_drawings(study)) for name, study in STUDIES.items()}
    assert {name: claims for name, claims in brought.items() if claims} == {
        "remember": ["R1", "R2"],
        "walk": ["W3", "W4"],
    }
    pages = [page.file for study in STUDIES.values() for page in load_extra_pages(study)]
    assert pages == ["walk-through.html"]
    assert len(load_statements(STUDIES["walk"])) == 9
    assert "command" in all_commands()["memories"].__name__
