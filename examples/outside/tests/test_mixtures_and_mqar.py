"""Two tasks from papers, held to Mnemoscope's checks, and their readers to a second route."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mixtures import (
    MarkovMixture,
    infer_bigrams,
    infer_unigrams,
    retrieve_bigrams,
    retrieve_unigrams,
)
from mixtures.markov_mixture import draw_chains, stationary_law
from mqar import MultiQueryRecall, guess_from_row, guess_value

import mnemoscope as ms

MIXTURE = MarkovMixture(n_chains=3, n_states=3, length=6)
RECALL = MultiQueryRecall(vocabulary=12, n_pairs=2, length=12)


@pytest.mark.parametrize("check", ms.testing.list_task_checks(MIXTURE), ids=str)
def test_the_mixture(check):
    check()


@pytest.mark.parametrize("check", ms.testing.list_task_checks(RECALL), ids=str)
def test_recall(check):
    check()


@pytest.fixture(scope="module")
def chains():
    world = MIXTURE.world(key=jax.random.key(0))
    return jax.tree.map(lambda x: np.asarray(x, float), world)


def test_a_stationary_law_is_left_as_it_is(chains):
    for transitions, law in zip(chains.transitions, chains.stationary, strict=True):
        np.testing.assert_allclose(law @ transitions, law, atol=1e-6)
        np.testing.assert_allclose(np.linalg.matrix_power(transitions, 200)[0], law, atol=1e-5)


def sequence_chances(chains, tokens, unigrams=False):
    """By chain: the probability of the chain and of a sequence, as a product."""
    chances = []
    for w, pi, t in zip(chains.weights, chains.stationary, chains.transitions, strict=True):
        chance = w * pi[tokens[0]]
        for before, after in itertools.pairwise(tokens):
            chance *= pi[after] if unigrams else t[before, after]
        chances.append(chance)
    return np.array(chances)


def test_retrieving_readers_by_enumeration(chains):
    tokens = [0, 2, 2, 1, 0, 2]
    bigrams = retrieve_bigrams(MIXTURE, jnp.array(tokens), chains)
    unigrams = retrieve_unigrams(MIXTURE, jnp.array(tokens), chains)
    for t in range(len(tokens)):
        seen = tokens[: t + 1]
        longer = np.array([sequence_chances(chains, [*seen, v]).sum() for v in range(3)])
        np.testing.assert_allclose(bigrams[t], longer / longer.sum(), rtol=1e-4)
        by_chain = sequence_chances(chains, seen, unigrams=True)
        mean = (by_chain[:, None] * chains.stationary).sum(axis=0) / by_chain.sum()
        np.testing.assert_allclose(unigrams[t], mean, rtol=1e-4)


def test_inferring_readers_by_counting_and_by_integration(chains):
    tokens = [0, 2, 0, 2, 0, 1]
    found = infer_bigrams(MIXTURE, jnp.array(tokens), chains)
    # after 0, 2, 0, 2, 0: from 0 twice to 2, and one more for each of three states
    np.testing.assert_allclose(found[4], [1 / 5, 1 / 5, 3 / 5], rtol=1e-6)
    np.testing.assert_allclose(found[5], [1 / 3, 1 / 3, 1 / 3], rtol=1e-6)  # 1 led nowhere yet
    # of two states: the mean of p under p^a (1 - p)^b, a = 2 times to 1 and b = 1 time to 0
    two = MarkovMixture(n_chains=1, n_states=2, length=5)
    p = (np.arange(100_000) + 0.5) / 100_000
    likelihood = p**2 * (1 - p)
    after = infer_bigrams(two, jnp.array([0, 1, 0, 0, 1]), None)
    ahead = infer_bigrams(two, jnp.array([0, 0, 1, 0, 1, 0])[:6], None)[5]
    np.testing.assert_allclose(after[3, 1], 1 / 2, rtol=1e-6)  # once to each so far
    np.testing.assert_allclose(ahead[1], (p * likelihood).sum() / likelihood.sum(), rtol=1e-4)
    # a law by walking on for long in the counted chain
    counts = np.array([[1, 1, 3], [1, 1, 1], [3, 1, 1]], float)
    walked = np.linalg.matrix_power(counts / counts.sum(axis=1, keepdims=True), 100)[0]
    law = infer_unigrams(MIXTURE, jnp.array(tokens), chains)[4]
    np.testing.assert_allclose(law, walked, rtol=1e-5)


def test_inference_is_best_on_chains_that_nobody_has_seen():
    """The mean loss of each reader on fresh chains: no retriever comes near."""
    task = MarkovMixture(n_chains=4, n_states=4, length=200)
    world = task.world(key=jax.random.key(1))
    fresh = draw_chains(jax.random.key(2), 64, 4)
    laws = stationary_law(fresh)
    unseen = world._replace(transitions=fresh, stationary=laws, weights=jnp.ones(64) / 64)

    @jax.jit
    def losses(key):
        example = task.sample(unseen, key=key)
        at_end = slice(100, None)
        rows = jnp.arange(task.length)[at_end]
        targets = example.targets[at_end]
        readers = (infer_bigrams, infer_unigrams, retrieve_bigrams, retrieve_unigrams)
        return jnp.array(
            [-jnp.log(r(task, example.tokens, world)[rows, targets]).mean() for r in readers]
        )

    found = jax.vmap(losses)(jax.random.split(jax.random.key(3), 128)).mean(axis=0)
    assert found[0] < found[1:].min() - 0.1


def test_recall_by_hand():
    tokens = jnp.array([3, 8, 5, 11, 5, 0, 0, 0, 3, 0, 0, 0])
    answers = RECALL.posterior(tokens, ())
    assert RECALL.loss_positions == (4, 6, 8, 10)
    assert answers.argmax(axis=1)[jnp.array([0, 2])].tolist() == [11, 8]
    assert answers.sum(axis=1).tolist() == [1, 0, 1, 0]
    # one of two values of the row, and one of six values of all
    assert guess_from_row(RECALL, tokens)[2, 8] == 1 / 2
    np.testing.assert_allclose(guess_value(RECALL, tokens)[2, 6:], np.full(6, 1 / 6))
    with pytest.raises(ms.UserError, match="need length=16 or more, got 14"):
        MultiQueryRecall(n_pairs=4, length=14)


def test_queries_crowd_behind_the_pairs_as_they_should():
    """With one pair slot m is asked with probability m^(a - 1) / sum."""
    task = MultiQueryRecall(vocabulary=12, n_pairs=1, length=10, power=0.5)
    keys = jax.random.split(jax.random.key(0), 20_000)
    weights = jax.jit(jax.vmap(lambda key: task.sample((), key=key).weights))(keys)
    shares = np.asarray(weights).mean(axis=0)[2::2]
    wanted = np.arange(1, 5) ** -0.5
    # five standard errors of the largest share
    np.testing.assert_allclose(shares, wanted / wanted.sum(), atol=5 * 0.5 / np.sqrt(20_000))
