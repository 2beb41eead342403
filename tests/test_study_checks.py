"""Each check of a study passes on one that is in order, and fails on a planted defect."""

import subprocess
import sys
from pathlib import Path

import pytest
from outside import nothing_loaded, write_study  # noqa: F401 (a fixture)
from test_cli import mnemoscope, one_line

import mnemoscope as ms
from mnemoscope.cli.new import TEMPLATES, fill
from mnemoscope.core.errors import UserError
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.folder import judging_files
from mnemoscope.testing import check_study, list_study_checks

pytestmark = pytest.mark.usefixtures("nothing_loaded")

PAGE = 'question = "Does it?"\n'


def test_a_study_that_is_in_order_passes(tmp_path):
    folder = write_study(tmp_path / "echo")
    (folder / "page.toml").write_text(PAGE)
    found = check_study(folder)
    assert found.subject == "study 'echo'"
    assert {row.outcome for row in found.rows} == {"passed"}
    assert len(found.rows) == 13
    assert [check.name for check in list_study_checks(folder)] == [row.check for row in found.rows]


# what is planted: the file, what is replaced there and by what; the check that fails; what it says
DEFECTS = {
    "no claim": ("claims.toml", None, "", "can be read and has a claim", "there is no claim"),
    "no TOML": ("claims.toml", "[E1]", "[E1", "can be read", "claims.toml of echo cannot be read"),
    "a gap": ("claims.toml", "(100, inf)", "(101, inf)", "zones of every part", "E1: .* a gap"),
    "a bad key": ("claims.toml", "stated", "stateed", "well formed", "unknown key of Claim"),
    "no STUDY": ("study.py", "STUDY = ", "OTHER = ", "defines STUDY", "STUDY is None"),
    "broken": ("study.py", "SPEC = ", "SPEC = 1 / 0, ", "defines STUDY", "ZeroDivisionError"),
    "no function": ("claims.toml", "study.measure", "study.meas", "function exists", "no function"),
    "another name": ("study.py", "ms.Study(", "ms.Study(name='other', ", "loaded", "calls its stu"),
    "no condition": ("claims.toml", '["echo"]', '["ecko"]', "need is a condition", "mean 'echo'"),
    "no match": ("claims.toml", '["echo"]', '["echo", "x/*"]', "need is a c", "needs 'x/.*no cond"),
    "not explored": (
        "study.py",
        '("echo",)',
        '("ecko",)',
        "explorer shows",
        "in explore= of .*'ecko'",
    ),
    "no part": ("study.py", '{"loss": losses}, ', "{}, ", "tiny training", "the part 'loss'"),
    "a bad part": ("study.py", '{"loss": losses}, ', '{"lost": losses}, ', "tiny tra", "'lost'"),
    "raises": ("measures.py", "-1]", "-1, 0]", "tiny training", "E1: IndexError: too many"),
    "chance": (
        "measures.py",
        "run.losses[:, -1]",
        "run.losses[:, -1] + __import__('random').random()",
        "measured twice",
        "E1: another number each time",
    ),
    "bad words": ("page.toml", "question", "questoin", "words of its page", "mean 'question'"),
    "no such claim": ("figures.toml", None, "[[E2]]\nseries = ['*']\n", "words", "figures.*'E2'"),
    "no figure": (
        "figures.toml",
        None,
        "[[E1]]\nseries = ['none']\n",
        "ledger and its page",
        "none of the series loss has a panel",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_is_found(tmp_path, defect):
    file, old, new, check, said = DEFECTS[defect]
    folder = write_study(tmp_path / "echo")
    (folder / "page.toml").write_text(PAGE)
    path = folder / file
    if old is None:
        path.write_text(new)
    else:
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
    found = check_study(folder, raise_on_failure=False)
    (failed,) = found.having("failed")
    assert check in failed.check
    with pytest.raises(AssertionError, match=said):
        found.require_passed()


def test_a_spec_that_does_not_come_back_is_found(monkeypatch, tmp_path):
    study = find_study(str(write_study(tmp_path / "echo")))
    read = ms.Spec.model_validate_json
    monkeypatch.setattr(
        ms.Spec, "model_validate_json", lambda text: read(text).model_copy(update={"steps": 7})
    )
    (failed,) = check_study(study, raise_on_failure=False).having("failed")
    assert failed.check == "every condition's Spec comes back from JSON"


def test_what_is_no_folder_is_one_line(tmp_path):
    with pytest.raises(UserError, match="unknown study 'remembr'"):
        check_study("remembr")


def test_the_command_says_how_many_checks_ran(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = write_study(tmp_path / "echo")
    found = mnemoscope("check-study", "./echo")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("13 checks of study 'echo': 12 passed, 0 failed, 1 does not")
    (folder / "claims.toml").write_text("")
    found = mnemoscope("check-study", "./echo")
    assert found.returncode == 1
    assert "FAILED  claims.toml can be read and has a claim" in found.stdout


# ---- what `new` writes


@pytest.fixture
def made(tmp_path, monkeypatch):
    """The folder of a study that `new` wrote."""
    monkeypatch.chdir(tmp_path)
    said = mnemoscope("new", "study", "my_study")
    assert said.returncode == 0, said.stderr
    assert said.stdout.splitlines()[-1].startswith("Next: mnemoscope run ./my_study")
    return tmp_path / "my_study"


def test_a_new_study_is_in_order(made):
    found = check_study(made)
    assert {row.outcome for row in found.rows} == {"passed"}
    rests_on = [file.name for file in judging_files(made)]
    assert rests_on == ["study.py"]


def test_what_is_there_is_not_written_over(made):
    assert "'my_study' is there already" in one_line(mnemoscope("new", "study", "my_study"))
    said = one_line(mnemoscope("new", "study", "My-Study"))
    assert said.endswith("a name is lower case, digits and _, such as my_study, got 'My-Study'\n")


def test_names_are_put_into_templates():
    assert fill("class Name: kind = 'a-name' # NAME", "copy_back") == (
        "class CopyBack: kind = 'copy-back' # copy_back"
    )
    assert "study" in TEMPLATES


@pytest.mark.long
def test_a_new_study_comes_to_a_verdict_and_its_test_passes(made):
    ledger = ms.run_study(made, store=str(made.parent / "store"))
    assert [entry.verdict for entry in ledger.claims] == ["reproduced"]
    home = Path(ms.__file__).parents[1]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(made)]
    done = subprocess.run(command, cwd=home, capture_output=True, text=True)
    assert "13 passed" in done.stdout, done.stdout
