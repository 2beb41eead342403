"""`mnemoscope new task|model|metric`: what it writes works at once, and its test passes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import mnemoscope, one_line

import mnemoscope as ms

HOME = Path(ms.__file__).parents[1]
WHAT = ("task", "model", "metric")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with one of each."""
    folder = tmp_path_factory.mktemp("made")
    for what in WHAT:
        said = mnemoscope("new", what, f"my_{what}", "--folder", folder)
        assert said.returncode == 0, said.stderr
        written, test, then = said.stdout.splitlines()
        assert written.endswith(f"my_{what}.py")
        assert test.endswith(f"test_my_{what}.py")
        assert then.startswith(f"Next: python -m pytest test_my_{what}.py; then make ")
    return folder


def in_a_process(folder, *command):
    """Python, started in a folder by somebody else."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=env | {"PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_what_is_written_stands_in_a_spec(made):
    code = (
        "import mnemoscope as ms; from my_task import MyTask; from my_model import MyModel; "
        "from my_metric import my_metric; "
        "print(ms.Spec(task=MyTask(), model=MyModel(), metrics=my_metric).canonical_json())"
    )
    done = in_a_process(made, "-c", code)
    assert done.returncode == 0, done.stderr
    for kind in ("my-task", "my-model", "my_metric"):
        assert f'"kind":"{kind}"' in done.stdout


def test_what_is_written_is_tidy(made):
    files = sorted(made.glob("*.py"))
    assert len(files) == 2 * len(WHAT)
    for file in files:
        text = file.read_text()
        assert "NAME" not in text
        assert all(len(line) <= 100 for line in text.splitlines()), file


@pytest.mark.long
@pytest.mark.parametrize("what", WHAT)
def test_its_test_passes(made, what):
    done = in_a_process(made, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_my_{what}.py")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout
    # and is no test that cannot fail
    wrong = {
        "task": ("jnp.roll(tokens, self.back)", "jnp.roll(tokens, 1)"),
        "model": ('means = site("hook_mean", means)', 'site("hook_mean", means)'),
        "metric": ("logits.argmax(axis=-1) ==", "logits.argmin(axis=-1) =="),
    }
    file = made / f"my_{what}.py"
    text = file.read_text()
    assert wrong[what][0] in text
    file.write_text(text.replace(*wrong[what]))
    done = in_a_process(made, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_my_{what}.py")
    file.write_text(text)
    assert done.returncode == 1, done.stdout


def test_what_is_there_stays_and_bad_names_are_refused(made):
    before = (made / "my_task.py").read_text()
    said = one_line(mnemoscope("new", "task", "my_task", "--folder", made))
    assert "is there already; choose another name or --folder" in said
    assert (made / "my_task.py").read_text() == before
    for name in ("My-Task", "1task", "a b", "class"):
        said = one_line(mnemoscope("new", "model", name, "--folder", made))
        assert "a name is lower case, digits and _, such as my_model" in said
    assert "numpy" in one_line(mnemoscope("new", "task", "numpy", "--folder", made))
