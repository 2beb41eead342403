"""Following a run: what a sink is told is what the run says,
and the sinks write what they are told.
"""

import struct
import sys
from types import ModuleType

import numpy as np
import pytest

from mnemoscope.core.errors import Notice, UserError
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.store import Store
from mnemoscope.tasks import Hops, Permutation
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.sinks import sink_of
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Hops(n=3, k=2),
    model=ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, causal=False),
    steps=20,
    batch=4,
    metrics="hops",
    n_evals=2,
)


class Recorder:
    def __init__(self):
        self.said = []

    def init(self, name, config):
        self.said.append(("init", name, config["steps"]))

    def log(self, step, numbers):
        self.said.append((step, dict(numbers)))

    def finish(self):
        self.said.append(("finish",))


def test_a_sink_is_told_what_the_run_says(tmp_path):
    sink = Recorder()
    run = load_or_train(Store(tmp_path), SPEC, range(3), sink=sink, name="hops/x")
    assert sink.said[0] == ("init", "hops/x/0-2", 20)
    assert sink.said[-1] == ("finish",)
    logs = sink.said[1:-1]
    assert [step for step, _ in logs] == run.loss_steps.tolist()
    np.testing.assert_allclose(
        [numbers["loss/mean"] for _, numbers in logs], run.losses.mean(axis=0), rtol=1e-6
    )
    np.testing.assert_allclose(
        [numbers["loss/highest"] for _, numbers in logs], run.losses.max(axis=0), rtol=1e-6
    )
    looked = [numbers for step, numbers in logs if step in SPEC.eval_steps()]
    assert looked
    plain = [name for name, x in run.metrics.items() if x.ndim == 2]
    assert plain
    for name in plain:  # the first look is before the first step, and no stop
        np.testing.assert_allclose(
            [n[f"metrics/{name}"] for n in looked],
            run.metrics[name][:, 1:].mean(axis=0),
            rtol=1e-6,
        )
    assert all(numbers["seeds/diverged"] == 0 for _, numbers in logs)
    load_or_train(Store(tmp_path), SPEC, range(3), sink=sink)
    assert sink.said[-1] == ("finish",)
    assert len(sink.said) == len(logs) + 2, "what is stored is not followed again"


def test_a_sink_is_told_of_seeds_that_diverge_and_of_the_end(tmp_path):
    wild = Spec(
        task=Permutation(n_symbols=3),
        model=ModelConfig(d_model=8, n_heads=1, d_mlp=0),
        steps=20,
        batch=4,
        optimizer=SGD(lr=1e30),
    )
    sink = Recorder()
    with pytest.warns(Notice, match=r"diverged and left out of what is judged: seed 0 \(after"):
        run = load_or_train(Store(tmp_path), wild, range(2), sink=sink)
    assert sink.said[-2][1]["seeds/diverged"] == (~run.finished).sum() == 2

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_or_train(Store(tmp_path), wild, [5], progress=stop, sink=sink)
    assert sink.said[-1] == ("finish",)


def events(path):
    """What a TensorBoard file holds: records of a length, its checksum,
    the data and its checksum.
    """
    from tensorboardX.proto.event_pb2 import Event

    data, at = path.read_bytes(), 0
    while at < len(data):
        (size,) = struct.unpack("<Q", data[at : at + 8])
        yield Event.FromString(data[at + 12 : at + 12 + size])
        at += 16 + size


def test_tensorboard_gets_numbers(tmp_path):
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    sink = sink_of("tensorboard", tmp_path / "follow")
    sink.init("remember/d=16/0-7", {"steps": 3})
    sink.log(2, {"loss/mean": 0.5})
    sink.finish()
    (path,) = (tmp_path / "follow").rglob("events*")
    assert path.parent.name == "remember_d=16_0-7"
    values = [
        (e.step, v.tag, v.simple_value)
        for e in events(path)
        for v in e.summary.value
        if v.tag.startswith("loss")
    ]
    assert values == [(2, "loss/mean", 0.5)]


def test_wandb_is_offline_unless_asked(tmp_path, monkeypatch):
    said = []

    class Run:
        def log(self, numbers, step):
            said.append((step, numbers))

        def finish(self):
            said.append("finish")

    def init(**rest):
        said.append(rest)
        return Run()

    fake = ModuleType("wandb")
    fake.init = init  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    sink = sink_of("wandb", tmp_path / "follow")
    sink.init("a", {"steps": 3})
    sink.log(1, {"loss/mean": 0.5})
    sink.finish()
    assert (said[0]["mode"], said[0]["config"], said[0]["name"]) == ("offline", {"steps": 3}, "a")
    assert said[1:] == [(1, {"loss/mean": 0.5}), "finish"]


@pytest.mark.parametrize(("kind", "module"), [("tensorboard", "tensorboardX"), ("wandb", "wandb")])
def test_a_sink_that_is_not_installed_says_what_to_install(kind, module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=rf"pip install 'mnemoscope\[{kind}\]'"):
        sink_of(kind, tmp_path)


def test_an_unknown_sink_is_refused(tmp_path):
    with pytest.raises(UserError, match="'mlflow'; allowed: tensorboard, wandb"):
        sink_of("mlflow", tmp_path)
