"""The hops study: how steps grow with k, and what judges H6 to H8, on planted evaluations."""

import numpy as np
import pytest
from hops_runs import CHANCE, FIRST, K1, K2, K4, SECOND, SEEDS, THIRD, evaluated, some
from planted import entry_of, evidence_of, planted

from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.hops import accuracy, growth
from mnemoscope.studies.library.hops.conditions import curriculum
from mnemoscope.studies.presentation import load_panels
from mnemoscope.tasks import Hops

STUDY = find_study("hops")


def test_exponentials_are_told_from_powers_by_four_points():
    steps = {k: np.array([2.0**k, 100.0 * k**2, 2.0 ** (k * k), 2.0**k]) for k in (1, 2, 4, 8)}
    steps[8][3] = np.inf
    np.testing.assert_array_equal(growth.grow_exponentially(steps), [1, 0, 1, np.nan])
    del steps[8]
    assert np.isnan(growth.grow_exponentially(steps)).all()


def test_steps_that_were_never_reached_are_bounds_where_they_can_be():
    steps = {k: np.full(4, 100.0 * k) for k in (1, 2, 4, 8)}
    at_least = {k: each.copy() for k, each in steps.items()}
    steps[8][1] = np.inf
    at_least[8][1] = 8000  # already too many
    steps[8][2] = np.inf  # 800 or more: nobody knows
    steps[1][3] = np.inf
    at_least[1][3] = 1  # a small k may have taken any time: nobody knows
    found = growth.grow_at_most_as_k(steps, at_least)
    np.testing.assert_array_equal(found, [1, 0, np.nan, np.nan])
    np.testing.assert_allclose(growth.powers_of_k(steps), [1, np.inf, np.inf, np.inf])


def test_runs_are_paired_by_the_seeds_that_finished_in_both():
    one = evaluated(K1, {1: FIRST})
    spec = one.spec
    two = planted(spec, SEEDS, metrics={"1 hops": FIRST}, finite_steps={1: 10})
    first, second = accuracy.paired((one, np.arange(SEEDS)), (two, 10 * np.arange(SEEDS - 1)))
    assert first.tolist() == [0, *range(2, SEEDS)]
    assert second.tolist() == [10 * i for i in range(SEEDS - 1)]


# H6 to H8 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alone", "mixed", "verdict"),
    [
        (SECOND, SECOND, "reproduced"),
        (CHANCE, CHANCE, "reproduced"),  # never known is later
        (FIRST, FIRST, "refuted"),  # at the same evaluation
        (SECOND, FIRST, "partly"),
        (some(SECOND, 20, FIRST), SECOND, "partly"),
        (some(SECOND, 37, FIRST), SECOND, "undecided"),
    ],
)
def test_two_hops_are_harder_than_one(alone, mixed, verdict):
    runs = {
        "hard/k=1": evaluated(K1, {1: FIRST}),
        "hard/k=2": evaluated(K2, {1: CHANCE, 2: alone}),
        "mixture/k=2": evaluated(K2, {1: FIRST, 2: mixed}),
    }
    assert entry_of(STUDY, "H6", evidence_of(runs)).verdict == verdict


def staged(k, at, steps):
    """A curriculum of k whose last hops are known at this evaluation of ten, earlier ones at the
    end of their stages.
    """
    task = Hops(n=4, k=k, schedule=curriculum(steps, levels=k.bit_length()))
    begins = [begin for begin, _ in task.schedule]
    evals = np.linspace(0, steps, 11)
    rows = {}
    for level in range(task.levels):
        last = level == task.levels - 1
        known_at = at * steps if last else begins[level + 1]
        rows[2**level] = np.where(evals >= known_at, 1.0, 0.25)
    return evaluated(task, rows, steps=steps, n_evals=10)


def test_stages_count_from_their_begin_and_at_most_in_full():
    run = staged(4, 0.8, 1000)  # stages begin at 0, 200 and 600
    needed, at_least = growth.steps_in_stages(run)
    # 2 hops are known at the evaluation at 600, 4 at that at 800
    assert needed.tolist() == at_least.tolist() == [200 + 400 + 200] * SEEDS
    needed, at_least = growth.steps_in_stages(staged(4, 1.1, 1000))
    assert np.isinf(needed).all()
    assert at_least.tolist() == [1000] * SEEDS


@pytest.mark.parametrize(
    ("pure", "replay", "verdict"),
    [
        (1600, 1600, "reproduced"),
        (1600, 30_000, "partly"),
        (30_000, 30_000, "refuted"),
    ],
)
def test_a_curriculum_grows_as_its_stages_do(pure, replay, verdict):
    """H7: 200 steps for k = 1 and in proportion from there on, but for k = 8."""
    runs = {"hard/k=1": evaluated(K1, {1: SECOND})}
    for name, longest in (("pure", pure), ("replay", replay)):
        runs[f"curriculum/k=2/{name}"] = staged(2, 1.0, 400)
        runs[f"curriculum/{name}"] = staged(4, 1.0, 800)
        runs[f"curriculum/k=8/{name}"] = staged(8, 1.0, longest)
    entry = entry_of(STUDY, "H7", evidence_of(runs))
    assert entry.verdict == verdict
    of_quick = {name: run for name, run in runs.items() if "/k=" not in name or "hard" in name}
    quick = entry_of(STUDY, "H7", evidence_of(of_quick, "quick"))
    assert quick.sentence == "Curricula of other k than 4 are trained at full scale only."
    panels = load_panels(STUDY)["H7"]
    known = tuple(STUDY.pick(("H7",))[0].measure(evidence_of(runs)).by_seed)
    assert {name for panel in panels for name in panel.chosen(known)} == set(known)


@pytest.mark.parametrize(
    ("pure", "replay", "mixture", "full"),
    [
        (40, 40, 0, "reproduced"),
        (40, 40, 40, "refuted"),
        (0, 0, 0, "refuted"),  # nothing learns it: then a curriculum does not either
        (20, 40, 0, "partly"),
        (40, 0, 0, "partly"),
        (40, 40, 3, "undecided"),
    ],
)
def test_only_a_curriculum_means_that_the_mixture_does_not(pure, replay, mixture, full):
    counts = {"curriculum/pure": pure, "curriculum/replay": replay, "mixture/k=4": mixture}
    runs = {
        name: evaluated(K4, {1: FIRST, 2: SECOND, 4: some(THIRD, n)}) for name, n in counts.items()
    }
    assert entry_of(STUDY, "H8", evidence_of(runs)).verdict == full
    assert entry_of(STUDY, "H8", evidence_of(runs, "quick")).verdict == "undecided"
