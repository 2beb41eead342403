"""Noise: the exact posterior against brute force, truncation against NumPy,
one gradient step against autodiff, and samples against a second program.
"""

import itertools

import jax
import jax.numpy as jnp
import noise_plain
import numpy as np
import pytest
from compiled import init

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.probes.distraction import distraction
from mnemoscope.probes.truncation import keep_rank, truncated
from mnemoscope.studies.library.noise import samples
from mnemoscope.tasks import Bigrams, Corpus
from mnemoscope.theory.noise import LENGTH, TRIGGERS, draw, margins_after, population_margins

ABC = Corpus(
    name="abc",
    characters="abc",
    counts=((0, 1, 3), (0, 2, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 2, 2)),
)
TASK = Bigrams(corpus=ABC, n_triggers=1, length=5, noise=0.25, noise_token=2)


def test_noise_follows_triggers_as_often_as_it_should():
    task = Bigrams(n_triggers=1, length=64, noise=0.3)
    keys = jax.random.split(jax.random.key(0), 400)
    tokens, triggers, outputs = jax.jit(jax.vmap(lambda key: task.draw(key=key)))(keys)
    tokens, q, o = np.asarray(tokens), np.asarray(triggers)[:, :1], np.asarray(outputs)[:, :1]
    after = tokens[:, 1:][tokens[:, :-1] == q]
    right = np.broadcast_to(o, tokens[:, 1:].shape)[tokens[:, :-1] == q]
    assert ((after == right) | (after == 2)).all(), (
        "a trigger is followed by its output or by noise"
    )
    share = (after == 2)[right != 2].mean()
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.3 * 0.7 / (right != 2).sum()))
    clean, old = task.model_copy(update={"noise": 0.0}), Bigrams(n_triggers=1, length=64)
    one, two = (
        jax.jit(lambda task=task: task.draw(key=jax.random.key(3))[0])() for task in (clean, old)
    )
    np.testing.assert_array_equal(one, two)


def test_the_posterior_knows_noise_as_counting_does():
    """Every output is weighed by how likely it makes the prefix;
    the next token is summed over them.
    """
    (trigger,), bigrams = TASK.fixed_triggers, ABC.bigrams

    def step(z, following, output):
        if z != trigger:
            return bigrams[z, following]
        return 0.25 * (following == 2) + 0.75 * (following == output)

    seen = 0
    for row in itertools.product(range(3), repeat=5):
        weights = [
            np.prod([step(a, b, o) for a, b in itertools.pairwise(row)]) / 3 for o in range(3)
        ]
        if sum(weights) == 0:
            continue
        seen += 1
        expected = [
            sum(w * step(row[-1], v, o) for o, w in enumerate(weights)) / sum(weights)
            for v in range(3)
        ]
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
        assert (
            np.linalg.matrix_rank(np.asarray(keep_rank(jnp.array(matrix), rank)), tol=1e-4) == rank
        ).all()
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
    config = ModelConfig(
        d_model=3, n_heads=1, n_layers=2, d_mlp=3, mlp_layers=(1,), unembed_bias=False
    )
    params = {
        name: jnp.zeros_like(value)
        for name, value in init(config, 3, 5, key=jax.random.key(0)).items()
    }
    params["unembed.W_U"] = jnp.eye(3)
    params["blocks.1.mlp.b_out"] = jnp.array([0.0, 0.0, 5.0])
    found = jax.jit(lambda model: distraction(TASK, model, 64))(Transformer(config, params))
    e = np.exp(5.0)
    assert float(found["margin of feed-forward"]) == pytest.approx(5)
    assert float(found["margin of attention"]) == pytest.approx(0)
    assert float(found["P(noise)"]) == pytest.approx(e / (e + 2), rel=1e-5)
    assert float(found["P(right)"]) == pytest.approx(1 / (e + 2), rel=1e-5)
    assert float(found["accuracy"]) == 0
    assert 0 < float(found["to right"]) < 1, "even attention finds some of what followed"
    assert 0 < float(found["to noise"]) < 1


def test_one_step_writes_what_the_gradient_says():
    """V and F of the one-layer model, differentiated: the same margins."""
    n, rng = 6, np.random.default_rng(0)
    counts, y = draw(n, 40, rng)

    def loss(v, f):
        # one column of F: every sequence ends with the trigger
        logits = jnp.array(counts) @ v.T + f[None]
        return -jnp.take_along_axis(
            jax.nn.log_softmax(logits, axis=1), jnp.array(y)[:, None], axis=1
        ).mean()

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
    for there, first in (("0111", 2), ("1011", 4), ("1111", 1), ("0000", np.inf), ("1110", np.inf)):
        assert samples.first_enough(sizes, np.array(list(there)) == "1") == first


def test_the_ladder_grows_by_a_quarter():
    sizes = samples.ladder(512)
    assert sizes[0] == 1
    assert sizes[-1] <= 512 < sizes[-1] * samples.STEP * 1.01
    assert (np.diff(sizes) > 0).all()


def test_slopes_are_those_of_each_draw_and_of_its_range():
    sizes = np.array(samples.VOCABULARIES, float)
    needed = np.array([sizes**1.5, 7 * sizes, np.full(7, 3.0)])
    needed[1, -1] = np.inf
    wide = samples.slopes(needed, (64, 1024))
    narrow = samples.slopes(needed, (16, 256))
    np.testing.assert_allclose(wide, [1.5, np.inf, 0], atol=1e-9)
    np.testing.assert_allclose(narrow, [1.5, 1, 0], atol=1e-9)


@pytest.mark.parametrize("n", [8, 16])
def test_a_second_program_needs_as_many_samples(n):
    """N3's number, measured by `noise_plain` on streams of its own: both memories' mean log
    samples over 40 streams agree within what streams differ.
    """
    most = 4096
    ours = np.log([samples.samples_needed(n, seed, most) for seed in range(40)])
    plain = np.log([noise_plain.samples_needed(n, seed, most) for seed in range(40)])
    assert np.isfinite(ours).all()
    assert np.isfinite(plain).all()
    error = np.sqrt((ours.var(axis=0) + plain.var(axis=0)) / 40)
    assert error[1] < 0.15, "attention's samples are known to 15%"
    assert (np.abs(ours.mean(axis=0) - plain.mean(axis=0)) < 4 * error).all()
    assert ours[:, 1].mean() > 2 * error[1] + ours[:, 0].mean() + np.log(10)
