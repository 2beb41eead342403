"""F1 and F6: how wide a model must be, built or trained, on planted measurements."""

import numpy as np
import pytest
from planted import entry_of, evidence_of, planted

from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.facts import built
from mnemoscope.studies.library.facts.conditions import (
    NARROW,
    NARROW_MLP,
    OTHER_RATES,
    SHAPES,
    WIDE,
    build_conditions,
)
from mnemoscope.studies.library.facts.slopes import fit_powers
from mnemoscope.studies.presentation import load_panels

STUDY = find_study("facts")


def judged(claim, scale="full"):
    return entry_of(STUDY, claim, evidence_of(scale=scale))


def states(entry):
    """The state of every part that decides."""
    return {part.name: part.state for part in entry.parts if part.role != "beside"}


# F1 ----------------------------------------------------------------------------------------------


def recalled_from(width):
    """A stand-in for written models: everything is recalled from about so many dimensions on, and
    in some draws one rung later."""

    def recall(size, mlp, draws):
        widths = built.ladder(size)
        first = np.searchsorted(widths, width(size, mlp)) + np.arange(len(draws)) % 2
        return (np.arange(len(widths))[None] >= first[:, None]).astype(float)

    return recall


@pytest.mark.parametrize(
    ("width", "attention", "mlp", "verdict", "at_quick"),
    [
        # attention: 4 * 2 s * 4 s parameters
        (lambda s, mlp: 4 * s, "holds", "holds", "reproduced", "reproduced"),
        # s^3 parameters for s^2 facts
        (lambda s, mlp: 4 * s if mlp else s**2, "fails", "holds", "partly", "undecided"),
        (lambda s, mlp: s**2 if mlp else 4 * s, "holds", "fails", "partly", "undecided"),
        (lambda s, mlp: s**2, "fails", "fails", "refuted", "undecided"),
        # too few parameters would be no less a wonder
        (lambda s, mlp: 100, "fails", "fails", "refuted", "undecided"),
    ],
)
def test_built_models_are_judged_by_their_slopes(
    width, attention, mlp, verdict, at_quick, monkeypatch
):
    """F1: one slope for each draw."""
    monkeypatch.setattr(built, "recall", recalled_from(width))
    entry = judged("F1")
    kinds = {"attention only": attention, "attention and MLP": mlp}
    assert states(entry) == {f"{kind}: power": (state,) for kind, state in kinds.items()}
    assert entry.verdict == verdict
    assert (entry.unit, entry.units) == ("draw", 16)
    assert judged("F1", "quick").verdict == at_quick


def test_a_size_that_is_never_recalled_settles_nothing(monkeypatch):
    monkeypatch.setattr(built, "recall", recalled_from(lambda s, mlp: 4 * s if s < 64 else 10**6))
    entry = judged("F1")
    assert entry.verdict == "undecided"
    assert entry.value is None
    assert entry.parts[0].why_open == "16 of 16 have no finite value"
    # sizes keep their own counts: the largest has none
    counts = {
        part.name: part.value for part in entry.parts if part.name.startswith("attention only")
    }
    assert counts["attention only: parameters, S = 64"] is None
    assert counts["attention only: parameters, S = 32"] is not None


def test_a_middle_size_that_is_never_recalled_keeps_its_place(monkeypatch):
    """0.1 paired the counts that there were with the first sizes."""
    monkeypatch.setattr(built, "recall", recalled_from(lambda s, mlp: 10**6 if s == 16 else 4 * s))
    parts = {part.name: part for part in judged("F1").parts}
    assert parts["attention only: parameters, S = 16"].value is None
    for size in (8, 32, 64):
        value = parts[f"attention only: parameters, S = {size}"].value
        assert 4 * 2 * size * 4 * size <= value <= 1.5 * 4 * 2 * size * 4 * size


@pytest.mark.parametrize("mlp", [False, True])
def test_built_models_recall_everything_at_the_top_of_the_ladder(mlp):
    found = built.recall(2, mlp, range(4))
    assert found.shape == (4, len(built.ladder(2)))
    assert (found[:, -1] == 1).all()
    assert found[:, 0].mean() < found[:, -1].mean()


def test_what_is_needed_is_that_from_which_on_all_is_recalled():
    parameters = np.array([80, 120, 160, 200])
    accuracy = np.array([[0, 1, 1, 1], [1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0.9], [0, 0, 0, 1.0]])
    found = built.needed(accuracy, parameters)
    assert found.tolist() == [120, 160, 80, np.inf, 200]


def test_the_ladder_goes_up_by_a_fifth_to_its_top():
    widths = built.ladder(8)
    assert widths[-1] == 736  # 8 * 64 * 1.2^2 = 737.28
    assert (widths % 4 == 0).all()
    assert (widths[1:] / widths[:-1])[-8:] == pytest.approx(1.2, abs=0.03)


def test_powers_are_those_of_each_unit():
    sizes = np.array([1.0, 10.0, 100.0])
    amounts = np.stack([3 * sizes**0.5, sizes**-1, np.array([1.0, np.inf, 4.0])], axis=1)
    assert fit_powers(sizes, amounts) == pytest.approx([0.5, -1, np.inf])


# F6 ----------------------------------------------------------------------------------------------


def of_width(narrow, other_rates, with_mlp, wide):
    """Evidence in which so many seeds of each store the facts at some evaluation."""
    conditions = build_conditions("full")
    runs = {}
    for name, n in {
        NARROW: narrow,
        NARROW_MLP: with_mlp,
        WIDE: wide,
        **dict.fromkeys(OTHER_RATES, other_rates),
    }.items():
        spec = conditions[name].spec
        best = np.where(np.arange(40) < n, 0.99, 0.9)[:, None]
        curve = np.sin(np.linspace(0.1, 3, len(spec.eval_steps())))
        curve = curve / curve.max()  # the best evaluation is not the last
        runs[name] = planted(spec, 40, metrics={"accuracy": best * curve[None]})
    return evidence_of(runs)


@pytest.mark.parametrize(
    ("narrow", "other_rates", "with_mlp", "wide", "verdict"),
    [
        (0, 0, 40, 40, "reproduced"),
        (0, 20, 40, 40, "partly"),  # the best of three rates counts
        (20, 0, 40, 40, "partly"),
        (40, 0, 40, 40, "refuted"),
        (3, 0, 40, 40, "undecided"),
        (0, 0, 20, 40, "undecided"),  # too narrow for a feed-forward layer as well
        (0, 0, 40, 20, "undecided"),  # too few parameters for attention alone as well
    ],
)
def test_width_is_judged_by_three_models(narrow, other_rates, with_mlp, wide, verdict):
    """F6."""
    entry = entry_of(STUDY, "F6", of_width(narrow, other_rates, with_mlp, wide))
    assert entry.verdict == verdict, entry.sentence
    assert entry.value == max(narrow, other_rates) / 40


def test_the_three_models_have_as_many_parameters():
    assert {4 * heads * 4 * d + 2 * hidden * d for d, heads, hidden in SHAPES.values()} == {32_768}


def test_width_is_not_trained_at_quick():
    conditions = build_conditions("quick")
    assert NARROW not in conditions
    entry = entry_of(STUDY, "F6", evidence_of(scale="quick"))
    assert entry.verdict == "undecided"
    assert entry.sentence.startswith("It is trained at full scale only.")


def test_what_is_measured_of_width_is_drawn():
    (test,) = STUDY.pick(("F6",))
    found = test.measure(of_width(3, 0, 40, 38))
    by_seed = {name: values.tolist() for name, values in found.by_seed.items()}
    (panel,) = load_panels(STUDY)["F6"]
    assert (
        set(panel.chosen(tuple(by_seed)))
        == set(by_seed)
        == {
            "narrow, attention only",
            "narrow, with MLP",
            "wide, attention only",
        }
    )
    assert claim_figures((panel,), by_seed, found.plots)
