"""HELP FOR WHAT COMES FROM OUTSIDE: one line checks a task, a metric or a model of your own."""

from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    CheckRow,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.testing.study_checks import check_study, list_study_checks
from mnemoscope.testing.task_checks import check_task, list_task_checks

__all__ = [
    "Check",
    "CheckResult",
    "CheckRow",
    "NotApplicable",
    "check_study",
    "list_study_checks",
    "check_task",
    "list_task_checks",
    "require",
    "run_checks",
]
