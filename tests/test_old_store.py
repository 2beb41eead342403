"""A store of 0.1 opens, and its runs are used as such."""

import shutil
import warnings

import goldens
import numpy as np
import pytest

from mnemoscope.cli import stored_runs, visualize
from mnemoscope.core.errors import Notice
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.execution.local import load_or_train
from mnemoscope.store import Store
from mnemoscope.studies.library.walk.command import command as walk_command

# ---- a store of 0.1


@pytest.fixture
def old_store(tmp_path):
    """A copy of the store that 0.1 wrote."""
    return Store(shutil.copytree(goldens.FOLDER / "store-0.1", tmp_path / "store-0.1"))


def test_a_store_of_0_1_opens_and_is_whole(old_store):
    assert old_store.check() == []
    assert len(old_store.rows()) == len(goldens.CASES) + 1
    assert all(row.origin is None and row.program == "" for row in old_store.rows())
    assert Store(old_store.folder).check() == [], "a second time too"
    assert "R1" in old_store.read_text("ledger/quick/remember.json")


@pytest.mark.parametrize("name", goldens.CASES)
def test_runs_of_0_1_are_used_as_such(name, old_store):
    """Not trained again, and not taken for ours; their losses are those of today."""
    spec = goldens.CASES[name]
    with pytest.warns(Notice, match="was trained by Mnemoscope 0.1, which kept no fingerprint"):
        run = load_or_train(old_store, spec, range(2))
    assert (run.origins, run.world_hashes) == ((None,), None)
    frozen = goldens.read("losses.json")[name]
    np.testing.assert_allclose(run.losses[0], frozen[0], atol=1e-5, rtol=0)


def test_runs_of_0_1_are_never_joined_with_new_seeds(old_store):
    spec = goldens.CASES["permutation, pair tables"]
    run = load_or_train(old_store, spec, range(3))
    assert run.origins == (trained_by(),)
    assert [(row.first, row.last, bool(row.program)) for row in old_store.rows(spec.digest())] == [
        (0, 1, False),
        (0, 2, True),
    ]
    assert old_store.check() == []


def test_runs_of_0_1_are_shown_explored_walked_and_exported(old_store, tmp_path, capsys):
    spec = goldens.CASES["permutation, pair tables"]
    stored_runs.runs(store=old_store.folder)
    shown = capsys.readouterr().out
    assert spec.digest() in shown
    visualize.explore(
        (spec.digest(),), out=tmp_path / "page.html", open_=False, store=old_store.folder
    )
    assert (tmp_path / "page.html").stat().st_size > 10_000
    walk_command(run=spec.digest(), store=old_store.folder)
    from mnemoscope.cli.exchange import export

    export(spec.digest(), tmp_path / "run.npz", to="numpy", store=old_store.folder)
    assert (tmp_path / "run.npz").exists()
    imported = next(row for row in old_store.rows() if "imported" in row.spec_json)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert old_store.load(imported).origins == ()


def test_a_damaged_row_of_0_1_stays_damaged(tmp_path):
    import sqlite3

    folder = shutil.copytree(goldens.FOLDER / "store-0.1", tmp_path / "store-0.1")
    db = sqlite3.connect(folder / "index.sqlite3")
    with db:
        db.execute(
            "UPDATE runs SET machine = 'a better one' "
            "WHERE first = 0 AND rowid = (SELECT min(rowid) FROM runs)"
        )
    db.close()
    assert [damage.why for damage in Store(folder).check()] == [
        "its row in the index is not what was written"
    ]
