"""Bigram sequences with triggers: the sampler against its matrices,
the exact reader against brute force.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope.core.errors import UserError
from mnemoscope.tasks import Bigrams, Corpus, read_corpus, tiny_shakespeare
from mnemoscope.tasks.bigrams import _sets

COUNTS = [[4, 3, 2, 1], [1, 1, 1, 5], [2, 0, 3, 3], [1, 6, 1, 2]]
SMALL = Corpus(
    name="small",
    characters="abcd",
    counts=tuple((i, j, n) for i, row in enumerate(COUNTS) for j, n in enumerate(row) if n),
)


def drawn(task, number=2000, seed=0):
    keys = jax.random.split(jax.random.key(seed), number)
    return [np.asarray(x) for x in jax.jit(jax.vmap(lambda key: task.draw(key=key)))(keys)]


def test_the_corpus_is_the_one_the_paper_used():
    corpus = tiny_shakespeare()
    assert len(corpus.characters) == 65
    assert sum(count for *_, count in corpus.counts) == 1_115_394 - 1
    assert corpus.characters[:3] == "\n !"
    np.testing.assert_allclose(corpus.bigrams.sum(axis=1), 1)
    np.testing.assert_allclose(corpus.unigrams.sum(), 1)
    assert [Bigrams().text.characters[i] for i in Bigrams().fixed_triggers] == list(" etoa")
    assert [
        Bigrams().text.characters[i] for i in Bigrams(n_triggers=2, skip=1).fixed_triggers
    ] == list("et")


def test_alias_tables_give_back_the_bigrams():
    shares, others = SMALL.alias
    n = len(COUNTS)
    again = np.zeros((n, n))
    for row, column in itertools.product(range(n), range(n)):
        again[row, column] += shares[row, column] / 2**32 / n
        again[row, others[row, column]] += (1 - shares[row, column] / 2**32) / n
    np.testing.assert_allclose(
        again, np.array(COUNTS) / np.sum(COUNTS, axis=1, keepdims=True), atol=1e-9
    )


@pytest.mark.parametrize("triggers", ["fixed", "random"])
@pytest.mark.parametrize("outputs", ["uniform", "bigram"])
def test_triggers_are_followed_by_their_output_and_the_rest_by_the_bigrams(triggers, outputs):
    task = Bigrams(corpus=SMALL, n_triggers=1, triggers=triggers, outputs=outputs, length=12)
    tokens, q, o = drawn(task, 4000)
    now, after = tokens[:, :-1], tokens[:, 1:]
    is_q = now == q
    assert (after == o)[is_q].all()
    for z in range(4):
        here = (now == z) & ~is_q
        if triggers == "fixed" and z == task.fixed_triggers[0]:
            assert not here.any()
            continue
        share = np.bincount(after[here], minlength=4) / here.sum()
        np.testing.assert_allclose(share, SMALL.bigrams[z], atol=5 * math.sqrt(0.25 / here.sum()))
    first = np.bincount(tokens[:, 0], minlength=4) / len(tokens)
    np.testing.assert_allclose(first, SMALL.unigrams, atol=0.04)
    chosen = np.bincount(q[:, 0], minlength=4) / len(q)
    expected = SMALL.unigrams if triggers == "random" else np.eye(4)[task.fixed_triggers[0]]
    np.testing.assert_allclose(chosen, expected, atol=0.04)
    prior = np.full((4, 4), 1 / 4) if outputs == "uniform" else SMALL.bigrams
    for z in range(4):
        if (q == z).sum() > 500:
            share = np.bincount(o[q == z], minlength=4) / (q == z).sum()
            np.testing.assert_allclose(share, prior[z], atol=5 * math.sqrt(0.25 / (q == z).sum()))


def test_random_triggers_are_different_from_each_other():
    _, q, _ = drawn(Bigrams(corpus=SMALL, n_triggers=3, triggers="random", length=2), 200)
    assert all(len(set(row)) == 3 for row in q.tolist())


def test_roles_count_how_often_a_trigger_was_seen():
    task = Bigrams(corpus=SMALL, n_triggers=2, length=8)
    roles = task.roles(jnp.array([0, 3, 0, 1, 3, 3, 2, 0]), jnp.array([0, 3]))
    assert roles.tolist() == [1, 1, 2, 0, 2, 3, 0, 3]


def test_the_loss_is_where_the_context_tells():
    task = Bigrams(corpus=SMALL, n_triggers=1, length=40)
    example = task.sample((), key=jax.random.key(3))
    tokens, q, o = task.draw(key=jax.random.key(3))
    seen = np.flatnonzero(np.asarray(tokens[:-1] == q[0]))
    assert np.flatnonzero(np.asarray(example.weights)).tolist() == seen[1:].tolist()
    assert (np.asarray(example.targets)[seen] == int(o[0])).all()
    everywhere = task.model_copy(update={"loss": "all"}).sample((), key=jax.random.key(3))
    assert (np.asarray(everywhere.weights) == 1).all()


def brute_force(task, tokens):
    """p(next | tokens) by listing every ordered choice of triggers and every choice of outputs."""
    n, corpus = task.d_vocab, task.text
    prior = np.full((n, n), 1 / n) if task.outputs == "uniform" else corpus.bigrams
    total = np.zeros(n)
    orders = (
        [task.fixed_triggers]
        if task.triggers == "fixed"
        else itertools.permutations(range(n), task.n_triggers)
    )
    for order in orders:
        chance, left = 1.0, 1.0
        if task.triggers == "random":
            for v in order:
                chance, left = chance * corpus.unigrams[v] / left, left - corpus.unigrams[v]
        for outputs in itertools.product(range(n), repeat=len(order)):
            told = dict(zip(order, outputs, strict=True))
            p = chance * np.prod([prior[v, out] for v, out in told.items()])
            for a, b in itertools.pairwise(tokens):
                p *= float(told[a] == b) if a in told else corpus.bigrams[a, b]
            last = tokens[-1]
            total += p * (np.eye(n)[told[last]] if last in told else corpus.bigrams[last])
    return total / total.sum()


@pytest.mark.parametrize("triggers", ["fixed", "random"])
@pytest.mark.parametrize("outputs", ["uniform", "bigram"])
@pytest.mark.parametrize("n_triggers", [0, 1, 2])
def test_the_reader_is_exact(triggers, outputs, n_triggers):
    task = Bigrams(
        corpus=SMALL,
        n_triggers=n_triggers,
        triggers=triggers,
        outputs=outputs,
        length=7,
        loss="all",
    )
    for row in drawn(task, 4, seed=1)[0].tolist():
        found = task.posterior(np.array(row))
        for i in range(len(row)):
            np.testing.assert_allclose(found[i], brute_force(task, row[: i + 1]), atol=1e-9)


def test_a_sequence_that_cannot_be_has_no_answer():
    """After c comes b never in the text; as the only trigger,
    c would have to be followed by one token alone.
    """
    task = Bigrams(corpus=SMALL, n_triggers=1, triggers="random", length=6)
    found = task.posterior(np.array([2, 1, 2, 0, 1]))
    assert np.isfinite(found[:3]).all()
    assert np.isnan(found[3:]).all()


def test_sets_of_triggers_are_weighed_exactly():
    """Against successive draws without replacement, listed; 65 characters add up to one."""
    rng = np.random.default_rng(0)
    a, b = rng.uniform(size=(2, 4))
    for k in (1, 2, 3, 4):
        total = 0.0
        for order in itertools.permutations(range(4), k):
            p, left = 1.0, 1.0
            for v in order:
                p, left = p * SMALL.unigrams[v] / left, left - SMALL.unigrams[v]
            total += p * np.prod([a[v] if v in order else b[v] for v in range(4)])
        assert _sets(SMALL, k, a, b) == pytest.approx(total, rel=1e-10)
    assert _sets(tiny_shakespeare(), 5, np.ones(65), np.ones(65)) == pytest.approx(1, rel=1e-10)


def test_any_text_is_a_corpus(tmp_path):
    path = tmp_path / "my.txt"
    path.write_text("abab\nb")
    corpus = read_corpus(path)
    assert corpus.characters == "\nab"
    # a b a b newline b, and then a again: the text is a circle
    np.testing.assert_allclose(corpus.bigrams, [[0, 0, 1], [0, 0, 1], [1 / 3, 2 / 3, 0]])
    assert Bigrams(corpus=corpus, n_triggers=1).token_names == ("⏎", "a", "b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 different characters; at least 2"),
        (b"aaaa", "has 1 different characters"),
        (b"\xff\xfe\x00", "is not text in UTF-8"),
        (b"ab\x00", "is not text: it holds zero bytes"),
        (None, "cannot read the corpus"),
    ],
)
def test_what_is_no_corpus_is_one_line(tmp_path, content, message):
    path = tmp_path / "x.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_corpus(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n_triggers": 5}, "n_triggers=5 is more than the 4 characters there are to choose from"),
        ({"n_triggers": 3, "skip": 2}, "n_triggers=3 is more than the 2 characters"),
        ({"length": 1}, "greater than or equal to 2"),
        ({"n_triggers": 0}, "without triggers no position is predictable; take loss='all'"),
    ],
)
def test_tasks_that_cannot_be_are_refused(fields, message):
    with pytest.raises(UserError, match=message) as error:
        Bigrams(corpus=SMALL, **fields)
    assert "\n" not in str(error.value)
