"""Everything of this package is held to what Mnemoscope asks of kinds and studies from outside."""

from pathlib import Path

import numpy as np
import pytest
import state_tracking
from state_tracking import FocalLoss, Gru, RunningSum, SignMomentum, reach

import mnemoscope as ms

TASK = RunningSum(modulus=3, length=5)
STUDY = Path(state_tracking.__file__).parent / "does_it_track"


@pytest.mark.parametrize("check", ms.testing.list_task_checks(TASK), ids=str)
def test_the_task(check):
    check()


@pytest.mark.parametrize("check", ms.testing.list_model_checks(Gru(d_hidden=6)), ids=str)
def test_the_model(check):
    check()


@pytest.mark.parametrize("check", ms.testing.list_metric_checks(reach, TASK), ids=str)
def test_the_metric(check):
    check()


@pytest.mark.parametrize("check", ms.testing.list_study_checks(STUDY), ids=str)
def test_the_study(check):
    check()


def test_a_recurrence_learns_a_running_sum_with_all_that_is_ours():
    """Task, model, optimizer, loss and metric of this package in one training."""
    spec = ms.Spec(
        task=RunningSum(modulus=2, length=4),
        model=Gru(d_hidden=12),
        optimizer=SignMomentum(lr=3e-3),
        loss=FocalLoss(gamma=1.0),
        metrics=reach,
        steps=400,
        snapshots=2,
    )
    run = ms.fit(spec, seeds=2)
    at_start, at_end = run.metrics["state_tracking/reach/last"].T
    assert (at_end > at_start + 0.2).all()


def test_the_sum_of_a_sequence_by_hand():
    digits = np.array([2, 2, 1, 0, 2])
    expected = [2, (2 + 2) % 3, (4 + 1) % 3, 5 % 3, (5 + 2) % 3]
    np.testing.assert_array_equal(TASK.answers(digits), expected)
    assert TASK.sequences().shape == (3**5, 5)
    assert len({tuple(row) for row in TASK.sequences()}) == 3**5
    with pytest.raises(ms.UserError, match="make 1,048,576 sequences; allowed: up to 65,536"):
        RunningSum(modulus=2, length=20).sequences()


def test_focal_loss_by_hand():
    """p = 1/4 for the right one of four: (1 - p)^gamma (-log p)."""
    loss = FocalLoss(gamma=2.0).at_positions(np.zeros((1, 4)), np.array([3]))
    np.testing.assert_allclose(loss, (3 / 4) ** 2 * np.log(4), rtol=1e-6)
