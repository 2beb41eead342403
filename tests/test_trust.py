"""A store that was handed over, shared with others or on a bad disk:
nothing is written elsewhere, nothing good is lost.
"""

import errno
import os
import stat

import pytest

from mnemoscope.cli import stored_runs
from mnemoscope.core.errors import UserError
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store, files
from mnemoscope.studies.discover import find_study, on_corpus, on_model
from mnemoscope.tasks import Permutation
from mnemoscope.training import sinks
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Permutation(n_symbols=2),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=4,
)
LEDGER = "ledger/quick/walk.json"


@pytest.fixture
def outside(tmp_path):
    """Somebody's file that is not in the store."""
    path = tmp_path / "outside.txt"
    path.write_text("mine\n")
    return path


# ---- links


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_nothing_is_written_through_a_link_in_the_place_of_an_unfinished_file(link, store, outside):
    unfinished = store.folder / f"{LEDGER}.tmp"
    unfinished.parent.mkdir(parents=True)
    link(outside, unfinished)
    store.write_text(LEDGER, "ours\n")
    assert outside.read_text() == "mine\n"
    assert store.read_text(LEDGER) == "ours\n"


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_nothing_is_written_through_a_link_in_the_place_of_a_file(link, store, outside):
    path = store.folder / LEDGER
    path.parent.mkdir(parents=True)
    link(outside, path)
    try:
        store.write_text(LEDGER, "ours\n")
    except UserError as error:
        assert "leads out of the store" in str(error)  # noqa: PT017
    assert outside.read_text() == "mine\n"


def test_a_link_inside_the_store_is_not_read(store):
    store.write_text(LEDGER, "ours\n")
    path = store.folder / LEDGER
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    with pytest.raises(UserError, match="is damaged"):
        store.read_text(LEDGER)
    assert [damage.name for damage in store.check()] == [LEDGER]


def test_a_pipe_in_the_place_of_a_run_is_no_run_and_nobody_waits_for_it(store):
    load_or_train(store, SPEC, range(2))
    path = store.folder / store.rows()[0].file
    path.unlink()
    os.mkfifo(path)
    assert [damage.why for damage in store.check()] == ["it is no plain file"]


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_an_index_with_a_second_name_is_not_opened(link, store, tmp_path):
    store.db.close()
    index = store.folder / "index.sqlite3"
    index.rename(tmp_path / "other.sqlite3")
    link(tmp_path / "other.sqlite3", index)
    with pytest.raises(UserError, match=r"cannot use .* as a store"):
        Store(store.folder)


def test_numbers_are_not_followed_out_of_the_store(store, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    follow = store.folder / "follow"
    follow.symlink_to(elsewhere)
    with pytest.raises(
        UserError, match=r"follow' is a link; numbers are written into the store itself"
    ):
        sinks.sink_of("tensorboard", follow)
    follow.unlink()
    follow.mkdir()
    (follow / "a_b").symlink_to(elsewhere)
    with pytest.raises(UserError, match=r"a_b' is a link"):
        sinks.sink_of("tensorboard", follow).init("a/b", {})
    assert list(elsewhere.iterdir()) == []


# ---- unreadable is not damaged


def unreadable(monkeypatch, number, suffix):
    """From now on the disk, or the owner of the files, does not let us read those that end so."""
    real = files.read_file

    def refuse(path):
        if str(path).endswith(suffix):
            raise OSError(number, os.strerror(number))
        return real(path)

    monkeypatch.setattr(files, "read_file", refuse)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_what_cannot_be_read_is_not_trained_over(number, store, monkeypatch, capsys):
    whole = load_or_train(store, SPEC, range(2))
    store.write_text(LEDGER, "ours\n")
    (before,) = store.rows()
    unreadable(monkeypatch, number, (".safetensors", ".json"))
    why = os.strerror(number)
    with pytest.raises(UserError, match=rf"cannot be read \({why}\); it may be as good as ever"):
        load_or_train(store, SPEC, range(2))
    with pytest.raises(UserError, match=rf"walk.json in store .* cannot be read \({why}\)"):
        store.read_text(LEDGER)
    for repair in (False, True):
        with pytest.raises(UserError, match="2 cannot be read, which does not make them damaged"):
            stored_runs.check(repair=repair, store=store.folder)
    assert f"cannot be read: run {before.id}: {why}" in capsys.readouterr().out
    with pytest.raises(UserError, match="cannot be read"):
        store.save(whole, 1.0, "a machine")
    monkeypatch.undo()
    assert store.rows() == [before], "not one bit of the row has changed"
    assert store.check() == []
    assert store.read_text(LEDGER) == "ours\n"


def test_a_file_that_is_gone_is_damaged_and_comes_back(store, capsys):
    load_or_train(store, SPEC, range(2))
    (store.folder / store.rows()[0].file).unlink()
    with pytest.raises(UserError, match=r"is damaged \(its file is gone\)"):
        load_or_train(store, SPEC, range(2))
    stored_runs.check(repair=True, store=store.folder)
    assert store.check() == []


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_files_may_be_read_by_whom_the_umask_lets(mask, tmp_path, monkeypatch):
    from mnemoscope.store import checkpoints

    before = os.umask(mask)
    try:
        monkeypatch.setattr(checkpoints.StoreCheckpointer, "is_due", lambda self: True)
        monkeypatch.setattr(checkpoints.StoreCheckpointer, "drop", lambda self: None)
        store = Store(tmp_path / "store")
        load_or_train(store, SPEC, range(2))
        store.write_text(LEDGER, "ours\n")
    finally:
        os.umask(before)
    for path in store.folder.rglob("*"):
        if path.suffix in (".safetensors", ".json", ".part"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path


# ---- two files of one name


def test_two_texts_of_one_name_have_two_ledgers(tmp_path):
    study = find_study("birth")
    names = []
    for folder, text in (("a", "abcabc" * 50), ("b", "abcacb" * 50), ("c", "abcabc" * 50)):
        path = tmp_path / folder / "text.txt"
        path.parent.mkdir()
        path.write_text(text)
        names.append(on_corpus(study, path).name)
    assert names[0].startswith("birth@text-")
    assert names[0] != names[1]
    assert names[0] == names[2], "the same text wherever it lies"


def test_two_models_of_one_name_have_two_ledgers(tmp_path):
    study = find_study("language")
    names = []
    for folder, weights in (("a", b"one"), ("b", b"two"), ("c", b"one")):
        path = tmp_path / folder / "model"
        path.mkdir(parents=True)
        (path / "model.safetensors").write_bytes(weights)
        names.append(on_model(study, path).name)
    assert names[0].startswith("language@model-")
    assert names[0] != names[1]
    assert names[0] == names[2]
