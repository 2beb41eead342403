"""Noise: the reader against brute force, truncation against NumPy,
one gradient step against autodiff, and every judge.
"""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import init
from mnemoscope.studies.claims import InconclusiveError
from planted import SEEDS, evidence_of, planted, silent

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, Transformer
from mnemoscope.probes.distraction import distraction
from mnemoscope.probes.truncation import keep_rank, truncated
from mnemoscope.studies.library.noise import judges
from mnemoscope.studies.library.noise.study import STUDY
from mnemoscope.studies.scales import SCALES
from mnemoscope.tasks import Bigrams, Corpus
from mnemoscope.theory.induction import induction_weights
from mnemoscope.theory.noise import LENGTH, TRIGGERS, draw, margins_after, population_margins
from mnemoscope.training.metrics import metrics_of

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


def test_the_reader_knows_noise_as_counting_does():
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
    assert judges.first_enough(sizes, np.array([[0, 1, 1, 1.0]] * 10)) == 2
    assert judges.first_enough(sizes, np.array([[1, 0, 1, 1.0]] * 10)) == 4
    assert judges.first_enough(sizes, np.ones((10, 4))) == 1
    assert judges.first_enough(sizes, np.zeros((10, 4))) == np.inf


def curves(fed, attended):
    """A run whose evaluations have these margins."""
    spec = STUDY.conditions("quick")["noisy"].spec.model_copy(
        update={"steps": 100, "n_evals": len(fed) - 1}
    )
    seen = {"margin of feed-forward": fed, "margin of attention": attended}
    seen |= dict.fromkeys(("to right", "to noise", "P(right)", "P(noise)"), fed)
    return planted(spec, metrics=seen)


@pytest.mark.parametrize(
    ("fed", "attended", "verdict"),
    [
        ([0, 5, 5, 5, 5], [0, 0, 0, 5, 5], "reproduced"),
        ([0, 0, 0, 5, 5], [0, 5, 5, 5, 5], "refuted"),
        ([0, 5, 5, 5, 0], [0, 0, 0, 5, 5], "refuted"),
        ([0, 5, 5, 5, 5], [0, 0, 0, 0.5, 0.5], "refuted"),
        ([0, 5, 5, 5, 5], [0, 5, 5, 5, 5], "refuted"),
        ([0, 0.5, 0.5, 0.5, 0.5], [0, 0, 0, 5, 5], "refuted"),
    ],
)
def test_early_and_late(fed, attended, verdict):
    assert (
        judges.early_and_late(evidence_of({"noisy": curves(fed, attended)}, "quick")).verdict
        == verdict
    )


@pytest.mark.parametrize(("n", "verdict"), [(9, "reproduced"), (8, "partly"), (1, "refuted")])
def test_early_and_late_in_some_seeds(n, verdict):
    fed = [[0, 5, 5, 5, 5]] * n + [[0, 0, 0, 0, 5]] * (SEEDS - n)
    run = curves([0, 5, 5, 5, 5], [0, 0, 0, 5, 5])
    run.metrics["margin of feed-forward"] = np.array(fed, float)
    assert judges.early_and_late(evidence_of({"noisy": run})).verdict == verdict


# written models ----------------------------------------------------------------------------------


def noisy_spec():
    """The study's model, narrower, on a text of three characters,
    looked at three times and kept once.
    """
    spec = STUDY.conditions("full")["noisy"].spec
    model = spec.model.model_copy(update={"d_model": 64, "d_mlp": 64})
    task = TASK.model_copy(update={"length": 12})
    return spec.model_copy(
        update={"task": task, "model": model, "steps": 2, "n_evals": 2, "snapshots": 1}
    )


def says(spec, attention, noise):
    """An induction head that says the right answer so loudly,
    and a feed-forward layer that says noise so loudly.

    Every embedding has an axis of its own: tokens from 0 on, then positions;
    layer 0 moves what it sees by 16 axes and layer 1 by 32, and answers are read from axis 48 on.
    """
    params = silent(spec)
    tokens, places, eye = spec.task.d_vocab, spec.task.n_ctx, np.eye(64, dtype=np.float32)
    params["embed.W_E"][:] = eye[:tokens]
    params["pos_embed.W_pos"][:] = eye[tokens : tokens + places]
    params["unembed.W_U"][:] = eye[:, 48 : 48 + tokens]
    params["blocks.0.attn.W_V"][0] = eye
    params["blocks.0.attn.W_O"][0] = np.roll(eye, 16, axis=1)
    params["blocks.1.attn.W_V"][0] = np.roll(eye, 32, axis=1)
    for layer in (0, 1):
        params[f"blocks.{layer}.attn.W_Q"][0] = eye
    params = dict(induction_weights(spec.model, params, spec.task.fixed_triggers, strength=30.0))
    params["blocks.1.attn.W_O"] = attention / 30 * np.asarray(params["blocks.1.attn.W_O"])
    # one hidden unit, which the trigger wakes
    params["blocks.1.mlp.W_in"][spec.task.fixed_triggers[0], 0] = 1
    params["blocks.1.mlp.W_out"][0, 48 + spec.task.noise_token] = noise
    return params


QUIET, DISTRACTED, FOCUSED = (0, 0), (10, 20), (10, -20)


@pytest.fixture(scope="module")
def looks():
    """What the study's watch reads in written models: by how loud attention and noise are."""
    spec, kinds = noisy_spec(), (QUIET, (0, 20), (10, 0), DISTRACTED)
    watch = jax.jit(lambda params: metrics_of(spec)(Transformer(spec.model, params), ()))
    return {
        kind: {name: float(x) for name, x in watch(says(spec, *kind)).items()} for kind in kinds
    }


def test_margins_of_written_models_are_as_loud_as_they_were_written(looks):
    for (attention, noise), seen in looks.items():
        # a trigger at the very first position takes itself for what followed it,
        # and some of the attention
        assert seen["margin of attention"] == pytest.approx(attention, abs=0.1 * attention)
        assert seen["margin of feed-forward"] == pytest.approx(noise, abs=1e-3)
    for noise in (0, 20):
        e = np.exp(noise)  # three answers, one of which is noise
        assert looks[0, noise]["P(noise)"] == pytest.approx(e / (e + 2), rel=1e-3)
        assert looks[0, noise]["P(right)"] == pytest.approx(1 / (e + 2), rel=1e-3)


@pytest.mark.parametrize(("between", "verdict"), [((0, 20), "reproduced"), ((10, 0), "refuted")])
def test_written_models_are_distracted_early_or_late(between, verdict, looks):
    """N1, watched for real: from a quiet model to a distracted one, by way of either part alone."""
    series = {
        name: [looks[kind][name] for kind in (QUIET, between, DISTRACTED)] for name in looks[QUIET]
    }
    run = planted(noisy_spec(), metrics=series)
    assert judges.early_and_late(evidence_of({"noisy": run})).verdict == verdict


def test_truncation_helps_whom_the_feed_forward_layer_distracts():
    """N2 on written models: four that it distracts and one that it guards against noise."""
    spec = noisy_spec()
    distracted, focused = says(spec, *DISTRACTED), says(spec, *FOCUSED)
    run = planted(spec, 5, params=[distracted] * 4 + [focused])
    outcome = judges.truncation(evidence_of({"noisy": run}))
    assert (outcome.verdict, outcome.value) == ("partly", 4 / 5)
    whole, gone = (
        {name: outcome.by_seed[f"{name}, rho = {rho}"] for name in judges.READ} for rho in (1, 0)
    )
    assert (whole["P(noise)"][:4] > 0.9).all()
    assert (whole["accuracy"][:4] < 0.1).all()
    for name in judges.READ:
        # without it, all are the same
        np.testing.assert_allclose(gone[name], gone[name][0], rtol=1e-5)
    assert (gone["P(noise)"] < 0.1).all()
    assert (gone["accuracy"] > 0.9).all()
    assert (whole["P(noise)"][4:] < gone["P(noise)"][4:]).all()
    # the one hidden unit lies in layer 1: without that of layer 0 nothing changes
    parts = outcome.sentence.split("without the feed-forward of ")[1].rstrip(".").split("; ")
    assert [part.split(":")[0] for part in parts] == ["layer 0 alone", "layer 1 alone"]
    assert (
        float(parts[0].split()[-2].rstrip(","))
        > 0.7
        > 0.3
        > float(parts[1].split()[-2].rstrip(","))
    )


@pytest.mark.parametrize(
    ("better", "worse", "verdict"), [(9, 1, "reproduced"), (1, 9, "refuted"), (0, 10, "refuted")]
)
def test_truncation_is_judged_by_noise_and_by_right_answers(better, worse, verdict, monkeypatch):
    """N2 with planted answers: less noise alone, or more right answers alone, is not enough."""
    spec = noisy_spec()
    for spoiled in ("P(noise)", "P(right)"):
        kept, gained = {"P(noise)": 0.6, "P(right)": 0.3}, {"P(noise)": 0.2, "P(right)": 0.7}

        def cut(run, cuts, spoiled=spoiled, kept=kept, gained=gained):
            found = {}
            for name in judges.READ:
                rows = np.full((len(cuts), SEEDS), kept.get(name, 0.5))
                gone = [shares == (0.0, 0.0) for shares, _ in cuts]
                rows[gone] = gained.get(name, 0.5)
                if name == spoiled:
                    rows[gone, better:] = kept[name]
                found[name] = rows
            return found

        monkeypatch.setattr(judges, "_cut", cut)
        outcome = judges.truncation(evidence_of({"noisy": planted(spec)}))
        assert (outcome.verdict, outcome.value) == (verdict, better / (better + worse))


# samples -----------------------------------------------------------------------------------------


def test_attention_needs_more_samples_than_the_feed_forward_layer():
    sizes, fed, attended = judges.samples_needed(8, 6, 512)
    assert (sizes[0], fed.shape, attended.shape) == (1, (6, len(sizes)), (6, len(sizes)))
    assert sizes[-1] <= 512 * 8 < sizes[-1] * judges.STEP * 1.01
    assert 2 * judges.first_enough(sizes, fed) < judges.first_enough(sizes, attended) < sizes[-1]


@pytest.mark.parametrize(
    ("fed", "attended", "full", "quick"),
    [
        (lambda n: 8, lambda n: n, "reproduced", "reproduced"),
        (lambda n: n, lambda n: n, "partly", "undecided"),
        (lambda n: 8, lambda n: n * n, "partly", "undecided"),
        (lambda n: 8, lambda n: 8, "partly", "undecided"),
        (lambda n: n, lambda n: n * n, "refuted", "undecided"),
        (lambda n: n, lambda n: 8, "refuted", "undecided"),
    ],
)
def test_samples_against_the_vocabulary(fed, attended, full, quick, monkeypatch):
    """N3: every draw has its memories from so many samples on, by the size of the vocabulary."""

    def needed(n, draws, most):
        sizes = 2 ** np.arange(22)
        return (
            sizes,
            np.tile(sizes >= fed(n), (draws, 1)),
            np.tile(sizes >= attended(n), (draws, 1)),
        )

    monkeypatch.setattr(judges, "samples_needed", needed)
    for scale, verdict in zip(SCALES, (quick, full), strict=True):
        outcome = judges.against_vocabulary(evidence_of(scale=scale))
        assert outcome.verdict == verdict
        first, *_, last = judges.SIZES[scale][0]
        expected = np.log(attended(last) / attended(first)) / np.log(last / first)
        assert outcome.value == pytest.approx(expected, abs=1e-9)


def test_a_memory_that_never_forms_settles_nothing(monkeypatch):
    def never(n, draws, most):
        sizes = 2 ** np.arange(12)
        return sizes, np.ones((draws, 12), bool), np.zeros((draws, 12), bool)

    monkeypatch.setattr(judges, "samples_needed", never)
    with pytest.raises(
        InconclusiveError, match="Attention has not learned it from 64 samples for each token"
    ):
        judges.against_vocabulary(evidence_of())
