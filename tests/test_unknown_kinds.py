"""Stored runs of a kind that this process does not know: listed, exported as arrays, deleted."""

import subprocess
import sys

import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.cli import exchange, stored_runs
from mnemoscope.core.errors import UserError
from mnemoscope.store import UnknownKindError

WRITER = '''
import sys
from typing import Literal
import mnemoscope as ms


class Far(ms.Cycle):
    """A task that only its own process knows."""
    kind: Literal["far"] = "far"


model = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)
ms.fit(ms.Spec(task=Far(), model=model, steps=3, batch=2), 2, store=sys.argv[1])
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A store with two seeds of a task that is not known here."""
    home = tmp_path_factory.mktemp("far")
    (home / "writer.py").write_text(WRITER)
    store = home / "store"
    subprocess.run([sys.executable, home / "writer.py", store], check=True)
    return store


def test_it_is_said_to_be_unknown_and_what_would_bring_it(folder):
    store = ms.Store(folder)
    (row,) = store.rows()
    words = r"of a kind that is unknown here, not damaged .*'far'.*; or load what defines it: --plu"
    with pytest.raises(UnknownKindError, match=words):
        store.load(row)
    assert store.check() == []


def test_it_is_listed(folder, capsys):
    stored_runs.runs(store=folder)
    shown = capsys.readouterr().out
    assert "1 run," in shown
    assert "far code=" in shown
    stored_runs.runs("task.kind=far", store=folder)
    assert "1 run," in capsys.readouterr().out


def test_its_arrays_are_exported(folder, tmp_path, capsys):
    (row,) = ms.Store(folder).rows()
    exchange.export(row.id, tmp_path / "all.npz", to="numpy", store=folder)
    assert "unknown here" in capsys.readouterr().out
    exchange.export(row.id, tmp_path / "one.npz", to="numpy", seed=1, store=folder)
    whole, one = np.load(tmp_path / "all.npz"), np.load(tmp_path / "one.npz")
    assert whole["seeds"].tolist() == [0, 1]
    assert '"kind":"far"' in str(whole["spec"])
    for name in set(whole) - {"seeds", "spec", "loss_steps"}:
        np.testing.assert_array_equal(one[name], whole[name][1:], err_msg=name)
    with pytest.raises(UserError, match=r"--plugin.*; --to numpy writes its arrays all the same"):
        exchange.export(row.id, tmp_path / "csv", to="csv", store=folder)
    with pytest.raises(UserError, match=r"no seed 7 in run .*; allowed: 0 to 1"):
        exchange.export(row.id, tmp_path / "no.npz", to="numpy", seed=7, store=folder)


def test_one_that_is_damaged_stays_until_its_kind_is_known(folder, capsys):
    store = ms.Store(folder)
    (row,) = store.rows()
    file = folder / row.file
    before = file.read_bytes()
    file.write_bytes(before[:-1])
    stored_runs.check(repair=True, store=folder)
    assert "damaged and of a kind that is unknown here, so it stays" in capsys.readouterr().out
    assert store.rows() == [row]
    file.write_bytes(before)


def test_it_is_deleted(folder, capsys):
    stored_runs.runs(ms.Store(folder).rows()[0].id, delete=True, store=folder)
    assert "deleted 1 run," in capsys.readouterr().out
    assert ms.Store(folder).rows() == []
