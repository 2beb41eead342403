"""The permutation study without repeats: exact claims, and every function that measures the
eliminator, on models written by hand and on planted numbers in every zone.
"""

import math

import jax
import numpy as np
import pytest
from planted import evidence_of, silent
from remember_evidence import (
    STEPS,
    N,
    card,
    cards,
    column,
    conditions,
    entry,
    first,
    in_every_reading,
    like,
    measured_once,
    part_of,
    rates,
    written_eliminator,
)

from mnemoscope.core.errors import UserError
from mnemoscope.probes.skills import against_training, report_card
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.remember import elimination, exact
from mnemoscope.studies.library.remember.conditions import PLAIN, SMALL
from mnemoscope.studies.library.remember.mastery import elimination_rate
from mnemoscope.studies.library.remember.recall import asked_again
from mnemoscope.studies.scales import FRESH_SEED
from mnemoscope.tasks import Permutation, Split
from mnemoscope.tasks.permutation import Sequences, permutations

STUDY = find_study("remember")

POST = f"{PLAIN}/post"
FAST = f"{PLAIN}/lr3e-3"

# what is trained ---------------------------------------------------------------------------------


def test_everything_is_trained_in_every_reading_on_seeds_that_nobody_has_seen():
    full = conditions("full")
    assert all(each.first_seed == FRESH_SEED for each in full.values())
    for test in STUDY.tests:
        for name in test.pick_conditions(full):
            is_plain = name.count("/") == 1 and not name.startswith("capacity/")
            if is_plain and name not in ("any/d32h2", "repeat/d64h2"):
                assert in_every_reading(name) == [name, f"{name}/post", f"{name}/lr3e-3"]
    assert all(each.seeds in (128, 256) for each in full.values())
    assert not any("/post" in name or "lr3e-3" in name for name in conditions("quick"))
    assert {each.first_seed for each in conditions("quick").values()} == {0}


# models written by hand --------------------------------------------------------------------------

ELIMINATOR, MUTE = 0, 1  # rows of what was measured


@pytest.fixture(scope="module")
def one_head():
    def written(spec):
        return [written_eliminator(spec), silent(spec)]

    probes = (
        report_card,
        elimination_rate,
        asked_again,
        elimination.look_at_new_pairs,
        elimination.used_values,
    )
    return measured_once(PLAIN, written, probes)


@pytest.mark.parametrize("claim", ["R3", "R6", "R8", "R11", "R20"])
@pytest.mark.parametrize(
    ("eliminators", "verdict"),
    [(N, "reproduced"), (N - 2, "undecided"), (N // 2, "partly"), (0, "refuted")],
)
def test_written_eliminators_eliminate_and_silent_models_do_not(
    claim, eliminators, verdict, one_head
):
    name = SMALL if claim in ("R6", "R8") else PLAIN
    found = like(one_head, (ELIMINATOR, eliminators), (MUTE, N - eliminators))
    measured = {(each, probe): x for each in in_every_reading(name) for probe, x in found.items()}
    if claim == "R8":  # neither model recalls anything
        verdict = "reproduced"
    found = entry(claim, measured)
    assert found.verdict == verdict
    # the eliminator is sure of the unused value; five tokens share the silent one's answer
    if claim in ("R6", "R20"):
        expected = (eliminators + (N - eliminators) / 5) / N
        assert part_of(found, "P(unused)").value == pytest.approx(expected)


def test_the_written_eliminators_output_is_the_posterior(one_head):
    def found(row):
        seeds = like(one_head, (row, N))
        measured = {
            (each, probe): x for each in in_every_reading(PLAIN) for probe, x in seeds.items()
        }
        # four symbols have four steps: the fifth is taken to be like the fourth
        for name in in_every_reading(PLAIN):
            of_four = measured[name, report_card]
            measured[name, report_card] = of_four | {
                what: np.concatenate([of_four[what], of_four[what][:, -1:]], axis=1)
                for what in ("mae", "max_ae")
            }
        return entry("R4", measured)

    exact_one = found(ELIMINATOR)
    assert exact_one.verdict == "reproduced"
    assert exact_one.value == pytest.approx(0, abs=1e-6)
    mute = found(MUTE)
    assert mute.verdict == "refuted"
    # 1/5 for each of four symbols, where k values are left:
    # |1/k - 1/5| for k of them and 1/5 for the others
    for step, k in enumerate((4, 3, 2, 1), start=1):
        expected = (k * (1 / k - 1 / 5) + (4 - k) / 5) / 4
        assert part_of(mute, f"MAE at step {step}").value == pytest.approx(expected)


def test_the_written_eliminator_rules_out_by_its_read_out(one_head):
    """All of the distance between its logits is made by the head; the silent model has none."""
    seen = one_head[elimination.used_values]
    np.testing.assert_allclose(seen["direct"][ELIMINATOR] / seen["gap"][ELIMINATOR], 1, rtol=1e-5)
    np.testing.assert_allclose(seen["p"], [0, (1 + 2 + 3) / 3 / 5], atol=1e-6)
    measured = {
        (each, probe): x
        for each in in_every_reading(PLAIN)
        for probe, x in like(one_head, (ELIMINATOR, N)).items()
    }
    assert entry("R27", measured).verdict == "reproduced"


@pytest.mark.parametrize(
    ("p", "direct", "verdict"),
    [
        (0.01, 0.5, "reproduced"),
        (0.01, 0.3, "partly"),
        (0.02, 0.9, "partly"),
        (0.02, 0.1, "refuted"),
        (first(20, 0.01, 0.02), 0.9, "partly"),
        (first(38, 0.01, 0.02), 0.9, "undecided"),
    ],
)
def test_used_values_are_suppressed(p, direct, verdict):
    """R27: with a norm there is no direct part, and that reading is judged by the other."""
    seen = {"p": np.broadcast_to(p, N), "gap": np.full(N, 2.0), "direct": np.full(N, 2 * direct)}
    measured = rates(1.0, PLAIN)
    measured |= {(name, elimination.used_values): seen for name in in_every_reading(PLAIN)}
    found = entry("R27", measured)
    assert found.verdict == verdict
    assert {p.reading for p in found.parts if p.name == "by the read-out"} == {"plain", "lr3e-3"}


# exact claims ------------------------------------------------------------------------------------


def test_the_eliminators_loss_is_exact(monkeypatch):
    found = entry("R1", {})
    expected = (math.log(5) + math.log(4) + math.log(3) + math.log(2)) / 5
    assert found.verdict == "reproduced"
    assert found.value == pytest.approx(expected, abs=1e-7)
    assert part_of(found, "guess").value == pytest.approx(math.log(5))

    def all_alike(task, tokens):
        return jax.numpy.full(((len(tokens) + 1) // 2, task.d_vocab), 1 / task.n_symbols)

    for where, name, broken, part in (
        (exact, "eliminator_loss", lambda v: math.log(v) / 2, "eliminator"),
        (exact, "guessing_loss", lambda v: math.log(v + 1), "guess"),
        (Permutation, "posterior", all_alike, "counted"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, broken)
            found = entry("R1", {})
        assert found.verdict == "partly", name
        assert part_of(found, part).state == ("fails",)


def test_sequences_are_counted(monkeypatch):
    found = entry("R2", {})
    assert (found.verdict, found.value) == ("reproduced", 120 * 120)
    values = {part.name: part.value for part in found.parts}
    assert values == {
        "sequences": 120 * 120,
        "trained": 96 * 120,
        "held out": 24 * 120,
        "in both": 0,
    }
    every = permutations(5)

    def first_order_only(self, mappings):
        tokens = np.asarray(self.list_tokens(jax.numpy.asarray(mappings), (4,)))
        tokens = np.repeat(tokens[::120], 120, axis=0)
        return Sequences(tokens, np.full(len(tokens), 1 / len(tokens)), np.full(len(tokens), 4))

    def split(first_held_out):
        return lambda self, *, key: Split(
            jax.numpy.array(every[:96]), jax.numpy.array(every[first_held_out:][:24])
        )

    for name, broken, wrong in (
        ("sequences", first_order_only, {"sequences", "trained", "held out"}),
        ("world", split(95), {"in both"}),
        ("world", split(97), {"held out"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Permutation, name, broken)
            found = entry("R2", {})
        assert found.verdict == "partly"
        assert {part.name for part in found.parts if part.state == ("fails",)} == wrong


# planted report cards ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("plain", "quick", "full"),
    [
        (card(max_ae=0.013), "reproduced", "reproduced"),
        (card(max_ae=0.014), "undecided", "partly"),  # all right, but not sure enough
        (card(max_ae=column(10, 0.014, 0.001)), "reproduced", "reproduced"),  # the median counts
        (card(accuracy=column(38, 1, 0.999)), "undecided", "undecided"),
        (card(accuracy=column(20, 1, 0.999)), "undecided", "partly"),
        (card(accuracy=0.999, max_ae=0.9), "undecided", "refuted"),
        (card(accuracy=[0, 0, 0, 0, 1]), "reproduced", "reproduced"),  # earlier steps do not count
    ],
)
def test_step_five(plain, quick, full):
    """R3."""
    assert entry("R3", cards(plain, PLAIN, scale="quick"), "quick").verdict == quick
    assert entry("R3", cards(plain, PLAIN)).verdict == full


def test_readings_that_contradict_each_other_are_partly():
    perfect = card()
    failed = card(accuracy=0.9, max_ae=0.9)
    for other, verdict in ((perfect, "reproduced"), (failed, "partly")):
        for changed in (POST, FAST):
            found = entry("R3", cards(perfect, PLAIN) | {(changed, report_card): other})
            assert found.verdict == verdict
    assert "post 100% [91.2%, 100%] (holds), lr3e-3 0% [0%, 8.76%] (fails)" in found.sentence
    assert entry("R3", cards(failed, PLAIN) | {(POST, report_card): perfect}).verdict == "partly"


@pytest.mark.parametrize(
    ("plain", "full"),
    [
        (card(mae=0.019, max_ae=0.149), "reproduced"),
        (card(mae=[0, 0, 0.021, 0, 0], max_ae=0.1), "partly"),  # at each step, not on average
        (card(mae=[0, 0, 0.051, 0, 0], max_ae=0.1), "partly"),
        (card(mae=0.051, max_ae=0.9), "refuted"),
        (card(mae=column(20, 0.0, 0.03)), "reproduced"),  # on average over seeds
        (card(mae=column(20, 0.0, 0.039)), "undecided"),  # .0195 on average
        (card(mae=0.01, max_ae=column(20, 0.151, 0.1)), "partly"),
        (card(mae=0.01, max_ae=column(2, 0.151, 0.1)), "undecided"),
    ],
)
def test_distance_from_the_posterior(plain, full):
    """R4."""
    assert entry("R4", cards(plain, PLAIN) | rates(1.0, PLAIN)).verdict == full
    at_quick = cards(plain, PLAIN, scale="quick") | rates(1.0, PLAIN, scale="quick")
    assert entry("R4", at_quick, "quick").verdict == "undecided"


def test_a_reading_that_does_not_eliminate_does_not_count():
    far = card(mae=0.06, max_ae=0.9)
    measured = cards(card(), PLAIN) | {(POST, report_card): far} | rates(1.0, PLAIN)
    assert entry("R4", measured).verdict == "partly"
    assert entry("R4", measured | {(POST, elimination_rate): np.zeros(N)}).verdict == "reproduced"
    some = first(4, 1.0, 0.98)  # four of forty: it may count or not
    assert entry("R4", measured | {(POST, elimination_rate): some}).verdict == "undecided"


CHANCE = 1 / np.arange(5, 0, -1)  # a guess among 5, 4, 3, 2 values, and the one that is left


def below_chance(gap, scale="full", spread=0.001):
    around = np.linspace(-spread, spread, N)[:, None]
    closer = {name: np.zeros((N, STEPS)) for name in ("mae_training", "accuracy_training")}
    closer["mae_all"] = np.full((N, STEPS), 0.1)
    measured = cards(card(accuracy=CHANCE + np.array(gap) + around), PLAIN, scale=scale)
    measured |= rates(1.0, PLAIN, scale=scale) | {(PLAIN, against_training): closer}
    return entry("R5", measured, scale)


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        ([0, 0, 0, 0, 0], "reproduced"),
        ([0.019, -0.019, 0, 0, -0.1], "reproduced"),  # the fifth step is no guess
        ([-0.1, -0.1, -0.03, -0.03, 0], "refuted"),
        ([0.1, 0.1, 0.1, 0.1, 0], "refuted"),  # above chance is no luck either
        ([-0.1, -0.1, -0.1, 0, 0], "partly"),
        ([-0.02, 0, 0, 0, 0], "undecided"),  # at the border
    ],
)
def test_below_chance(gap, verdict):
    """R5: the luck of a split averages out."""
    found = below_chance(gap)
    assert found.verdict == verdict
    assert found.value == pytest.approx(gap[0], abs=1e-6)
    assert part_of(found, "nearer to by heart").value == 1
    expected = "refuted" if verdict == "refuted" else "undecided"
    assert below_chance(gap, "quick").verdict == expected


def test_luck_that_is_not_known_to_be_small_shows_nothing():
    assert below_chance([0, 0, 0, 0, 0], spread=0.2).verdict == "undecided"


@pytest.mark.parametrize(
    ("says", "verdict"),
    [
        (column(40, 0.99, 0.98), "reproduced"),
        (column(20, 1, 0.98), "partly"),
        (column(0, 1, 0.98), "refuted"),
        ([1, 0, 0, 0], "reproduced"),  # asked again for x1
        ([0, 1, 1, 1], "refuted"),
    ],
)
def test_the_trap(says, verdict):
    """R20."""
    plain = card(says_unused=says, p_unused=[0.7, 0.1, 0.1, 0.1])
    for scale in ("quick", "full"):
        measured = cards(plain, PLAIN, scale=scale) | rates(1.0, PLAIN, scale=scale)
        found = entry("R20", measured, scale)
        assert found.verdict == verdict
        assert part_of(found, "P(unused)").value == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("uneven", "verdict"),
    [
        (column(40, 0.1, 0.11), "reproduced"),
        (column(38, 0.1, 0.11), "undecided"),
        (column(20, 0.1, 0.11), "partly"),
        (column(0, 0.1, 0.11), "refuted"),
    ],
)
def test_even_attention(uneven, verdict):
    """R11."""
    seen = {"unevenness": uneven, "x_to_outputs": np.ones((N, 1))}
    for scale in ("quick", "full"):
        names = in_every_reading(PLAIN, scale)
        measured = {(name, elimination.look_at_new_pairs): seen for name in names}
        found = entry("R11", measured | rates(1.0, PLAIN, scale=scale), scale)
        assert found.verdict == verdict


def test_what_is_trained_at_full_scale_alone_says_so_at_quick():
    for claim in ("R17", "R21", "R22", "R23", "R24", "R26", "R28"):
        found = entry(claim, {}, "quick")
        assert found.verdict == "undecided"
        assert found.sentence == "It is trained at full scale only."


def test_unknown_claims_are_refused():
    with pytest.raises(UserError, match="unknown claim of study 'remember' 'R99'"):
        STUDY.pick(("R99",))


def test_evidence_has_only_what_is_planted():
    assert evidence_of(conditions={PLAIN: conditions("full")[PLAIN]}).readings(PLAIN) == {
        "plain": PLAIN
    }
