"""F4 and F5: phases on planted curves and on models that were written by hand."""

import itertools
import math

import jax
import numpy as np
import pytest
from compiled import world_of
from planted import entry_of, evidence_of, planted, silent

from mnemoscope.models import Transformer
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.facts import phases
from mnemoscope.studies.library.facts.conditions import LINEAR, SOFTMAX, TASK
from mnemoscope.studies.presentation import load_panels
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.spec import Spec

STUDY = find_study("facts")

SEEDS = 40
HIGH, MIDDLE, NOTHING = math.log(32), math.log(8), 0.01


def watched_run(*kinds):
    """A run whose evaluations say this: so many seeds of each kind, with these curves."""
    n_evals = len(kinds[0][1][0]) - 1
    spec = Spec(
        task=TASK,
        model=LINEAR,
        optimizer=SGD(lr=0.1),
        steps=100,
        metrics="facts",
        n_evals=n_evals,
    )
    names = ("loss, both", "distance to p(a | r)", "loss, subject", "accuracy")
    rows = [curves for n, curves in kinds for _ in range(n)]
    seen = {name: [curves[i] for curves in rows] for i, name in enumerate(names)}
    seen["loss, relation"] = seen["loss, both"]
    seen["p(a)"] = np.full((len(rows), n_evals + 1, 32), 1 / 32)
    return planted(spec, len(rows), metrics=seen)


KNOWN = [1.0] * 7
PLATEAU = (
    [HIGH, HIGH, MIDDLE, MIDDLE, MIDDLE, NOTHING + 0.01, NOTHING],
    [0.75, 0.75, 0.02, 0.02, 0.02, 0.8, 0.8],
    [HIGH] * 7,
    KNOWN,
)
BRIEF = [HIGH, HIGH, MIDDLE, 0.5, 0.2, 0.05, 0.01]
FAILURES = {
    "at one evaluation only": (BRIEF, *PLATEAU[1:]),
    "the loss of p(a | r), but other answers": (PLATEAU[0], [0.5] * 7, *PLATEAU[2:]),
    "the subject is known": (*PLATEAU[:2], [math.log(4)] * 7, KNOWN),
    "it never comes to know": ([HIGH] * 2 + [MIDDLE] * 5, *PLATEAU[1:]),
    "no ignorance before": ([MIDDLE] * 5 + [NOTHING] * 2, [0.02] * 7, *PLATEAU[2:]),
}


@pytest.mark.parametrize("kind", FAILURES)
def test_what_is_no_hallucination_is_told_from_one(kind):
    run = watched_run((3, PLATEAU), (2, FAILURES[kind]))
    steps = np.array(run.spec.eval_steps())
    assert phases.has_plateau(steps, phases.phases(run)).tolist() == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    ("n", "verdict"),
    [(40, "reproduced"), (38, "undecided"), (20, "partly"), (2, "undecided"), (0, "refuted")],
)
def test_a_hallucination_is_judged_by_its_share(n, verdict):
    """F5: what softmax models do is shown beside it and decides nothing."""
    for failure in ("at one evaluation only", "it never comes to know"):
        runs = {
            "linear": watched_run((n, PLATEAU), (SEEDS - n, FAILURES[failure])),
            "softmax/attention only": watched_run((10, PLATEAU), (30, FAILURES[failure])),
        }
        entry = entry_of(STUDY, "F5", evidence_of(runs))
        assert entry.verdict == verdict
        assert (entry.value, entry.units) == (n / SEEDS, SEEDS)
        assert "softmax/attention only, 25%" in entry.sentence


def test_times_are_those_of_the_seeds_that_have_the_phase():
    """A seed that never knows has no time at which it begins to know."""
    runs = {"linear": watched_run((30, PLATEAU), (10, FAILURES["it never comes to know"]))}
    (test,) = STUDY.pick(("F5",))
    found = test.measure(evidence_of(runs))
    steps = np.array(runs["linear"].spec.eval_steps())
    begins = found.parts["knowledge begins"]
    assert begins.mask.sum() == 10
    assert set(begins.compressed()) == {steps[5]}
    assert set(found.parts["ignorance ends"].compressed()) == {steps[1]}
    assert set(found.parts["hallucination begins"].compressed()) == {steps[2]}
    assert set(found.parts["hallucination ends"][:30].compressed()) == {steps[4]}
    panels = load_panels(STUDY)["F5"]
    by_seed = {name: values.tolist() for name, values in found.by_seed.items()}
    assert claim_figures(panels, by_seed, found.plots)


def ends_with(last, accuracy):
    """Curves whose last two losses and whose accuracy are these."""
    return ([HIGH, MIDDLE, *last], [0.5] * 4, [HIGH] * 4, [accuracy] * 4)


@pytest.mark.parametrize(
    ("last", "accuracy"),
    [((0.01, 0.02), 1.0), ((0.2, 0.1), 1.0), ((0.02, 0.01), 0.9)],
)
@pytest.mark.parametrize(
    ("n", "verdict"),
    [(40, "reproduced"), (38, "undecided"), (20, "partly"), (0, "refuted")],
)
def test_zero_loss_means_low_falling_and_known(n, verdict, last, accuracy):
    """F4."""
    reaches = ends_with((0.02, 0.01), 1.0)
    run = watched_run((n, reaches), (SEEDS - n, ends_with(last, accuracy)))
    entry = entry_of(STUDY, "F4", evidence_of({"linear": run}))
    assert entry.verdict == verdict
    assert entry.value == n / SEEDS


# what linear models say that were written by hand: nothing, p(a | r),
# and everything they were asked
IGNORANT, MAKES_UP, ALMOST, KNOWS = (0, 0), (30, 0), (30, 4), (60, 30)


def written_linear(spec, world, relation, subject):
    """logits = V of the subject + V of the relation:
    how loudly each says which answers can be its own.
    """
    params, answer = silent(spec), np.asarray(world.answer)
    eye, asks = np.eye(TASK.d_vocab), TASK.query_token
    params["embed.W_E"][:] = eye
    for name in ("W_Q", "W_V", "W_O"):
        params[f"blocks.0.attn.{name}"][0] = eye
    params["blocks.0.attn.W_K"][0][: TASK.subjects + TASK.relations, asks] = (
        1  # the last token asks for both, and no noise
    )
    for s, r in itertools.product(range(TASK.subjects), range(TASK.relations)):
        params["unembed.W_U"][TASK.subjects + r, answer[s, r]] = relation
        params["unembed.W_U"][s, answer[s, r]] = subject
    return params


@pytest.fixture(scope="module")
def watched():
    """What the study's watch reads in such models, and in untrained softmax models."""
    spec = STUDY.conditions("full")["linear"].spec
    world, watch = world_of(spec.task), metrics_of(spec)
    read = jax.jit(lambda params: watch(Transformer(spec.model, params), world))
    kinds = (IGNORANT, MAKES_UP, ALMOST, KNOWS)
    found = {kind: read(written_linear(spec, world, *kind)) for kind in kinds}
    for name in SOFTMAX:
        spec = STUDY.conditions("full")[name].spec
        watch = metrics_of(spec)
        params = silent(spec)
        found[name] = jax.jit(
            lambda params, s=spec, w=watch: w(Transformer(s.model, params), world)
        )(params)
    return {
        kind: {name: np.asarray(x, float) for name, x in seen.items()}
        for kind, seen in found.items()
    }


def test_written_linear_models_are_read_as_they_were_written(watched):
    """Sixteen subjects in pairs share eight answers to each of four relations."""
    expected = {  # loss, right answers, and half the distance between p(a) and one in eight
        IGNORANT: (math.log(32), 1 / 32, (8 * (1 / 8 - 1 / 32) + 24 / 32) / 2),
        MAKES_UP: (math.log(8), 1 / 8, 0.0),
        KNOWS: (0.0, 1.0, (7 / 8 + 7 * 1 / 8) / 2),
    }
    for kind, (loss, accuracy, distance) in expected.items():
        seen = watched[kind]
        assert seen["loss, both"] == pytest.approx(loss, abs=1e-4)
        assert seen["distance to p(a | r)"] == pytest.approx(distance, abs=1e-4)
        assert seen["accuracy"] == pytest.approx(accuracy)
        assert seen["p(a)"].sum() == pytest.approx(1, abs=1e-5)
    for name in SOFTMAX:
        assert watched[name]["loss, both"] == pytest.approx(math.log(32), abs=1e-4)


@pytest.mark.parametrize(
    ("way", "zero", "plateau"),
    [
        ((IGNORANT, MAKES_UP, MAKES_UP, ALMOST, KNOWS), "reproduced", "reproduced"),
        # it never makes anything up
        ((IGNORANT, IGNORANT, ALMOST, ALMOST, KNOWS), "reproduced", "refuted"),
        # and here it never stops
        ((IGNORANT, IGNORANT, MAKES_UP, MAKES_UP, MAKES_UP), "refuted", "refuted"),
        ((IGNORANT, IGNORANT, IGNORANT, IGNORANT, IGNORANT), "refuted", "refuted"),
    ],
)
def test_phases_of_written_models_are_judged(way, zero, plateau, watched):
    """F4 and F5 on written models: which of them each evaluation finds."""

    def run(name, kinds):
        spec = STUDY.conditions("full")[name].spec.model_copy(update={"n_evals": 4})
        return planted(
            spec,
            SEEDS,
            metrics={
                series: [watched[kind][series] for kind in kinds] for series in watched[IGNORANT]
            },
        )

    runs = {"linear": run("linear", way)} | {name: run(name, [name] * 5) for name in SOFTMAX}
    evidence = evidence_of(runs)
    for claim, verdict in (("F4", zero), ("F5", plateau)):
        entry = entry_of(STUDY, claim, evidence)
        assert entry.verdict == verdict, claim
    assert "softmax/attention only, 0%" in entry.sentence
