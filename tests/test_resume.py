"""A block that was cut off goes on where it was kept, to the same bits;
several processes share one store without double work.
"""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.execution import local
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store, checkpoints
from mnemoscope.tasks import Hops, Permutation, TokenArray
from mnemoscope.training.optimizers import SGD, Adam
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

SMALL = ModelConfig(d_model=8, n_heads=1, d_mlp=0)
SPECS = {
    "adam": Spec(task=Permutation(n_symbols=3), model=SMALL, steps=40, batch=4, snapshots=5),
    "sgd, frozen": Spec(
        task=Permutation(n_symbols=3),
        model=SMALL,
        steps=40,
        batch=4,
        snapshots=5,
        optimizer=SGD(lr=0.1, momentum=0.9),
        unfreeze_at=(("*.W_O", 20),),
    ),
    "token ids": Spec(
        task=TokenArray(np.arange(60) % 5, length=3), model=SMALL, steps=40, batch=4, snapshots=5
    ),
    "watched, with a schedule": Spec(
        task=Hops(n=3, k=2, schedule=((0, (1.0, 0.0)), (20, (0.0, 1.0)))),
        steps=40,
        batch=4,
        metrics="hops",
        n_evals=8,
        model=ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, causal=False),
        optimizer=Adam(warmup=10, clip=1.0),
    ),
}


def same(one: Run, other: Run) -> None:
    assert (one.spec, one.seeds) == (other.spec, other.seeds)
    np.testing.assert_array_equal(one.losses, other.losses)
    np.testing.assert_array_equal(one.finite_steps, other.finite_steps)
    for part in ("snapshots", "metrics"):
        assert set(getattr(one, part)) == set(getattr(other, part))
        for name, value in getattr(one, part).items():
            np.testing.assert_array_equal(value, getattr(other, part)[name])


class CutOffError(Exception):
    """As if the power had gone."""


def cut_at(step: int, seeds: int):
    def progress(done: int, _: int) -> None:
        if done >= step * seeds:
            raise CutOffError

    return progress


@pytest.fixture
def always_kept(monkeypatch):
    kept, real = [], Store.save_checkpoint
    monkeypatch.setattr(checkpoints, "SECONDS_BETWEEN", 0)
    monkeypatch.setattr(checkpoints.StoreCheckpointer, "is_due", lambda self: True)
    monkeypatch.setattr(
        Store,
        "save_checkpoint",
        lambda self, name, *rest: kept.append(name) or real(self, name, *rest),
    )
    return kept


@pytest.mark.parametrize("name", SPECS)
def test_a_block_that_was_cut_off_goes_on_to_the_same_bits(name, tmp_path, always_kept):
    """One of them also in test_bits.py, as users have it compiled."""
    goes_on_to_the_same_bits(SPECS[name], tmp_path)
    assert always_kept


def goes_on_to_the_same_bits(spec, tmp_path):
    seeds = range(3)  # an odd number on an even number of devices: the last seed stands in
    whole = load_or_train(Store(tmp_path / "whole"), spec, seeds)
    store = Store(tmp_path / "cut")
    for step in (10, 30):
        with pytest.raises(CutOffError):
            load_or_train(store, spec, seeds, progress=cut_at(step, len(seeds)))
    told: list[int] = []
    run = load_or_train(
        Store(store.folder), spec, seeds, progress=lambda done, _: told.append(done)
    )
    assert told[0] >= 25 * len(seeds), "it began where it was kept, not at the beginning"
    same(run, whole)
    assert not list(tmp_path.rglob("*.part")), "what was kept goes when the block is stored"
    assert store.check() == []


@pytest.mark.parametrize("how", ["damaged", "cut", "other versions"])
def test_a_kept_block_that_cannot_be_trusted_is_trained_from_the_start(
    how, tmp_path, always_kept, monkeypatch
):
    spec, store = SPECS["adam"], Store(tmp_path / "cut")
    with pytest.raises(CutOffError):
        load_or_train(store, spec, range(2), progress=cut_at(20, 2))
    (path,) = tmp_path.rglob("*.part")
    data = bytearray(path.read_bytes())
    if how == "other versions":
        monkeypatch.setattr(local, "versions", lambda: {"jax": "another"})
    else:
        data[len(data) // 2] ^= 1
        path.write_bytes(bytes(data) if how == "damaged" else bytes(data[:-9]))
        assert [(d.kind, Path(d.name).suffix) for d in store.check()] == [("file", ".part")]
    told: list[int] = []
    run = load_or_train(store, spec, range(2), progress=lambda done, _: told.append(done))
    assert told[0] == 2 * 1, "from the first stop on"
    same(run, load_or_train(Store(tmp_path / "whole"), spec, range(2)))
    assert store.check() == []


WORKER = """
import json, sys
from mnemoscope.execution import local
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.training.spec import Spec
from mnemoscope.store import Store, checkpoints
from mnemoscope.tasks import Permutation
from mnemoscope.training.loop import fit
trained = []
local.fit = lambda spec, seeds, **rest: (
    trained.extend((spec.steps, s) for s in seeds) or fit(spec, seeds, **rest)
)
local.BLOCK = 2
store = Store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for steps in (3, 4, 5):
    model = ModelConfig(d_model=4, n_heads=1, d_mlp=0)
    load_or_train(
        Store(sys.argv[1]),
        Spec(task=Permutation(n_symbols=2), model=model, steps=steps, batch=2),
        range(6),
    )
    for i in range(40):
        store.keep_finding(f"{sys.argv[2]} {steps} {i}", {"i": i})
        store.write_text(f"ledger/quick/{sys.argv[2]}.json", str(i))
print(json.dumps(trained))
"""


def test_several_processes_on_one_store_lose_nothing_and_repeat_nothing(tmp_path):
    line = [sys.executable, "-W", "ignore", "-c", WORKER, str(tmp_path / "store")]
    pipe = subprocess.PIPE
    each = [
        subprocess.Popen([*line, str(i)], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        for i in range(3)
    ]
    for process in each:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    said = []
    for process in each:  # all of them go now
        assert process.stdin
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in each:
        out, error = process.communicate()
        assert (process.returncode, error) == (0, "")
        said += [tuple(x) for x in json.loads(out)]
    assert sorted(said) == [(steps, seed) for steps in (3, 4, 5) for seed in range(6)], (
        "each seed was trained once"
    )
    store = Store(tmp_path / "store")
    assert len(store.rows()) == 3 * 3
    assert store.check() == []
    assert all(
        store.finding(f"{p} {steps} {i}") == {"i": i}
        for p in range(3)
        for steps in (3, 4, 5)
        for i in range(40)
    )


HOLDER = """
import sys, time
from mnemoscope.store import Store, checkpoints
with Store(sys.argv[1]).lock("x"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process(tmp_path):
    Store(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    assert holder.stdout.readline() == "held\n"
    waited = []
    with Store(tmp_path).lock("x", lambda: waited.append(True) or holder.kill()):
        assert waited == [True]
    holder.communicate()


def test_a_store_that_vanishes_is_one_line(tmp_path):
    store = Store(tmp_path / "store")
    (tmp_path / "store").rename(tmp_path / "gone")
    with pytest.raises(
        UserError, match=r"could not write a lock into .*what was finished before is still stored"
    ):
        load_or_train(store, SPECS["adam"], range(1))
