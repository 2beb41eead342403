"""Ours and its peers train the same: from the same parameters on the same batches, at small sizes,
losses agree step by step. PyTorch is compared where it is installed.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope import Adam, ModelConfig, Permutation, Spec
from mnemoscope.tasks import Bigrams, Example
from mnemoscope.theory.induction import simplified_model
from mnemoscope.training import compilation, profile, step
from mnemoscope.training.optimizers import SGD

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MODULES = ("peers", "peer_cases", "peer_ours", "peer_jax", "peer_torch")
STEPS = 4
TEXT = Bigrams(length=12, n_triggers=0, loss="all")
TWO_LAYERS = {"d_model": 16, "n_heads": 4, "n_layers": 2, "d_mlp": 32, "norm": "pre"}


def spec_of(task, model, **rest):
    return Spec(task=task, model=model, batch=4, steps=100, snapshots=1, **rest)


# small forms of the cases
SMALL = {
    "remember": spec_of(Permutation(repeat=0.3), ModelConfig(d_model=8, n_heads=2, d_mlp=16)),
    "remember-norm": spec_of(
        Permutation(repeat=0.3), ModelConfig(d_model=8, n_heads=2, d_mlp=16, norm="post")
    ),
    "t64": spec_of(TEXT, ModelConfig(**TWO_LAYERS), optimizer=Adam(lr=0.01)),
    "gelu": spec_of(TEXT, ModelConfig(**TWO_LAYERS, act="gelu")),
    "rotary": spec_of(TEXT, ModelConfig(**TWO_LAYERS, positions="rotary")),
    "rms": spec_of(TEXT, ModelConfig(**TWO_LAYERS, norm_type="rms")),
    "birth": spec_of(
        Bigrams(length=48),
        simplified_model(16),
        optimizer=SGD(lr=0.03, momentum=0.9, weight_decay=1e-4),
    ),
}


@pytest.fixture
def modules(monkeypatch):
    """The files of the benchmark by name, none of which stays."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def load(name):
        return importlib.import_module(name)

    with jax.numpy_rank_promotion("allow"):  # a user's own program
        yield load
    for name in MODULES:
        sys.modules.pop(name, None)


def one_batch(stock, spec):
    """As many sequences as a batch, of which the first stands everywhere: whatever is drawn of
    them, it is the same batch.
    """
    some = (stock.weights > 0).any(axis=1).argmax()
    return type(stock)(*(np.repeat(x[some : some + 1], spec.batch, axis=0) for x in stock))


@pytest.mark.parametrize("name", SMALL)
def test_ours_and_its_peers_have_the_same_losses(name, modules, monkeypatch):
    spec = SMALL[name]
    seeds = 2
    cases = modules("peer_cases")
    assert name in cases.CASES
    stock = one_batch(cases.stock(spec, 32), spec)
    params = cases.initial(spec, seeds)
    read = np.array(spec.task.loss_positions)
    shape = (spec.batch, spec.task.n_ctx)
    targets = np.zeros(shape, int)
    targets[:, read] = stock.targets
    weights = np.zeros(shape, np.float32)
    weights[:, read] = stock.weights
    batch = Example(*map(jnp.asarray, (stock.tokens.astype(int), targets, weights)))
    monkeypatch.setattr(step, "draw", lambda *_: batch)
    monkeypatch.setattr(compilation, "_programs", {})
    ours = modules("peer_ours").prepare(spec, seeds)
    expected = [ours(1) for _ in range(STEPS)]
    assert expected[-1] < expected[0]
    theirs = {"jax": modules("peer_jax").prepare(spec, stock, params, "default")}
    if importlib.util.find_spec("torch"):
        peer_torch = modules("peer_torch")
        theirs["torch"] = peer_torch.prepare(spec, stock, params, "default", compiled=False)
    for who, advance in theirs.items():
        found = [advance(1) for _ in range(STEPS)]
        np.testing.assert_allclose(found, expected, rtol=2e-4, err_msg=who)


def test_jax_in_bfloat16_is_near(modules):
    spec = SMALL["t64"]
    cases = modules("peer_cases")
    stock = one_batch(cases.stock(spec, 32), spec)
    params = cases.initial(spec, 1)
    prepare = modules("peer_jax").prepare
    exact, low = (prepare(spec, stock, params, form)(1) for form in ("default", "bfloat16"))
    assert 0 < abs(low - exact) < 0.02 * exact


def test_stretches_of_any_length_are_one_training(modules):
    """Three steps at once are three steps; the batches are new ones each time."""
    spec = SMALL["t64"]
    cases = modules("peer_cases")
    stock = cases.stock(spec, 64)
    prepare = modules("peer_jax").prepare
    params = cases.initial(spec, 1)
    one, other = (prepare(spec, stock, params, "default") for _ in range(2))
    steps = [one(1) for _ in range(3)]
    assert other(3) == pytest.approx(np.mean(steps), rel=1e-5)
    assert len(set(steps)) == 3
    ours = modules("peer_ours").prepare(spec, 1)
    assert ours(2) != ours(2)


def test_a_row_has_the_fastest_form_and_the_spread_of_neighbors(modules, tmp_path):
    peers = modules("peers")
    rates = {
        "ours": [20.0, 10.0, 30.0],
        "jax": [10.0, 10.0, 10.0],
        "jax bfloat16": [5.0, 20.0, 20.0],
        "torch": [4.0, 5.0, 6.0],
    }
    row = peers.summary("t64", 8, "bfloat16", rates, dict.fromkeys(rates, 3.0))
    assert (row["ours"], row["jax"], row["torch"]) == (20.0, 20.0, 5.0)
    assert row["forms"]["jax"] == "jax bfloat16"
    assert row["ratio"] == {"jax": [0.5, 1.5, 4.0], "torch": [2.0, 5.0, 5.0]}
    file = tmp_path / "found.json"
    file.write_text(json.dumps({"loop": 1}))
    peers.keep(file, [row])
    peers.keep(file, [row | {"ours": 21.0}, row | {"seeds": 1}])
    held = json.loads(file.read_text())
    assert held["loop"] == 1
    assert [(r["seeds"], r["ours"]) for r in held["peers"]] == [(8, 21.0), (1, 20.0)]


def test_every_case_is_a_spec_that_profile_knows(modules):
    for case in modules("peer_cases").CASES.values():
        assert profile.choose_rewrite(case.spec.model, case.spec.task) is not None
        assert case.many_on_gpu >= case.many_on_cpu >= 1
