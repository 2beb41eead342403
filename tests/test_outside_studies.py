"""A study in a folder of somebody's own is treated as ours are, by every command and in Python."""

import json
import warnings

import numpy as np
import pytest
from outside import announce, nothing_loaded, write_study  # noqa: F401 (a fixture)
from test_cli import mnemoscope, one_line
from test_studies import Watch

import mnemoscope as ms
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.report.site import write_site
from mnemoscope.store import Store
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.ledger_files import find_folder, judged_studies
from mnemoscope.studies.merge import merge_store

pytestmark = pytest.mark.usefixtures("nothing_loaded")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a study of somebody's own, and a store beside it."""
    folder = tmp_path_factory.mktemp("outside")
    write_study(folder / "echo")
    return folder


@pytest.fixture
def told(home, monkeypatch):
    """Runs a command in that folder."""
    monkeypatch.chdir(home)
    return lambda *args: mnemoscope(*args, store=home / "store")


def test_commands_treat_it_as_they_treat_ours(home, told):
    said = told("run", "./echo")
    assert said.returncode == 0, said.stderr
    assert "one claim: mnemoscope show ./echo@E1" in said.stdout
    assert "everything is finished" in told("run", str(home / "echo")).stdout
    (ledger,) = json.loads((home / "store/ledger/quick/echo.json").read_text())["claims"]
    losses = ms.fit(find_study(str(home / "echo")).conditions("quick")["echo"].spec, 8).losses
    assert ledger["value"] == pytest.approx(losses[:, -1].mean(), rel=1e-5)
    assert ledger["verdict"] == "reproduced"
    assert "Mean loss at the end" in told("ledger", "./echo").stdout
    assert "The loss is small." in told("show", "./echo@E1").stdout
    assert "reproduced" in told("show", "E1", "--plugin", "./echo").stdout
    assert "Does it echo?" in told("list", "./echo").stdout
    verified = mnemoscope("verify", "store", "--plugin", "./echo").stdout
    assert verified == "1 verdicts derived again, 0 differences.\n"
    assert "Written: E1.svg" in told("figure", "./echo@E1").stdout
    assert told("export", "./echo", "tables", "--to", "csv").returncode == 0
    assert "no two quick ledgers" in one_line(told("compare", "./echo", "--scale", "quick"))


def test_what_is_not_loaded_is_said(home, told):
    assert "is of the study 'echo', which is not known" in one_line(mnemoscope("verify", "store"))
    with warnings.catch_warnings():
        warnings.simplefilter("always", Notice)
        assert "ledgers of echo, which nothing here defines" in told("list").stderr
    assert "unknown claim 'E1'" in one_line(told("show", "E1"))
    twice = told("show", "E1", "--plugin", "./echo", "--plugin", str(home / "nowhere"))
    assert "there is no such file or folder" in one_line(twice)


def test_seeds_are_added_until_it_is_decided(home, told):
    said = told("run", "./echo", "--until-decided", "--max-seeds", "8")
    assert said.returncode == 0, said.stderr
    assert "8 seeds" in said.stdout


def test_an_edited_function_measures_anew(tmp_path, store):
    folder = write_study(tmp_path / "echo")
    first = ms.run_study(folder, store=store, watcher=Watch()).claims[0]
    watch = Watch()
    assert ms.run_study(folder, store=store, watcher=watch).claims[0] == first
    assert watch.judged_ == []
    text = (folder / "measures.py").read_text()
    (folder / "measures.py").write_text(text.replace("losses[:, -1]", "losses[:, -1] + 200"))
    watch = Watch()
    (entry,) = ms.run_study(folder, store=store, watcher=watch).claims
    assert watch.judged_ == ["E1"]
    assert len(store.rows()) == 1, "it is measured, and not trained, again"
    assert entry.verdict == "refuted"
    assert entry.value == pytest.approx(first.value + 200)


def test_a_plain_page_without_words_of_its_own(tmp_path, store, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    announce(tmp_path, "paged")
    study = find_study("paged/echo")
    ms.run_study(study, store=store, watcher=Watch())
    assert (store.folder / "ledger/quick/paged~echo.json").is_file()
    pages = write_site(tmp_path / "site", store, studies={study.name: study})
    assert [page.name for page in pages] == ["index.html", "paged~echo.html", "explorer.html"]
    page = pages[1].read_text()
    assert "Does it echo?" in page
    assert "8 seeds, 4 steps of 2 sequences" in page
    assert "<svg" in page, "its seeds are drawn on a plain axis"
    assert "<h2>The task</h2>" not in page
    assert 'href="paged~echo.html#E1"' in pages[0].read_text()


def test_another_store_is_joined(tmp_path, store):
    study = find_study(str(write_study(tmp_path / "echo")))
    other = Store(tmp_path / "other")
    ms.run_study(study, store=other, watcher=Watch())
    assert merge_store(store, other, "mnemoscope merge").claims == ("echo E1 (quick)",)
    assert judged_studies(store.folder) == ("echo",)
    assert find_folder(store.folder, "echo", "quick") == store.folder / "ledger/quick"


# ---- in a notebook

PART = {
    "name": "small",
    "kind": "mean",
    "measures": "mean of it",
    "holds": "[-1, 1]",
    "fails": "(-inf, -1) or (1, inf)",
}


def measure_numbers(evidence):
    return ms.Measurement({"small": np.linspace(-0.5, 0.5, 9)})


def a_study(**changes):
    claim = {
        "statement": "It is small.",
        "published": "-",
        "stated": "2026-11-19",
        "measure": measure_numbers,
        "parts": [PART],
    }
    fields = {"name": "cell", "title": "Small?", "conditions": lambda scale: {}}
    return ms.Study(**fields | {"claims": {"N1": claim | changes}})


def test_a_study_of_a_cell_is_run(tmp_path, capsys):
    ledger = ms.run_study(a_study(), store=str(tmp_path / "store"))
    assert isinstance(ledger, ms.Ledger)
    (entry,) = ledger.claims
    assert (entry.verdict, entry.value, entry.units) == ("reproduced", 0.0, 9)
    assert ledger.command == "ms.run_study('cell', 'quick')"
    assert "N1" in capsys.readouterr().err, "its progress is shown"


def test_what_a_study_of_a_cell_lacks_is_said(store):
    with pytest.raises(UserError, match=r"N1 of cell: measure must be a function, got 'x.m"):
        a_study(measure="x.measure")
    with pytest.raises(UserError, match=r"claims.toml of cell, N1: .*unknown key"):
        a_study(stateed="2026-11-19")
    bare = ms.Study(title="No name", conditions=lambda scale: {})
    with pytest.raises(UserError, match="a study needs a name and claims, got <Study"):
        ms.run_study(bare, store=store)
    with pytest.raises(UserError, match="unknown claim of study 'cell' 'N2'"):
        ms.run_study(a_study(), store=store, claims="N2", watcher=Watch())
