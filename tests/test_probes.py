"""Probes on models whose answers are known: hand-made readers instead of trained ones,
and counting in plain Python.
"""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import forward, init, world_of

from mnemoscope.models import ModelConfig, Transformer, knock_out_head, knock_out_mlp
from mnemoscope.probes import skills
from mnemoscope.probes.ablation import forced_patterns, knock_outs, list_cases, site_means
from mnemoscope.probes.attention import mean_pattern, roles, unevenness
from mnemoscope.tasks import Permutation
from mnemoscope.tasks.permutation import permutations
from mnemoscope.theory.elimination_floors import eliminator_loss, guessing_loss, used_set_loss

TASK = Permutation(n_symbols=4)
CONFIG = ModelConfig(d_model=8, n_heads=2, d_mlp=8)


@pytest.fixture(scope="module")
def split():
    return world_of(TASK)


@pytest.fixture(scope="module")
def model():
    params = init(CONFIG, TASK.d_vocab, TASK.n_ctx, key=jax.random.key(1))
    return Transformer(CONFIG, {k: v * 1.5 for k, v in params.items()})


def trace_of(model, row):
    """What the forward pass saw at every site, for one sequence with its last answer."""
    return forward(model.config, model.params, jnp.array(row[: TASK.n_ctx]))[1]


class Reader(Transformer):
    """Answers like a model, from a rule on the prompt:
    what probes must say of it can be worked out by hand.
    """

    def __init__(self, rule):
        object.__setattr__(self, "rule", rule)

    def __call__(self, row, edits=()):
        p = self.rule(row)  # step, vocab
        logits = jnp.full((TASK.n_ctx, TASK.d_vocab), -30.0)
        return logits.at[::2].set(jnp.log(p + 1e-9))


def test_a_perfect_reader_gets_a_perfect_card(split):
    card = jax.jit(lambda split: skills.report_card(TASK, Reader(TASK.posterior), split))(split)
    np.testing.assert_allclose(card["accuracy"][-1], 1)
    np.testing.assert_allclose(card["recall"], [1, 1, 1])
    np.testing.assert_allclose(card["mae"], 0, atol=1e-6)
    np.testing.assert_allclose(card["loss"], np.log([4, 3, 2, 1]), atol=1e-4)
    np.testing.assert_allclose(card["says_unused"], 0)


def test_an_eliminator_that_cannot_recall_falls_into_the_trap(split):
    def eliminator(row):
        used = (row[1::2, None] == jnp.arange(TASK.d_vocab)[None, :]).cumsum(axis=0) > 0
        free = jnp.concatenate([jnp.zeros((1, TASK.d_vocab), bool), used[:3]]) == 0
        free = free.at[:, 0].set(False).astype(float)
        return free / free.sum(axis=1, keepdims=True)

    card = jax.jit(lambda split: skills.report_card(TASK, Reader(eliminator), split))(split)
    assert float(card["accuracy"][-1]) == 1
    np.testing.assert_allclose(card["recall"], 0)
    np.testing.assert_allclose(card["p_unused"], 1, atol=1e-5)
    np.testing.assert_allclose(card["says_unused"], 1)
    # on a repeat it is certain of a wrong value: |1 - 0| + |0 - 1| over four symbols
    np.testing.assert_allclose(card["recall_mae"], 2 / 4, atol=1e-5)
    both = jax.jit(lambda split: skills.both_skills(TASK, Reader(eliminator), split))(split)
    assert (float(both["elimination"]), float(both["recall"])) == (1, 0)


def test_a_reader_of_the_training_mappings_is_recognized(split):
    def by_training(row):
        return jnp.nan_to_num(TASK.posterior(row, split), nan=1 / 5)

    found = jax.jit(lambda split: skills.against_training(TASK, Reader(by_training), split))(split)
    np.testing.assert_allclose(found["mae_training"][:3], 0, atol=1e-5)
    assert float(found["mae_all"][2]) > 0.05
    # counted by hand: at each step the most frequent fitting value of the training mappings,
    # against the held-out one
    trained = [tuple(int(x) for x in row) for row in split.train]
    hits = []
    for m in np.asarray(split.held_out).tolist():
        for order in itertools.permutations(range(4)):
            fitting = [t for t in trained if all(t[x] == m[x] for x in order[:1])]
            counts = [sum(t[order[1]] == v for t in fitting) for v in range(4)]
            hits.append(int(np.argmax(counts)) == m[order[1]])
    assert float(found["accuracy_training"][1]) == pytest.approx(np.mean(hits), abs=1e-6)


def test_attention_roles_of_a_known_pattern():
    n = TASK.n_ctx
    averaging, local = np.zeros((2, n, n))
    for row in range(n):
        ys = range(1, row, 2)
        for y in ys:
            averaging[row, y] = 1 / len(ys)
        if not len(ys):
            averaging[row, row] = 1
        local[row, row if row % 2 or row == 0 else row - 1] = 1
    found = jax.jit(partial(roles, TASK))(jnp.array([averaging, local]))
    np.testing.assert_allclose(found["x_to_outputs"], [1, 1], atol=1e-6)
    np.testing.assert_allclose(
        found["x_to_preceding_output"], [(1 + 1 / 2 + 1 / 3) / 3, 1], atol=1e-6
    )
    # the first y has nothing else to look at
    np.testing.assert_allclose(found["y_to_self"], [1 / 3, 1], atol=1e-6)
    np.testing.assert_allclose(found["last_x_to_first_output"], [1 / 3, 0], atol=1e-6)
    np.testing.assert_allclose(
        unevenness(TASK, jnp.array([averaging, local])), [0, 2 / 3], atol=1e-6
    )


def test_mean_pattern_is_the_mean(model, split):
    tokens = TASK.list_tokens(split.held_out[:1], (3,))[:5]
    each = [trace_of(model, row)["blocks.0.attn.hook_pattern"] for row in np.asarray(tokens)]
    mean = jax.jit(partial(mean_pattern, TASK))(model, tokens)
    np.testing.assert_allclose(mean, np.mean(each, axis=0), atol=1e-6)


def test_knock_outs_are_what_single_edits_give(model, split):
    out = jax.jit(lambda m: knock_outs(TASK, m, split))(model)
    names = list_cases(CONFIG)
    assert names == ["none", "L0H0", "L0H1", "L0 attention", "L0 mlp"]
    sites = ("blocks.0.attn.hook_z", "blocks.0.hook_mlp_out")
    means_of = jax.jit(lambda split: site_means(TASK, model, split, (0, 3), sites))
    means = means_of(split)
    alone_with = jax.jit(lambda edit: skills.both_skills(TASK, model, split, edit))
    edits = {
        "none": [],
        "L0H1": [knock_out_head(CONFIG, 0, 1)],
        "L0 mlp": [knock_out_mlp(0)],
        "L0 attention": [knock_out_head(CONFIG, 0, 0), knock_out_head(CONFIG, 0, 1)],
    }
    for name, edit in edits.items():
        for skill, value in alone_with(edit).items():
            assert float(out["zero"][skill][names.index(name)]) == pytest.approx(
                float(value), abs=1e-6
            )
    alone = alone_with([knock_out_head(CONFIG, 0, 0, means["blocks.0.attn.hook_z"])])
    assert float(out["mean"]["recall"][1]) == pytest.approx(float(alone["recall"]), abs=1e-6)
    few = split._replace(held_out=split.held_out[:1])
    tokens = TASK.list_tokens(few.held_out, (0, 3))
    by_hand = np.mean(
        [trace_of(model, row)["blocks.0.attn.hook_z"] for row in np.asarray(tokens)], axis=0
    )
    np.testing.assert_allclose(means_of(few)["blocks.0.attn.hook_z"], by_hand, atol=1e-5)


def test_rows_of_outputs_cannot_matter_in_one_layer(model, split):
    """Why R12's half about outputs attending to themselves is idle:
    forcing those rows changes no answer.
    """
    forced = forced_patterns(TASK, model, split)
    assert forced["even"]["recall"].shape == (2,)
    prompt = jnp.array([1, 2, 2, 1, 3, 4, 4])
    from mnemoscope.models import force_pattern

    pattern = jnp.eye(TASK.n_ctx)
    edit = [
        force_pattern(CONFIG, 0, head, pattern, jnp.arange(TASK.n_ctx) % 2 == 1) for head in (0, 1)
    ]
    np.testing.assert_array_equal(model(prompt, edit)[::2], model(prompt)[::2])
    assert not np.allclose(model(prompt, edit)[1::2], model(prompt)[1::2])


def test_over_seeds_is_one_seed_after_another(split):
    models = [init(CONFIG, TASK.d_vocab, TASK.n_ctx, key=jax.random.key(s)) for s in range(3)]
    stacked = Transformer(CONFIG, jax.tree.map(lambda *x: np.stack(x), *models))
    worlds = jax.tree.map(lambda x: np.stack([x] * 3), split)
    together = skills.over_seeds(lambda m, w: skills.both_skills(TASK, m, w), stacked, worlds)
    for row, params in enumerate(models):
        alone = jax.jit(lambda model: skills.both_skills(TASK, model, split))(
            Transformer(CONFIG, params)
        )
        assert together["recall"][row] == pytest.approx(float(alone["recall"]), abs=1e-6)


@pytest.mark.parametrize("repeat", [0.0, 0.3])
def test_used_set_bound_by_enumeration(repeat):
    """The best reader of the used set,
    found by counting what follows each used set in the task's own sequences.
    """
    task = Permutation(n_symbols=4, repeat=repeat)
    listed = task.sequences(permutations(4))
    weight: dict = {}
    for row, p in zip(listed.tokens.tolist(), listed.probability, strict=True):
        for step in range(4):
            key = (step, frozenset(row[1 : 2 * step : 2]))
            weight.setdefault(key, {}).setdefault(row[2 * step + 1], 0.0)
            weight[key][row[2 * step + 1]] += p
    loss = (
        sum(
            -p * np.log(p / sum(after.values()))
            for after in weight.values()
            for p in after.values()
        )
        / 4
    )
    assert used_set_loss(4, repeat) == pytest.approx(loss, abs=1e-9)


def test_published_losses():
    assert eliminator_loss(5) == pytest.approx((np.log(5) + np.log(4) + np.log(3) + np.log(2)) / 5)
    assert guessing_loss(5) == pytest.approx(np.log(5))
