"""What somebody sees who works from Python: progress where there is a screen, and the explorer."""

import os
import pty
import subprocess
import sys
import types

import jax.numpy as jnp
import pytest

import mnemoscope as ms
from mnemoscope.core import working
from mnemoscope.core.errors import UserError
from mnemoscope.core.working import show_progress

SPEC = ms.Spec(
    task=ms.Cycle(),
    model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=2,
    snapshots=2,
)
WORK = """
from mnemoscope.core import working
working.MOMENT = {moment}
import time
with working.show_progress("training 2 seeds", {progress}) as tell:
    while tell and working.MOMENT < 1 and not tell.__self__.shown:
        time.sleep(0.01)
    for done in range(1, 5) if tell else ():
        tell(done, 4)
        if hasattr(tell.__self__.line, "working"):
            tell.__self__.line.working.progress.refresh()
print("over")
"""


@pytest.fixture(scope="module")
def run():
    """One seed."""
    return ms.fit(SPEC, 1, progress=False)


def seen(in_terminal, progress=None, moment=0.1):
    """What a terminal, or a file, gets of some work that says how far it is."""
    script = [sys.executable, "-c", WORK.format(progress=progress, moment=moment)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    if not in_terminal:
        done = subprocess.run(script, capture_output=True, text=True, check=True, env=environment)
        return done.stdout + done.stderr
    ours, theirs = pty.openpty()
    child = subprocess.Popen(script, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    text = b""
    try:
        while more := os.read(ours, 65536):
            text += more
    except OSError:  # the other side is closed
        pass
    os.close(ours)
    assert child.wait() == 0
    return text.decode()


def test_a_terminal_shows_a_bar_and_a_file_nothing_unless_asked():
    shown = seen(True)
    assert "training 2 seeds" in shown
    assert "75%" in shown
    assert "training" not in seen(True, progress=False)
    assert "training" not in seen(True, moment=60), "what is over in a moment is not shown"
    assert seen(False) == "over\n"
    lines = seen(False, progress=True).splitlines()
    assert lines[:2] == ["over", "training 2 seeds"]
    assert lines[-1] == "training 2 seeds: 100%"


class Handle:
    """What IPython gives to whoever shows something that will change."""

    def __init__(self):
        self.shown = []

    def update(self, output, raw):
        assert raw
        self.shown.append(output["text/html"])


def test_a_notebook_shows_a_bar_that_goes(monkeypatch):
    handle = Handle()
    shell = types.SimpleNamespace(kernel=True)
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    shows = types.ModuleType("IPython.display")
    shows.display = lambda output, raw, display_id: handle
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    monkeypatch.setattr(working, "MOMENT", 60)
    with show_progress("training <b>") as tell:
        tell.__self__._begin()
        tell(1, 4)
    assert "training &lt;b&gt;" in handle.shown[0]
    assert 'value="0.2500"' in handle.shown[1]
    assert "25%" in handle.shown[1]
    assert handle.shown[-1] == ""


def test_a_function_of_ones_own_hears_instead():
    heard = []
    ms.fit(SPEC, 1, progress=lambda done, total: heard.append((done, total)))
    assert heard[-1] == (4, 4)


# ---- the explorer


def test_the_explorer_is_written_and_shown_in_a_frame(run, tmp_path, capsys):
    page = run.explore(tmp_path / "page.html", open_browser=False, progress=False)
    assert page.path == tmp_path / "page.html"
    assert page.path.read_text() == page.html
    assert str(page.path) in capsys.readouterr().out
    assert len(repr(page)) < 200
    frame = page._repr_html_()
    assert frame.startswith("<iframe")
    inside = frame.partition('srcdoc="')[2].partition('"')[0]
    assert "<script" not in inside, "quotes and brackets of the page are escaped"
    assert "&lt;script" in inside


def test_in_a_notebook_no_file_is_written(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mnemoscope.explorer.inline.in_notebook", lambda: True)
    assert run.explore(progress=False).path is None
    assert list(tmp_path.iterdir()) == []


def test_what_the_explorer_cannot_show_is_one_line(run, tmp_path):
    wide = ms.TokenArray(jnp.arange(400).__array__().reshape(2, 200))
    many = ms.fit(ms.Spec(task=wide, model=SPEC.model, steps=1, batch=1), 1, progress=False)
    with pytest.raises(UserError, match="400 tokens; the explorer shows at most 128") as raised:
        many.explore(progress=False)
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match=r"cannot write the page .*no-such"):
        run.explore(tmp_path / "no-such" / "page.html", progress=False)
