"""The memories study: what it measures on small sizes, its shortcuts against the long way,
and its spike against a derivative.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from planted import evidence_of

from mnemoscope.cli import profiling
from mnemoscope.core.errors import UserError
from mnemoscope.report.claim_figures import claim_figures
from mnemoscope.studies.discover import STUDIES, find_study
from mnemoscope.studies.library.memories import exponents, taught, written
from mnemoscope.studies.library.memories.draws import for_draws, seeds_of
from mnemoscope.studies.presentation import load_panels
from mnemoscope.theory.associative_memory import check_recall, error_mass, write_pairs, zipf
from mnemoscope.theory.one_step import cross_entropy

STUDY = find_study("memories")


def measured(claim, scale="quick"):
    (test,) = STUDY.pick((claim,))
    return test.measure(evidence_of(scale=scale))


def all_drawn(claim, found):
    """Everything that is measured for figures has a panel."""
    chosen = load_panels(STUDIES["memories"])[claim]
    for kind, known in (
        ("seeds", found.by_seed),
        ("curves", found.plots.curves),
        ("grid", found.plots.grids),
    ):
        shown = {
            name for panel in chosen if panel.kind == kind for name in panel.chosen(tuple(known))
        }
        assert shown == set(known), kind
    by_seed = {name: values.tolist() for name, values in found.by_seed.items()}
    assert claim_figures(chosen, by_seed, found.plots)


def test_errors_without_the_matrix_are_those_with_it(monkeypatch):
    """Scores from the two Gram matrices against W itself, with all three weightings,
    and filled from draws.
    """
    monkeypatch.setattr(exponents, "WIDTHS", np.array([8, 40, 80]))
    found, joint = exponents._errors(jnp.array(3))
    keys = jax.random.split(jax.random.key(3))
    e, u = jax.random.normal(keys[0], (1000, 80)), jax.random.normal(keys[1], (5, 80))
    p, answer, seen = (
        jnp.asarray(zipf(1000, 2.0), float),
        jnp.arange(1000) % 5,
        np.asarray(exponents._counts(1000, jnp.array(3))),
    )
    for column, d in enumerate((8, 40, 80)):
        inputs, outputs = e[:, :d], u[:, :d] / jnp.linalg.norm(u[:, :d], axis=1, keepdims=True)

        def expected(q, inputs=inputs, outputs=outputs):
            w = write_pairs(inputs, outputs, answer, jnp.asarray(q, float))
            return float(error_mass(check_recall(w, inputs, outputs, answer), p))

        for row, q in enumerate((jnp.arange(1000) < d // 8, p, jnp.ones(1000))):
            assert float(found[row, column]) == pytest.approx(expected(q), abs=2e-4)
        for row, counts in enumerate(seen if d != 40 else ()):
            most = np.argsort(-counts)[: d // 8]
            kept = np.isin(np.arange(1000), most[counts[most] > 0])
            assert float(joint[row, column // 2]) == pytest.approx(expected(kept), abs=2e-4)


def test_counts_are_those_of_one_stream_and_ties_are_chance():
    seen = np.asarray(exponents._counts(1000, jnp.array(5)))
    whole = np.floor(seen)
    assert whole.sum(axis=1).tolist() == list(exponents.SAMPLES)
    assert (np.diff(whole, axis=0) >= 0).all(), "more draws of one stream"
    np.testing.assert_allclose(whole[-1, :3] / 10_000, zipf(1000, 2.0)[:3], atol=0.02)
    once = np.flatnonzero(whole[-1] == 1)
    assert len(once) > 20
    assert not (np.diff(seen[-1, once]) < 0).all(), "the order of the inputs says nothing"
    many = for_draws(lambda seed: exponents._counts(1000, seed), range(64))
    unseen = ((many == 0) * zipf(1000, 2.0)[None, None]).sum(axis=2).mean(axis=0)
    exact = [(zipf(1000, 2.0) * (1 - zipf(1000, 2.0)) ** t).sum() for t in exponents.SAMPLES]
    np.testing.assert_allclose(unseen, exact, rtol=0.1)


def test_asking_for_some_pairs_estimates_the_share_of_all(monkeypatch):
    monkeypatch.setattr(written, "D", 64)
    monkeypatch.setattr(written, "SIZES", (16, 64, 1024, 4096))
    some = measured("M1").by_seed
    monkeypatch.setitem(written.ASKED, "quick", 4096)
    every = measured("M1").by_seed
    assert (some["N=1024"] == every["N=1024"]).all()
    assert (some["N=4096"] != every["N=4096"]).any()
    np.testing.assert_allclose(some["N=4096"], every["N=4096"], atol=0.03)


def test_every_trial_has_a_slope_of_its_own():
    widths = exponents.WIDTHS.astype(float)
    rng = np.random.default_rng(1)
    noisy = 3.0 * widths[None] ** -0.7 * np.exp(0.1 * rng.normal(size=(50, len(widths))))
    found = exponents._slopes(widths, noisy)
    assert found.shape == (50,)
    x = np.log(widths) - np.log(widths).mean()
    np.testing.assert_allclose(found, np.log(noisy) @ x / (x @ x), rtol=1e-9)
    assert found.mean() == pytest.approx(-0.7, abs=0.02)


def test_draws_that_nobody_has_seen_begin_elsewhere():
    assert seeds_of("quick", 8, 128) == range(8)
    assert seeds_of("full", 8, 128) == range(10_000, 10_128)
    np.testing.assert_array_equal(for_draws(lambda seed: 2 * seed, range(3, 6)), [6, 8, 10])


@pytest.mark.parametrize("rate", [1.0, 10.0])
def test_two_tokens_follow_the_derivative(rate):
    with jax.enable_x64(True):
        e = jnp.array([[1.0, 0.0], [0.95, np.sqrt(1 - 0.95**2)]])
        p, w, expected = jnp.array([0.75, 0.25]), jnp.zeros((2, 2)), []
        for _ in range(36):
            expected.append(float(cross_entropy(w, e, jnp.eye(2), jnp.arange(2), p)))
            w = w - rate * jax.grad(cross_entropy)(w, e, jnp.eye(2), jnp.arange(2), p)
    np.testing.assert_allclose(taught.two_tokens(rate), expected, rtol=1e-9, atol=1e-12)
    assert expected[0] == pytest.approx(np.log(2))


def test_there_is_room_for_half_as_many_again():
    guess, room = taught._room(200 * np.log(200))
    assert guess == pytest.approx(200, abs=1)
    assert room >= 1.5 * guess


def test_the_map_of_spikes_has_the_published_experiment_in_it():
    found = measured("M8")
    for name, read in (
        ("rise", lambda losses: np.diff(losses).max()),
        ("last", lambda losses: losses[-1]),
    ):
        grid = found.plots.grids[name]
        assert grid.values[grid.rows.index("0.95")][grid.columns.index("10")] == pytest.approx(
            read(taught.two_tokens(10.0)), rel=1e-3
        )
    # inputs at right angles do not disturb each other:
    # each loss is log(1 + exp(-z)) with z growing by 2 p rate / (1 + exp(z))
    z, p = np.zeros(2), np.array([0.75, 0.25])
    for _ in range(35):
        z = z + 2 * p * 1.0 / (1 + np.exp(z))
    grid = found.plots.grids["last"]
    expected = (p * np.log1p(np.exp(-z))).sum()
    assert grid.values[grid.rows.index("0")][grid.columns.index("1")] == pytest.approx(
        expected, rel=1e-3
    )
    all_drawn("M8", found)


def test_claims_that_need_no_training_are_measured(monkeypatch):
    """On small sizes: what the papers say is found, though few units decide nothing."""
    monkeypatch.setattr(written, "D", 64)
    monkeypatch.setattr(written, "HIDDEN", 256)
    monkeypatch.setattr(exponents, "WIDTHS", np.array([10, 30, 100]))
    assert measured("M3").parts["difference"] < 1e-12
    assert measured("M4").parts["recalls"].all()
    sums = measured("M5")
    assert sums.parts["3 distractors"].all()
    assert sums.parts["15 distractors"].all()
    all_drawn("M5", sums)
    filled = measured("M6")
    assert filled.parts["most frequent kept"].shape == (8,)
    assert filled.plots.grids["measured"].rows == ("10", "100")
    all_drawn("M6", filled)
    monkeypatch.setattr(
        written, "step_from_zero", lambda e, u, *_: jnp.zeros((u.shape[1], e.shape[1]))
    )
    assert not measured("M4").parts["recalls"].any(), "a step that writes nothing recalls nothing"


def test_a_step_below_a_layer_writes_what_the_formula_says(monkeypatch):
    """M9 in NumPy: through a linear layer V, W = sum_x V^T (u_f(x) - ubar) e_x^T, and through a
    feed-forward layer the same with V = V_out V_in / 2, half being the slope of GELU at 0."""
    monkeypatch.setattr(written, "D", 24)
    monkeypatch.setattr(written, "HIDDEN", 96)
    found = measured("M9")
    all_drawn("M9", found)
    for seed in range(8):
        e, u = (np.asarray(x, float) for x in written._embeddings(24, 24, jnp.array(seed)))
        keys = jax.random.split(jax.random.key(seed + 2**20), 3)
        shapes = ((24, 24), (96, 24), (24, 96))
        v, v_in, v_out = (
            np.asarray(jax.random.normal(key, shape), float) * scale**-0.5
            for key, shape, scale in zip(keys, shapes, (24, 24, 96), strict=True)
        )
        centered = u - u.mean(axis=0)
        linear = centered @ v
        backward = centered @ v_out @ v_in / 2
        own = {
            "through a linear layer": e @ (linear.T @ e).T @ v.T @ u.T,
            "through a feed-forward layer": _gelu(e @ e.T @ backward @ v_in.T) @ v_out.T @ u.T,
            "outputs below a linear layer": e @ (centered.T @ e).T @ v.T @ u.T,
        }
        for name, scores in own.items():
            share = (scores.argmax(axis=1) == np.arange(24)).mean()
            assert found.by_seed[name][seed] == pytest.approx(share, abs=1e-6), (name, seed)


def _gelu(z):
    """As JAX has it, by the hyperbolic tangent."""
    return 0.5 * z * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))


def test_capacity_is_measured_on_small_memories(monkeypatch):
    """Every kind of memory, and what is drawn of it."""
    sizes = taught.Sizes(
        range(4), (4, 6), ((4, 4), (4, 6)), 64, few=((4, 8), (4, 12)), exact=(4, 6)
    )
    monkeypatch.setitem(taught.CAPACITY, "quick", sizes)
    found = measured("M2")
    assert all(len(values) == 4 for values in found.by_seed.values())
    assert len(found.by_seed) == 5 + 10
    all_drawn("M2", found)
    n = np.stack([found.by_seed[f"N of one matrix, d = {d}"] for d in (4, 6)])
    load = n * np.log(n)
    slope = np.log(load[1] / load[0]) / np.log(36 / 16)
    np.testing.assert_allclose(found.parts["one matrix: power"], slope, rtol=1e-9)
    constant = np.sqrt(16 / load[0] * 36 / load[1])
    np.testing.assert_allclose(found.parts["one matrix: constant"], constant, rtol=1e-9)
    trained, whole, by_hand = (
        found.plots.curves[f"{name}"]
        for name in ("linear: trained", "all pairs: trained", "all pairs: written")
    )
    # of fewer than a hundred pairs, 99% are all; but they are two programs,
    # and a border may fall to either side
    np.testing.assert_allclose(trained.mean, whole.mean, atol=0.5)
    assert max(by_hand.mean) < min(whole.mean)
    line = found.plots.curves["all pairs: published"]
    np.testing.assert_allclose([n * np.log(n) for n in line.mean[1:]], [6**2 / 2], rtol=1e-2)
    assert found.plots.curves["32 outputs: published"].mean == pytest.approx(
        (4 * 8 / 1.2, 4 * 12 / 1.2), rel=1e-3
    )


def test_what_is_drawn_of_the_optimizers_is_every_cell(monkeypatch):
    """M7 asks for each cell once, on the published seeds at quick and on others at full."""
    asked = []

    def errors_by_rate(cell, rates, seeds):
        asked.append((cell.d, cell.batch, cell.optimizer, rates, seeds))
        return np.outer(rates, np.linspace(0.1, 0.2, len(seeds)))

    monkeypatch.setattr(taught, "errors_by_rate", errors_by_rate)
    all_drawn("M7", measured("M7"))
    assert {seeds for *_, seeds in asked} == {tuple(range(42, 52))}
    assert len(asked) == len(set(asked)) == 15
    asked.clear()
    assert measured("M7", "full").parts["Adam"].shape == (64,)
    assert {seeds for *_, seeds in asked} == {tuple(range(10_000, 10_064))}


def test_there_is_no_step_to_profile():
    with pytest.raises(
        UserError, match="study 'memories' trains no transformer, so there is no step to profile"
    ):
        profiling.profile("memories")
