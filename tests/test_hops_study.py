"""The hops study: what judges H1 to H5, on planted evaluations and on silent and written models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import world_of
from hops_runs import CHANCE, FIRST, K1, K2, K4, K8, SECOND, SEEDS, THIRD, evaluated, part_of, some
from planted import entry_of, evidence_of, planted, silent

from mnemoscope.models import Transformer
from mnemoscope.probes.hop_accuracy import ablate_each_layer, read_after
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.hops import built, order
from mnemoscope.studies.library.hops.conditions import curriculum, only
from mnemoscope.studies.scales import FRESH_SEED
from mnemoscope.tasks import Hops
from mnemoscope.theory.hop_transformer import hop_model, write_hops
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec

STUDY = find_study("hops")

# H1 ----------------------------------------------------------------------------------------------


def test_written_weights_are_judged_by_their_worst_answer(monkeypatch):
    monkeypatch.setitem(built.SIZES, "quick", ((2, 3), (4, 3)))
    monkeypatch.setitem(built.DRAWS, "quick", 2)
    entry = entry_of(STUDY, "H1", evidence_of(scale="quick"))
    assert (entry.verdict, entry.value) == ("reproduced", 1)
    # width N k + N (log2 k + 2): 6 + 9 of 6, and 12 + 12 of 12
    assert part_of(entry, "width").value == 15 / 6
    assert part_of(entry, "one layer fewer, k = 4").value < 0.3
    monkeypatch.setattr(
        built, "write_hops", lambda task, hidden: write_hops(task, jnp.roll(hidden, 1, axis=1))
    )
    monkeypatch.setitem(built.SIZES, "quick", ((2, 3),))
    entry = entry_of(STUDY, "H1", evidence_of(scale="quick"))
    assert entry.verdict == "refuted"
    assert entry.value < 0.9


# H2 ----------------------------------------------------------------------------------------------


def hard_runs(four=CHANCE, two=SECOND, mixture=THIRD, long=400):
    return {
        "hard/k=1": evaluated(K1, {1: FIRST}),
        "hard/k=2": evaluated(K2, {1: CHANCE, 2: two}),
        "hard/k=4": evaluated(K4, {1: CHANCE, 2: CHANCE, 4: four}),
        "mixture/k=4": evaluated(K4, {1: FIRST, 2: SECOND, 4: mixture}),
        "long/k=4": evaluated(K4, {1: CHANCE, 2: CHANCE, 4: four}, steps=long),
    }


@pytest.mark.parametrize(
    ("planted_runs", "fails", "verdict"),
    [
        ({"four": CHANCE}, ("holds",), "undecided"),  # exponential or not, at three k
        ({"four": THIRD}, ("fails",), "undecided"),
        ({"four": some(CHANCE, 20, THIRD)}, ("partly",), "partly"),
        ({"four": some(CHANCE, 20, THIRD), "mixture": CHANCE}, ("partly",), "undecided"),
    ],
)
def test_failing_is_judged_by_chance_and_an_exponential_needs_four_k(planted_runs, fails, verdict):
    entry = entry_of(STUDY, "H2", evidence_of(hard_runs(**planted_runs)))
    assert entry.verdict == verdict
    assert part_of(entry, "fails").state == fails
    exponential = part_of(entry, "exponential")
    assert (exponential.value, exponential.state) == (None, ("holds", "partly", "fails"))
    assert "exponentially for nothing (40 of 40 have no finite value)" in entry.sentence
    quick = entry_of(STUDY, "H2", evidence_of(hard_runs(**planted_runs), "quick"))
    assert quick.verdict == "undecided"


def test_a_lower_bound_stands_beside_what_two_points_say():
    """Known at 100 steps for k = 1, at 200 for k = 2: an exponential is at 200 * 2^2 = 800."""
    for long, share in ((800, 1), (796, 0)):
        entry = entry_of(STUDY, "H2", evidence_of(hard_runs(long=long)))
        assert part_of(entry, "beyond two points").value == share
    entry = entry_of(STUDY, "H2", evidence_of(hard_runs(two=some(SECOND, 30), long=800)))
    assert part_of(entry, "beyond two points").units == 30


def test_refuted_and_reproduced_are_in_reach_once_steps_are_known_at_four_k(monkeypatch):
    for value, four, verdict in ((1, CHANCE, "reproduced"), (0, THIRD, "refuted")):
        monkeypatch.setattr(
            "mnemoscope.studies.library.hops.trained.grow_exponentially",
            lambda steps, value=value: np.full(SEEDS, float(value)),
        )
        assert entry_of(STUDY, "H2", evidence_of(hard_runs(four=four))).verdict == verdict


@pytest.mark.parametrize(
    ("mixture", "verdict"), [(THIRD, "partly"), (CHANCE, "reproduced"), (20, "reproduced")]
)
def test_a_reading_counts_where_the_mixture_learns(mixture, verdict, monkeypatch):
    """With a norm 4 hops alone are learned, which says something if the mixture learns them too."""
    monkeypatch.setattr(
        "mnemoscope.studies.library.hops.trained.grow_exponentially", lambda _: np.ones(SEEDS)
    )
    runs = hard_runs(four=CHANCE)
    rows = some(THIRD, 20) if mixture == 20 else mixture
    other = hard_runs(four=THIRD, mixture=rows)
    runs |= {f"{name}/norm": other[name] for name in ("hard/k=4", "mixture/k=4")}
    entry = entry_of(STUDY, "H2", evidence_of(runs))
    assert entry.verdict == verdict
    assert part_of(entry, "fails", "norm").state == ("fails",)


# H3 ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pure", "replay", "norm", "full", "quick"),
    [
        (40, 40, 40, "reproduced", "reproduced"),
        (40, 40, 0, "partly", "undecided"),
        (20, 40, 40, "partly", "undecided"),
        (0, 40, 40, "partly", "undecided"),
        (0, 0, 0, "refuted", "undecided"),
        (37, 40, 40, "undecided", "undecided"),
    ],
)
def test_a_curriculum_is_judged_in_its_readings(pure, replay, norm, full, quick):
    counts = {"curriculum/pure": pure, "curriculum/replay": replay, "curriculum/pure/norm": norm}
    runs = {
        name: evaluated(K4, {1: FIRST, 2: SECOND, 4: some(THIRD, n)}) for name, n in counts.items()
    }
    entry = entry_of(STUDY, "H3", evidence_of(runs))
    assert entry.verdict == full
    assert entry.value == pure / SEEDS
    assert part_of(entry, "knows", "norm").value == norm / SEEDS
    assert entry_of(STUDY, "H3", evidence_of(runs, "quick")).verdict == quick


def test_a_curriculum_that_knew_and_lost_it_has_failed():
    lost = evaluated(K4, {1: [0.25, 1, 1, 0.3, 0.3], 2: SECOND, 4: [0.25, 0.3, 0.95, 0.95, 0.5]})
    entry = entry_of(STUDY, "H3", evidence_of({"curriculum/pure": lost, "curriculum/replay": lost}))
    assert entry.verdict == "refuted"
    assert part_of(entry, "knew").value == 1
    assert part_of(entry, "forgot 1 hop").value == 1


# H4 ----------------------------------------------------------------------------------------------

LATE = [0.25, 0.3, 0.3, 0.4, 1]


def mixture_runs(four=LATE, eight=LATE, steps_of_eight=800):
    """Known after 100 steps for k = 1, 200 for k = 2 and 400 for k = 4; all of them for k = 8."""
    return {
        "hard/k=1": evaluated(K1, {1: FIRST}),
        "mixture/k=2": evaluated(K2, {1: FIRST, 2: SECOND}),
        "mixture/k=4": evaluated(K4, {1: FIRST, 2: SECOND, 4: four}),
        "mixture/k=8": evaluated(
            K8, {1: FIRST, 2: SECOND, 4: THIRD, 8: eight}, steps=steps_of_eight
        ),
    }


@pytest.mark.parametrize(
    ("planted_runs", "full", "quick"),
    [
        ({}, "reproduced", "reproduced"),
        ({"steps_of_eight": 8000}, "partly", "undecided"),
        ({"eight": CHANCE, "steps_of_eight": 8000}, "partly", "undecided"),  # 8,000 at the least
        ({"eight": CHANCE}, "undecided", "undecided"),  # 800 or more
        ({"four": CHANCE, "steps_of_eight": 8000}, "refuted", "undecided"),
        ({"four": some(LATE, 20), "steps_of_eight": 8000}, "partly", "undecided"),
    ],
)
def test_a_mixture_is_judged_by_its_seeds_and_by_how_their_steps_grow(planted_runs, full, quick):
    runs = mixture_runs(**planted_runs)
    entry = entry_of(STUDY, "H4", evidence_of(runs))
    assert entry.verdict == full
    assert entry_of(STUDY, "H4", evidence_of(runs, "quick")).verdict == quick
    if not planted_runs:
        assert part_of(entry, "power of k").value == pytest.approx(1)
        assert part_of(entry, "steps, k = 8").value == 800


# H5 ----------------------------------------------------------------------------------------------


def test_order_and_layers_by_hand():
    steps = np.array([[100, 100, 200], [200, 100, 100], [300, 300, 300.0]])
    assert order.in_order(steps).tolist() == [True, False, False]
    without = np.ones((3, 2, 2))
    without[0, 0, 0] = without[0, 1, 1] = 0.3
    without[1, 0, 0] = 0.3  # layer 1 is not needed
    without[2, [0, 1], [0, 1]] = 0.3, 5 / 8  # exactly half way is not lost
    assert order.needs_each(without, 0.25).tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("planted_runs", "verdict"),
    [
        ({}, "reproduced"),
        ({"two": FIRST}, "partly"),  # at the same evaluation, but each layer is needed
        ({"ablated": 0.9}, "partly"),  # in order, but no layer is needed
        ({"two": FIRST, "ablated": 0.9}, "refuted"),
        ({"four_below": THIRD}, "undecided"),  # the control: fewer layers do as well
        ({"knows": 36}, "reproduced"),
        ({"knows": 20}, "undecided"),  # too few that know 4 hops
        ({"knows": 0}, "undecided"),
    ],
)
def test_the_order_is_judged_with_its_layers_and_its_control(planted_runs, verdict):
    entry = entry_of(STUDY, "H5", order_evidence(**planted_runs))
    assert entry.verdict == verdict
    assert entry.units == planted_runs.get("knows", SEEDS)


@pytest.mark.parametrize(("knows", "verdict"), [(40, "partly"), (8, "reproduced")])
def test_an_order_is_asked_of_readings_that_learn(knows, verdict):
    evidence = order_evidence()
    other = order_evidence(two=FIRST, knows=knows)
    names = ("mixture/k=4", "curriculum/shallow")
    runs = {name: evidence.run(name) for name in names}
    runs |= {f"{name}/norm": other.run(name) for name in names}
    measured = evidence.planted | {
        (f"{name}/norm", probe): read for (name, probe), read in other.planted.items()
    }
    assert entry_of(STUDY, "H5", evidence_of(runs, measured=measured)).verdict == verdict


def order_evidence(two=SECOND, knows=SEEDS, four_below=CHANCE, ablated=0.25):
    runs = {
        "mixture/k=4": evaluated(K4, {1: FIRST, 2: two, 4: some(THIRD, knows)}),
        "curriculum/shallow": evaluated(K4, {1: FIRST, 2: SECOND, 4: four_below}, layers=2),
    }
    measured = {
        ("mixture/k=4", ablate_each_layer): np.full((SEEDS, 3, 3), ablated),
        ("mixture/k=4", read_after): np.ones((SEEDS, 3, 3)),
    }
    return evidence_of(runs, measured=measured)


# written models ----------------------------------------------------------------------------------


def test_written_models_need_their_layers_in_order():
    """H5, probed for real: weights that were written
    for the hidden permutations of each seed's world.
    """
    task = Hops(n=3, k=4)
    spec = Spec(task=task, model=hop_model(task), steps=400, metrics="hops", n_evals=4, snapshots=1)
    worlds = planted(spec, SEEDS).worlds()
    models = [write_hops(task, hidden) for hidden in worlds.hidden]
    curves = {f"{h} hops": row for h, row in ((1, FIRST), (2, SECOND), (4, THIRD))}
    third = [1 / 3] * 5  # chance among three
    runs = {
        "mixture/k=4": planted(spec, SEEDS, params=models, metrics=curves),
        "curriculum/shallow": evaluated(task, {1: FIRST, 2: SECOND, 4: third}, layers=2),
    }
    evidence = evidence_of(runs)
    assert entry_of(STUDY, "H5", evidence).verdict == "reproduced"
    np.testing.assert_array_equal(
        evidence.measure("mixture/k=4", read_after) == 1, np.tile(np.eye(3) == 1, (SEEDS, 1, 1))
    )
    # the same weights in worlds of other seeds: what is read is no longer right,
    # before anything is ablated
    moved = evidence_of(
        runs | {"mixture/k=4": planted(spec, SEEDS, params=models[1:] + models[:1], metrics=curves)}
    )
    read = moved.measure("mixture/k=4", read_after)
    assert (np.diagonal(read, axis1=1, axis2=2).mean(axis=0) < 0.9).all()


SHAPES = ("hard/k=1", "hard/k=2", "mixture/k=4", "curriculum/shallow")


@pytest.fixture(scope="module")
def read():
    """What the study's metrics read in a silent model of each shape,
    and in written models of every k.
    """
    found = {}
    for name in SHAPES:
        spec = STUDY.conditions("full")[name].spec
        found[name] = {"silent": read_by_metrics(spec, spec.model, silent(spec))}
        if name != "curriculum/shallow":
            world = world_of(spec.task)
            found[name]["written"] = read_by_metrics(
                spec, hop_model(spec.task), write_hops(spec.task, world.hidden)
            )
    return found


def read_by_metrics(spec, config, params):
    """What the metrics of a Spec read in a model."""
    world, metrics = world_of(spec.task), metrics_of(spec)
    found = jax.jit(lambda params: metrics(Transformer(config, params), world))(params)
    return {name: float(x) for name, x in found.items()}


def test_silent_models_are_at_chance_and_written_ones_know_everything(read):
    layers = {name: STUDY.conditions("full")[name].spec.model.n_layers for name in SHAPES}
    assert list(layers.values()) == [1, 2, 3, 2]
    for name, kinds in read.items():
        levels = STUDY.conditions("full")[name].spec.task.levels
        expected = {f"{2**level} hops" for level in range(levels)}
        for kind, seen in kinds.items():
            assert set(seen) == expected
            # a silent model says 0 everywhere, and each permutation holds one 0 in four places
            assert set(seen.values()) == {1.0 if kind == "written" else 1 / 4}, name


@pytest.mark.parametrize(
    ("kind", "share", "taught"), [("silent", 0, "refuted"), ("written", 1, "reproduced")]
)
def test_what_is_trained_is_judged_by_what_metrics_read(kind, share, taught, read):
    """H2, H3, H4 and H8 on curves that begin at chance and end
    as the metrics read a silent or a written model.
    """

    def run(name, shape):
        spec = STUDY.conditions("full")[name].spec.model_copy(update={"steps": 400, "n_evals": 4})
        begin, end = (read[shape][each] for each in ("silent", kind))
        series = {each: [begin[each]] * 4 + [end[each]] for each in end}
        return planted(spec, SEEDS, metrics=series)

    shapes = {"hard/k=1": "hard/k=1", "hard/k=2": "hard/k=2"}
    four = ("hard/k=4", "long/k=4", "mixture/k=4", "curriculum/pure", "curriculum/replay")
    runs = {name: run(name, shapes.get(name, "mixture/k=4")) for name in (*shapes, *four)}
    evidence = evidence_of(runs)
    assert entry_of(STUDY, "H3", evidence).verdict == taught
    assert part_of(entry_of(STUDY, "H2", evidence), "fails").value == 1 - share
    assert part_of(entry_of(STUDY, "H4", evidence), "knows").value == share
    assert entry_of(STUDY, "H8", evidence).verdict == "refuted"


# the study ---------------------------------------------------------------------------------------


def test_stages_share_out_what_they_should():
    assert only(0, 3, 0.2) == (1, 0, 0)
    assert only(2, 3) == (0, 0, 1)
    assert only(2, 3, 0.2) == pytest.approx((0.1, 0.1, 0.8))
    assert curriculum(2000, 0.2) == ((0, (1, 0, 0)), (400, (0.2, 0.8, 0)), (1200, (0.1, 0.1, 0.8)))
    assert curriculum(300, levels=2) == ((0, (1, 0)), (100, (0, 1)))
    assert [begin for begin, _ in curriculum(700, levels=4)] == [0, 100, 300, 500]


def test_full_scale_has_every_reading_on_fresh_seeds_and_quick_what_it_had():
    full = STUDY.conditions("full")
    assert {each.first_seed for each in full.values()} == {FRESH_SEED}
    for name in ("mixture/k=4", "hard/k=4", "curriculum/pure", "curriculum/shallow"):
        assert {full[each].seeds for each in (name, f"{name}/norm", f"{name}/rate")} == {128}
        assert full[f"{name}/norm"].spec.model.norm == "pre"
        assert full[f"{name}/rate"].spec.optimizer.lr == pytest.approx(0.3 * 1e-3)
    quick = STUDY.conditions("quick")
    assert {name: each.seed_range for name, each in quick.items()} == {
        name: range(12 if name == "mixture/k=4" else 8) for name in quick
    }
