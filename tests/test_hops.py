"""Hops: the task against a walk by hand, hand-built weights and what breaks them, schedules,
early read-outs. Its judges are in test_hops_study.py.
"""

import itertools
import math
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compiled import batch_of, early_logits, forward, init, world_of

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import describe_run, pack_run
from mnemoscope.models import Init, ModelConfig, Transformer, knock_out_head
from mnemoscope.models.rewrites import pair_tables, score_tables
from mnemoscope.models.rewrites.choose import choose_rewrite
from mnemoscope.probes.hop_accuracy import ablate_each_layer, by_level, read_after
from mnemoscope.probes.walk import walk
from mnemoscope.report.walk import render_text
from mnemoscope.tasks import Hops, HopWorld, Permutation
from mnemoscope.theory.hop_transformer import hop_model, write_hops
from mnemoscope.training.loop import fit
from mnemoscope.training.loss import batch_loss, loss_and_gradient
from mnemoscope.training.metrics import hops, metrics_of
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import draw


def followed(hidden, context, a, b, hops):
    """The end of so many hops, one at a time."""
    for _ in range(hops):
        b, a = context[a][hidden[a][b]], (a + 1) % len(hidden)
    return b


def drawn(task, seed=0, n=50):
    world = world_of(task, seed)
    return world, batch_of(task, world, n, seed + 1)


@pytest.mark.parametrize(("n", "k"), [(2, 1), (3, 2), (4, 4), (3, 8), (5, 4)])
def test_answers_are_what_one_gets_by_following_the_hops(n, k):
    task = Hops(n=n, k=k)
    world, batch = drawn(task, n=60)
    hidden, tokens = np.asarray(world.hidden).tolist(), np.asarray(batch.tokens)
    assert task.n_ctx == n * k == tokens.shape[1]
    assert (np.asarray(batch.weights) == 1).all()
    for row, targets, level in zip(
        tokens, np.asarray(batch.targets), np.asarray(batch.layer), strict=True
    ):
        context = row.reshape(k, n).tolist()
        assert all(sorted(sigma) == list(range(n)) for sigma in context)
        by_hand = [followed(hidden, context, a, b, 2**level) for a in range(k) for b in range(n)]
        assert targets.tolist() == by_hand
        all_levels = task.answers(world, jnp.array(context))
        assert all_levels[-1].tolist() == [
            followed(hidden, context, a, b, k) for a in range(k) for b in range(n)
        ]
    assert set(np.asarray(batch.layer).tolist()) == set(range(int(math.log2(k)) + 1))


def test_the_walk_by_hand_can_disagree():
    task = Hops(n=4, k=4)
    world, batch = drawn(task)
    context = np.asarray(batch.tokens)[0].reshape(4, 4)
    other = HopWorld(jnp.roll(world.hidden, 1, axis=0), world.asked)
    assert (
        task.answers(other, jnp.array(context)).tolist()
        != task.answers(world, jnp.array(context)).tolist()
    )


def test_permutations_are_uniform_and_hidden_ones_move_everything():
    task = Hops(n=4, k=2)
    worlds = jax.jit(jax.vmap(lambda key: task.world(key=key).hidden))(
        jax.random.split(jax.random.key(0), 1800)
    )
    hidden = Counter(map(tuple, np.asarray(worlds).reshape(-1, 4).tolist()))
    assert len(hidden) == 9, "four things have nine permutations that move all of them"
    contexts = jax.jit(jax.vmap(lambda key: task.context(key=key)))(
        jax.random.split(jax.random.key(1), 2400)
    )
    shown = Counter(map(tuple, np.asarray(contexts).reshape(-1, 4).tolist()))
    assert len(shown) == 24
    for counts in (hidden, shown):
        expected = sum(counts.values()) / len(counts)
        assert max(abs(c / expected - 1) for c in counts.values()) < 5 / math.sqrt(expected)
    assert all(value != place for row in hidden for place, value in enumerate(row))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"k": 3}, "k must be a power of two, got 3"),
        ({"n": 1}, "n: Input should be greater than or equal to 2, got 1"),
        ({"schedule": ((1, (1, 1, 1)),)}, "begin at step 0 and later and later, got [1]"),
        (
            {"schedule": ((0, (1, 1, 1)), (0, (1, 1, 1)))},
            "begin at step 0 and later and later, got [0, 0]",
        ),
        ({"schedule": ((0, (1, 1)),)}, "a weight for each of 3 levels, not all 0, got (1.0, 1.0)"),
        ({"schedule": ((0, (0, 0, 0)),)}, "a weight for each of 3 levels, not all 0"),
        ({"schedule": ((0, (-1, 1, 1)),)}, "greater than or equal to 0"),
        ({"m": 3}, "unknown key of Hops 'm'"),
    ],
)
def test_bad_tasks_are_one_line(fields, message):
    with pytest.raises(UserError) as error:
        Hops(**fields)
    assert "\n" not in str(error.value)
    assert message in str(error.value)


def test_a_schedule_asks_what_its_stage_says():
    task = Hops(n=3, k=4, schedule=((0, (1, 0, 0)), (10, (0.2, 0.8, 0)), (20, (0, 1, 3))))
    spec = Spec(
        task=task,
        batch=2000,
        model=ModelConfig(d_model=4, n_heads=1, n_layers=3, d_mlp=0, causal=False),
    )
    world = world_of(task)

    batch = jax.jit(partial(draw, spec))

    def shares(step):
        asked = np.asarray(batch(world, jax.random.key(1), jnp.array(step)).layer)
        return np.bincount(asked, minlength=3) / len(asked)

    for step, expected in (
        (0, (1, 0, 0)),
        (9, (1, 0, 0)),
        (10, (0.2, 0.8, 0)),
        (19, (0.2, 0.8, 0)),
        (500, (0, 1 / 4, 3 / 4)),
    ):
        assert np.abs(shares(step) - expected).max() < 5 * math.sqrt(0.25 / 2000)
    plain = spec.model_copy(update={"task": Hops(n=3, k=4)})
    asked = np.asarray(
        jax.jit(partial(draw, plain))(world_of(plain.task), jax.random.key(1), jnp.array(7)).layer
    )
    assert np.abs(np.bincount(asked) / 2000 - 1 / 3).max() < 5 * math.sqrt(0.25 / 2000)


# the model ---------------------------------------------------------------------------------------

CONFIG = ModelConfig(d_model=8, n_heads=2, n_layers=3, d_mlp=6, norm="pre", causal=False)


def test_without_a_mask_every_position_sees_every_other():
    tokens = jnp.array([2, 0, 1, 1])
    params = init(CONFIG, 3, 4, key=jax.random.key(0))

    def seen(config):
        """How much the first position's answer depends on what stands at each."""
        rows = forward(config, params, tokens)[1]["hook_embed"]
        from mnemoscope.models import replace_site

        def first(rows):
            return forward(config, params, tokens, [replace_site("hook_embed", rows)])[0][0].sum()

        return np.abs(jax.jit(jax.grad(first))(rows)).sum(axis=1) > 0

    assert seen(CONFIG).tolist() == [True] * 4
    assert seen(CONFIG.model_copy(update={"causal": True})).tolist() == [True, False, False, False]


def test_early_answers_are_those_of_the_model_cut_short():
    tokens = jnp.array([2, 0, 1, 1])
    for norm in ("none", "pre", "post"):
        config = CONFIG.model_copy(update={"norm": norm})
        params = init(config, 3, 4, key=jax.random.key(0))
        early = early_logits(config, params, tokens)
        for layer in range(3):
            short = config.model_copy(update={"n_layers": layer + 1})
            kept = {
                name: x
                for name, x in params.items()
                if not name.startswith("blocks.") or int(name[7]) <= layer
            }
            np.testing.assert_allclose(
                early[layer], forward(short, kept, tokens)[0], rtol=1e-5, atol=1e-6
            )
        assert not np.allclose(early[0], early[2])


@pytest.mark.parametrize("causal", [True, False])
def test_the_loss_reads_each_sequence_after_its_layer(causal):
    task = Hops(n=3, k=4)
    _, batch = drawn(task, n=12)
    config = ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, bias=False, causal=causal)
    supported = pair_tables.SUPPORT.why_not(config) is None
    assert supported == (score_tables.SUPPORT.why_not(config) is None) == causal, (
        "a causal one would have a faster way"
    )
    assert choose_rewrite(config, task) is None
    params = init(config, 3, 12, key=jax.random.key(0))
    assert batch.layer is not None
    each = []
    for tokens, targets, layer in zip(
        batch.tokens, batch.targets, np.asarray(batch.layer), strict=True
    ):
        last = min(int(layer), 1)  # two layers: the last stands in for the third
        logits = np.asarray(early_logits(config, params, tokens)[last])
        log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        each.append(-log_p[np.arange(12), np.asarray(targets)].mean())
    expected = np.mean(each)
    loss_of = jax.jit(lambda batch: batch_loss(task, config, params, batch, rewrite=None))
    descend = jax.jit(lambda batch: loss_and_gradient(task, config, params, {}, batch))
    np.testing.assert_allclose(loss_of(batch), expected, rtol=1e-5)
    np.testing.assert_allclose(descend(batch)[0], expected, rtol=1e-5)
    assert not np.allclose(loss_of(batch._replace(layer=None)), expected, rtol=1e-3)
    gradient = descend(batch._replace(layer=jnp.zeros(12, int)))[1]
    assert not np.asarray(gradient["blocks.1.attn.W_V"]).any(), (
        "what comes after the read-out has no say"
    )
    assert np.asarray(gradient["blocks.0.attn.W_V"]).any()


def test_scaled_parameters_start_so_many_times_as_large():
    config = ModelConfig(
        d_model=8,
        n_heads=1,
        n_layers=2,
        init=Init(scale=(("*.W_Q", 0.1), ("blocks.1.attn.W_K", 3.0))),
    )
    plain, scaled = (
        init(c, 3, 4, key=jax.random.key(0))
        for c in (ModelConfig(d_model=8, n_heads=1, n_layers=2), config)
    )
    for name, x in plain.items():
        factor = 0.1 if name.endswith("W_Q") else 3.0 if name == "blocks.1.attn.W_K" else 1.0
        np.testing.assert_allclose(scaled[name], factor * np.asarray(x), rtol=1e-6)
    with pytest.raises(UserError, match=r"unknown parameter in init.scale '\*.W_X'"):
        ModelConfig(init=Init(scale=(("*.W_X", 0.1),)))


def test_orthogonal_embeddings_are_of_their_usual_length():
    config = ModelConfig(d_model=16, n_heads=1, init=Init(orthogonal=True))
    params = init(config, 3, 12, key=jax.random.key(0))
    rows = np.concatenate([params["embed.W_E"], params["pos_embed.W_pos"]])
    np.testing.assert_allclose(rows @ rows.T, 16 * np.eye(15), atol=1e-4)
    plain = init(config.model_copy(update={"init": Init()}), 3, 12, key=jax.random.key(0))
    assert all(
        np.array_equal(x, plain[name])
        for name, x in params.items()
        if name.startswith(("blocks", "unembed"))
    )
    bag_of = init(
        ModelConfig(d_model=4, n_heads=1, positions="none", init=Init(orthogonal=True)),
        3,
        9,
        key=jax.random.key(0),
    )
    np.testing.assert_allclose(
        bag_of["embed.W_E"] @ bag_of["embed.W_E"].T, 4 * np.eye(3), atol=1e-4
    )
    with pytest.raises(
        UserError,
        match=r"init.orthogonal=True needs a width of at least 17, for so many embeddings, got 16",
    ):
        init(config, 3, 14, key=jax.random.key(0))


def test_what_reads_such_models_takes_them_or_says_no():
    task = Hops(n=3, k=2)
    model = ModelConfig(d_model=8, n_heads=1, n_layers=2, d_mlp=0, causal=False)
    for rewrite in (pair_tables, score_tables):
        assert rewrite.SUPPORT.why_not(model) == "causal=False (allowed: True)"
    assert choose_rewrite(model, task) is None
    run = fit(Spec(task=task, model=model, steps=2, batch=2), range(1))
    found = walk(run.model(0), [0, 1, 2], task.token_names)
    assert "A_0 = softmax(S_0)" in render_text(found, "nothing is masked", 3)
    packed = pack_run(describe_run(run, "x", (0,)))
    assert packed["config"]["causal"] is False
    assert packed["token_names"] == list(task.token_names)
    with pytest.raises(ValueError, match="metrics='hops' reads the task 'hops', got 'cycle'"):
        metrics_of(Spec.model_validate({"task": {"kind": "cycle"}, "metrics": "hops"}))


def test_old_specs_keep_their_names():
    assert "causal" not in Spec(task=Permutation()).canonical_json()
    assert not {"warmup", "clip", "scaled", "causal"} & set(
        ModelConfig().model_dump() | Adam().model_dump()
    )
    assert Adam(warmup=3).digest() != Adam().digest() != Adam(clip=1.0).digest()


# the optimizer -----------------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_rate_warms_up(schedule):
    params, steps = {"w": jnp.ones(3)}, 20
    warm, plain = (Adam(lr=0.1, warmup=w, schedule=schedule).transformation(steps) for w in (4, 0))
    states = [t.init(params) for t in (warm, plain)]
    for step in range(6):
        moved = []
        for i, t in enumerate((warm, plain)):
            update, states[i] = t.update({"w": jnp.array([1.0, 2.0, -3.0])}, states[i], params)
            moved.append(np.asarray(update["w"]))
        np.testing.assert_allclose(moved[0], min(step / 4, 1) * moved[1], rtol=1e-5, atol=1e-9)


def test_long_gradients_are_cut():
    params = {"a": jnp.zeros(2), "b": jnp.zeros(1)}
    rule = Adam(lr=0.1, clip=1.0, b2=0.5).transformation(5)
    same = Adam(lr=0.1, b2=0.5).transformation(5)
    states = [rule.init(params), same.init(params)]
    # of length 5, and of length .5
    for gradient in ({"a": [3.0, 0.0], "b": [4.0]}, {"a": [0.3, 0.0], "b": [0.4]}):
        full = {name: jnp.array(x) for name, x in gradient.items()}
        length = float(optax.tree.norm(full))
        cut = jax.tree.map(lambda x, length=length: x / max(length, 1.0), full)
        update, states[0] = rule.update(full, states[0], params)
        by_hand, states[1] = same.update(cut, states[1], params)
        np.testing.assert_allclose(update["b"], by_hand["b"], rtol=1e-5)
    assert not np.allclose(
        update["b"], same.update(full, same.init(params), params)[0]["b"], rtol=1e-2
    )


# hand-built weights ------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
def right(task, world, contexts, edits=()):
    """The share of right answers after each layer, to each level: layer, level."""
    config, params = hop_model(task), write_hops(task, world.hidden)

    def one(context):
        said = early_logits(config, params, context.reshape(-1), edits).argmax(axis=-1)
        return (said[:, None] == task.answers(world, context)[None]).mean(axis=-1)

    return jax.vmap(one)(contexts).mean(axis=0)


@pytest.mark.parametrize(("n", "k"), [(3, 2), (3, 4)])
def test_written_weights_are_right_on_every_sequence(n, k):
    task = Hops(n=n, k=k)
    permutations = list(itertools.permutations(range(n)))
    contexts = jnp.array(list(itertools.product(permutations, repeat=k)))
    assert len(contexts) == math.factorial(n) ** k
    for seed in range(2):
        shares = np.asarray(right(task, world_of(task, seed), contexts))
        assert (np.diag(shares) == 1).all(), "2^j hops stand after layer j"
        assert shares[-1, 0] < 0.9, "after the last layer, one hop is overwritten"


@pytest.mark.parametrize(("n", "k"), [(4, 2), (5, 4), (3, 8), (8, 8)])
def test_written_weights_need_every_layer(n, k):
    task = Hops(n=n, k=k)
    world = world_of(task, 3)
    contexts = jax.jit(jax.vmap(lambda key: task.context(key=key)))(
        jax.random.split(jax.random.key(4), 100)
    )
    assert hop_model(task).n_layers == math.log2(k) + 1
    assert hop_model(task).d_model == n * k + n * (math.log2(k) + 2)
    shares = np.asarray(right(task, world, contexts))
    assert shares[-1, -1] == 1
    assert shares[-2, -1] < 0.6, "one layer fewer"
    for layer in range(task.levels):
        ablated = (knock_out_head(hop_model(task), layer, 0),)
        assert right(task, world, contexts, ablated)[-1, -1] < 0.6, f"layer {layer} ablated"


def test_probes_read_what_the_written_model_knows():
    task = Hops(n=3, k=4)
    world = world_of(task)
    model = Transformer(hop_model(task), write_hops(task, world.hidden))
    assert {name: float(x) for name, x in hops(task, model, world).items()} == {
        "1 hops": 1,
        "2 hops": 1,
        "4 hops": 1,
    }
    known = np.asarray(read_after(task, model, world)) == 1
    np.testing.assert_array_equal(known, np.eye(3, dtype=bool))
    intact = np.asarray(ablate_each_layer(task, model, world)) == 1
    # only what is read before the ablation
    np.testing.assert_array_equal(intact, np.tril(np.ones((3, 3), bool), -1))
    short = {name: x for name, x in model.params.items() if not name.startswith("blocks.2")}
    cut = by_level(task, Transformer(model.config.model_copy(update={"n_layers": 2}), short), world)
    assert cut[:2].tolist() == [1, 1]
    assert cut[2] < 0.6
