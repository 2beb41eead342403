"""What is shown of work that takes longer than a moment, read off a terminal that is a text."""

import io
import subprocess
import sys

import pytest
from rich.console import Console

from mnemoscope.cli import stored_runs
from mnemoscope.core.working import Working
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.report.study_progress import Live
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Permutation
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=64,
    batch=4,
)


def test_a_line_says_what_is_done_and_how_far_it_is():
    terminal = io.StringIO()
    console = Console(file=terminal, force_terminal=True, width=80, color_system=None)
    with Working(console, "training [0-1]") as working:
        working.trained(16, 64)
        working.progress.refresh()
        shown = terminal.getvalue()
        assert "training [0-1]" in shown, "what looks like markup is text"
        assert "25%" in shown
        working.doing("packing")
        working.progress.refresh()
        after = terminal.getvalue().removeprefix(shown)
        assert "packing" in after
        assert "25%" not in after


def test_in_a_file_nothing_is_left_of_it():
    file = io.StringIO()
    with Working(Console(file=file), "packing") as working:
        working.trained(1, 2)
    assert file.getvalue().strip() == ""


@pytest.mark.parametrize("option", [{"retrain": 1}, {"repair": True}])
def test_training_again_moves_the_line(option, store, monkeypatch):
    load_or_train(store, SPEC, range(2))
    if option == {"repair": True}:
        (store.folder / store.rows()[0].file).write_bytes(b"damaged")
    heard = []
    monkeypatch.setattr(Working, "trained", lambda self, done, total: heard.append(done / total))
    stored_runs.check(**option, store=store.folder)
    assert heard
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_what_a_study_is_about_to_do_is_counted():
    file = io.StringIO()
    with Live(Console(file=file), "mine (quick)") as live:
        live.plan({"a": Condition(SPEC, 2)}, 1)
    assert "mine (quick): 1 condition to train or find, 1 claim to judge." in file.getvalue()
    with Live(Console(file=file), "mine (quick)") as live:
        live.plan({"a": Condition(SPEC, 2), "b": Condition(SPEC, 2)}, 3)
    assert "2 conditions to train or find, 3 claims to judge." in file.getvalue()


def test_a_line_on_work_loads_no_training_and_no_verdicts():
    code = "import sys, mnemoscope.explorer, mnemoscope.core.working; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = [name for name in done.stdout.split() if name.startswith("mnemoscope.")]
    assert "mnemoscope.explorer.pack" in ours
    parts = ("mnemoscope.verdicts", "mnemoscope.execution.", "mnemoscope.training.loop")
    assert [name for name in ours if name.startswith(parts)] == []
