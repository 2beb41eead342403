"""What a run can do: accuracy and loss by seed and by position, and metrics read later."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mnemoscope as ms
from mnemoscope.core.errors import UserError
from mnemoscope.training.answers import AT_ONCE, SAMPLE_KEY
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.run import Run

CYCLE = ms.Cycle(n_symbols=4, length=3)
TINY = ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0)


@ms.metric
def largest(task, model, world):
    logits = model(jnp.arange(task.n_ctx))
    return {"logit": logits.max(), "row": logits[0]}


SPEC = ms.Spec(task=CYCLE, model=TINY, steps=8, batch=2, snapshots=3, metrics=largest)


@pytest.fixture(scope="module")
def run():
    """Three seeds, the last of which diverged."""
    found = ms.fit(SPEC, 3, progress=False)
    finite = np.array([8, 8, 5])
    return Run(**{**vars(found), "finite_steps": finite})


def by_hand(run, seed):
    """Right answers and losses of one seed, sequence by sequence, in float64."""
    sequences = CYCLE.sequences()
    logits = np.asarray(jax.vmap(run.model(seed))(sequences[:, :-1]), float)
    right = logits.argmax(axis=-1) == sequences[:, 1:]
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return right, -np.take_along_axis(log_p, sequences[:, 1:, None], axis=-1)[..., 0]


def test_accuracy_and_loss_are_exact_over_the_tasks_own_sequences(run):
    accuracy, loss = run.accuracy(), run.loss()
    by_position = run.accuracy(by="position")
    assert by_position.values.shape == (3, 3)
    for seed in (0, 1):
        right, losses = by_hand(run, seed)
        np.testing.assert_allclose(accuracy.of(seed), right.sum() / 12, rtol=1e-6)
        np.testing.assert_allclose(loss.of(seed), losses.sum() / 12, rtol=1e-5)
        np.testing.assert_allclose(by_position.of(seed), right.sum(axis=0) / 4, rtol=1e-6)
    assert np.isnan(accuracy.of(2)), "a seed that diverged has none"
    assert accuracy.mean() == (accuracy[0] + accuracy[1]) / 2
    assert "all 4 sequences" in repr(accuracy)


def test_it_calculates_as_an_array_and_prints_on_a_screen(run):
    accuracy = run.accuracy()
    np.testing.assert_array_equal(accuracy > -1, [True, True, False])
    np.testing.assert_array_equal(1 - accuracy, 1 - accuracy.values)
    many = type(accuracy)("accuracy", range(200), np.linspace(0, 1, 200), "a sample")
    assert len(repr(many).splitlines()) < 24
    assert max(map(len, repr(many).splitlines())) <= 80
    assert "mean" in run.accuracy(by="position")._repr_html_()
    with pytest.raises(UserError, match="unknown seed '7'; allowed: 0, 1, 2"):
        accuracy.of(7)


def test_a_sample_is_the_same_for_every_seed_and_as_large_as_asked(run):
    task = ms.Permutation(n_symbols=3, split_seed=0)
    sampled = ms.fit(ms.Spec(task=task, model=TINY, steps=1, batch=2), 2, progress=False)
    n = AT_ONCE + 3  # a chunk, and a part of one
    found = sampled.loss(sample=n)
    world = sampled.world(0)

    def draw(index):
        return task.sample(world, key=jax.random.fold_in(jax.random.key(SAMPLE_KEY), index))

    batch = jax.vmap(draw)(jnp.arange(n))
    for seed in (0, 1):
        log_p = jax.nn.log_softmax(jax.vmap(sampled.model(seed))(batch.tokens))
        each = -jnp.take_along_axis(log_p, batch.targets[..., None], axis=-1)[..., 0]
        wanted = (each * batch.weights).sum() / batch.weights.sum()
        np.testing.assert_allclose(found.of(seed), wanted, rtol=1e-5)
    assert f"a sample of {n} sequences" in repr(found)
    asked = sampled.loss(by="position", sample=n).values
    np.testing.assert_array_equal(~np.isnan(asked[0]), np.asarray(batch.weights.sum(axis=0) > 0))
    with pytest.raises(UserError, match="sample must be a number of sequences from 1 up, got 0"):
        sampled.accuracy(sample=0)


def test_what_is_asked_wrongly_is_refused(run):
    with pytest.raises(UserError, match=r"no snapshot 3 in this run; allowed: 0 to 2, or -1"):
        run.accuracy(snapshot=3)
    with pytest.raises(UserError, match="a metric or its name is needed, got None"):
        run.measure(None)
    with pytest.raises(UserError, match=r"unknown kind of metric 'bigram'.*did you mean 'bigrams'"):
        run.measure("bigram")
    with pytest.raises(UserError, match="metrics='hops' reads the task 'hops', got 'cycle'"):
        run.measure("hops")


# ---- metrics read later


def test_a_metric_read_later_is_what_training_read(run):
    assert metrics_of(SPEC) is not None
    later = run.measure(largest)
    assert later.keys() == run.metrics.keys() == {"largest/logit", "largest/row"}
    for name, read in run.metrics.items():
        np.testing.assert_allclose(later[name], read, rtol=1e-6, err_msg=name)
    assert later["largest/row"].shape == (3, len(SPEC.snapshot_steps()), 4)


def test_it_is_kept_under_its_own_identity_beside_the_run(run, store, monkeypatch):
    stored = ms.fit(SPEC, 2, store=store.folder, progress=False)
    before = (store.folder / store.rows()[0].file).read_bytes()

    @ms.metric
    def smallest(task, model, world):
        return model(jnp.arange(task.n_ctx)).min()

    first = stored.measure(smallest, store=str(store.folder))
    assert (store.folder / store.rows()[0].file).read_bytes() == before
    monkeypatch.setattr("mnemoscope.execution.measure.read_snapshots", None)  # not read again
    again = ms.measure(stored, smallest, store)
    np.testing.assert_array_equal(again["smallest"], first["smallest"])
    assert again["smallest"].dtype == np.float32

    @ms.metric
    def smallest(task, model, world):
        return model(jnp.arange(task.n_ctx)).min() + 1

    with pytest.raises(TypeError, match="not callable"):
        ms.measure(stored, smallest, store)
    assert store.check() == []


# ---- fit and the store


def test_fit_keeps_in_a_store_and_finds_again(store):
    first = ms.fit(SPEC, 2, store=str(store.folder), progress=False)
    assert [row.last for row in store.rows()] == [1]
    more = ms.fit(SPEC, 3, store=store, progress=False)
    np.testing.assert_array_equal(more.losses[:2], first.losses)
    assert len(store.rows()) == 2
    alone = ms.fit(SPEC, 3, progress=False)
    np.testing.assert_allclose(alone.losses, more.losses, rtol=1e-6)
    assert alone.metrics.keys() == more.metrics.keys()
    with pytest.raises(UserError, match="what observe reads is not kept in a store"):
        ms.fit(SPEC, 2, lambda model, world: {}, store=store)
    twice = {"largest/logit": lambda: None}
    with pytest.raises(UserError, match="observe reads 'largest/logit', as a metric of the Spec"):
        ms.fit(SPEC, 1, lambda model, world: dict.fromkeys(twice, jnp.zeros(())))
