"""The benchmarks time what training does: they are run here at the smallest size,
and say how far apart two routes are.
"""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measure

    turns = []
    monkeypatch.setattr(measure, "_timed", lambda advance: turns.append(advance(1)) or 1.0)
    monkeypatch.setattr(measure, "BATCH", 8)
    yield measure
    assert len(turns) in (0, 1)
    del sys.modules["measure"]


def test_a_training_step_is_what_is_timed(measure):
    """One turn is handed to the clock, which waits for what it computes."""
    assert measure.step_time(d=8, seeds=1) == 1.0


def test_a_gradient_of_any_length_and_vocabulary_is_what_is_timed(measure):
    assert measure.gradient_time(length=5, vocabulary=4, seeds=1, d=8) == 1.0


def test_the_route_of_training_is_compared_with_the_plain_pass(measure):
    """Two different routes: apart by rounding, and not by nothing at all."""
    found = measure.agreement(norms=("none",))["none"]
    assert found["loss"] < 1e-5
    assert 0 < found["gradient"] < 1e-5
