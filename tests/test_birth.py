"""The birth study: planted curves come out with the right verdict, times are read right, and any text will do."""

import numpy as np
import pytest

from mnemoscope.config import UserError
from mnemoscope.probes.levels import above_chance, first_fall, first_reach
from mnemoscope.probes.watch import watch_of
from mnemoscope.spec import Spec
from mnemoscope.studies import find_study, on_corpus
from mnemoscope.studies.birth import STUDY, written
from mnemoscope.studies.birth.settings import (
    ALL,
    BIGRAM,
    GLOBAL,
    LONG,
    NO_FIRST,
    NO_OUTPUT,
    NO_SECOND,
    ONE,
    ONLY_OUTPUT,
    RANDOM,
    RARE,
    SHORT,
    TWO,
    settings,
)  # fmt: skip
from mnemoscope.studies.claims import SCALES, Setting
from mnemoscope.studies.evidence import Evidence
from mnemoscope.tasks import Bigrams, Permutation
from mnemoscope.train import Run, fit

STEPS, SEEDS = 100, 10


def tiny(spec: Spec) -> Spec:
    """The same setting, small enough for a test."""
    small = {"d_model": 8, "d_mlp": 8 if spec.model.d_mlp else 0}
    update = {"model": spec.model.model_copy(update=small), "task": spec.task.model_copy(update={"length": 12})}
    release = tuple((name, 4) for name, _ in spec.release)
    return spec.model_copy(update={**update, "steps": 10, "batch": 4, "looks": 5, "snapshots": 2, "release": release})


def ramp(at: float, low: float = 0.0, high: float = 1.0) -> np.ndarray:
    """A curve that rises from low to high between the steps at - 10 and at + 10: half of it is there at `at`."""
    looks = np.arange(0, STEPS + 1)
    return low + (high - low) * np.clip((looks - at + 10) / 20, 0, 1)


def planted(curves: dict[str, dict[str, np.ndarray]]) -> Evidence:
    """Evidence whose models were never trained: each seed shows the given curves, by setting."""
    full = settings("full")
    chosen = {}
    for name in curves:
        spec = full[name].spec
        release = tuple((n, 30) for n, _ in spec.release)
        chosen[name] = Setting(spec.model_copy(update={"steps": STEPS, "looks": STEPS, "release": release}), SEEDS)

    def obtain(name: str) -> Run:
        observed = {series: np.tile(curve, (SEEDS, 1)) for series, curve in curves[name].items()}
        done = np.full(SEEDS, STEPS)
        return Run(chosen[name].spec, tuple(range(SEEDS)), {}, np.array([STEPS]), np.zeros((SEEDS, 1)), done, observed)

    return Evidence("full", chosen, obtain)


def verdict(claim: str, curves: dict[str, dict[str, np.ndarray]]) -> str:
    test = STUDY.pick((claim,))[0]
    return test.judge(planted(curves)).verdict


def memories(output, second, first, late=500.0):
    """Recalls with a chance of 1/65, 1/5 and 1/256 that get half formed at the given steps."""
    return {
        "output memory": ramp(output, 1 / 65), "second keys": ramp(second, 1 / 5), "first keys, early": ramp(first, 1 / 256),
        "first keys, late": ramp(late, 1 / 256), "right": ramp(60, 0.02),
    }  # fmt: skip


def test_levels():
    steps = np.array([0, 10, 20, 30, 40])
    curves = np.array([[0, 0.6, 0.1, 0.4, 0.8], [1, 1, 1, 1, 1], [0, 0.1, 0.2, 0.3, 0.4], [0, 0.25, 0.75, 0.75, 0.75]])
    # the first is lucky at 10 only, and comes to stay between 30 and 40; the last crosses half-way between 10 and 20
    np.testing.assert_allclose(first_reach(steps, curves, 0.5), [30 + 10 * 0.1 / 0.4, 0, np.inf, 15])
    np.testing.assert_allclose(first_fall(steps, -curves, -0.5), first_reach(steps, curves, 0.5))
    np.testing.assert_allclose(first_reach(steps, curves[2:3], np.array([0.05])), [5])
    assert above_chance(np.array([0.2, 0.4, 0.6, 1.0], np.float32), 5).tolist() == [0, 0.25, 0.5, 1]


@pytest.mark.parametrize(
    ("times", "expected"), [((20, 40, 60), "reproduced"), ((20, 60, 40), "partly"), ((40, 20, 60), "refuted")]
)
def test_the_order_of_memories(times, expected):
    assert verdict("B5", {ALL: memories(*times)}) == expected


def test_what_freezing_shows():
    never, good = 500.0, {ALL: memories(20, 40, 60)}
    good |= {
        NO_OUTPUT: memories(50, 60, 70), ONLY_OUTPUT: memories(10, never, never), NO_FIRST: memories(10, 15, never),
        NO_SECOND: memories(10, never, 60),
    }  # fmt: skip
    assert verdict("B6", good) == "reproduced"
    assert verdict("B6", good | {NO_OUTPUT: memories(50, 10, 70)}) == "partly"
    assert verdict("B6", good | {ONLY_OUTPUT: memories(10, never, never) | {"right": ramp(10)}}) == "partly"
    bad = {NO_OUTPUT: memories(50, 10, 70), ONLY_OUTPUT: memories(90, never, never), NO_SECOND: memories(10, never, 5)}
    assert verdict("B6", good | bad | {NO_FIRST: memories(10, 60, never)}) == "refuted"


@pytest.mark.parametrize(("late", "expected"), [(90, "reproduced"), (62, "refuted")])
def test_early_positions(late, expected):
    assert verdict("B7", {ALL: memories(20, 40, 60, late)}) == expected


@pytest.mark.parametrize(
    ("stages", "expected"), [((60, 80), "reproduced"), ((40, 80), "refuted"), ((500, 500), "reproduced")]
)
def test_stages(stages, expected):
    curves = {name: {"right": ramp(at)} for name, at in zip((ALL, SHORT, LONG), (50, *stages), strict=True)}
    assert verdict("B8", curves) == expected
    assert verdict("B8", curves | {ALL: {"right": ramp(500)}}) == "undecided"


@pytest.mark.parametrize(("times", "expected"), [((20, 60), "reproduced"), ((60, 20), "refuted")])
def test_global_and_in_context(times, expected):
    spoken, context = times
    losses = {
        "global loss": ramp(spoken, 4.2, 2.1),
        "context loss": ramp(context, 4.2, 0.0),
        "first loss": ramp(500, 4.2, 4.2),
    }
    assert verdict("B9", {GLOBAL: losses}) == expected


@pytest.mark.parametrize(
    ("times", "expected"), [((20, 50, 70), "reproduced"), ((20, 50, 50), "partly"), ((50, 50, 50), "refuted")]
)
def test_kinds_of_triggers(times, expected):
    curves = {name: {"right": ramp(at)} for name, at in zip((ALL, RARE, RANDOM), times, strict=True)}
    assert verdict("B10", curves) == expected


def test_late_competition():
    falls, stays = np.concatenate([ramp(30)[:60], ramp(30)[:41] * 0 + 0.8]), ramp(30)
    grows, settles = np.linspace(1, 2, STEPS + 1), np.linspace(2, 1, STEPS + 1)
    for output, divergence, expected in (
        (falls, grows, "reproduced"), (stays, grows, "partly"), (falls, settles, "partly"), (stays, settles, "refuted"),
    ):  # fmt: skip
        assert verdict("B12", {GLOBAL: {"output memory": output, "bigram memory": divergence}}) == expected


def test_every_judge_runs_on_trained_models(monkeypatch):
    monkeypatch.setitem(written.THEOREM, "full", (4, 6, 8, 16))
    monkeypatch.setattr(written, "WIDTHS", (16, 256))
    small = {name: Setting(tiny(each.spec), 8) for name, each in settings("full").items()}
    assert {ALL, ONE, TWO, BIGRAM} < set(small)
    evidence = Evidence("full", small, lambda name: fit(small[name].spec, range(8), watch_of(small[name].spec)))
    for test in STUDY.tests:
        found = evidence.finding(test.settings(small), test.judge)
        assert found.seeds == 8, test.claim.id
        assert found.value is not None
        assert found.by_seed
        assert all(len(values) == 8 for values in found.by_seed.values())
    maps = evidence.finding((ALL,), STUDY.pick(("B2",))[0].judge).pictures.maps
    np.testing.assert_allclose(np.sum(maps["layer 0"].weights, axis=1), 1, atol=0.01)  # rows as rounded for the page


def test_quick_says_what_it_does_not_train():
    quick = settings("quick")
    for claim in ("B1", "B8", "B10"):
        test = STUDY.pick((claim,))[0]
        shown = Evidence(
            "quick", quick, lambda name: fit(tiny(quick[name].spec), range(8), watch_of(tiny(quick[name].spec)))
        )
        found = shown.finding(test.settings(()) if claim == "B1" else (), test.judge)
        assert (found.verdict, found.value) == ("undecided", None)
        assert found.sentence.endswith("are trained at full scale only.")


def test_settings_have_enough_seeds_and_name_the_matrices_of_the_source():
    for scale in SCALES:
        found = settings(scale)
        assert all(each.seeds >= (16 if scale == "full" else 8) for each in found.values())
        assert all(each.spec.watch == "bigrams" for each in found.values())
    assert found[NO_OUTPUT].spec.released() == {"blocks.1.attn.W_O": 300}
    assert found[ONLY_OUTPUT].spec.released() == {"blocks.0.attn.W_K": 300, "blocks.1.attn.W_K": 300}
    assert found[ALL].spec.program() != found[NO_OUTPUT].spec.program()
    assert found[NO_FIRST].spec.program() == found[LONG].spec.program()
    bigger = set(found[GLOBAL].spec.model.frozen_names()) - set(found[ALL].spec.model.frozen_names())
    assert bigger == {"blocks.1.mlp.W_in"}, "of the feed-forward memory one matrix is trained"


def test_a_watch_needs_its_task():
    assert watch_of(Spec(task=Permutation())) is None
    with pytest.raises(ValueError, match="watch='bigrams' reads the task 'bigrams', got 'permutation'"):
        watch_of(Spec(task=Permutation(), watch="bigrams"))


def test_any_text_will_do(tmp_path):
    text = tmp_path / "my text!.txt"
    text.write_text("the quick brown fox jumps over the lazy dog " * 3)
    study = on_corpus(STUDY, text)
    assert study.name == "birth@my_text_"
    for scale in SCALES:
        for name, each in study.settings(scale).items():
            task = each.spec.task
            assert isinstance(task, Bigrams)
            assert task.d_vocab == 27, name
    few = tmp_path / "few.txt"
    few.write_text("abcd" * 5)
    with pytest.raises(UserError, match="does not do for 'birth': Bigrams: n_triggers=5 is more than the 4 characters"):
        on_corpus(STUDY, few).settings("quick")
    with pytest.raises(UserError, match="study 'remember' is not about text, so it takes no --corpus; allowed: birth"):
        on_corpus(find_study("remember"), text)
