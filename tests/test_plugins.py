"""What comes from outside is found in three ways, with the same result; what is broken is one line
and breaks nothing else; nothing is loaded before a name is looked up.
"""

import os
import subprocess
import sys
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from outside import CLAIMS, TASK, announce, nothing_loaded, write_study  # noqa: F401 (a fixture)

import mnemoscope
from mnemoscope.core import plugins
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.kinds import forget_kinds, known_kinds
from mnemoscope.core.plugins import load_chosen, load_path, load_plugin
from mnemoscope.studies.discover import STUDIES, find_claim, find_study
from mnemoscope.studies.runner import judging_fingerprint
from mnemoscope.training.spec import Spec

HOME = Path(mnemoscope.__file__).parents[1]
pytestmark = pytest.mark.usefixtures("nothing_loaded")


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder in which packages are installed."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def notices(act):
    """The lines that are said while something is done."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", Notice)
        act()
    return [str(each.message) for each in said]


# ---- files and folders


TABLE = """
class Table:
    def __init__(self, by):
        self.by = by


TABLE = Table(2)
"""


def test_a_task_has_one_code_in_a_file_and_in_an_installed_package(tmp_path, site):
    text = TASK.replace("KIND", "echo-with-a-table").replace("self.back", "TABLE.by") + TABLE
    (tmp_path / "a_task.py").write_text(text)
    in_file = load_path(str(tmp_path / "a_task.py")).module.Echo
    forget_kinds(in_file.__module__.split(".")[0])
    announce(site, "packed", "packed.task", {"task.py": text})
    installed = import_module("packed.task").Echo
    assert in_file.__module__ != installed.__module__
    assert in_file.code() == installed.code()
    forget_kinds("packed")
    announce(site, "other", "other.task", {"task.py": text.replace("Table(2)", "Table(1)")})
    assert import_module("other.task").Echo.code() != in_file.code(), "what an object holds counts"


def test_a_kind_with_a_slash_is_for_the_package_to_define(tmp_path, site):
    text = TASK.replace("KIND", "shared/echo")
    (tmp_path / "a_task.py").write_text(text)
    with pytest.raises(UserError, match="'shared/echo' is for package 'shared' to define"):
        load_path(str(tmp_path / "a_task.py"))
    home = announce(site, "shared", "shared.task", {"task.py": text})
    by_path = load_path(str(home / "task.py")).module
    assert by_path is load_plugin("shared").module, "it has a name of its own"
    assert by_path.__name__ == "shared.task"


def test_what_python_imports_under_a_name_of_its_own_keeps_it(tmp_path, monkeypatch):
    (tmp_path / "imported_before.py").write_text(TASK.replace("KIND", "imported-before"))
    monkeypatch.syspath_prepend(tmp_path)
    module = import_module("imported_before")
    assert load_path(str(tmp_path / "imported_before.py")).module is module


def test_two_folders_of_one_name_do_not_meet(tmp_path):
    one = write_study(tmp_path / "one" / "echo", "echo-one")
    other = write_study(tmp_path / "other" / "echo", "echo-other")
    first = load_path(str(one))
    second = load_path(str(other))
    assert first.module is not second.module
    assert load_path(str(one)) is first
    with pytest.raises(UserError, match=r"two studies are called 'echo': .*one/echo' and .*other"):
        list(STUDIES)


def test_a_folder_is_known_by_where_it_is_and_its_findings_by_what_they_rest_on(tmp_path):
    one = find_study(str(write_study(tmp_path / "one" / "echo", "echo-one")))
    before = judging_fingerprint(one)
    (tmp_path / "one" / "echo" / "notes.md").write_text("what a person writes")
    (tmp_path / "one" / "echo" / "test_echo.py").write_text("")
    assert judging_fingerprint(one) == before
    (tmp_path / "one" / "echo" / "table.csv").write_text("1,2")
    assert judging_fingerprint(one) != before, "data count"


def test_an_edited_helper_is_loaded_again_and_measures_anew(tmp_path):
    folder = write_study(tmp_path / "echo")
    before = find_study(str(folder))
    fingerprint = judging_fingerprint(before)
    assert find_study(str(folder)) is before
    text = (folder / "measures.py").read_text()
    (folder / "measures.py").write_text(text.replace("[:, -1]", "[:, 0]"))
    after = find_study(str(folder))
    assert after is not before
    assert judging_fingerprint(after) != fingerprint
    (folder / "measures.py").write_text(text + "# a comment\n")
    assert judging_fingerprint(find_study(str(folder))) == fingerprint


def test_a_name_behind_a_path_says_which_study(tmp_path):
    papers = tmp_path / "papers"
    write_study(papers / "echo", "echo-one")
    write_study(papers / "answer", "echo-other")
    assert find_study(f"{papers}@echo").name == "echo"
    assert find_study(str(papers / "echo")) is find_study(f"{papers}@echo")
    with pytest.raises(UserError, match=r"has several studies; needed: .*papers@NAME of ans"):
        find_study(str(papers))
    study, claim = find_claim(f"{papers}@echo@E1")
    assert (study.name, claim) == ("echo", "E1")


IN_A_FILE = """
import mnemoscope as ms
from mnemoscope.studies.measurement import Measurement

def measure(evidence):
    return Measurement({"number": 1.0})

PART = dict(name="number", kind="exact", measures="a number", holds="[1, inf)", fails="(-inf, 1)")
FIELDS = dict(statement="It is.", published="-", stated="2026-11-19", measure=measure, parts=[PART])
ONE = ms.Study(name="one", title="One?", conditions=lambda scale: {}, claims={"Z1": FIELDS})
TWO = ms.Study(name="two", title="Two?", conditions=lambda scale: {}, claims={"Z2": FIELDS})
"""


def test_a_file_may_define_studies(tmp_path):
    file = tmp_path / "both.py"
    file.write_text(IN_A_FILE)
    assert find_study(f"{file}@two").tests[0].claim.id == "Z2"
    assert STUDIES["one"].title == "One?"
    assert find_claim("Z1")[0].name == "one"
    with pytest.raises(UserError, match=r"unknown study of .*both.py' 'tow' \(did you mean 'two'"):
        find_study(f"{file}@tow")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.py", "import nonsense_that_is_nowhere\n", r"ModuleNotFoundError: .* \(a.py, line 1\)"),
        ("a.py", "def f(:\n", r"SyntaxError: .* \(a.py, line 1\)"),
        ("a.py", "x = 1\ny = 1 / 0\n", r"ZeroDivisionError: .* \(a.py, line 2\)"),
        ("a.py", "import beside\n", r"line 1\); a file beside it is imported with a dot: from .be"),
        ("a.py", "import mnemoscope as ms\nms.Tusk\n", r"AttributeError: .* \(a.py, line 2\)"),
        ("a.txt", "", "a file of Python is needed, such as my_tasks.py, got 'a.txt'"),
    ],
)
def test_a_broken_file_is_one_line_that_says_where(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    (tmp_path / "beside.py").write_text("")
    with pytest.raises(UserError, match=f"{name}' cannot be loaded: .*{said}"):
        load_path(str(tmp_path / name))


def test_what_is_nowhere_says_what_would_do(tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"unknown plugin 'nowhere'; allowed: a file or a folder"):
        load_plugin("nowhere")
    with pytest.raises(UserError, match="there is no such file or folder"):
        load_path("./nowhere")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "claims.toml").write_text(CLAIMS)
    with pytest.raises(UserError, match=r"unknown study 'mine'.*there is a folder './mine'"):
        find_study("mine")


# ---- installed packages


def test_an_installed_package_is_asked_when_a_name_is_looked_up(site):
    announce(site, "outsider")
    assert "remember" in STUDIES
    assert "outsider" not in sys.modules, "nothing of it was asked for"
    assert find_study("outsider/echo").name == "outsider/echo"
    assert "outsider/echo" in list(STUDIES)
    assert "outsider/echo" in known_kinds("task")


def test_a_stored_spec_imports_nothing(site):
    announce(site, "outsider", "outsider.task", {"task.py": TASK.replace("KIND", "outsider/echo")})
    stored = '{"task": {"kind": "outsider/echo", "code": "0123456789abcdef"}}'
    with pytest.raises(UserError, match="package 'outsider' would bring it: --plugin outsider"):
        Spec.model_validate_json(stored)
    assert "outsider" not in sys.modules
    load_plugin("outsider")
    with pytest.raises(UserError, match="was of code 0123456789abcdef and is of"):
        Spec.model_validate_json(stored)


def test_names_of_an_installed_package_begin_with_its_own(site):
    announce(site, "bare", "bare.task", {"task.py": TASK.replace("KIND", "echo-without")})
    with pytest.raises(UserError, match=r"'bare' cannot be loaded: its kind 'echo-without' must"):
        load_plugin("bare")
    assert "echo-without" not in known_kinds("task")
    announce(site, "named", "named.both", {"both.py": IN_A_FILE})
    said = notices(lambda: list(STUDIES))
    assert any("its study 'one' must begin with the package's name: 'named/one'" in s for s in said)
    announce(site, "other")
    (site / "other-1.0.dist-info" / "entry_points.txt").write_text("[mnemoscope]\nnick = other\n")
    with pytest.raises(UserError, match="'nick' announces the package 'other'"):
        load_plugin("nick")


def test_a_broken_package_is_one_line_and_breaks_nothing_else(site):
    announce(site, "broken", "broken.task", {"task.py": "import nonsense_that_is_nowhere\n"})
    announce(site, "whole")
    names: list = []
    (said,) = notices(lambda: names.extend(STUDIES))
    assert said.startswith("the plugin 'broken' cannot be loaded: ModuleNotFoundError")
    assert said.endswith("; left out")
    assert names[-1] == "whole/echo"
    assert notices(lambda: list(STUDIES)) == [], "it is said once"
    with pytest.raises(UserError, match="the plugin 'broken' cannot be loaded"):
        load_chosen(("broken",))


def test_the_environment_names_plugins_too(tmp_path, monkeypatch):
    file = tmp_path / "both.py"
    file.write_text(IN_A_FILE)
    monkeypatch.setenv(plugins.VARIABLE, os.pathsep.join([str(file), "nowhere"]))
    (said,) = notices(load_chosen)
    assert "unknown plugin 'nowhere'" in said
    assert "(named by MNEMOSCOPE_PLUGINS); left out" in said
    assert "one" in STUDIES


def test_help_loads_no_plugin(site):
    for i in range(10):
        announce(site, f"plugin{i}", "", {"__init__.py": "raise RuntimeError('loaded')\n"})
    code = (
        "import sys\nsys.argv = ['mnemoscope', '--help']\n"
        "from mnemoscope.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print([n for n in sys.modules if n.startswith('plugin') or n in ('jax', 'pydantic')])"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), str(HOME)])}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
    assert done.stderr == ""


def test_a_study_folder_brings_the_kinds_that_it_uses(tmp_path):
    """Named by `--plugin`, so that a stored run of its task is read."""
    folder = tmp_path / "brings_a_kind"
    folder.mkdir()
    (folder / "study.py").write_text("from .its_task import Brought\n")
    (folder / "its_task.py").write_text(
        "from typing import Literal\n"
        "import mnemoscope as ms\n"
        "class Brought(ms.Cycle):\n"
        "    kind: Literal['brought-by-a-folder'] = 'brought-by-a-folder'\n"
    )
    assert "brought-by-a-folder" not in known_kinds("task")
    load_plugin(str(folder))
    assert "brought-by-a-folder" in known_kinds("task")
