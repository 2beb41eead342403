"""The one rule from what was measured to a verdict.

    interval   of every part in every reading, at 95%
    state      the zones of the part that its interval meets; all of them if there is no interval
    verdict    what every choice of one zone from each state leads to:
                   all hold -> reproduced, all fail -> refuted, any other mix -> partly
               if they lead to different ones, or a control may fail: undecided

A verdict is firm if the same rule at 99.9% comes to the same. A reading that has a part which
`admits` counts only if that part holds; where this is open, both ways must lead to one verdict.
"""

from collections.abc import Iterable, Mapping
from itertools import chain, combinations
from typing import NamedTuple

from mnemoscope.core.theme import Verdict
from mnemoscope.verdicts.claim import PLAIN, Claim, Part
from mnemoscope.verdicts.intervals import FIRM, USUAL, Estimate, estimate
from mnemoscope.verdicts.looks import estimate_while_looking
from mnemoscope.verdicts.record import Plan, Record, UnitValues
from mnemoscope.verdicts.zones import ZoneName

MAX_FAILED = 0.1
"""A condition in which more than this share of seeds diverged settles nothing."""

State = frozenset[ZoneName]


class PartResult(NamedTuple):
    """What one part came to in one reading."""

    part: Part
    reading: str
    estimate: Estimate
    state: State
    """The zones in which the number may be; empty for what stands beside."""


class Judgment(NamedTuple):
    """What a claim came to."""

    verdict: Verdict
    firm: bool
    """Whether the verdict is the same at 99.9%."""
    results: tuple[PartResult, ...]
    """Of every part in every reading, in the claim's order."""
    why_not: str
    """Why nothing could be decided whatever the numbers say; empty if they could decide."""


def judge(claim: Claim, record: Record) -> Judgment:
    """The verdict on a claim.

    Args:
        claim: says the criterion.
        record: what was measured.
    """
    results = measure_parts(claim, record, USUAL)
    why_not = why_nothing_is_decided(claim, record)
    if why_not:
        return Judgment("undecided", False, results, why_not)
    verdict = _allowed(claim, decide(results), record.short_training)
    firm_verdict = decide(measure_parts(claim, record, FIRM))
    return Judgment(verdict, verdict != "undecided" and firm_verdict == verdict, results, "")


def measure_parts(claim: Claim, record: Record, level: float) -> tuple[PartResult, ...]:
    """What every part came to in every reading that was measured.

    Args:
        claim: says the parts.
        record: what was measured.
        level: of the intervals.
    """
    return tuple(
        _measure(part, reading, values, record.plan, level)
        for part in claim.parts
        for reading, values in record.parts.get(part.name, {}).items()
    )


def _measure(
    part: Part, reading: str, unit_values: UnitValues, plan: Plan, level: float
) -> PartResult:
    """One part in one reading."""
    values, others = unit_values.used()
    if plan.kind == "fixed":
        found = estimate(part.kind, values, others, level)
    else:
        found = estimate_while_looking(part, values, others, level)
    return PartResult(part, reading, found, state_of(part, found))


def state_of(part: Part, found: Estimate) -> State:
    """The zones that an interval meets; all of them if there is none."""
    if part.role == "beside":
        return frozenset()
    zones = part.zones()
    if found.interval is None:
        return frozenset(zones)
    low, high = found.interval
    return frozenset(name for name, zone in zones.items() if zone.meets(low, high))


def why_nothing_is_decided(claim: Claim, record: Record) -> str:
    """Why a record decides nothing whatever its numbers say; empty if it can."""
    if record.why_not:
        return record.why_not
    for name, condition in record.conditions.items():
        if condition.failed > MAX_FAILED * condition.seeds:
            return (
                f"{condition.failed} of {condition.seeds} seeds of {name} diverged; "
                f"a verdict needs at most {MAX_FAILED:.0%}."
            )
    for part in claim.parts:
        if part.role in ("required", "control") and PLAIN not in record.parts.get(part.name, {}):
            return f"{part.name!r} was not measured."
    return ""


# ---- from states to a verdict


def decide(results: Iterable[PartResult]) -> Verdict:
    """What every choice of one zone from each state leads to, if that is one verdict.

    Args:
        results: of every part in every reading.
    """
    results = tuple(results)
    admitted, open_readings = _readings(results)
    verdicts: set[Verdict] = set()
    for some in _subsets(open_readings):
        counting = admitted | set(some)
        chosen = [result for result in results if result.reading in counting]
        verdicts |= _possible(chosen)
    return verdicts.pop() if len(verdicts) == 1 else "undecided"


def _readings(results: Iterable[PartResult]) -> tuple[set[str], set[str]]:
    """The readings that count, and those that may count."""
    states: dict[str, list[State]] = {}
    for result in results:
        of_reading = states.setdefault(result.reading, [])
        if result.part.role == "admits":
            of_reading.append(result.state)
    admitted = {name for name, each in states.items() if all(state == {"holds"} for state in each)}
    possible = {name for name, each in states.items() if all("holds" in state for state in each)}
    return admitted, possible - admitted


def excluded_readings(results: Iterable[PartResult]) -> set[str]:
    """The readings that do not count, because what would admit them fails.

    Args:
        results: of every part in every reading.
    """
    results = tuple(results)
    admitted, open_readings = _readings(results)
    return {result.reading for result in results} - admitted - open_readings


def _subsets(names: set[str]) -> Iterable[tuple[str, ...]]:
    ordered = sorted(names)
    return chain.from_iterable(combinations(ordered, n) for n in range(len(ordered) + 1))


def _possible(results: Iterable[PartResult]) -> set[Verdict]:
    """The verdicts to which the choices of zones lead."""
    by_role: Mapping[str, list[State]] = {"required": [], "control": []}
    for result in results:
        if result.part.role in by_role:
            by_role[result.part.role].append(result.state)
    if any(state != {"holds"} for state in by_role["control"]):
        return {"undecided"}
    return verdicts_of(by_role["required"])


def verdicts_of(states: list[State]) -> set[Verdict]:
    """The verdicts of all choices of one zone from each state.

    Args:
        states: of every required part in every reading that counts.
    """
    if not states:
        return {"undecided"}
    found: set[Verdict] = set()
    if all("holds" in state for state in states):
        found.add("reproduced")
    if all("fails" in state for state in states):
        found.add("refuted")
    if any("partly" in state for state in states) or _may_differ(states):
        found.add("partly")
    return found


def _may_differ(states: list[State]) -> bool:
    """Whether one of two parts can hold while the other fails."""
    return any(
        "holds" in one and "fails" in other
        for i, one in enumerate(states)
        for j, other in enumerate(states)
        if i != j
    )


def _allowed(claim: Claim, verdict: Verdict, short_training: bool) -> Verdict:
    """The verdict, unless a short training cannot come to it."""
    if short_training and verdict not in claim.decided_at_quick:
        return "undecided"
    return verdict
