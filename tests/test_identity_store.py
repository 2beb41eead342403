"""What is stored says who trained it: seeds of two programs are never joined, and stored seeds
are trained again and compared.
"""

import shutil
from functools import partial

import pytest
from test_identity import SPEC

from mnemoscope.cli import stored_runs
from mnemoscope.core import fingerprint
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.execution import cluster, local, retrain
from mnemoscope.execution.local import load_or_train, select
from mnemoscope.store import checkpoints
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Permutation
from mnemoscope.tasks.permutation import Split
from mnemoscope.training import loop
from mnemoscope.training.loop import fit
from mnemoscope.training.run import Run
from mnemoscope.training.worlds import world_hashes

# ---- the store


def other_program(monkeypatch, **changes):
    """From now on another program trains here."""
    real = trained_by()
    other = real.model_copy(update={"source": "another", **changes})
    for module in (loop, local, cluster, retrain, fingerprint):
        if hasattr(module, "trained_by"):
            monkeypatch.setattr(module, "trained_by", lambda: other)
    for name in ("evidence", "runner"):
        monkeypatch.setattr(f"mnemoscope.studies.{name}.trained_by", lambda: other)
    return other


def test_seeds_of_two_programs_are_never_joined(store, monkeypatch):
    old = load_or_train(store, SPEC, range(3))
    other = other_program(monkeypatch)
    with pytest.warns(
        Notice, match=r"was trained by Mnemoscope .*, not by this program; it is used as that"
    ):
        again = load_or_train(store, SPEC, range(2))
    assert again.origins == old.origins, "what is finished is not repeated"
    more = load_or_train(store, SPEC, range(5))
    assert more.origins == (other,), "but what is missing is not joined to it"
    assert len(store.rows()) == 2
    assert store.check() == []
    assert load_or_train(store, SPEC, range(3)).origins == (other,)


def test_a_checkpoint_of_another_program_is_not_resumed(store, monkeypatch):
    """Killed under one program, started again under another: from the beginning."""

    class CutOffError(Exception):
        pass

    def cut(done, _):
        if done >= 2:
            raise CutOffError

    monkeypatch.setattr(checkpoints.StoreCheckpointer, "is_due", lambda self: True)
    with pytest.raises(CutOffError):
        load_or_train(store, SPEC, [0], progress=cut)
    assert len(list(store.folder.rglob("*.part"))) == 1
    other_program(monkeypatch)
    told = []
    load_or_train(store, SPEC, [0], progress=lambda done, _: told.append(done))
    assert told[0] == 1


def test_a_deleted_run_leaves_no_checkpoint_to_go_on_from(store, monkeypatch):
    """The power goes between storing a block and dropping its checkpoint;
    then the run is deleted and trained anew.
    """
    monkeypatch.setattr(checkpoints.StoreCheckpointer, "is_due", lambda self: True)
    monkeypatch.setattr(checkpoints.StoreCheckpointer, "drop", lambda self: None)
    load_or_train(store, SPEC, range(2))
    assert list(store.folder.rglob("*.part"))
    stored_runs.runs(SPEC.digest(), delete=True, store=store.folder)
    assert not list(store.folder.rglob("*.part"))
    assert store.check() == []
    told = []
    load_or_train(store, SPEC, range(2), progress=lambda done, _: told.append(done))
    assert told[0] == 2 * 1


def test_a_mixture_is_named_in_the_verdict(store, monkeypatch):
    device = trained_by().model_copy(update={"device": "NVIDIA H200"})
    here, there = fit(SPEC, range(8)), fit(SPEC, range(8, 16))
    mixed = select([here, Run(**{**vars(there), "origins": (device,)})], tuple(range(16)))
    assert mixed.origins == (here.origins[0], device)

    def judged(run):
        evidence = Evidence("quick", {"a": Condition(SPEC, len(run.seeds))}, lambda name: run)
        return evidence.note(("a",))

    assert judged(here) == ""
    program = trained_by().program()[:8]
    version = trained_by().mnemoscope
    by = f"Mnemoscope {version}, program {program}, on"
    assert judged(mixed) == f"Trained by {by} {trained_by().device}: a; {by} NVIDIA H200: a."
    old = Run(**{**vars(here), "origins": (None,)})
    assert (
        judged(old)
        == "Trained by Mnemoscope 0.1, which kept no fingerprint, and judged by another."
    )


def test_a_second_metric_never_replaces_what_the_first_one_read(store):
    def first(model, world):
        return {"first": model.params["embed.W_E"].sum()}

    def second(model, world):
        return {"second": model.params["embed.W_E"].max()}

    def both(model, world):
        return {**first(model, world), **second(model, world)}

    store.save(fit(SPEC, [0], first), 1.0, "m")
    with pytest.raises(UserError, match=r"is stored with what another metric read \(first\)"):
        store.save(fit(SPEC, [0], second), 1.0, "m")
    with pytest.raises(UserError, match=r"what another metric read \(first\)"):
        store.save(
            fit(SPEC, [0], lambda model, world: {"first": 2 * model.params["embed.W_E"].sum()}),
            1.0,
            "m",
        )
    assert list(store.load(store.rows()[0]).metrics) == ["first"]
    store.save(fit(SPEC, [0], both), 1.0, "m")
    assert set(store.load(store.rows()[0]).metrics) == {"first", "second"}


def test_an_unknown_kind_is_unknown_and_not_damaged(store, capsys):
    """A run of an extension that is not loaded: listed, checked and deleted, and never repaired."""
    from mnemoscope.store.checksums import sha256
    from mnemoscope.store.schema import put_with_checksum

    load_or_train(store, SPEC, range(2))
    (row,) = store.rows()
    text = row.spec_json.replace('"kind":"permutation"', '"kind":"copy-back"')
    spec = sha256(text.encode())[:16]
    file = f"runs/{spec}/0-1.{row.program[:8]}.safetensors"
    (store.folder / file).parent.mkdir()
    shutil.copy(store.folder / row.file, store.folder / file)
    fields = row._replace(spec=spec, spec_json=text, file=file)[:-1]
    with store.db:
        put_with_checksum(store.db, "runs", fields)
    unknown = store.find(spec)
    with pytest.raises(
        UserError, match=r"is of a kind that is unknown here, not damaged .*'copy-back'"
    ):
        store.load(unknown)
    assert store.check() == []
    stored_runs.check(repair=True, store=store.folder)
    stored_runs.runs(store=store.folder)
    assert "copy-back" in capsys.readouterr().out
    stored_runs.runs(spec, delete=True, store=store.folder)
    assert [each.spec for each in store.rows()] == [SPEC.digest()]


# ---- worlds


def test_a_world_that_is_drawn_otherwise_now_is_refused(store, monkeypatch):
    load_or_train(store, SPEC, range(2))
    usual = Permutation.world

    def swapped(self, *, key):
        """The training mappings in another order: most would be judged as held out."""
        split = usual(self, key=key)
        return Split(split.train[::-1], split.held_out[::-1])

    run = store.load(store.rows()[0])
    run.worlds()
    run.world(1)
    monkeypatch.setattr(Permutation, "world", swapped)
    for read in (run.worlds, partial(run.world, 1)):
        with pytest.raises(
            UserError, match=r"the world that 'permutation' draws for seed [01] now is not the one"
        ):
            read()


def test_each_seed_has_its_own_world_hash():
    hashes = world_hashes(Permutation(), range(5))
    assert hashes.shape == (5, 32)
    assert len({row.tobytes() for row in hashes}) == 5
    one = world_hashes(Permutation(split_seed=3), range(5))
    assert len({row.tobytes() for row in one}) == 1


# ---- trained again


def test_stored_seeds_are_trained_again_and_compared(store, capsys, monkeypatch):
    load_or_train(store, SPEC, range(3))
    stored_runs.check(retrain=2, store=store.folder)
    out = capsys.readouterr().out
    assert out.count("same: run") == 2
    assert "arrays, to the bit" in out
    (row,) = store.rows()
    wrong = store.load(row)
    wrong.snapshots["embed.W_E"][:] += 1e-6
    store.save(Run(**{**vars(wrong), "seeds": (0, 1, 2)}), 1.0, "m")
    with pytest.raises(UserError, match="1 of 1 seeds trained to other numbers"):
        stored_runs.check(retrain=1, store=store.folder)
    assert "OTHER NUMBERS" in capsys.readouterr().out
    with pytest.raises(UserError, match="--retrain must be a number of seeds from 0 up, got -1"):
        stored_runs.check(retrain=-1, store=store.folder)


def test_what_another_device_trained_is_compared_to_a_tolerance(store):
    run = fit(SPEC, [0])
    elsewhere = trained_by().model_copy(update={"device": "NVIDIA H200"})
    for off, same in ((1e-6, True), (1e-4, False)):
        moved = {name: x + off for name, x in run.snapshots.items()}
        store.save(Run(**{**vars(run), "snapshots": moved, "origins": (elsewhere,)}), 1.0, "m")
        found = retrain.retrain_seed(store, store.rows()[0], 0)
        assert found.same is same
        assert "another kind of device" in found.words


def test_seeds_of_another_program_are_not_compared(store, monkeypatch, capsys):
    load_or_train(store, SPEC, range(3))
    other_program(monkeypatch)
    with pytest.raises(UserError, match="no stored seed was trained by this program"):
        stored_runs.check(retrain=2, store=store.folder)
    assert "3 stored seeds not compared: trained by another program" in capsys.readouterr().out
