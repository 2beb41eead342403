"""The permutation study: storing against a rule, and what becomes of a model if one thing of its
data is changed. R6, R7 and R17 again by a second program that uses nothing of the package.
"""

import jax
import numpy as np
import pytest
import remember_plain
from compiled import batch_of, world_of
from planted import evidence_of, planted, silent, untrained
from remember_evidence import (
    FOUR,
    N,
    card,
    cards,
    column,
    conditions,
    entry,
    first,
    in_every_reading,
    part_of,
    rates,
    written_eliminator,
    written_recaller,
)

from mnemoscope.models.rewrites.choose import choose_rewrite
from mnemoscope.probes.skills import report_card
from mnemoscope.studies.library.remember.conditions import (
    ALL_LOSSES,
    ALL_LOSSES_TWO,
    FIXED,
    FIXED_TWO,
    NO_POSITIONS,
    ORDERED,
    PLAIN,
    PLAIN_WIDE,
    SIX,
    TWO,
)
from mnemoscope.studies.library.remember.conditions import (
    FOUR as FOUR_SYMBOLS,
)
from mnemoscope.studies.library.remember.data import accuracy_by_order, change_by_order
from mnemoscope.studies.library.remember.mastery import elimination_rate
from mnemoscope.studies.library.remember.recall import asked_again
from mnemoscope.studies.library.remember.storage import probabilities, share_stored
from mnemoscope.tasks import Permutation
from mnemoscope.training.loss import batch_loss

# storing against a rule --------------------------------------------------------------------------


def storing(**shares):
    """Probabilities of models that store such shares of what can be known by heart."""
    measured = {}
    for name, share in zip((FOUR_SYMBOLS, PLAIN_WIDE, SIX), shares.values(), strict=True):
        apart = np.array(np.broadcast_to(share, N), float) * 0.2
        found = {
            "trained": 0.5 + apart,
            "held out": np.full(N, 0.5),
            "trained, by heart": np.full(N, 0.6),
            "held out, by heart": np.full(N, 0.4),
        }
        measured |= {(each, probabilities): found for each in in_every_reading(name)}
    return measured | rates(1.0, FOUR_SYMBOLS, PLAIN_WIDE, SIX)


@pytest.mark.parametrize(
    ("four", "five", "six", "verdict"),
    [
        (0.91, 0.09, 0.09, "reproduced"),
        (0.91, -0.2, 0.0, "reproduced"),
        (0.2, 0.09, 0.09, "partly"),
        (0.91, 0.5, 0.09, "partly"),
        (0.91, 0.09, 0.91, "partly"),
        (0.09, 0.91, 0.91, "refuted"),
        (0.09, 0.09, 0.09, "partly"),  # nothing is stored at any size
        (first(20, 0.7, 1.08), 0.0, 0.0, "undecided"),
    ],
)
def test_storing_or_ruling(four, five, six, verdict):
    """R17."""
    found = entry("R17", storing(four=four, five=five, six=six))
    assert found.verdict == verdict
    assert found.value == pytest.approx(np.mean(four))
    assert part_of(found, "trained - held out, V=6").value == pytest.approx(0.2 * six)


def test_a_reading_that_does_not_eliminate_has_no_say_in_storing():
    measured = storing(four=0.95, five=0.0, six=0.0)
    post = f"{PLAIN_WIDE}/post"
    measured[post, probabilities] = storing(four=0, five=0.5, six=0)[post, probabilities]
    assert entry("R17", measured).verdict == "partly"
    measured[post, elimination_rate] = np.zeros(N)
    assert entry("R17", measured).verdict == "reproduced"


# the order of the x's ----------------------------------------------------------------------------


def by_order(in_order, shuffled):
    """Accuracies of models that were trained in order."""
    found = {"in order": in_order, "shuffled": shuffled}
    read = {what: np.array(np.broadcast_to(x, N), float) for what, x in found.items()}
    measured = {(name, accuracy_by_order): read for name in in_every_reading(ORDERED)}
    return measured | rates(1.0, PLAIN)


@pytest.mark.parametrize(
    ("in_order", "shuffled", "verdict"),
    [
        (0.5, 0.5, "reproduced"),
        (0.51, 0.5, "partly"),
        (1.0, 1.0, "refuted"),
        (first(20, 0.2, 1.0), 0.2, "partly"),
        (0.2, first(38, 0.2, 1.0), "undecided"),
    ],
)
def test_xs_in_order(in_order, shuffled, verdict):
    """R21."""
    found = entry("R21", by_order(in_order, shuffled))
    assert found.verdict == verdict
    assert part_of(found, "accuracy shuffled").value == pytest.approx(np.mean(shuffled))


def test_an_eliminator_eliminates_in_any_order():
    spec = conditions("full")[ORDERED].spec
    spec = spec.model_copy(update={"task": FOUR.model_copy(update={"x_order": "fixed"})})
    run = planted(spec, 2, params=[written_eliminator(spec), silent(spec)])
    found = evidence_of({ORDERED: run}).measure(ORDERED, accuracy_by_order)
    # the silent model says 0, which is no answer
    assert {name: x.tolist() for name, x in found.items()} == {
        "in order": [1, 0],
        "shuffled": [1, 0],
    }


# as many steps, with other data ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fixed", "fixed_two", "verdict"),
    [
        (0, 0, "reproduced"),
        (40, 0, "partly"),
        (0, 40, "partly"),
        (40, 40, "refuted"),
        (36, 36, "undecided"),  # a tenth more, or not
    ],
)
def test_a_fixed_set(fixed, fixed_two, verdict):
    """R22."""
    measured = rates(1.0, PLAIN) | rates(first(fixed, 0.99, 0.98), FIXED)
    measured |= cards(card(), PLAIN, TWO) | cards(card(loss=0.5), FIXED)
    measured |= cards(card(recall=column(fixed_two, 0.99, 0.98)), FIXED_TWO)
    found = entry("R22", measured)
    assert found.verdict == verdict
    assert found.value == pytest.approx(1 - fixed / N)
    assert part_of(found, "held-out loss").value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("distance", "learned", "verdict"),
    [
        (0.012, 0, "reproduced"),
        (0.012, 40, "partly"),
        (0.01, 0, "partly"),
        (0.011, 40, "refuted"),
        (column(20, 0.010, 0.014), 0, "undecided"),
        (0.009, 40, "refuted"),  # better than with the loss on answers
    ],
)
def test_loss_everywhere(distance, learned, verdict):
    """R23."""
    measured = cards(card(mae=0.01), PLAIN) | cards(card(mae=distance), ALL_LOSSES)
    measured |= cards(card(), TWO)
    measured |= cards(card(recall=column(learned, 0.99, 0.98)), ALL_LOSSES_TWO)
    found = entry("R23", measured)
    assert found.verdict == verdict
    assert part_of(found, "dilution").value == pytest.approx(1 - learned / N)


def test_noise_is_compared_seed_by_seed():
    """A tenth as far from the posterior, in seeds that differ ten times as much."""
    spread = np.linspace(0, 0.1, N)[:, None]
    measured = cards(card(mae=spread), PLAIN) | cards(card(mae=spread + 0.003), ALL_LOSSES)
    measured |= cards(card(), TWO) | cards(card(recall=0.5), ALL_LOSSES_TWO)
    assert entry("R23", measured).verdict == "reproduced"


# without positions -------------------------------------------------------------------------------


def blindness(change, with_positions):
    measured = {
        (name, change_by_order): np.array(np.broadcast_to(change, N), float)
        for name in in_every_reading(NO_POSITIONS)
    }
    measured[TWO, change_by_order] = np.array(np.broadcast_to(with_positions, N), float)
    return measured | cards(card(recall=0.3), NO_POSITIONS) | cards(card(), TWO)


@pytest.mark.parametrize(
    ("change", "with_positions", "verdict"),
    [
        (1e-3, 0.9, "reproduced"),
        (first(20, 1e-4, 0.1), 0.9, "partly"),
        (first(38, 1e-4, 0.1), 0.9, "undecided"),
        (0.1, 0.9, "refuted"),
        (1e-4, 1e-4, "undecided"),  # the control fails: nothing reads the order anyway
        (1e-4, first(38, 0.9, 1e-4), "undecided"),
    ],
)
def test_blind_to_order(change, with_positions, verdict):
    """R24."""
    found = entry("R24", blindness(change, with_positions))
    assert found.verdict == verdict
    assert part_of(found, "recall").value == pytest.approx(0.3)


def test_without_positions_no_model_sees_the_order():
    """Whatever its weights are; with positions the written recaller does."""
    blind = conditions("full")[NO_POSITIONS].spec.model_copy(update={"task": FOUR})
    models = [scaled(untrained(blind, seed)) for seed in (0, 1)]
    found = evidence_of({NO_POSITIONS: planted(blind, 2, params=models)})
    assert found.measure(NO_POSITIONS, change_by_order).max() < 1e-5
    spec = conditions("full")[TWO].spec.model_copy(update={"task": FOUR})
    models = [written_recaller(spec, local=True), scaled(untrained(spec))]
    found = evidence_of({TWO: planted(spec, 2, params=models)})
    assert found.measure(TWO, change_by_order).min() > 0.1


@pytest.mark.parametrize("name", [ORDERED, FIXED, ALL_LOSSES, NO_POSITIONS])
def test_what_is_changed_trains_as_the_plain_pass_says(name):
    """The loss of a batch, by the pass that training takes and by the plain one."""
    spec = conditions("full")[name].spec
    batch = batch_of(spec.task, world_of(spec.task), 8)
    params = untrained(spec)
    passes = (choose_rewrite(spec.model, spec.task), None)
    one, other = (batch_loss(spec.task, spec.model, params, batch, each) for each in passes)
    assert one == pytest.approx(float(other), rel=1e-5)
    assert len(spec.task.loss_positions) == (9 if name == ALL_LOSSES else 5)


# by a second route -------------------------------------------------------------------------------


def scaled(params, factor=1.5):
    """Weights so large that a model says something."""
    return {name: np.asarray(value) * factor for name, value in params.items()}


CASES = {
    "one head": (PLAIN_WIDE, Permutation(n_symbols=4, split_seed=1)),
    "two heads, a norm": (f"{TWO}/post", Permutation(n_symbols=4, repeat=0.3)),
    "three symbols": (PLAIN, Permutation(n_symbols=3, held_out=0.4)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_second_program_reads_the_same(case):
    name, task = CASES[case]
    spec = conditions("full")[name].spec.model_copy(update={"task": task})
    models = [scaled(untrained(spec, seed)) for seed in (0, 1)]
    if case == "one head":
        models[1] = written_eliminator(spec)
    run = planted(spec, 2, params=models)
    evidence = evidence_of({name: run})
    again = evidence.measure(name, asked_again)
    loss = evidence.measure(name, report_card)
    share = share_stored(evidence.measure(name, probabilities))
    worlds = jax.tree.map(np.asarray, run.worlds())
    for i, params in enumerate(models):
        found = remember_plain.asked_again(params, worlds.held_out[i])
        for what, value in found.items():
            assert again[what][i] == pytest.approx(value, abs=1e-4), what
        if case != "one head" or i == 0:  # the eliminator's loss is infinite where x1 repeats
            found = remember_plain.losses(params, worlds.held_out[i])
            assert loss["loss"][i].mean() == pytest.approx(found["nothing repeats"], rel=1e-4)
            assert loss["repeat_loss"][i, 0].mean() == pytest.approx(found["x1 repeats"], rel=1e-4)
        found = remember_plain.stored(params, worlds.train[i], worlds.held_out[i])
        assert share[i] == pytest.approx(found, abs=1e-4)
    if case == "one head":  # an eliminator stores nothing
        assert share[1] == pytest.approx(0, abs=1e-5)
