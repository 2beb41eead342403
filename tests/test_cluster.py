"""A real scheduler and real workers on loopback, which are killed, stopped, broken and late;
each block is stored exactly once.
"""

import signal
import sys
import time

import numpy as np
import pytest

pytest.importorskip(
    "distributed", reason="Dask is not installed: pip install 'mnemoscope[cluster]'"
)

from crash import ledgers, start
from dask_processes import Dask
from outside import write_study

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.core.plugins import load_path
from mnemoscope.execution import cluster
from mnemoscope.execution.cluster import (
    Attempt,
    Block,
    Cluster,
    _Session,
    block_size,
    check_answer,
    contiguous_blocks,
)
from mnemoscope.execution.sent_plugins import _hash, pack_plugins
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store, arrays_of
from mnemoscope.tasks import Permutation, TokenArray
from mnemoscope.training.loop import fit
from mnemoscope.training.spec import Spec

SHORT = Spec(
    task=Permutation(n_symbols=2),
    model=ModelConfig(d_model=4, n_heads=1, d_mlp=0),
    steps=20,
    batch=4,
    snapshots=2,
)
LONG = SHORT.model_copy(update={"steps": 8000, "batch": 32})  # a seed takes half a second
HASTY = "import mnemoscope.execution.cluster_worker as worker; worker.SIGN_SECONDS = 0.1"
BREAK = """
import os, mnemoscope.execution.cluster_worker as worker
from mnemoscope.training.loop import fit
def broken(spec, seeds, **more):
    if 5 in seeds:
        with open({diary!r}, "a") as diary:
            diary.write(f"{{seeds}}\\n")
        {how}
    return fit(spec, seeds, **more)
worker.fit = broken
"""


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory):
    dask = Dask(tmp_path_factory.mktemp("dask"))
    yield dask
    dask.end(dask.processes)


def _end_workers(dask):
    dask.end(dask.processes[1:])
    del dask.processes[1:]


@pytest.fixture
def dask(scheduler):
    """Without workers but for those that the test starts."""
    _end_workers(scheduler)
    yield scheduler
    _end_workers(scheduler)


@pytest.fixture
def dask_with_two(scheduler):
    """With two plain workers, which the next test may have too: a start takes seconds."""
    while len(scheduler.processes) < 3:
        scheduler.worker()
    return scheduler


@pytest.fixture
def saved(monkeypatch):
    """Every block that was stored, in order."""
    blocks, save = [], Store.save

    def note(self, run, *more):
        blocks.append((run.spec.digest(), run.seeds))
        save(self, run, *more)

    monkeypatch.setattr(Store, "save", note)
    return blocks


@pytest.fixture
def hasty(monkeypatch):
    """A client that looks around ten times a second."""
    monkeypatch.setattr("mnemoscope.execution.cluster.POLL_SECONDS", 0.1)


def once(store, saved, spec, seeds):
    """Each of these seeds was stored once, in a store without damage,
    and trained as it would have been here.
    """
    assert sorted(
        seed for digest, block in saved if digest == spec.digest() for seed in block
    ) == list(seeds)
    assert store.check() == []
    here = fit(spec, list(seeds))
    for row in store.rows(spec.digest()):
        run, at = (
            store.load(row),
            [list(seeds).index(seed) for seed in range(row.first, row.last + 1)],
        )
        for name, value in arrays_of(run).items():
            wanted = arrays_of(here)[name]
            np.testing.assert_array_equal(
                value, wanted if name == "loss_steps" else wanted[at], err_msg=name
            )


@pytest.mark.parametrize(
    ("study", "claims", "conditions"),
    [("echo", "E1", 1), pytest.param("walk", "W2,W3", 4, marks=pytest.mark.long)],
)
def test_the_ledger_equals_the_one_made_without_a_cluster(
    dask_with_two, tmp_path, study, claims, conditions
):
    """Of a study of somebody's own, and of one of ours."""
    name = str(write_study(tmp_path / "echo")) if study == "echo" else study
    command = ("run", name, "--seeds", "8", "--claims", claims)
    both = [
        start(command, tmp_path / "here"),
        start((*command, "--cluster", dask_with_two.address), tmp_path / "cluster"),
    ]
    for process in both:
        error = process.communicate(timeout=600)[1].decode()
        assert process.returncode == 0, error
        assert error == ""
    assert ledgers(tmp_path / "cluster") == ledgers(tmp_path / "here")
    found = ledgers(tmp_path / "here")[f"ledger/quick/{study}.json"]["claims"]
    assert [each["id"] for each in found] == claims.split(",")
    # it was the workers that trained: the client stores one block for each condition
    assert len(Store(tmp_path / "here").rows()) == conditions
    assert len(Store(tmp_path / "cluster").rows()) > conditions


def test_token_ids_are_read_by_workers_from_their_file(dask_with_two, store, saved, tmp_path):
    dask = dask_with_two
    ids = np.arange(50) % 4
    in_memory = SHORT.model_copy(update={"task": TokenArray(ids, length=4)})
    with pytest.raises(UserError, match=r"is no file that another process could read; save it"):
        Cluster(dask.address).train(store, {"ids": (in_memory, range(2))})
    np.save(tmp_path / "ids.npy", ids)
    spec = SHORT.model_copy(update={"task": TokenArray(tmp_path / "ids.npy", length=4)})
    Cluster(dask.address).train(store, {"ids": (spec, range(2))})
    once(store, saved, spec, range(2))
    (tmp_path / "ids.npy").unlink()
    with pytest.raises(UserError, match=r"failed 3 times.*cannot read the token ids .*no such"):
        Cluster(dask.address, say=str).train(store, {"ids": (spec, range(3))})


TASK_FROM_OUTSIDE = """
from typing import Literal

import jax
import jax.numpy as jnp

import mnemoscope as ms
from .turning import BY


class Turned(ms.Cycle):
    kind: Literal["turned-on-a-cluster"] = "turned-on-a-cluster"

    def sample(self, world, *, key):
        example = super().sample(world, key=key)
        return example._replace(targets=jnp.roll(example.targets, BY))
"""


def test_a_task_of_somebodys_own_is_trained_by_workers_that_know_it(dask_with_two, store, tmp_path):
    dask = dask_with_two
    (tmp_path / "turned.py").write_text(TASK_FROM_OUTSIDE)
    (tmp_path / "turning.py").write_text("BY = 1\n")
    module = load_path(str(tmp_path / "turned.py")).module
    spec = SHORT.model_copy(update={"task": module.Turned()})
    (sent,) = [each for each in pack_plugins() if each.asked.startswith(str(tmp_path))]
    wanted = {"turned": (spec, range(2))}
    with pytest.raises(UserError, match="can be used: Spec: unknown kind of task 'turned-on"):
        Cluster(dask.address, say=lambda _: None).train(store, wanted)
    # what another machine may have under the same names
    texts = tuple(text.replace("BY = 1", "BY = 2") for text in sent.texts)
    other = sent._replace(texts=texts, sha256=_hash(texts))
    with pytest.raises(UserError, match=r"'turned-on-a-cluster' was of code \w{16} and is of \w"):
        Cluster(dask.address, say=lambda _: None, sent=(other,)).train(store, wanted)
    damaged = sent._replace(texts=texts)
    with pytest.raises(UserError, match="the texts that came are not those that were sent"):
        Cluster(dask.address, say=lambda _: None, sent=(damaged,)).train(store, wanted)
    assert store.rows() == []
    Cluster(dask.address, say=lambda _: None, sent=(sent,)).train(store, wanted)
    here = fit(spec, range(2))
    stored = [store.load(row) for row in store.rows()]
    losses = np.concatenate([run.losses for run in stored])
    np.testing.assert_array_equal(losses, here.losses)


def test_a_worker_is_killed_and_a_late_one_finishes(dask, store, saved, hasty):
    said, first = [], dask.worker(HASTY)

    def tell(tally):
        in_the_middle = tally.busy and tally.samples % (2 * LONG.steps * LONG.batch)
        if tally.stored and in_the_middle and len(dask.processes) == 2:
            first.kill()
            dask.worker()

    Cluster(dask.address, on_progress=tell, say=said.append).train(
        store, {"long": (LONG, range(8))}
    )
    assert len(said) == 1
    assert "died" in said[0]
    assert "long (Spec" in said[0]
    assert len(saved) == 4
    once(store, saved, LONG, range(8))


def test_a_worker_that_hangs_does_not_stop_the_run(dask, store, saved, hasty):
    said, stopped, workers = [], [], [dask.worker(HASTY), dask.worker(HASTY)]

    def tell(tally):
        if tally.busy == 2 and tally.samples and not stopped:
            stopped.append(workers[0])
            workers[0].send_signal(signal.SIGSTOP)

    # the same program, compiled ahead: on a busy machine that alone
    # may be silent for longer than the timeout
    Cluster(dask.address).train(store, {"warm": (LONG.model_copy(update={"steps": 64}), range(8))})
    Cluster(dask.address, block_timeout=4.0, on_progress=tell, say=said.append).train(
        store, {"long": (LONG, range(8))}
    )
    assert len(stopped) == 1
    assert any("no step in 4 s" in line for line in said)
    once(store, saved, LONG, range(8))


def test_what_returns_twice_is_stored_once_and_stored_seeds_are_left_alone(store, saved):
    store.save(fit(SHORT, [2]), 1.0, "another process")
    session = _Session(Cluster("tcp://127.0.0.1:9"), store, [])
    for _ in range(2):
        session._store_block(
            Block(0, "short", SHORT, [0, 1, 2, 3]),
            fit(SHORT, range(4)),
            {"seconds": 4.0, "machine": "m"},
        )
    assert [seeds for _, seeds in saved] == [(2,), (0, 1), (3,)]
    once(store, saved, SHORT, range(4))


def test_a_block_that_failed_does_not_wait_for_a_worker_that_hangs(store):
    session = _Session(Cluster("tcp://127.0.0.1:9"), store, [])
    failed, hung = (Block(i, "short", SHORT, [i]) for i in range(2))
    failed.tried, session.fit_workers, session.queue = {"b"}, {"a", "b"}, [failed]
    session.attempts["a"] = Attempt(hung, time.monotonic())
    assert session._next("b") is None, "the other worker, which is at work, gets it first"
    session.attempts["a"].failed = True
    assert session._next("b") is failed


@pytest.mark.parametrize(
    "how",
    [
        "raise RuntimeError('on purpose')",
        pytest.param("os.kill(os.getpid(), 9)", marks=pytest.mark.long),
    ],
)
def test_a_block_that_always_fails_is_tried_three_times_and_reported(
    dask, store, saved, tmp_path, how, hasty
):
    diary, said = tmp_path / "diary", []
    dask.worker(BREAK.format(diary=str(diary), how=how), nanny="kill" in how)
    other = SHORT.model_copy(update={"steps": 21})
    wanted = {"short": (SHORT, range(9)), "other": (other, range(3))}
    with pytest.raises(UserError, match="1 of 4 blocks failed 3 times") as error:
        Cluster(dask.address, say=said.append).train(store, wanted)
    assert f"short (Spec {SHORT.digest()}), seeds 3-5: " in str(error.value)
    assert ("on purpose" if "raise" in how else "died") in str(error.value)
    assert "\n" not in str(error.value)
    assert diary.read_text() == "[3, 4, 5]\n" * 3
    assert len(said) == 3
    once(store, saved, SHORT, [0, 1, 2, 6, 7, 8])
    once(store, saved, other, range(3))


def test_a_worker_with_other_versions_is_given_no_work(dask, store):
    said = []
    dask.worker(
        "import mnemoscope.execution.cluster_worker as worker; "
        "worker.must_agree = lambda: {'jax': '0.0.1'}"
    )
    with pytest.raises(
        UserError, match=r"no worker of .* can be used: .*it has jax 0.0.1, we have \d"
    ):
        Cluster(dask.address, say=said.append).train(store, {"short": (SHORT, range(4))})
    assert len(said) == 1
    assert store.rows() == []


def test_what_is_stored_needs_no_cluster(store, saved):
    """Nobody listens at that address: it is never asked, and nothing is stored again."""
    store.save(fit(SHORT, range(3)), 1.0, "here")
    kept = [(row.first, row.last) for row in store.rows()]
    assert kept == [(0, 2)]
    said = []
    nowhere = Cluster("tcp://127.0.0.1:9", say=said.append)
    nowhere.train(store, {"short": (SHORT, range(3))})
    assert [(row.first, row.last) for row in store.rows()] == kept
    assert saved == [(SHORT.digest(), (0, 1, 2))]
    assert said == []


def test_a_scheduler_that_does_not_answer_is_one_line(store, monkeypatch):
    assert cluster.CONNECT_SECONDS == 10
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(
        UserError, match=r"^no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"
    ) as error:
        Cluster("tcp://127.0.0.1:9").train(store, {"short": (SHORT, range(4))})
    assert "\n" not in str(error.value)


def test_without_dask_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(UserError, match=r"pip install 'mnemoscope\[cluster\]'"):
        Cluster("tcp://127.0.0.1:9")


def test_an_answer_is_checked():
    import hashlib

    from safetensors.numpy import save

    def answer(run, **changed):
        data = save(arrays_of(run))
        whole = {
            "spec": run.spec.digest(),
            "seeds": list(run.seeds),
            "data": data,
            "sha256": hashlib.sha256(data).hexdigest(),
            "trained_by": trained_by().canonical_json(),
        }
        return whole | changed

    other = trained_by().model_copy(update={"source": "another"}).canonical_json()

    run = fit(SHORT, range(2))
    assert check_answer(SHORT, [0, 1], answer(run)).seeds == (0, 1)
    wider = SHORT.model_copy(update={"model": SHORT.model.model_copy(update={"d_model": 6})})
    for message, wrong in (
        ("not those that were sent", answer(run, data=answer(run)["data"][:-1])),
        ("an answer for Spec", answer(run, seeds=[0, 2])),
        ("an answer for Spec", answer(run, spec="0")),
        ("no run", answer(run, data=b"", sha256=hashlib.sha256(b"").hexdigest())),
        ("not those of its Spec and seeds", answer(fit(wider, range(2)), spec=SHORT.digest())),
        ("not those of its Spec and seeds", answer(fit(SHORT, range(3)), seeds=[0, 1])),
        ("an answer by another program", answer(run, trained_by=other)),
    ):
        with pytest.raises(ValueError, match=message):
            check_answer(SHORT, [0, 1], wrong)


def test_blocks_keep_every_worker_busy():
    assert contiguous_blocks([0, 1, 2, 3, 7, 8], 3) == [[0, 1, 2], [3], [7, 8]]
    assert block_size(1_000_000, 50, 1, True) == 1024
    assert block_size(1_000_000, 50, 8, False) == 256
    assert block_size(64, 4, 1, False) == 4
    assert block_size(64, 4, 8, False) == 8  # fewer would leave cores idle
    assert block_size(300, 4, 1, True) == 256
