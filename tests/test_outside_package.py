"""The package of `examples/outside`, which imports what is public alone, as its users have it.

The long test installs it beside Mnemoscope into an environment of its own and does there what its
README says.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dask_processes import Dask
from explorer_page import launch_browser, needs_browser, watched_tab

REPOSITORY = Path(__file__).parents[1]
OUTSIDE = REPOSITORY / "examples/outside"
PUBLIC = {"mnemoscope", "mnemoscope.testing"}
STUDY = "state_tracking/does_it_track"


def ours_imported(tree):
    """The modules of Mnemoscope that a file imports."""
    for node in ast.walk(tree):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] == "mnemoscope")


def test_it_imports_what_is_public_alone():
    files = sorted(OUTSIDE.rglob("*.py"))
    assert len(files) >= 9
    for file in files:
        assert set(ours_imported(ast.parse(file.read_text()))) <= PUBLIC, file
    inside = ast.parse("from mnemoscope.training import loop\nimport mnemoscope.core.kinds")
    assert len(set(ours_imported(inside)) - PUBLIC) == 2, "it can fail"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """The folder of a new environment with Mnemoscope and the package installed."""
    folder = tmp_path_factory.mktemp("fresh")
    # a copy, so that building leaves nothing in the repository
    package = shutil.copytree(OUTSIDE, folder / "outside")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    constraints = ("--constraint", str(REPOSITORY / "constraints.txt"))
    for what in (f"{REPOSITORY}[dev]", str(package)):
        line = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", *constraints, what]
        subprocess.run(line, check=True)
    return folder


def run_there(environment, *line, **more):
    """What a command of the environment prints, run in its folder."""
    path = f"{environment / 'venv/bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        line,
        cwd=environment,
        env=os.environ | {"PATH": path, "PYTHONPATH": "", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        **more,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.mark.long
def test_its_own_tests_pass_there(environment):
    tests = environment / "outside/tests"
    said = run_there(environment, "python", "-m", "pytest", "-q", str(tests))
    assert " failed" not in said
    assert int(said.split(" passed")[0].split()[-1]) >= 50


@pytest.mark.long
@needs_browser
def test_its_study_is_judged_and_shown_beside_ours(environment):
    run_there(environment, "mnemoscope", "run", STUDY)
    (file,) = environment.glob("mnemoscope-store/ledger/quick/*does_it_track.json")
    claims = json.loads(file.read_text())["claims"]
    assert [claim["id"] for claim in claims] == ["S1", "S2"]
    assert "S1" in run_there(environment, "mnemoscope", "list", STUDY)
    run_there(environment, "mnemoscope", "site")
    pages = list((environment / "mnemoscope-site").glob("*does_it_track*.html"))
    assert len(pages) == 1
    assert "Who keeps track of a state?" in pages[0].read_text()
    for browser in launch_browser():
        # the page of the study opens the explorer on its own model, and not on one of ours
        (link,) = re.findall(r'href="(explorer.html#run=\w+)"', pages[0].read_text())
        with watched_tab(browser, f"{(environment / 'mnemoscope-site').as_uri()}/{link}") as tab:
            assert "Say the sum of all digits so far" in tab.locator("body").inner_text()


@pytest.mark.long
def test_its_blocks_are_trained_by_workers_that_have_it_as_it_is(environment, tmp_path):
    """Refused without the code, refused with other code, trained with it."""
    dask = Dask(tmp_path)
    other = shutil.copytree(OUTSIDE / "state_tracking", tmp_path / "edited/state_tracking").parent
    gru = other / "state_tracking/gru.py"
    gru.write_text(gru.read_text().replace("(1 - z) * h + z * c", "z * h + (1 - z) * c"))
    command = ("mnemoscope", "run", STUDY, "--seeds", "8", "--claims", "S1", "--store", "by-dask")
    command += ("--cluster", dask.address)
    python = str(environment / "venv/bin/python")
    try:
        for options, why in (
            ({}, "state_tracking"),
            ({"python": python, "path": str(other)}, "was of code"),
        ):
            worker = dask.worker(**options)
            with pytest.raises(AssertionError, match=why):
                run_there(environment, *command)
            dask.end([worker])
        dask.worker(python=python)
        run_there(environment, *command)
    finally:
        dask.end(dask.processes)
    assert list(environment.glob("by-dask/ledger/quick/*does_it_track.json"))
