"""The noise study: every judge on planted evaluations, planted answers and written models."""

import jax
import numpy as np
import pytest
from planted import entry_of, evidence_of, planted, silent

from mnemoscope.models import Transformer
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.noise import judges, samples
from mnemoscope.studies.presentation import load_panels
from mnemoscope.studies.scales import FRESH_SEED, SCALES
from mnemoscope.tasks import Bigrams, Corpus
from mnemoscope.theory.induction import induction_weights
from mnemoscope.training.metrics import metrics_of

STUDY = find_study("noise")

ABC = Corpus(
    name="abc",
    characters="abc",
    counts=((0, 1, 3), (0, 2, 1), (1, 0, 2), (1, 1, 1), (2, 0, 1), (2, 2, 2)),
)
TASK = Bigrams(corpus=ABC, n_triggers=1, length=5, noise=0.25, noise_token=2)
SEEDS = 40  # enough to show at least 90%


def state_of(entry, name):
    (part,) = [part for part in entry.parts if part.name == name]
    return part.state


def test_fresh_seeds_at_full_scale():
    condition = STUDY.conditions("full")["noisy"]
    assert condition.seed_range == range(FRESH_SEED, FRESH_SEED + 40)
    assert STUDY.conditions("quick")["noisy"].seed_range == range(8)
    assert samples.DRAWS["full"][0] == FRESH_SEED


# N1 ----------------------------------------------------------------------------------------------


def curves(fed, attended):
    """A run whose evaluations have these margins."""
    spec = STUDY.conditions("quick")["noisy"].spec.model_copy(
        update={"steps": 100, "n_evals": len(fed) - 1}
    )
    seen = {"margin of feed-forward": fed, "margin of attention": attended}
    seen |= dict.fromkeys(("to right", "to noise", "P(right)", "P(noise)"), fed)
    return planted(spec, SEEDS, metrics=seen)


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
    entry = entry_of(STUDY, "N1", evidence_of({"noisy": curves(fed, attended)}))
    assert entry.verdict == verdict
    assert entry.units == SEEDS


@pytest.mark.parametrize(
    ("n", "verdict"),
    [(40, "reproduced"), (37, "undecided"), (20, "partly"), (3, "undecided"), (0, "refuted")],
)
def test_early_and_late_in_some_seeds(n, verdict):
    fed = [[0, 5, 5, 5, 5]] * n + [[0, 0, 0, 0, 5]] * (SEEDS - n)
    run = curves([0, 5, 5, 5, 5], [0, 0, 0, 5, 5])
    run.metrics["margin of feed-forward"] = np.array(fed, float)
    entry = entry_of(STUDY, "N1", evidence_of({"noisy": run}))
    assert entry.verdict == verdict
    assert entry.value == n / SEEDS


# written models ----------------------------------------------------------------------------------


def noisy_spec():
    """The study's model, narrower, on a text of three characters,
    evaluated three times and kept once.
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
def evaluations():
    """What the study's metrics read in written models: by how loud attention and noise are."""
    spec, kinds = noisy_spec(), (QUIET, (0, 20), (10, 0), DISTRACTED)
    read = jax.jit(lambda params: metrics_of(spec)(Transformer(spec.model, params), ()))
    return {kind: {name: float(x) for name, x in read(says(spec, *kind)).items()} for kind in kinds}


def test_margins_of_written_models_are_as_loud_as_they_were_written(evaluations):
    for (attention, noise), seen in evaluations.items():
        # a trigger at the very first position takes itself for what followed it,
        # and some of the attention
        assert seen["margin of attention"] == pytest.approx(attention, abs=0.1 * attention)
        assert seen["margin of feed-forward"] == pytest.approx(noise, abs=1e-3)
    for noise in (0, 20):
        e = np.exp(noise)  # three answers, one of which is noise
        assert evaluations[0, noise]["P(noise)"] == pytest.approx(e / (e + 2), rel=1e-3)
        assert evaluations[0, noise]["P(right)"] == pytest.approx(1 / (e + 2), rel=1e-3)


@pytest.mark.parametrize(("between", "verdict"), [((0, 20), "reproduced"), ((10, 0), "refuted")])
def test_written_models_are_distracted_early_or_late(between, verdict, evaluations):
    """N1, read for real: from a quiet model to a distracted one, by way of either part alone."""
    kinds = (QUIET, between, DISTRACTED)
    series = {name: [evaluations[kind][name] for kind in kinds] for name in evaluations[QUIET]}
    run = planted(noisy_spec(), SEEDS, metrics=series)
    assert entry_of(STUDY, "N1", evidence_of({"noisy": run})).verdict == verdict


# N2 ----------------------------------------------------------------------------------------------


def test_truncation_helps_whom_the_feed_forward_layer_distracts():
    """N2 on written models: four that it distracts and one that it guards against noise."""
    spec = noisy_spec()
    distracted, focused = says(spec, *DISTRACTED), says(spec, *FOCUSED)
    run = planted(spec, 5, params=[distracted] * 4 + [focused])
    evidence = evidence_of({"noisy": run})
    found = judges.measure_truncation(evidence)
    for name in ("less noise", "more of the right answer"):
        assert found.parts[name].tolist() == [True] * 4 + [False]
    whole, gone = (
        {name: found.by_seed[f"{name}, rho = {rho}"] for name in judges.READ} for rho in (1, 0)
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
    np.testing.assert_allclose(found.parts["accuracy without layer 0"], whole["accuracy"])
    np.testing.assert_allclose(found.parts["accuracy without layer 1"], gone["accuracy"])


@pytest.mark.parametrize(
    ("less", "more", "full", "quick"),
    [
        (40, 40, "reproduced", "reproduced"),
        (40, 0, "partly", "undecided"),  # less noise alone is half of it
        (0, 40, "partly", "undecided"),
        (20, 40, "partly", "undecided"),
        (0, 0, "refuted", "undecided"),
        (37, 40, "undecided", "undecided"),
    ],
)
def test_truncation_is_judged_by_noise_and_by_right_answers(less, more, full, quick, monkeypatch):
    """N2 with planted answers."""
    kept = {"P(noise)": 0.6, "P(right)": 0.3}
    gained = {"P(noise)": (0.2, less), "P(right)": (0.7, more)}

    def cut(run, cuts):
        found = {}
        gone = [shares == (0.0, 0.0) for shares, _ in cuts]
        for name in judges.READ:
            rows = np.full((len(cuts), SEEDS), kept.get(name, 0.5))
            value, n = gained.get(name, (0.5, SEEDS))
            rows[np.ix_(gone, range(n))] = value
            found[name] = rows
        return found

    monkeypatch.setattr(judges, "_cut", cut)
    run = planted(noisy_spec(), SEEDS)
    for scale, verdict in zip(SCALES, (quick, full), strict=True):
        entry = entry_of(STUDY, "N2", evidence_of({"noisy": run}, scale))
        assert entry.verdict == verdict
        assert entry.value == less / SEEDS
    assert "P(right) at rho = 1: 0.3" in entry.sentence


# N3 and N5 ---------------------------------------------------------------------------------------


def plant_samples(monkeypatch, fed, attended):
    """Every draw needs about this many samples, by N and the draw's luck."""

    def needed(n, seed):
        luck = n ** (0.01 * (seed % 5 - 2))  # slopes differ a little
        return fed(n) * luck, attended(n) * luck

    monkeypatch.setattr(samples, "samples_needed", needed)
    samples.measure_needed.cache_clear()


@pytest.fixture(autouse=True)
def _no_samples_are_kept():
    """What was planted stays within its test."""
    yield
    samples.measure_needed.cache_clear()


@pytest.mark.parametrize(
    ("fed", "attended", "full", "quick", "tight"),
    [
        (lambda n: 8, lambda n: n, "reproduced", "reproduced", "reproduced"),
        (lambda n: 8, lambda n: n**0.8, "reproduced", "reproduced", "refuted"),
        (lambda n: 64 / n, lambda n: 8, "reproduced", "reproduced", "refuted"),
        (lambda n: np.log(n), lambda n: n, "partly", "undecided", "reproduced"),
        (lambda n: n, lambda n: n, "partly", "undecided", "reproduced"),
        (lambda n: 8, lambda n: n**1.5, "partly", "undecided", "refuted"),
        (lambda n: n, lambda n: n * n, "refuted", "undecided", "refuted"),
        # in proportion to N up to 256 and faster from there on
        (lambda n: 8, lambda n: n * max(1, n / 256), "partly", "undecided", "partly"),
    ],
)
def test_samples_against_the_vocabulary(fed, attended, full, quick, tight, monkeypatch):
    """N3 is a bound, and N5 asks whether it is tight."""
    plant_samples(monkeypatch, fed, attended)
    for scale, verdict in zip(SCALES, (quick, full), strict=True):
        entry = entry_of(STUDY, "N3", evidence_of(scale=scale))
        assert entry.verdict == verdict
        assert entry.units == len(samples.DRAWS[scale])
    assert entry_of(STUDY, "N5", evidence_of()).verdict == tight


def test_a_memory_that_never_forms_leaves_its_part_open(monkeypatch):
    plant_samples(monkeypatch, lambda n: 8, lambda n: np.inf if n == 1024 else n)
    entry = entry_of(STUDY, "N3", evidence_of())
    assert entry.verdict == "undecided"
    assert state_of(entry, "attention, N = 64 to 1,024") == ("holds", "fails")
    assert state_of(entry, "attention, N = 16 to 256") == ("holds",)
    assert "40 of 40 have no finite value" in entry.sentence


def test_slopes_that_all_agree_need_as_many_draws_as_a_share(monkeypatch):
    """At quick eight draws of one slope show nothing; forty do."""
    monkeypatch.setattr(samples, "samples_needed", lambda n, seed: (1.0, float(n)))
    for scale, verdict in (("quick", "undecided"), ("full", "reproduced")):
        samples.measure_needed.cache_clear()
        assert entry_of(STUDY, "N3", evidence_of(scale=scale)).verdict == verdict


# the page ----------------------------------------------------------------------------------------


def test_figures_show_every_series(monkeypatch):
    plant_samples(monkeypatch, lambda n: 8, lambda n: n)
    panels = load_panels(STUDY)
    for claim in ("N3", "N5"):
        found = STUDY.pick((claim,))[0].measure(evidence_of())
        for kind, known in (("seeds", found.by_seed), ("curves", found.plots.curves)):
            shown = {
                name
                for panel in panels[claim]
                if panel.kind == kind
                for name in panel.chosen(tuple(known))
            }
            assert shown == set(known)
