"""B9-B12 and B18 on planted curves: what the data decides."""

import numpy as np
import pytest
from birth_planted import FULL, NEVER, STEPS, N, entry, memories, mixed, ramp, states, value_of
from planted import entry_of, evidence_of, planted

from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.birth import data
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    BIGRAM,
    GLOBAL,
    GLOBAL_RANDOM,
    GLOBAL_RARE,
)

STUDY = find_study("birth")

# B9 ----------------------------------------------------------------------------------------------


def losses(spoken, context):
    """Losses that are half way to the best at these steps."""
    return {
        "global loss": ramp(spoken, 4.2, 2.1),
        "context loss": ramp(context, 4.2, 0.0),
        "first loss": ramp(500, 4.2, 4.2),
    }


@pytest.mark.parametrize(
    ("first", "verdict"),
    [(N, "reproduced"), (N - 2, "undecided"), (20, "partly"), (0, "refuted")],
)
def test_global_and_in_context(first, verdict):
    groups = [(first, losses(20, 60)), (N - first, losses(60, 20))]
    found = entry("B9", {GLOBAL: mixed(*groups)})
    assert found.verdict == verdict
    assert found.value == first / N
    assert value_of(found, "exact posterior") == pytest.approx(2.14, abs=0.05)


@pytest.mark.parametrize("reading", ["other", "relu"])
def test_global_and_in_context_in_every_reading(reading):
    name = f"{GLOBAL}/{reading}"
    assert entry("B9", {GLOBAL: losses(20, 60), name: losses(20, 60)}).verdict == "reproduced"
    assert entry("B9", {GLOBAL: losses(20, 60), name: losses(60, 20)}).verdict == "partly"


# B10 ---------------------------------------------------------------------------------------------

KINDS = (GLOBAL, GLOBAL_RARE, GLOBAL_RANDOM)


def kinds(*times, reading=""):
    return {name + reading: losses(15, at) for name, at in zip(KINDS, times, strict=True)}


@pytest.mark.parametrize(
    ("times", "verdict"),
    [
        ((20, 50, 70), "reproduced"),
        ((20, 70, 50), "reproduced"),
        ((20, NEVER, NEVER), "reproduced"),
        ((50, 20, 70), "partly"),
        ((50, 70, 20), "partly"),
        ((50, 50, 50), "refuted"),  # no faster is not first
        ((NEVER, NEVER, NEVER), "refuted"),
    ],
)
def test_kinds_of_triggers(times, verdict):
    assert entry("B10", kinds(*times)).verdict == verdict


def test_kinds_of_triggers_partly_and_with_a_single_trigger():
    half = mixed((20, losses(15, 20)), (20, losses(15, 60)))
    found = entry("B10", kinds(20, 50, 50) | {GLOBAL: half})
    assert states(found) == {"before rarer": "partly", "before random": "partly"}
    assert found.verdict == "partly"
    single = kinds(50, 20, 20, reading="/one")
    assert entry("B10", kinds(20, 50, 70) | single).verdict == "partly"


def test_triggers_are_compared_over_the_shortest_training():
    """Frequent triggers train for three times as long; what comes later does not count."""
    runs = {}
    for name, steps in ((GLOBAL, STEPS), (GLOBAL_RARE, 50), (GLOBAL_RANDOM, 50)):
        spec = FULL[name].spec.model_copy(update={"steps": steps, "n_evals": steps})
        series = {key: values[: steps + 1] for key, values in losses(15, 70).items()}
        runs[name] = planted(spec, N, metrics=series)
    found = entry_of(STUDY, "B10", evidence_of(runs))
    assert found.verdict == "refuted"
    assert value_of(found, "steps, frequent") is None


# B18 ---------------------------------------------------------------------------------------------


def delays(rarer, random, usual=(20, 20)):
    """Output memory and second keys half formed at these steps."""
    return {
        GLOBAL: memories(*usual, 60),
        GLOBAL_RARE: memories(*rarer, 60),
        GLOBAL_RANDOM: memories(*random, 60, candidates=65),
    }


@pytest.mark.parametrize(
    ("rarer", "random", "verdict"),
    [
        ((60, 30), (30, 60), "reproduced"),
        ((NEVER, 30), (30, NEVER), "reproduced"),
        ((30, 60), (30, 60), "partly"),
        ((60, 30), (60, 30), "partly"),
        ((30, 60), (60, 30), "refuted"),
        ((30, 30), (30, 30), "refuted"),
    ],
)
def test_what_slows_rarer_and_random_triggers(rarer, random, verdict):
    assert entry("B18", delays(rarer, random)).verdict == verdict


def test_delays_leave_out_luck_and_what_is_never_formed():
    curves = delays((60, 30), (30, 60))
    lucky = curves[GLOBAL_RARE] | {"second keys": np.full(STEPS + 1, 0.6)}
    found = entry("B18", curves | {GLOBAL_RARE: mixed((36, curves[GLOBAL_RARE]), (4, lucky))})
    assert (found.verdict, found.units) == ("reproduced", 36)
    never = entry("B18", delays((60, 30), (30, 60), usual=(NEVER, 20)))
    assert (never.verdict, never.units) == ("undecided", 0)


def test_half_of_the_seeds_make_delays_partly():
    curves = delays((60, 30), (30, 60))
    other = delays((30, 60), (60, 30))
    half = {name: mixed((20, curves[name]), (20, other[name])) for name in curves}
    assert states(entry("B18", half)) == {
        "rarer: the output memory": "partly",
        "random: second keys": "partly",
    }


# B11 ---------------------------------------------------------------------------------------------


def crossed(trained_uniform, trained_bigram, reading="", spread=0.01):
    """What was measured, by how the outputs were drawn in training and in the test."""
    noise = np.linspace(-spread, spread, N)

    def answered(uniform, bigram):
        return {"uniform": uniform + noise, "bigram": bigram - noise}

    return {
        (ALL + reading, data.crossed): answered(*trained_uniform),
        (BIGRAM + reading, data.crossed): answered(*trained_bigram),
    }


def of_outputs(measured):
    runs = {name: planted(FULL[name].spec, N) for name, _ in measured}
    return entry_of(STUDY, "B11", evidence_of(runs, measured=measured))


@pytest.mark.parametrize(
    ("trained_uniform", "trained_bigram", "verdict"),
    [
        ((0.5, 0.97), (0.90, 0.5), "reproduced"),  # each tested on the other kind
        ((0.5, 0.95), (0.90, 0.5), "undecided"),  # five points and a little, or a little less
        ((0.5, 0.93), (0.90, 0.5), "partly"),
        ((0.5, 0.80), (0.90, 0.1), "refuted"),
    ],
)
def test_outputs_that_generalize(trained_uniform, trained_bigram, verdict):
    found = of_outputs(crossed(trained_uniform, trained_bigram))
    assert found.verdict == verdict
    assert found.value == pytest.approx(trained_uniform[1] - trained_bigram[0])
    other = crossed((0.5, 0.5), (0.9, 0.5), "/other")
    both = of_outputs(crossed(trained_uniform, trained_bigram) | other)
    assert both.verdict == ("refuted" if verdict == "refuted" else "partly")


# B12 ---------------------------------------------------------------------------------------------

EVALS = np.arange(STEPS + 1)
FALLS = np.where(EVALS < 60, ramp(30), 0.8)
STAYS = ramp(30)
GROWS = np.linspace(1, 2, STEPS + 1)
SETTLES = np.linspace(2, 1, STEPS + 1)


def late(output, divergence):
    return {"output memory": output, "bigram memory": divergence}


@pytest.mark.parametrize(
    ("output", "divergence", "verdict"),
    [
        (FALLS, GROWS, "reproduced"),
        (STAYS, GROWS, "partly"),
        (FALLS, SETTLES, "partly"),
        (STAYS, SETTLES, "refuted"),
    ],
)
def test_late_competition(output, divergence, verdict):
    curves = {GLOBAL: late(output, divergence)}
    assert entry("B12", curves).verdict == verdict
    assert entry("B12", curves, scale="quick").verdict == "undecided"
    for reading in ("other", "relu"):
        other = {f"{GLOBAL}/{reading}": late(STAYS, SETTLES)}
        both = entry("B12", curves | other).verdict
        assert both == ("refuted" if verdict == "refuted" else "partly")


def test_late_competition_does_not_hang_on_one_seed():
    """0.1 had 14 of 16 seeds here, and the fifteenth missed a tenth by .0037."""
    for n, state in ((40, "holds"), (36, "holds or partly"), (20, "partly"), (0, "fails")):
        groups = [(n, late(FALLS, GROWS)), (N - n, late(STAYS, SETTLES))]
        found = entry("B12", {GLOBAL: mixed(*groups)})
        assert set(states(found).values()) == {state}


def test_five_points_are_five_points_whatever_binary_fractions_make_of_them():
    # recalls whose distance above chance is .05 exactly
    best = 1 / 65 + 0.65 * 64 / 65
    end = 1 / 65 + 0.60 * 64 / 65
    output = np.where(EVALS < 60, best, end)
    assert states(entry("B12", {GLOBAL: late(output, GROWS)}))["output memory"] == "holds"
