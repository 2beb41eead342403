"""Noise: the reader against brute force, truncation against NumPy, one gradient step against autodiff, and every judge."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.config import UserError
from mnemoscope.model import ModelConfig, Transformer, init
from mnemoscope.probes.distraction import distraction
from mnemoscope.probes.truncation import keep_rank, truncated
from mnemoscope.probes.watch import watch_of
from mnemoscope.spec import Spec
from mnemoscope.studies.claims import SCALES, Setting
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.noise import STUDY, judges
from mnemoscope.tasks import Bigrams, Corpus
from mnemoscope.theory.noise import LENGTH, TRIGGERS, draw, margins_after, population_margins
from mnemoscope.train import Run, fit

ABC = Corpus(name="abc", characters="abc", counts=((0, 1, 3), (0, 2, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 2, 2)))
TASK = Bigrams(corpus=ABC, n_triggers=1, length=5, noise=0.25, noise_token=2)


def test_noise_follows_triggers_as_often_as_it_should():
    task = Bigrams(n_triggers=1, length=64, noise=0.3)
    tokens, triggers, outputs = jax.vmap(lambda key: task.draw(key=key))(jax.random.split(jax.random.key(0), 400))
    tokens, q, o = np.asarray(tokens), np.asarray(triggers)[:, :1], np.asarray(outputs)[:, :1]
    after = tokens[:, 1:][tokens[:, :-1] == q]
    right = np.broadcast_to(o, tokens[:, 1:].shape)[tokens[:, :-1] == q]
    assert ((after == right) | (after == 2)).all(), "a trigger is followed by its output or by noise"
    share = (after == 2)[right != 2].mean()
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / (right != 2).sum()))
    clean = task.model_copy(update={"noise": 0.0}).draw(key=jax.random.key(3))[0]
    old = Bigrams(n_triggers=1, length=64).draw(key=jax.random.key(3))[0]
    np.testing.assert_array_equal(clean, old)


def test_the_reader_knows_noise_as_counting_does():
    """Every output is weighed by how likely it makes the prefix; the next token is summed over them."""
    (trigger,), bigrams = TASK.fixed_triggers, ABC.bigrams

    def step(z, following, output):
        if z != trigger:
            return bigrams[z, following]
        return 0.25 * (following == 2) + 0.75 * (following == output)

    seen = 0
    for row in itertools.product(range(3), repeat=5):
        weights = [np.prod([step(a, b, o) for a, b in itertools.pairwise(row)]) / 3 for o in range(3)]
        if sum(weights) == 0:
            continue
        seen += 1
        expected = [sum(w * step(row[-1], v, o) for o, w in enumerate(weights)) / sum(weights) for v in range(3)]
        np.testing.assert_allclose(TASK.posterior(np.array(row))[-1], expected, atol=1e-12)
    assert seen > 20


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"noise": 0.5, "triggers": "random"}, "noise goes with triggers='fixed'"),
        ({"noise": 1.0}, "noise: Input should be less than 1"),
        ({"noise": 0.5, "noise_token": 99}, "noise_token=99 is no character; allowed: 0 to 64"),
    ],
)
def test_noise_that_cannot_be_is_one_line(fields, message):
    with pytest.raises(UserError) as error:
        Bigrams(**fields)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


def test_an_old_task_keeps_its_identity():
    assert "noise" not in Bigrams().canonical_json()
    assert Bigrams(noise=0.5).digest() != Bigrams().digest()


def test_truncation_is_what_numpy_says_and_full_rank_changes_nothing():
    matrix = np.random.default_rng(0).normal(size=(2, 5, 7)).astype(np.float32)
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    for rank in range(6):
        expected = np.stack([u[i][:, :rank] * s[i][:rank] @ v[i][:rank] for i in range(2)])
        np.testing.assert_allclose(keep_rank(jnp.array(matrix), rank), expected, atol=1e-5)
        assert (np.linalg.matrix_rank(np.asarray(keep_rank(jnp.array(matrix), rank)), tol=1e-4) == rank).all()
    np.testing.assert_allclose(keep_rank(jnp.array(matrix), 5), matrix, atol=1e-5)
    with pytest.raises(UserError, match="a 5 x 7 matrix can keep 0 to 5 singular values, got 6"):
        keep_rank(jnp.array(matrix), 6)


def test_truncating_a_model_touches_what_is_named():
    config = ModelConfig(d_model=6, n_heads=2, d_mlp=9)
    model = Transformer(config, init(config, 5, 4, key=jax.random.key(0)))
    cut = truncated(model, "*.mlp.W_*", 0)
    for name, value in model.params.items():
        same = np.array_equal(value, cut.params[name])
        assert same == (".mlp.W_" not in name), name
    assert not np.asarray(cut.params["blocks.0.mlp.W_in"]).any()
    tokens = jnp.array([1, 2, 3])
    np.testing.assert_allclose(truncated(model, "*.mlp.W_*", 6)(tokens), model(tokens), atol=1e-5)
    with pytest.raises(UserError, match=r"unknown matrix '\*\.mlp\.W_X'"):
        truncated(model, "*.mlp.W_X", 1)


def test_margins_are_read_from_the_parts_that_make_them():
    """A feed-forward layer that always says noise, and attention that says nothing."""
    config = ModelConfig(d_model=3, n_heads=1, n_layers=2, d_mlp=3, mlp_layers=(1,), unembed_bias=False)
    params = {name: jnp.zeros_like(value) for name, value in init(config, 3, 5, key=jax.random.key(0)).items()}
    params["unembed.W_U"] = jnp.eye(3)
    params["blocks.1.mlp.b_out"] = jnp.array([0.0, 0.0, 5.0])
    found = distraction(TASK, Transformer(config, params), 64)
    e = np.exp(5.0)
    assert float(found["margin of feed-forward"]) == pytest.approx(5)
    assert float(found["margin of attention"]) == pytest.approx(0)
    assert float(found["P(noise)"]) == pytest.approx(e / (e + 2), rel=1e-5)
    assert float(found["P(right)"]) == pytest.approx(1 / (e + 2), rel=1e-5)
    assert float(found["right"]) == 0
    assert 0 < float(found["to right"]) < 1, "even attention finds some of what followed"
    assert 0 < float(found["to noise"]) < 1


def test_one_step_writes_what_the_gradient_says():
    """V and F of the one-layer model, differentiated: the same margins."""
    n, rng = 6, np.random.default_rng(0)
    counts, y = draw(n, 40, rng)

    def loss(v, f):
        logits = jnp.array(counts) @ v.T + f[None]  # one column of F: every sequence ends with the trigger
        return -jnp.take_along_axis(jax.nn.log_softmax(logits, axis=1), jnp.array(y)[:, None], axis=1).mean()

    g_v, g_f = jax.grad(loss, argnums=(0, 1))(jnp.zeros((n + 1, n)), jnp.zeros(n + 1))
    v, f = -np.asarray(g_v), -np.asarray(g_f)
    fed, valued = margins_after(n, counts, y, np.array([10, 40]))
    assert fed[1] == pytest.approx(f[n] - f[:n].max(), abs=1e-6)
    for k in range(n):
        assert valued[1, k] == pytest.approx(v[k, k] - np.delete(v[:n, k], k).max(), abs=1e-6)
    again = margins_after(n, counts[:10], y[:10], np.array([10]))
    np.testing.assert_allclose(again[0][0], fed[0])
    np.testing.assert_allclose(again[1][0], valued[0])


def test_margins_come_to_their_population_values():
    n = 4
    counts, y = draw(n, 200_000, np.random.default_rng(1))
    fed, valued = margins_after(n, counts, y, np.array([200_000]))
    expected = population_margins(n)
    assert expected == (1 / 2 - 1 / (2 * n), TRIGGERS / LENGTH / (4 * n))
    assert fed[0] == pytest.approx(expected[0], abs=0.01)
    np.testing.assert_allclose(valued[0], expected[1], rtol=0.1)


def test_enough_samples_are_those_from_which_on_it_stays():
    sizes = np.array([1, 2, 4, 8])
    assert judges.first_enough(sizes, np.array([[0, 1, 1, 1.0]] * 10)) == 2
    assert judges.first_enough(sizes, np.array([[1, 0, 1, 1.0]] * 10)) == 4
    assert judges.first_enough(sizes, np.ones((10, 4))) == 1
    assert judges.first_enough(sizes, np.zeros((10, 4))) == np.inf


SEEDS = 10


def planted(fed, attended):
    spec = STUDY.settings("quick")["noisy"].spec.model_copy(update={"steps": 100, "looks": len(fed) - 1})
    seen = {"margin of feed-forward": fed, "margin of attention": attended}
    seen |= dict.fromkeys(("to right", "to noise", "P(right)", "P(noise)"), fed)
    observed = {name: np.tile(np.array(value, float), (SEEDS, 1)) for name, value in seen.items()}
    return Run(spec, tuple(range(SEEDS)), {}, np.array([100]), np.zeros((SEEDS, 1)), np.full(SEEDS, 100), observed)


@pytest.mark.parametrize(
    ("fed", "attended", "verdict"),
    [([0, 5, 5, 5, 5], [0, 0, 0, 5, 5], "reproduced"), ([0, 0, 0, 5, 5], [0, 5, 5, 5, 5], "refuted"),
     ([0, 5, 5, 5, 0], [0, 0, 0, 5, 5], "refuted"), ([0, 5, 5, 5, 5], [0, 0, 0, 0.5, 0.5], "refuted")],
)  # fmt: skip
def test_early_and_late(fed, attended, verdict):
    run = planted(fed, attended)
    evidence = Evidence("quick", {"noisy": Setting(run.spec, SEEDS)}, {"noisy": run}.__getitem__)
    assert judges.early_and_late(evidence).verdict == verdict


def test_every_judge_runs_small(monkeypatch):
    monkeypatch.setitem(judges.SIZES, "full", ((8, 16), 6, 512))
    for scale in SCALES[1:]:  # both scales have the same shape once they are small
        spec = STUDY.settings(scale)["noisy"].spec
        small = {
            "steps": 4, "batch": 4, "looks": 2, "snapshots": 2, "task": spec.task.model_copy(update={"length": 12}),
            "model": spec.model.model_copy(update={"d_model": 8, "d_mlp": 16}),
        }  # fmt: skip
        settings = {"noisy": Setting(Spec.model_validate(spec.model_copy(update=small)), 8)}
        evidence = Evidence(
            scale, settings, lambda name, s=settings: fit(s[name].spec, range(8), watch_of(s[name].spec))
        )
        for test in STUDY.tests:
            assert evidence.finding(test.settings(settings), test.judge).verdict in ("reproduced", "partly", "refuted")
