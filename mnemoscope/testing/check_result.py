"""What checks found: a row for each, as a table and as one readable error.

    result = check_task(CopyBack(), raise_on_failure=False)
    print(result)            13 checks of task 'copy-back': 11 passed, 1 failed, 1 does not apply

A check is a function without arguments. It returns nothing, or what it found in a few words; it
raises `NotApplicable` where it has nothing to look at; anything else that it raises is a failure.
A list of checks is made once and run in any order, all of it or one at a time:

    @pytest.mark.parametrize("check", list_task_checks(CopyBack()), ids=str)
    def test_copy_back(check):
        check()
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Literal, NamedTuple
from unittest import SkipTest

from mnemoscope.core.errors import short
from mnemoscope.core.notebook import format_table

Outcome = Literal["passed", "failed", "does not apply"]
SIGNS: Mapping[Outcome, str] = {"passed": "ok", "failed": "FAILED", "does not apply": "-"}
WIDTH = 80
LONGEST = 400  # characters of a reason; an error of a library can be a page


class NotApplicable(Exception):  # noqa: N818 (it is no error)
    """A check has nothing to look at; the message says why."""


class CheckRow(NamedTuple):
    """What one check found."""

    check: str
    """What was checked, as a sentence that is true if it passed."""

    outcome: Outcome
    """What came of it."""

    why: str = ""
    """Why it failed or does not apply; of one that passed, what was looked at, if that is worth
    saying."""


@dataclass(frozen=True)
class CheckResult:
    """What all checks of one thing found."""

    subject: str
    """What was checked: `task 'copy-back'`."""

    rows: tuple[CheckRow, ...]
    """One for each check, in the order in which they ran."""

    causes: Mapping[str, BaseException] = field(default_factory=dict[str, BaseException])
    """By check, what it raised."""

    def having(self, outcome: Outcome) -> tuple[CheckRow, ...]:
        """The rows with this outcome."""
        return tuple(row for row in self.rows if row.outcome == outcome)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.having("failed")

    @property
    def summary(self) -> str:
        """How many checks ran and what came of them, in one line."""
        n_passed = len(self.having("passed"))
        n_failed = len(self.having("failed"))
        n_left = len(self.having("does not apply"))
        return (
            f"{len(self.rows)} checks of {self.subject}: {n_passed} passed, {n_failed} failed, "
            f"{n_left} {'does' if n_left == 1 else 'do'} not apply"
        )

    def require_passed(self) -> None:
        """Raise one error that names every failed check, if there is one."""
        failed = self.having("failed")
        if failed:
            lines = "".join(f"\n  {row.check}: {row.why}" for row in failed)
            first = self.causes.get(failed[0].check)
            raise AssertionError(f"{self.summary}{lines}") from first

    def __str__(self) -> str:
        margin = max(len(sign) for sign in SIGNS.values()) + 2
        lines = wrap(self.summary, WIDTH)
        for row in self.rows:
            text = f"{row.check}: {row.why}" if row.why else row.check
            begin = SIGNS[row.outcome].ljust(margin)
            lines += wrap(text, WIDTH, initial_indent=begin, subsequent_indent=" " * margin)
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return format_table(self.summary, ("check", "outcome", "why"), self.rows)


@dataclass(eq=False)
class Check:
    """One check of one thing; called, it raises if it fails, and skips a test if it does not
    apply."""

    name: str
    """What is checked, as a sentence that is true if it passes."""

    run: Callable[[], str | None]
    """Returns nothing or what it found; raises if it fails."""

    needs: tuple["Check", ...] = ()
    """Checks without which this one says nothing: where one of them failed, it does not apply."""

    _found: tuple[CheckRow, BaseException | None] | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name

    def __call__(self) -> None:
        row, cause = self.look()
        if row.outcome == "does not apply":
            raise SkipTest(row.why)  # pytest and unittest report it as skipped
        if row.outcome == "failed":
            raise AssertionError(f"{row.check}: {row.why}") from cause

    def look(self) -> tuple[CheckRow, BaseException | None]:
        """Run it, once: what came of it, and what it raised."""
        if self._found is None:
            self._found = self._look()
        return self._found

    def _look(self) -> tuple[CheckRow, BaseException | None]:
        for other in self.needs:
            row, _ = other.look()
            if row.outcome != "passed":
                why = row.why if row.outcome == "does not apply" else f"{other.name!r} failed"
                return CheckRow(self.name, "does not apply", why), None
        try:
            found = self.run()
        except NotApplicable as reason:
            return CheckRow(self.name, "does not apply", str(reason)), None
        except AssertionError as error:
            return CheckRow(self.name, "failed", _first_line(error)), error
        except Exception as error:
            why = _first_line(error)
            kind = type(error).__name__
            return CheckRow(self.name, "failed", f"{kind}: {why}"), error
        return CheckRow(self.name, "passed", found or ""), None


def require(condition: Any, why: str) -> None:
    """Fail the check that is running unless a condition holds.

    Args:
        condition: what must hold.
        why: what was wrong, what came, what is allowed.
    """
    if not condition:
        raise AssertionError(why)


def run_checks(
    subject: str, checks: Sequence[Check], *, raise_on_failure: bool = True
) -> CheckResult:
    """Run checks, all of them whatever fails.

    Args:
        subject: what is checked: `task 'copy-back'`.
        checks: what is run, in this order.
        raise_on_failure: raise one AssertionError that names every check that failed.
    """
    rows: list[CheckRow] = []
    causes: dict[str, BaseException] = {}
    for check in checks:
        row, cause = check.look()
        rows.append(row)
        if cause is not None:
            causes[row.check] = cause
    result = CheckResult(subject, tuple(rows), causes)
    if raise_on_failure:
        result.require_passed()
    return result


def _first_line(error: BaseException) -> str:
    """What an error says, in one line that is not too long."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else ""
    if isinstance(error, AssertionError) and not text:
        return "an assertion does not hold"
    return text if len(text) <= LONGEST else short(text, LONGEST)
