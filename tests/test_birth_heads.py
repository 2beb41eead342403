"""B1-B3, B14, B16 and B17: what heads attend to, on models written by hand, drawn and silent."""

from functools import cache

import jax
import numpy as np
import pytest
from birth_planted import FULL, N, entry, flat, mixed, ramp, states, value_of
from planted import entry_of, evidence_of, planted, rows_of, silent, untrained

from mnemoscope.models import Transformer
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.birth import data, heads, ideas
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    BIGRAM,
    NO_DECAY,
    NO_OUTPUT,
    NO_SECOND,
    ONE,
    RANDOM,
    TWO,
    build_conditions,
)
from mnemoscope.studies.library.birth.sample import answers
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.induction import induction_weights, simplified_model
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

STUDY = find_study("birth")

WRITTEN, DRAWN, SILENT = 0, 1, 2  # rows of what was measured


def short(spec: Spec, d: int = 128, length: int = 24) -> Spec:
    """The same condition with narrower models and shorter sequences,
    evaluated before and after training.
    """
    model = spec.model.model_copy(update={"d_model": d, "d_mlp": d if spec.model.d_mlp else 0})
    task = spec.task.model_copy(update={"length": length})
    return spec.model_copy(update={"model": model, "task": task, "n_evals": 1})


@cache
def induction_run(name: str) -> Run:
    """Three seeds: an induction head written by hand, for any token where triggers are random;
    one as drawn; a silent one.
    """
    spec = short(FULL[name].spec)
    start = untrained(spec)
    triggers = spec.task.fixed_triggers if spec.task.triggers == "fixed" else None
    models = [induction_weights(spec.model, start, triggers), start, silent(spec)]
    return planted(spec, 3, params=models)


@pytest.fixture(scope="module")
def induction():
    """What attention and answers of such models are, by condition and probe."""
    wanted = {ALL: (heads.attention, data.crossed), RANDOM: (heads.attention,)}
    found = {}
    for name, probes in wanted.items():
        evidence = evidence_of({name: induction_run(name)})
        found |= {(name, probe): evidence.measure(name, probe) for probe in probes}
    return found


def seeds_like(rows, found, scale="full"):
    """Evidence with such models as seeds, by condition; a reading has those of its condition."""
    runs, measured = {}, {}
    for name, chosen in rows.items():
        plain = name.partition("/")[0]
        spec = short(FULL[name].spec)
        models = rows_of(induction_run(plain).models().params, chosen[:1])
        one = {key: value[0] for key, value in models.items()}
        curves = {series: [0.0, 1.0] for series in ("previous", "induction", "to answer")}
        runs[name] = planted(spec, len(chosen), params=one, metrics=curves)
        measured |= {
            (name, probe): rows_of(value, chosen)
            for (condition, probe), value in found.items()
            if condition == plain
        }
    return evidence_of(runs, scale, measured=measured)


def rows(written, rest=DRAWN):
    return [WRITTEN] * written + [rest] * (N - written)


# B2 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "verdict"),
    [(N, "reproduced"), (N - 2, "undecided"), (20, "partly"), (0, "refuted")],
)
def test_a_previous_token_head_and_an_induction_head_are_recognized(written, verdict, induction):
    found = entry_of(STUDY, "B2", seeds_like({ALL: rows(written)}, induction))
    assert found.verdict == verdict
    assert found.value == written / N


def test_maps_show_the_heads(induction):
    evidence = seeds_like({ALL: rows(N)}, induction)
    plots = heads.measure_heads(evidence).plots
    for layer in (0, 1):
        weights = np.array(plots.maps[f"layer {layer}"].weights)
        np.testing.assert_allclose(weights.sum(axis=1), 1, atol=0.01)  # as rounded for the page
    first = np.array(plots.maps["layer 0"].weights)
    np.testing.assert_allclose(np.diagonal(first, -1), 1, atol=0.05)


@pytest.mark.parametrize(
    ("previous", "induction_score", "verdict"),
    [(0.5, 0.5, "reproduced"), (0.49, 1.0, "refuted"), (1.0, 0.49, "refuted")],
)
def test_both_heads_are_needed(previous, induction_score, verdict, induction):
    evidence = seeds_like({ALL: [SILENT] * N}, induction)
    evidence.planted[ALL, heads.attention] |= {
        "previous": np.full(N, previous),
        "induction": np.full(N, induction_score),
    }
    assert entry_of(STUDY, "B2", evidence).verdict == verdict


def test_heads_in_the_other_reading(induction):
    both = {ALL: rows(N), f"{ALL}/other": rows(0)}
    assert entry_of(STUDY, "B2", seeds_like(both, induction)).verdict == "partly"


# B3 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "full", "quick"),
    [
        (N, "reproduced", "reproduced"),
        (20, "partly", "undecided"),
        (0, "refuted", "undecided"),
    ],
)
def test_answering_to_any_token(written, full, quick, induction):
    """What models trained on fixed triggers do is shown beside and has no say."""
    seeds = {RANDOM: rows(written, SILENT), ALL: rows(N)}
    assert entry_of(STUDY, "B3", seeds_like(seeds, induction)).verdict == full
    assert entry_of(STUDY, "B3", seeds_like(seeds, induction, "quick")).verdict == quick
    other = seeds | {f"{RANDOM}/other": rows(0, SILENT)}
    expected = "refuted" if full == "refuted" else "partly"
    assert entry_of(STUDY, "B3", seeds_like(other, induction)).verdict == expected
    fixed = induction[ALL, heads.attention]
    assert fixed["induction at others"][WRITTEN] < 0.3 < 0.7 < fixed["induction"][WRITTEN], (
        "it knows its triggers only"
    )


# B11 on models: B11 on planted numbers is in test_birth_data.py ----------------------------------


def test_written_and_silent_models_answer_as_they_should(induction):
    for right in induction[ALL, data.crossed].values():
        assert right[WRITTEN] > 0.6
        assert right[SILENT] < 0.1
    measured = {
        (ALL, data.crossed): rows_of(induction[ALL, data.crossed], rows(N)),
        (BIGRAM, data.crossed): rows_of(induction[ALL, data.crossed], rows(0, SILENT)),
    }
    runs = {name: planted(FULL[name].spec, N) for name in (ALL, BIGRAM)}
    assert entry_of(STUDY, "B11", evidence_of(runs, measured=measured)).verdict == "reproduced"


# B1 and B17: accuracies --------------------------------------------------------------------------


def accuracies(claim, by_condition):
    curves = {"accuracy": [0.0, 1.0]}
    runs = {
        name: planted(short(FULL[name].spec, 8, 12), N, metrics=curves) for name in by_condition
    }
    measured = {
        (name, answers): {"accuracy": np.array(values)} for name, values in by_condition.items()
    }
    return entry_of(STUDY, claim, evidence_of(runs, measured=measured))


SPREAD = np.linspace(-0.01, 0.01, N)


@pytest.mark.parametrize(
    ("one", "solved", "verdict"),
    [
        (0.55, N, "reproduced"),
        (0.59, N, "reproduced"),
        (0.60, N, "undecided"),  # five points off, or a little more or less
        (0.61, N, "partly"),
        (0.49, N, "partly"),
        (0.55, 20, "partly"),
        (0.55, N - 2, "undecided"),
        (0.55, 0, "partly"),
        (0.697, 0, "refuted"),
    ],
)
def test_one_or_two_layers(one, solved, verdict):
    """B1."""
    two = np.where(np.arange(N) < solved, 0.95, 0.94)
    found = accuracies("B1", {ONE: one + SPREAD, TWO: two})
    assert found.verdict == verdict
    assert value_of(found, "one layer") == pytest.approx(one)


@pytest.mark.parametrize(
    ("without", "verdict"),
    [
        (0.98, "reproduced"),
        (0.97, "undecided"),  # two points, or a little more or less
        (0.93, "partly"),
    ],
)
def test_weight_decay_makes_no_difference(without, verdict):
    """B17."""
    found = accuracies("B17", {ALL: 0.99 + SPREAD, NO_DECAY: without + SPREAD[::-1]})
    assert found.verdict == verdict
    assert value_of(found, "difference") == pytest.approx(without - 0.99)


def test_weight_decay_part_by_part():
    """B17: each zone of each part."""
    solved = np.full(N, 0.965) + SPREAD
    half = np.where(np.arange(N) < 20, 0.96, 0.945) + SPREAD / 10
    unsolved = np.full(N, 0.90) + SPREAD
    for with_decay, without, expected in (
        (solved, half, ("holds", "partly", "holds")),
        (half, solved, ("partly", "holds", "holds")),
        (unsolved, solved, ("fails", "holds", "fails")),
        (unsolved, unsolved - 0.03, ("fails", "fails", "fails")),
        (solved, unsolved, ("holds", "fails", "fails")),
    ):
        found = accuracies("B17", {ALL: with_decay, NO_DECAY: without})
        assert tuple(states(found).values()) == expected
    assert accuracies("B17", {ALL: unsolved, NO_DECAY: unsolved - 0.03}).verdict == "refuted"


# B16 ---------------------------------------------------------------------------------------------


def sharpened(low=0.1, high=0.9, by_then=0.9, without=0.1):
    """Attention to answers: before training, after it, and at the step that unfreezes."""
    whole = ramp(20, low, by_then) + ramp(80, 0, high - by_then)
    return {
        ALL: {"to answer": whole},
        NO_OUTPUT: {"to answer": ramp(20, low, without)},
        NO_SECOND: {"previous": flat(0.1)},
    }


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "reproduced"),
        ({"without": 0.9}, "partly"),  # the output memory is not what sharpens it
        ({"low": 0.3, "without": 0.2}, "partly"),  # it was sharp before
        ({"high": 0.4, "by_then": 0.6}, "partly"),  # it ends below half
        ({"low": 0.3, "without": 0.9}, "refuted"),
        ({"by_then": 0.4}, "undecided"),  # the control: by then it should be sharp
    ],
)
def test_right_associations_sharpen_attention(changes, verdict):
    assert entry("B16", sharpened(**changes)).verdict == verdict


def test_sharpening_partly_and_in_both_readings():
    good = sharpened()
    bad = sharpened(low=0.3, without=0.9)
    half = {name: mixed((20, good[name]), (20, bad[name])) for name in good}
    found = entry("B16", half)
    assert states(found)["sharpens"] == "partly"
    assert states(found)["not without the output memory"] == "partly"
    for others, verdict in ((good, "reproduced"), (bad, "partly")):
        other = {f"{name}/other": others[name] for name in (ALL, NO_OUTPUT)}
        assert entry("B16", good | other).verdict == verdict


# B14 ---------------------------------------------------------------------------------------------


def test_attention_of_a_silent_model_is_even_and_a_written_one_is_not():
    task = Bigrams(length=24)
    config = simplified_model(128)
    spec = short(FULL[ALL].spec)
    start = untrained(spec)
    read = jax.jit(lambda params: ideas.uneven(task, Transformer(config, params)))
    np.testing.assert_allclose(read(silent(spec)), 0, atol=1e-6)
    written = np.asarray(read(induction_weights(config, start)))
    # layer 0 looks at one position: all but 1/t of its attention would have to move
    expected = np.mean([1 - 1 / t for t in range(2, 25)])
    assert written[0] == pytest.approx(expected, abs=0.02)
    drawn = np.asarray(read(start))
    assert (drawn > 0.1).all()
    assert (drawn < 0.5).all()


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (0.0, 0.05, "reproduced"),
        (0.05, 0.1, "undecided"),
        (0.3, 0.3, "partly"),
        (0.05, 0.6, "partly"),
        (0.6, 0.6, "refuted"),
    ],
)
def test_attention_at_the_start(first, second, verdict, monkeypatch):
    def mapped(one, n):
        return lambda seeds: np.stack([first + 0.01 * (seeds % 3), second + SPREAD], axis=1)

    monkeypatch.setattr(ideas, "map_over_seeds", mapped)
    conditions = {ALL: Condition(FULL[ALL].spec, N, 10_000)}
    found = entry_of(STUDY, "B14", evidence_of(conditions=conditions))
    assert found.verdict == verdict
    assert found.unit == "draw"


def test_attention_at_the_start_is_read_in_models_as_they_are_drawn(monkeypatch):
    spec = short(build_conditions("quick")[ALL].spec, 16, 12)
    found = entry_of(STUDY, "B14", evidence_of(conditions={ALL: Condition(spec, 8)}, scale="quick"))
    assert found.verdict == "partly"
    assert found.units == 8
