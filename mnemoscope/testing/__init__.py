"""HELP FOR WHAT COMES FROM OUTSIDE: one line checks a task, a metric or a model of your own."""

from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    CheckRow,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.testing.metric_checks import check_metric, list_metric_checks
from mnemoscope.testing.model_checks import check_model, list_model_checks
from mnemoscope.testing.study_checks import check_study, list_study_checks
from mnemoscope.testing.task_checks import check_task, list_task_checks
from mnemoscope.testing.task_draws import draw_examples

__all__ = [
    "Check",
    "CheckResult",
    "CheckRow",
    "NotApplicable",
    "check_metric",
    "check_model",
    "check_study",
    "check_task",
    "draw_examples",
    "list_metric_checks",
    "list_model_checks",
    "list_study_checks",
    "list_task_checks",
    "require",
    "run_checks",
]
