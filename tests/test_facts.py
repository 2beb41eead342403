"""Facts: the task against counting, hand-built models up to the edge where they fail, and what
refuses a model of facts.
"""

import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import batch_of, init, world_of

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import describe_run, pack_run
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes
from mnemoscope.models.rewrites import token_counts
from mnemoscope.probes.walk import walk
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.library.facts import sweep
from mnemoscope.studies.library.facts.conditions import LINEAR, TASK
from mnemoscope.tasks import Facts
from mnemoscope.theory.fact_models import parameter_count, recall_model, write_facts
from mnemoscope.training.loop import fit
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec

STUDY = find_study("facts")


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
