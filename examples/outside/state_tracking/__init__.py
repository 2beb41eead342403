"""Who keeps track of a state: a task, a model, an optimizer, a loss, a metric and a study.

A package of its own beside Mnemoscope: it imports nothing but what is public there.
"""

from state_tracking.focal_loss import FocalLoss
from state_tracking.gru import Gru
from state_tracking.reach import reach
from state_tracking.running_sum import RunningSum
from state_tracking.sign_momentum import SignMomentum

__all__ = ["FocalLoss", "Gru", "RunningSum", "SignMomentum", "reach"]
