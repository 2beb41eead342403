"""Facts: the task against counting, hand-built models up to the edge where they fail,
phases on planted curves, and every judge.
"""

import itertools
import math
from collections import Counter
from functools import partial

import facts_plain
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import batch_of, init, world_of
from mnemoscope.studies.claims import InconclusiveError
from planted import evidence_of, planted, silent

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import describe_run, pack_run
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes
from mnemoscope.models.rewrites import token_counts
from mnemoscope.probes.walk import walk
from mnemoscope.studies.library.facts import built, phases, sweep, trained
from mnemoscope.studies.library.facts.conditions import LINEAR, SOFTMAX, TASK
from mnemoscope.studies.library.facts.study import STUDY
from mnemoscope.studies.scales import SCALES
from mnemoscope.tasks import Facts
from mnemoscope.theory.fact_models import parameter_count, recall_model, write_facts
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.spec import Spec


def test_sequences_hold_one_subject_one_relation_noise_and_the_end():
    task = Facts(subjects=5, relations=3, per_relation=2, length=7)
    world = world_of(task)
    tokens, targets, weights = map(np.asarray, batch_of(task, world, 2000)[:3])
    kind = np.where(tokens < 5, "s", np.where(tokens < 8, "r", np.where(tokens < 16, "n", "E")))
    assert (kind[:, -1] == "E").all()
    assert ((kind == "s").sum(axis=1) == 1).all()
    assert ((kind == "r").sum(axis=1) == 1).all()
    assert ((kind == "n").sum(axis=1) == 7 - 3).all()
    s, r = tokens[kind == "s"], tokens[kind == "r"] - 5
    np.testing.assert_array_equal(targets[:, -1], np.asarray(world.answer)[s, r])
    assert (targets[:, -1] // 2 == r).all(), "the answer lies in the block of its relation"
    np.testing.assert_array_equal(weights, np.eye(7)[[6] * len(tokens)])
    # every token, and every pair of places, comes up as often as it should
    places = Counter(
        zip(
            (kind == "s").argmax(axis=1).tolist(),
            (kind == "r").argmax(axis=1).tolist(),
            strict=True,
        )
    )
    assert len(places) == 6 * 5
    for counts, n in (
        (Counter(s.tolist()), 5),
        (Counter(r.tolist()), 3),
        (Counter(tokens[kind == "n"].tolist()), 8),
        (places, 30),
    ):
        total = sum(counts.values())
        assert max(abs(c / total * n - 1) for c in counts.values()) < 5 * math.sqrt(n / total)
    assert task.token_names[:6] == ("s0", "s1", "s2", "s3", "s4", "r0")
    assert task.token_names[-1] == "EOS"
    assert (task.d_vocab, task.d_vocab_out, len(task.answer_names)) == (5 + 3 + 8 + 1, 6, 6)


def test_only_what_is_in_use_is_drawn():
    task = Facts(subjects=9, relations=9, length=5)
    world = task.in_use(world_of(task).answer, 4, 2)
    tokens = np.asarray(batch_of(task, world, 2000).tokens)
    assert set(tokens.ravel().tolist()) == {*range(4), 9, 10, *range(18, 18 + 4 + 2), 36}


def test_the_floors_are_entropies():
    floors = TASK.losses(world_of(TASK))
    assert floors == pytest.approx(
        {"both": 0, "relation": math.log(8), "subject": math.log(4), "nothing": math.log(32)}
    )
    task = Facts(subjects=6, relations=3, per_relation=4)
    world = world_of(task, 3)
    answer = np.asarray(world.answer)

    def entropy(values):
        counts = Counter(values)
        return sum(-c / len(values) * math.log(c / len(values)) for c in counts.values())

    expected = {
        "both": 0,
        "relation": sum(entropy(answer[:, r].tolist()) for r in range(3)) / 3,
        "subject": sum(entropy(answer[s].tolist()) for s in range(6)) / 6,
        "nothing": entropy(answer.ravel().tolist()),
    }
    assert task.losses(world) == pytest.approx(expected)


@pytest.mark.parametrize("shown", ["both", "relation", "subject"])
def test_every_fact_is_shown_as_asked(shown):
    task = Facts(subjects=4, relations=3, length=6)
    world = world_of(task)
    ask = jax.jit(lambda world: task.every_fact(world, shown, 2, key=jax.random.key(1)))
    tokens, answer = map(np.asarray, ask(world))
    assert len(tokens) == 4 * 3 * 2
    assert ((tokens < 4).sum(axis=1) == (shown != "relation")).all()
    assert (((tokens >= 4) & (tokens < 7)).sum(axis=1) == (shown != "subject")).all()
    np.testing.assert_array_equal(answer, np.repeat(np.asarray(world.answer).ravel(), 2))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"subjects": 0}, "subjects: Input should be greater than or equal to 1, got 0"),
        ({"length": 2}, "length"),
        ({"per_relation": -1}, "per_relation"),
        ({"answers": "odd"}, "answers"),
        ({"objects": 3}, "unknown key of Facts 'objects'"),
    ],
)
def test_bad_sizes_are_one_line(fields, message):
    with pytest.raises(UserError) as error:
        Facts(**fields)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


def recall(size, d, d_mlp, seed=0, width=None):
    task = Facts(subjects=size, relations=size)
    config = recall_model(task, d, d_mlp)

    @jax.jit
    def measure(keys):
        world = task.world(key=keys[0])
        params = write_facts(config, task, world, width, key=keys[1])
        tokens, answer = task.every_fact(world, key=keys[2])
        plain = jax.vmap(lambda row: Transformer(config, params)(row)[-1])(tokens)
        return (plain.argmax(axis=1) == answer).mean(), params

    share, params = measure(jax.random.split(jax.random.key(seed), 3))
    return float(share), params


@pytest.mark.parametrize("d_mlp", [0, 256])
def test_hand_built_models_recall_everything_until_they_are_too_narrow(d_mlp):
    assert recall(4, 384, d_mlp)[0] == 1
    assert recall(4, 24, 0 if d_mlp == 0 else 24)[0] < 0.9, "below its condition it must fail"


def test_a_feed_forward_memory_that_is_too_small_fails_too():
    assert recall(12, 512, 4)[0] < 0.5


@pytest.mark.parametrize("d_mlp", [0, 32])
def test_a_narrower_model_in_wide_arrays_uses_nothing_beyond(d_mlp):
    _, params = recall(3, 32, d_mlp, width=12)
    assert not np.asarray(params["embed.W_E"])[:, 12:].any()
    assert not np.asarray(params["unembed.W_U"])[12:].any()
    assert not np.asarray(params["blocks.0.attn.W_O"])[:, :, 12:].any()
    if d_mlp:
        used = np.asarray(params["blocks.0.mlp.W_out"]).reshape(4, 8, 32).any(axis=2)
        np.testing.assert_array_equal(used, np.broadcast_to(np.arange(8) < 8 * 12 // 32, (4, 8)))


def test_parameters_are_counted_as_the_paper_does():
    task = Facts(subjects=5, relations=7)
    config = recall_model(task, 16, 8)
    shapes = parameter_shapes(config, task.d_vocab, task.n_ctx, task.d_vocab_out)
    inside = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("blocks"))
    assert parameter_count(5 + 7, 16, 8) == inside == 4 * 12 * 16 + 2 * 8 * 16
    shape = sweep.Shape(d=16, n_heads=8, d_head=2, d_mlp=32)
    assert shape.parameters() == 4 * 8 * 2 * 16 + 2 * 32 * 16
    with pytest.raises(UserError, match="must be a multiple of 4, got 6"):
        recall_model(task, 16, 6)
    with pytest.raises(UserError, match="at least 4, got 2"):
        recall_model(task, 2)


def test_the_linear_model_is_the_formula():
    """logits = V^T sum_l (x_EOS^T A x_l) x_l with one-hot x."""
    rng = np.random.default_rng(0)
    params = init(LINEAR, TASK.d_vocab, TASK.n_ctx, TASK.d_vocab_out, key=jax.random.key(0))
    a, v = rng.normal(size=(41, 41)), rng.normal(size=(41, 32))
    params |= {
        "blocks.0.attn.W_K": jnp.asarray(a.T[None], float),
        "unembed.W_U": jnp.asarray(v, float),
    }
    tokens = np.asarray(batch_of(TASK, world_of(TASK), 1).tokens)[0]
    expected = v.T @ sum(a[40, t] * np.eye(41)[t] for t in tokens)
    for logits in (
        Transformer(LINEAR, params)(jnp.array(tokens))[-1],
        token_counts.last_logits(LINEAR, params, jnp.array(tokens[None]), 40)[0],
    ):
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


# phases ------------------------------------------------------------------------------------------

HIGH, MIDDLE, NOTHING = math.log(32), math.log(8), 0.01


def looked_at(loss, distance, subject, accuracy=1.0):
    """A run whose evaluations say this, the same for every seed."""
    spec = Spec(
        task=TASK,
        model=LINEAR,
        optimizer=SGD(lr=0.1),
        steps=100,
        metrics="facts",
        n_evals=len(loss) - 1,
    )
    seen = {
        "loss, both": loss,
        "loss, relation": loss,
        "loss, subject": subject,
        "distance to p(a | r)": distance,
        "accuracy": [accuracy] * len(loss),
        "p(a)": np.full((len(loss), 32), 1 / 32),
    }
    return planted(spec, metrics=seen)


PLATEAU = (
    [HIGH, HIGH, MIDDLE, MIDDLE, MIDDLE, NOTHING + 0.01, NOTHING],
    [0.75, 0.75, 0.02, 0.02, 0.02, 0.8, 0.8],
    [HIGH] * 7,
)


@pytest.mark.parametrize(
    ("curves", "verdict"),
    [
        (PLATEAU, "reproduced"),
        # at one evaluation only
        (([HIGH, HIGH, MIDDLE, 0.5, 0.2, 0.05, 0.01], PLATEAU[1], PLATEAU[2]), "refuted"),
        ((PLATEAU[0], [0.5] * 7, PLATEAU[2]), "refuted"),  # the loss of p(a | r), but other answers
        ((PLATEAU[0], PLATEAU[1], [math.log(4)] * 7), "refuted"),  # the subject is known
        (([HIGH] * 2 + [MIDDLE] * 5, PLATEAU[1], PLATEAU[2]), "refuted"),  # it never comes to know
        (([MIDDLE] * 5 + [NOTHING] * 2, [0.02] * 7, PLATEAU[2]), "refuted"),  # no ignorance before
    ],
)
def test_a_hallucination_is_found_by_rule(curves, verdict):
    runs = {"linear": looked_at(*curves), "softmax/attention only": looked_at(*PLATEAU)}
    outcome = phases.hallucination(evidence_of(runs, "quick"))
    assert outcome.verdict == verdict
    assert "attention only 100% of seeds" in outcome.sentence


@pytest.mark.parametrize(
    ("last", "accuracy", "verdict"),
    [
        ((0.02, 0.01), 1.0, "reproduced"),
        ((0.01, 0.02), 1.0, "refuted"),
        ((0.2, 0.1), 1.0, "refuted"),
        ((0.02, 0.01), 0.9, "refuted"),
    ],
)
def test_zero_loss_means_low_falling_and_right(last, accuracy, verdict):
    run = looked_at([HIGH, MIDDLE, *last], [0.5] * 4, [HIGH] * 4, accuracy)
    assert phases.zero_loss(evidence_of({"linear": run}, "quick")).verdict == verdict


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
def test_judges_of_trained_conditions_read_what_is_watched(way, zero, plateau, watched):
    """F4 and F5 on written models: which of them each evaluation finds."""

    def run(name, kinds):
        spec = STUDY.conditions("full")[name].spec.model_copy(update={"n_evals": 4})
        return planted(
            spec,
            metrics={
                series: [watched[kind][series] for kind in kinds] for series in watched[name_of]
            },
        )

    name_of = IGNORANT
    runs = {"linear": run("linear", way)} | {name: run(name, [name] * 5) for name in SOFTMAX}
    evidence = evidence_of(runs)
    for claim, verdict in (("F4", zero), ("F5", plateau)):
        test = STUDY.pick((claim,))[0]
        found = evidence.finding(test.pick_conditions(runs), test.judge)
        assert found.verdict == verdict, claim
    assert "attention only 0% of seeds" in found.sentence


# sweeps ------------------------------------------------------------------------------------------


def test_trained_models_start_as_the_papers():
    """Variances 1/d_h for queries, keys and values, 1/d for what reads the stream,
    1/m for what leaves m hidden units.
    """
    shape = sweep.Shape(d=100, n_heads=8, d_head=25, d_mlp=200)
    begin = jax.jit(partial(sweep.start, shape, Facts(subjects=60, relations=60)))
    drawn = begin(jnp.array(50), jax.random.key(0))
    expected = {
        "attn.W_Q": 0.2,
        "attn.W_K": 0.2,
        "attn.W_V": 0.2,
        "attn.W_O": 0.1,
        "mlp.W_in": 0.1,
        "mlp.W_out": 50**-0.5,
    }
    for name, length in expected.items():
        assert np.std(drawn[f"blocks.0.{name}"]) == pytest.approx(length, rel=0.03), name
    assert not jnp.any(drawn["blocks.0.mlp.b_in"])
    embedded, queries = (
        np.asarray(drawn[name]).ravel()[:20000] for name in ("embed.W_E", "blocks.0.attn.W_Q")
    )
    assert abs(np.corrcoef(embedded, queries)[0, 1]) < 0.05, "each from a key of its own"


def test_the_sweeps_model_is_the_one_written_out():
    """`facts_plain` has the second route on which FINDINGS rests for F2 and F3."""
    task, shape = Facts(subjects=6, relations=6), sweep.Shape(d=32, n_heads=3, d_head=8, d_mlp=5)
    drawn = jax.jit(partial(sweep.start, shape, task))(jnp.array(5), jax.random.key(0))
    drawn["blocks.0.mlp.b_in"] = jax.random.normal(jax.random.key(1), (5,))
    plain = {
        name: drawn[f"blocks.0.{place}"]
        for name, place in (
            ("Q", "attn.W_Q"),
            ("K", "attn.W_K"),
            ("V", "attn.W_V"),
            ("in", "mlp.W_in"),
            ("bias", "mlp.b_in"),
            ("out", "mlp.W_out"),
        )
    }
    plain |= {
        "E": drawn["embed.W_E"],
        "U": drawn["unembed.W_U"].T,
        "O": drawn["blocks.0.attn.W_O"].reshape(3 * 8, 32),
    }
    answer = world_of(task, 2).answer
    tokens, told = jax.jit(facts_plain.sample, static_argnums=2)(jax.random.key(3), answer, 50)
    found = jax.jit(
        lambda tokens: token_counts.last_logits(shape.model(), drawn, tokens, task.query_token)
    )(tokens)
    np.testing.assert_allclose(jax.jit(facts_plain.logits)(plain, tokens), found, atol=2e-5)
    row = np.asarray(tokens[0])
    assert told[0] == answer[row[row < 6][0], row[(row >= 6) & (row < 12)][0] - 6]
    # four facts: better than one of them
    assert facts_plain.best_accuracy(0, 2, 2, 4, 1e-2, steps=128) > 1 / 4


SWEPT = sweep.Shape(
    d=8, n_heads=8, d_head=1, d_mlp=8, rates=(1e-2,), batch=128, steps=512, eval_every=128
)
FEW_AND_MANY = np.array([0, 0]), np.array([2, 12]), np.array([8, 8])


def test_few_facts_are_stored_and_many_are_not():
    best = sweep.trainer(SWEPT, 12, 2)(*FEW_AND_MANY)
    assert best[0] >= sweep.LEVEL
    assert best[1] < 0.5


@pytest.mark.long
def test_the_best_rate_counts_and_any_number_of_cells_will_do():
    shape, asked = SWEPT, FEW_AND_MANY
    best = sweep.trainer(shape, 12, 2)(*asked)
    # a rate at which nothing is learned stores nothing,
    # and beside another one it takes nothing away
    idle = shape.model_copy(update={"rates": (1e-9,)})
    assert (sweep.trainer(idle, 12, 2)(*asked) < best).all()
    both = shape.model_copy(update={"rates": (1e-9, 1e-2)})
    # another program, whose last bits may differ: a fact or two
    np.testing.assert_allclose(sweep.trainer(both, 12, 2)(*asked), best, atol=0.05)
    one_unit = sweep.trainer(shape, 12, 1)(np.array([0]), np.array([4]), np.array([1]))
    assert one_unit.shape == (1,)


def test_the_boundary_of_the_grid_is_the_published_one():
    # at the wall: 32 * 52 = 1664 >= 2300 - 1280 / 2 = 1660
    assert trained.should_recall(32, 8, 5, 52)
    assert not trained.should_recall(32, 8, 5, 51)
    assert not trained.should_recall(32, 8, 4, 128)  # left of the wall
    expected = np.array(
        [[trained.should_recall(32, 8, h, m) for m in trained.HIDDEN] for h in trained.HEADS]
    )
    as_published = np.repeat(expected[:, :, None], 8, axis=2).astype(float)
    assert trained.judge_grid(as_published).verdict == "reproduced"
    assert trained.judge_grid(np.zeros_like(as_published)).verdict == "refuted"
    no_trade = as_published.copy()
    no_trade[-1] = as_published[trained.HEADS.index(6)]
    # sixteen heads as good as six: the cells between 16 and 48 hidden units no longer agree,
    # and nothing is traded
    outcome = trained.judge_grid(no_trade)
    assert outcome.verdict == "partly"
    wrong = (expected[-1] != expected[trained.HEADS.index(6)]).sum()
    assert outcome.value == pytest.approx(1 - wrong / expected.size)
    assert outcome.value >= 0.85, "it is the trade alone that is missing"


def stored(facts):
    """A stand-in for the search: `facts(parameters, hidden)` facts fit,
    so that the largest S is their root.
    """

    def capacity(shape, hidden, seeds, guess, room):
        assert len(guess) == len(hidden)
        assert room > max(guess)
        return np.array(
            [[round(facts(shape.parameters(m), m / shape.d) ** 0.5)] * seeds for m in hidden]
        )

    return capacity


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (lambda n, m: 0.15 * n, "reproduced"),
        # shares differ by less than a factor of 2
        (lambda n, m: 0.15 * n * (1.3 if m > 1 else 0.7), "reproduced"),
        (lambda n, m: 0.15 * n * (1.5 if m > 1 else 0.5), "partly"),
        (lambda n, m: 0.05 * n, "partly"),  # in proportion, but fewer than half as many
        (lambda n, m: 0.4 * n, "partly"),
        (lambda n, m: 5 * n**0.5, "partly"),  # not in proportion
        (lambda n, m: 20 * n**0.1 * (2 if m > 1 else 0.1), "refuted"),
    ],
)
def test_stored_facts_against_parameters(facts, verdict, monkeypatch):
    """F2."""
    monkeypatch.setattr(trained, "capacity", stored(facts))
    outcome = trained.stored_facts(evidence_of())
    assert outcome.verdict == verdict, outcome.sentence
    assert set(outcome.by_seed) == {
        f"H d_h = {a} d, m = {b} d" for a in ("0.5", "2") for b in ("0.5", "2")
    }
    assert trained.stored_facts(evidence_of(scale="quick")).verdict == "undecided", (
        "it has one share only"
    )


def test_the_search_for_capacity_finds_what_fits(monkeypatch):
    """With a stand-in for training: seed s stores 2 + s subjects,
    and one more for every four hidden units.
    """

    def trainer(shape, room, lanes):
        def best(seed, size, d_mlp):
            assert len(seed) == len(size) == len(d_mlp) == lanes
            return np.where(size <= 2 + seed + d_mlp // 4, 1.0, 0.5)

        return best

    monkeypatch.setattr(sweep, "trainer", trainer)
    found = sweep.capacity(sweep.Shape(d=8), (4, 12), 3, (2, 6), room=12)
    assert found.tolist() == [[2 + seed + units // 4 for seed in range(3)] for units in (4, 12)]


def recalled_from(width):
    """A stand-in for written models: everything is recalled from so many dimensions on."""

    def recall(size, mlp, draws):
        return np.tile((built.ladder(size) >= width(size, mlp)).astype(float), (draws, 1))

    return recall


@pytest.mark.parametrize(
    ("width", "full", "quick"),
    [
        (lambda s, mlp: 4 * s, "reproduced", "reproduced"),  # attention: 4 * 2 s * 4 s parameters
        # s^3 parameters for s^2 facts
        (lambda s, mlp: 4 * s if mlp else s**2, "partly", "undecided"),
        (lambda s, mlp: s**2 if mlp else 4 * s, "partly", "undecided"),
        (lambda s, mlp: s**2, "refuted", "undecided"),
        (lambda s, mlp: 40, "refuted", "undecided"),  # too few parameters would be no less a wonder
    ],
)
def test_hand_built_models_are_judged_by_their_slopes(width, full, quick, monkeypatch):
    """F1."""
    monkeypatch.setattr(built, "recall", recalled_from(width))
    for scale, verdict in zip(SCALES, (quick, full), strict=True):
        assert built.hand_built(evidence_of(scale=scale)).verdict == verdict


def test_a_size_that_is_never_recalled_settles_nothing(monkeypatch):
    monkeypatch.setattr(built, "recall", recalled_from(lambda s, mlp: 4 * s if s < 64 else 10**6))
    with pytest.raises(
        InconclusiveError, match="Some size is not recalled even at 64 dimensions for each subject"
    ):
        built.hand_built(evidence_of())


@pytest.mark.parametrize("mlp", [False, True])
def test_hand_built_models_recall_everything_at_the_top_of_the_ladder(mlp):
    right = built.recall(2, mlp, 4)
    assert right.shape == (4, len(built.ladder(2)))
    assert (right[:, -1] == 1).all()
    assert right[:, 0].mean() < right[:, -1].mean()


def test_the_smallest_width_is_that_from_which_on_all_is_recalled():
    widths = np.array([8, 12, 16, 20])
    assert built.needed(np.array([[0, 1, 1, 1.0], [0, 1, 1, 1]]), widths) == 12
    assert built.needed(np.array([[1, 0, 1, 1.0], [1, 1, 1, 1]]), widths) == 16
    assert built.needed(np.ones((2, 4)), widths) == 8
    assert built.needed(np.array([[1, 1, 1, 0.9]]), widths) is None
    assert built.ladder(8)[-1] == 8 * built.ROOM
    assert (built.ladder(8) % 4 == 0).all()


# the study ---------------------------------------------------------------------------------------


def tiny(spec: Spec) -> Spec:
    return spec.model_copy(update={"steps": 6, "batch": 4, "n_evals": 2})


def test_what_is_written_for_plain_transformers_says_no():
    run = fit(tiny(STUDY.conditions("quick")["linear"].spec), range(1))
    with pytest.raises(UserError, match="this model has answers of its own"):
        walk(run.model(0), [0, 1, 40], TASK.token_names)
    with pytest.raises(
        UserError,
        match=r"answers are tokens; run [0-9a-f]+ has \d+ answers of its own",
    ):
        pack_run(describe_run(run, "x", (0,)))
    with pytest.raises(ValueError, match="metrics='facts' reads the task 'facts', got 'cycle'"):
        metrics_of(Spec.model_validate({"task": {"kind": "cycle"}, "metrics": "facts"}))


def test_a_model_without_positions_takes_prompts_of_any_length():
    config = ModelConfig(d_model=4, n_heads=1, positions="none")
    model = Transformer(config, init(config, 5, 3, key=jax.random.key(0)))
    assert model.run_with_cache([1, 2, 3, 4, 0, 1])[0].shape == (6, 5)
    with pytest.raises(UserError, match="a prompt is one row of 1 or more whole numbers"):
        model.run_with_cache([])


def test_the_quick_grid_says_where_it_is_settled():
    found = evidence_of(scale="quick").finding((), trained.trade_off)
    assert found.verdict == "undecided"
    assert "mnemoscope run facts --scale full" in found.sentence
