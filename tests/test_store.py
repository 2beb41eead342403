"""The store: what went in comes out, finished work is not repeated, and damage is told."""

import json
import sqlite3

import jax
import numpy as np
import pytest

from mnemoscope.cli import ledgers, stored_runs
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.execution import local
from mnemoscope.execution.local import load_or_train, select
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store
from mnemoscope.tasks import Permutation
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Permutation(n_symbols=2),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=4,
    batch=4,
    snapshots=3,
)


@pytest.fixture
def count_fits(monkeypatch):
    calls = []
    monkeypatch.setattr(
        local,
        "fit",
        lambda spec, seeds, **rest: calls.append(list(seeds)) or fit(spec, seeds, **rest),
    )
    return calls


def test_what_goes_in_comes_out(store):
    run = fit(SPEC, range(2, 5), lambda model, world: {"x": model.params["embed.W_E"].sum()})
    store.save(run, 1.5, "a machine")
    (row,) = store.rows()
    again = store.load(row)
    assert (again.spec, again.seeds) == (run.spec, run.seeds)
    for part in ("snapshots", "metrics"):
        assert set(getattr(again, part)) == set(getattr(run, part))
        for name, value in getattr(run, part).items():
            np.testing.assert_array_equal(getattr(again, part)[name], value)
    np.testing.assert_array_equal(again.losses, run.losses)
    np.testing.assert_array_equal(again.finite_steps, run.finite_steps)
    np.testing.assert_array_equal(again.world_hashes, run.world_hashes)
    assert again.origins == run.origins
    assert row.id == f"{SPEC.digest()}/2-4.{trained_by().program()[:8]}"


def test_finished_work_is_never_repeated(store, count_fits):
    told = []
    first = load_or_train(
        store, SPEC, range(3), progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (3 * 4, 3 * 4)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    load_or_train(store, SPEC, range(3))
    load_or_train(store, SPEC, [2, 0])
    assert count_fits == [[0, 1, 2]]
    more = load_or_train(store, SPEC, range(6))
    assert count_fits == [[0, 1, 2], [3, 4, 5]]
    np.testing.assert_array_equal(more.losses[:3], first.losses)
    load_or_train(Store(store.folder), SPEC, 6)
    assert len(count_fits) == 2, "another process finds it too"
    picked = load_or_train(store, SPEC, [4, 1])
    assert picked.seeds == (4, 1)
    np.testing.assert_array_equal(picked.losses, more.losses[[4, 1]])


def test_blocks_are_cut_and_put_together_with_the_same_result(store, count_fits, monkeypatch):
    monkeypatch.setattr(local, "BLOCK", 2)
    run = load_or_train(store, SPEC, range(5))
    assert count_fits == [[0, 1], [2, 3], [4]]
    whole = fit(SPEC, range(5))
    for name, value in whole.snapshots.items():
        np.testing.assert_allclose(run.snapshots[name], value, atol=1e-5)


def test_what_does_not_fit_the_memory_is_cut_with_the_same_result(store, monkeypatch):
    tried, told, real = [], [], local.fit

    def small_device(spec, seeds, **rest):
        tried.append(list(seeds))
        if len(seeds) > most:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8 bytes."
            )
        return real(spec, seeds, **rest)

    monkeypatch.setattr(local, "fit", small_device)
    most = 2
    with pytest.warns(
        RuntimeWarning, match=r"[53] seeds at once do not fit the device's memory; going on"
    ):
        run = load_or_train(
            store, SPEC, range(5), progress=lambda done, total: told.append((done, total))
        )
    assert tried == [[0, 1, 2, 3, 4], [0, 1], [2, 3, 4], [2], [3, 4]]
    assert told[-1] == (5 * SPEC.steps, 5 * SPEC.steps)
    for name, value in fit(SPEC, range(5)).snapshots.items():
        np.testing.assert_allclose(run.snapshots[name], value, atol=1e-5)
    most = 0
    with (
        pytest.raises(UserError, match="one seed of this Spec does not fit the memory"),
        pytest.warns(RuntimeWarning),
    ):
        load_or_train(store, SPEC, [7, 8])


def test_select_takes_seeds_in_the_order_asked_for():
    parts = [fit(SPEC, [0, 1]), fit(SPEC, [2])]
    chosen = select(parts, (2, 0))
    np.testing.assert_array_equal(chosen.losses[0], parts[1].losses[0])
    np.testing.assert_array_equal(chosen.losses[1], parts[0].losses[0])


@pytest.mark.parametrize("damage", [b"", b"short"])
def test_a_damaged_file_is_told_with_the_way_out(store, damage):
    load_or_train(store, SPEC, range(2))
    (row,) = store.rows()
    (store.folder / row.file).write_bytes(damage)
    with pytest.raises(
        UserError, match=f"stored run {row.id} is damaged .*'mnemoscope check --repair'"
    ):
        load_or_train(store, SPEC, range(2))
    store.delete(row)
    assert store.rows() == []
    assert load_or_train(store, SPEC, range(2)).seeds == (0, 1)


def test_a_stored_spec_is_read_strictly(store):
    load_or_train(store, SPEC, range(2))
    with store.db:
        store.db.execute("UPDATE runs SET spec_json = replace(spec_json, '\"batch\"', '\"bach\"')")
    with pytest.raises(UserError, match="damaged"):
        store.load(store.rows()[0])


def test_an_interrupted_write_leaves_no_row_and_no_rubbish(store, monkeypatch):
    from mnemoscope.store import run_file

    def cut(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_file, "save", cut)
    with pytest.raises(KeyboardInterrupt):
        store.save(fit(SPEC, [0]), 1.0, "m")
    assert store.rows() == []
    assert list(store.folder.rglob("*.safetensors*")) + list(store.folder.rglob("*.tmp")) == []


def test_a_full_disk_is_one_line_and_loses_nothing(store, monkeypatch):
    load_or_train(store, SPEC, [0])
    from mnemoscope.store import run_file

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run_file, "save", full)
    with pytest.raises(
        UserError,
        match=r"could not write run .*No space left on device.*finished before is still stored",
    ):
        load_or_train(store, SPEC, [0, 1])
    assert len(store.rows()) == 1


def test_folders_that_cannot_be_stores(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(
        UserError, match=r"cannot use .* as a store .*give a writable folder with --store"
    ):
        Store(tmp_path / "file")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "index.sqlite3").write_text(
        "this is not a database, and long enough to be looked at" * 20
    )
    with pytest.raises(UserError, match="cannot use"):
        Store(tmp_path / "bad")
    Store(tmp_path / "new")
    with sqlite3.connect(tmp_path / "new" / "index.sqlite3") as db:
        db.execute("PRAGMA user_version=99")
    db.close()
    with pytest.raises(UserError, match="has format 99; this Mnemoscope reads formats 1 to 3"):
        Store(tmp_path / "new")


def test_only_consecutive_seeds_are_stored(store):
    with pytest.raises(UserError, match=r"consecutive seeds, got \[0, 2\]"):
        store.save(fit(SPEC, [0, 2]), 1.0, "m")


def everything(folder):
    """All that a store says: every run's numbers, every finding, every file."""
    kept = Store(folder)
    try:
        run_file = {row.id: kept.load(row) for row in kept.rows()}
        numbers = {
            name: [
                run.losses.tobytes(),
                *(run.snapshots[k].tobytes() for k in sorted(run.snapshots)),
            ]
            for name, run in run_file.items()
        }
        return numbers, kept.finding("a key"), kept.read_text("ledger/quick/x.json")
    finally:
        kept.db.close()


@pytest.fixture
def filled(tmp_path):
    kept = Store(tmp_path / "s")
    load_or_train(kept, SPEC, range(2))
    kept.keep_finding("a key", {"value": 0.25, "sentence": "so it is"})
    kept.write_text("ledger/quick/x.json", "one\n")
    kept.write_text("ledger/quick/x.json", "two\n")
    kept.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept.db.close()
    return kept.folder


def test_no_flipped_byte_gives_a_wrong_number(filled):
    """Each file, bytes all over it: what is read is what was written,
    or one line says that it is not.
    """
    good, noticed, told, rng = everything(filled), {}, [], np.random.default_rng(0)
    for path in [
        p
        for p in filled.rglob("*")
        if p.is_file() and p.suffix in (".safetensors", ".json", ".sqlite3")
    ]:
        data = path.read_bytes()
        for at in rng.integers(0, len(data), 60).tolist():
            path.write_bytes(
                data[:at] + bytes([data[at] ^ (1 << rng.integers(8))]) + data[at + 1 :]
            )
            for rest in ("-wal", "-shm"):
                (filled / f"index.sqlite3{rest}").unlink(missing_ok=True)
            try:
                said = everything(filled)
            except UserError as error:
                noticed[path.suffix] = noticed.get(path.suffix, 0) + 1
                told.append(str(error))
            else:
                # an index row that is gone is trained again; nothing that is read is wrong
                assert all(said[0][name] == good[0][name] for name in said[0])
                assert said[1] in (good[1], None)
                assert said[2] == good[2]
        path.write_bytes(data)
        for rest in ("-wal", "-shm"):
            (filled / f"index.sqlite3{rest}").unlink(missing_ok=True)
    assert not any("\n" in line for line in told)
    assert noticed[".safetensors"] == noticed[".json"] == 60
    assert noticed[".sqlite3"] >= 1, "most of its pages are empty space"
    assert everything(filled) == good


def test_swapped_and_cut_files_are_noticed_and_repaired(filled, capsys):
    kept = Store(filled)
    load_or_train(kept, SPEC, range(2, 4))
    whole = load_or_train(kept, SPEC, range(4)).losses
    first, second = (filled / row.file for row in kept.rows())
    assert kept.check() == []
    a, b = first.read_bytes(), second.read_bytes()
    assert len(a) == len(b), "sizes alone would not tell"
    first.write_bytes(b)
    second.write_bytes(a)
    (filled / "ledger/quick/x.json").write_text("three\n")
    assert {(d.kind, d.why) for d in kept.check()} == {
        ("run", "its bytes are not those that were written"),
        ("file", "its bytes are not those that were written"),
    }
    assert len(kept.check()) == 3
    with pytest.raises(UserError, match="3 damaged; 'mnemoscope check --repair'"):
        stored_runs.check(store=filled)
    stored_runs.check(repair=True, store=filled)
    assert "was trained again" in capsys.readouterr().out
    assert kept.check() == []
    np.testing.assert_array_equal(load_or_train(kept, SPEC, range(4)).losses, whole, "bit for bit")
    assert kept.read_text("ledger/quick/x.json") is None


def test_a_ledger_that_was_changed_is_not_shown(store, capsys):
    """Reading it for eyes is reading it, too;
    a folder without an index has nothing to hold it against.
    """
    ledger = {
        "study": "walk",
        "scale": "quick",
        "command": "c",
        "hardware": "h",
        "versions": {},
        "finished": "t",
        "claims": [],
    }
    path = store.write_text("ledger/quick/walk.json", json.dumps(ledger))
    ledgers.ledger("walk", store=store.folder)
    path.write_text(json.dumps(ledger | {"hardware": "better"}))
    with pytest.raises(
        UserError,
        match=r"walk.json' cannot be read: its bytes are not those that were written; move it away",
    ):
        ledgers.ledger("walk", store=store.folder)
    (store.folder / "index.sqlite3").rename(store.folder / "index.old")
    ledgers.ledger("walk", store=store.folder)
    assert "better" in capsys.readouterr().out


def test_files_that_an_index_does_not_know_and_files_that_are_gone(filled):
    """What the product itself advises, moving a damaged index away,
    leaves nothing that cannot be mended.
    """
    kept = Store(filled)
    kept.write_text("ledger/quick/once.json", "written once\n")
    (filled / "ledger/quick/once.json").unlink()
    assert [(d.name, d.why) for d in kept.check()] == [("ledger/quick/once.json", "it is gone")]
    kept.db.close()
    for path in filled.glob("index.sqlite3*"):
        path.unlink()
    kept = Store(filled)
    assert [(d.name, d.why) for d in kept.check()] == [
        ("ledger/quick/x.json", "the index does not know it")
    ]
    stored_runs.check(repair=True, store=filled)
    assert kept.check() == []
    assert kept.read_text("ledger/quick/x.json") is None


def test_a_check_beside_a_run_takes_nothing_for_damaged_that_is_being_written(filled, monkeypatch):
    kept, writes, real = Store(filled), [], Store._file_row

    def meanwhile(self, name):
        row = real(self, name)
        if not writes:
            # another process writes the file twice
            # between the look at the index and that at the file
            writes.extend("ab")
            for text in writes:
                kept.write_text(name, text)
        return row

    monkeypatch.setattr(Store, "_file_row", meanwhile)
    assert kept.check() == []
    assert writes == ["a", "b"]


def test_a_repair_that_is_cut_off_forgets_nothing(filled, monkeypatch):
    kept = Store(filled)
    load_or_train(kept, SPEC, range(2, 4))
    for row in kept.rows():
        (filled / row.file).write_bytes(b"x")
    real = local.fit
    monkeypatch.setattr(
        local, "fit", lambda *args, **more: (_ for _ in ()).throw(KeyboardInterrupt)
    )
    with pytest.raises(KeyboardInterrupt):
        stored_runs.check(repair=True, store=filled)
    assert len(kept.check()) == len(kept.rows()) == 2, (
        "what is not trained again yet is still known as damaged"
    )
    monkeypatch.setattr(local, "fit", real)
    stored_runs.check(repair=True, store=filled)
    assert kept.check() == []
    assert len(kept.rows()) == 2
    with sqlite3.connect(filled / "index.sqlite3") as db:
        # a row that would ask for more seeds than there are
        db.execute("UPDATE runs SET last = 1 << 62 WHERE first = 0")
    db.close()
    stored_runs.check(repair=True, store=filled)
    assert kept.check() == []


def test_a_file_that_was_not_yet_renamed_still_counts(filled, monkeypatch):
    """A power cut between the index and the rename: the old file is there, and it is good."""
    kept = Store(filled)
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("power cut")))
    with pytest.raises(UserError, match="could not write"):
        kept.write_text("ledger/quick/x.json", "three\n")
    with pytest.raises(UserError, match="could not write"):
        kept.write_text("ledger/quick/new.json", "one\n")
    assert kept.read_text("ledger/quick/x.json") == "two\n"
    assert kept.read_text("ledger/quick/new.json") is None
    assert kept.check() == []
    (filled / "ledger/quick/x.json").write_text("damaged\n")
    with pytest.raises(UserError, match="could not write"):
        kept.write_text("ledger/quick/x.json", "four\n")
    # a write that fails does not bless what was there
    with pytest.raises(UserError, match=r"x.json .* is damaged"):
        kept.read_text("ledger/quick/x.json")


def test_a_store_of_format_1_gets_its_checksums(tmp_path):
    """The tables as version 0.1.0 made them, with one run, one that was cut,
    one finding and one ledger.
    """
    kept = Store(tmp_path / "s")
    load_or_train(kept, SPEC, range(2))
    load_or_train(kept, SPEC, range(2, 4))
    rows = [
        (
            r.spec,
            r.first,
            r.last,
            r.spec_json,
            f"runs/{r.spec}/{r.first}-{r.last}.safetensors",
            r.bytes,
            r.diverged,
            r.seconds,
            r.made,
            r.machine,
        )
        for r in kept.rows()
    ]
    for row, old in zip(kept.rows(), rows, strict=True):
        (tmp_path / "s" / row.file).rename(tmp_path / "s" / old[4])
    kept.db.close()
    (tmp_path / "s/index.sqlite3").unlink()
    (tmp_path / "s" / rows[1][4]).write_bytes(b"cut")
    db = sqlite3.connect(tmp_path / "s/index.sqlite3")
    db.executescript(
        "\nCREATE TABLE IF NOT EXISTS runs (\n"
        "    spec TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, "
        "spec_json TEXT NOT NULL, file TEXT NOT NULL,\n"
        "    bytes INTEGER NOT NULL, diverged INTEGER NOT NULL, seconds REAL NOT NULL, "
        "made TEXT NOT NULL, machine TEXT NOT NULL,\n"
        "    PRIMARY KEY (spec, first, last)) STRICT;\n"
        "CREATE TABLE IF NOT EXISTS findings (key TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;\n"
        "PRAGMA user_version=1;"
    )
    with db:
        db.executemany("INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?)", rows)
        db.execute("INSERT INTO findings VALUES ('a key', '{\"value\": 1}')")
    db.close()
    (tmp_path / "s/ledger/quick").mkdir(parents=True)
    (tmp_path / "s/ledger/quick/x.json").write_text("one\n")
    again = Store(tmp_path / "s")
    assert again.load(again.rows()[0]).seeds == (0, 1)
    assert again.finding("a key") == {"value": 1}
    assert again.read_text("ledger/quick/x.json") == "one\n"
    assert [(d.kind, d.why) for d in again.check()] == [
        ("run", f"3 bytes where {rows[1][5]} were written")
    ]
