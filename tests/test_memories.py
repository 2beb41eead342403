"""The memories study: its judges on small sizes, its shortcuts against the long way, and its spike against a derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemoscope import cli
from mnemoscope.config import UserError
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.memories import STUDY, taught, written
from mnemoscope.theory.memory import error_mass, recalled, store, zipf
from mnemoscope.theory.one_step import cross_entropy


def judged(claim):
    return Evidence("quick", {}, lambda name: pytest.fail(f"{name} was trained")).finding(
        (), STUDY.pick((claim,))[0].judge
    )


def test_errors_without_the_matrix_are_those_with_it(monkeypatch):
    """Scores from the two Gram matrices against W itself, at one width and all three weightings."""
    monkeypatch.setattr(written, "WIDTHS", np.array([8, 40]))
    found = written._errors(jnp.array(3))
    keys = jax.random.split(jax.random.key(3))
    e, u = jax.random.normal(keys[0], (1000, 40)), jax.random.normal(keys[1], (5, 40))
    p, answer = jnp.asarray(zipf(1000, 2.0), float), jnp.arange(1000) % 5
    for column, d in enumerate((8, 40)):
        inputs, outputs = e[:, :d], u[:, :d] / jnp.linalg.norm(u[:, :d], axis=1, keepdims=True)
        for row, q in enumerate(((jnp.arange(1000) < d // 8).astype(float), p, jnp.ones(1000))):
            w = store(inputs, outputs, answer, q)
            expected = error_mass(recalled(w, inputs, outputs, answer), p)
            assert float(found[row, column]) == pytest.approx(float(expected), abs=2e-4)


def test_a_slope_is_found_again():
    widths = written.WIDTHS
    rng = np.random.default_rng(1)
    noisy = 3.0 * widths[None] ** -0.7 * np.exp(0.1 * rng.normal(size=(50, len(widths))))
    slope, (low, high) = written._slope_interval(noisy)
    assert low <= -0.7 <= high
    assert slope == pytest.approx(-0.7, abs=0.02)


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


def test_the_room_is_twice_the_load():
    guess, room = taught._room(200 * np.log(200))
    assert guess == pytest.approx(200, abs=1)
    assert room >= 2 * guess


def test_claims_that_need_no_training_are_judged(monkeypatch):
    monkeypatch.setattr(written, "D", 64)
    monkeypatch.setattr(written, "WIDTHS", np.array([10, 30, 100]))
    monkeypatch.setitem(written.DRAWS, "quick", 8)
    for claim, expected in (("M3", "reproduced"), ("M5", "reproduced"), ("M8", "reproduced")):
        found = judged(claim)
        assert found.verdict == expected, found.sentence
    assert judged("M6").seeds == 8
    monkeypatch.setattr(written, "step_from_zero", lambda e, u, *_: jnp.zeros((u.shape[1], e.shape[1])))
    assert judged("M4").verdict == "refuted", "a step that writes nothing recalls nothing"


def test_capacity_and_optimisers_are_judged(monkeypatch):
    monkeypatch.setitem(taught.CAPACITY, "quick", (4, (4, 6), ((4, 4), (4, 6)), 64))
    found = judged("M2")
    assert found.verdict in ("reproduced", "undecided")
    assert all(len(values) == 4 for values in found.by_seed.values())
    asked = []

    def planted(cell, rates, seeds=range(10)):
        """Larger rates, smaller batches and Adam store more, as claimed."""
        asked.append(cell)
        level = {10: 0.0638, 100: 0.0307, 1000: 0.0183}[cell.d] * (cell.batch / 64) ** 0.1
        level *= 0.5 if cell.optimiser == "adam" else 1
        return np.array([[level * rate**-0.2 * (1 + 0.01 * seed) for seed in range(10)] for rate in rates])

    monkeypatch.setattr(taught, "errors_by_rate", planted)
    assert judged("M7").verdict == "reproduced"
    monkeypatch.setattr(taught, "errors_by_rate", lambda cell, rates: planted(cell, tuple(1 / rate for rate in rates)))
    assert judged("M7").verdict == "partly", "larger rates store less"
    assert {cell.batch for cell in asked} == {16, 64, 256, 1024}


def test_there_is_no_step_to_profile():
    with pytest.raises(UserError, match="study 'memories' trains no transformer, so there is no step to profile"):
        cli.profile("memories")
