"""How many more units would decide a claim, and whether two measurements agree.

The first asks the rule what it would say of more units that are like those there are: shares stay,
means keep their value and spread. The second compares two samples of one part at 1%.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from mnemoscope.verdicts.claim import PLAIN, Claim, Part
from mnemoscope.verdicts.intervals import newcombe, welch
from mnemoscope.verdicts.record import Record, UnitValues
from mnemoscope.verdicts.rule import judge

AGREE_LEVEL = 0.99
MOST_UNITS = 10_000
GROWTH = 1.1


# ---- how many more


def units_to_decide(claim: Claim, record: Record) -> int | None:
    """About how many units would decide a claim that is undecided; None if no number does.

    Args:
        claim: says the criterion.
        record: what was measured.
    """
    if record.why_not or judge(claim, record).verdict != "undecided":
        return None
    smallest = _fewest_units(claim, record)
    n = max(smallest, 1)
    while n <= MOST_UNITS:
        if judge(claim, _as_if(claim, record, n)).verdict != "undecided":
            return _first_deciding(claim, record, math.floor(n / GROWTH), n)
        n = math.ceil(n * GROWTH)
    return None


def _first_deciding(claim: Claim, record: Record, too_few: int, enough: int) -> int:
    """The number of units between two at which the rule begins to decide."""
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if judge(claim, _as_if(claim, record, middle)).verdict == "undecided":
            too_few = middle
        else:
            enough = middle
    return enough


def _fewest_units(claim: Claim, record: Record) -> int:
    """The number of units of the part that has fewest."""
    counts = [
        len(values.used()[0])
        for part in claim.parts
        if part.role != "beside" and part.kind != "exact"
        for values in record.parts.get(part.name, {}).values()
    ]
    return min(counts, default=0)


def _as_if(claim: Claim, record: Record, n: int) -> Record:
    """The record that n units like these would make."""
    by_name = {part.name: part for part in claim.parts}
    parts = {
        name: {reading: _stretched(by_name[name], values, n) for reading, values in each.items()}
        for name, each in record.parts.items()
        if name in by_name
    }
    return record.model_copy(update={"parts": parts})


def _stretched(part: Part, unit_values: UnitValues, n: int) -> UnitValues:
    """As many units as asked for, spread like those there are."""
    if part.kind == "exact":
        return unit_values
    values, others = unit_values.used()
    return UnitValues(values=_like(part, values, n), others=_like(part, others, n))


def _like(part: Part, values: Sequence[float], n: int) -> tuple[float, ...]:
    """n values with the share, or the quantiles, of these."""
    if not values or not np.isfinite(values).all():
        return tuple(values)
    if "share" in part.kind:
        hits = round(float(np.mean(values)) * n)
        return (1.0,) * hits + (0.0,) * (n - hits)
    places = (np.arange(n) + 0.5) / n
    like = np.quantile(values, places)
    # a few values have less spread between their quantiles than they stand for
    spread = float(np.std(values)) / max(float(np.std(like)), 1e-300)
    if part.kind != "median" and np.ptp(values) > 0:
        like = np.mean(values) + (like - np.mean(like)) * spread
    return tuple(float(x) for x in like)


def describe_what_would_decide(claim: Claim, record: Record) -> str:
    """A sentence on how many units would decide an undecided claim; empty if it says nothing.

    Args:
        claim: says the criterion.
        record: what was measured.
    """
    if record.why_not or judge(claim, record).verdict != "undecided":
        return ""
    n = units_to_decide(claim, record)
    if n is None:
        return "No number of such units would decide it."
    have = _fewest_units(claim, record)
    return f"About {n:,} {claim.unit}s like these {have:,} would decide it."


# ---- whether two measurements agree


def agree(part: Part, one: UnitValues, other: UnitValues) -> bool | None:
    """Whether two measurements of a part may be of the same number; None if nobody can say.

    Args:
        part: what was measured.
        one: by one run.
        other: by another one.
    """
    mine = one.used()[0]
    theirs = other.used()[0]
    if not mine or not theirs or not np.isfinite([*mine, *theirs]).all():
        return None
    if part.kind == "exact":
        return math.isclose(mine[0], theirs[0], rel_tol=1e-6, abs_tol=1e-9)
    if part.kind == "share":
        low, high = newcombe(sum(mine), len(mine), sum(theirs), len(theirs), AGREE_LEVEL)
        return low <= 0 <= high
    if part.kind == "median":
        return float(stats.mannwhitneyu(mine, theirs).pvalue) >= 1 - AGREE_LEVEL
    if part.kind == "mean":
        return _means_agree(mine, theirs)
    return _differences_agree(part, one, other)


def _means_agree(mine: Sequence[float], theirs: Sequence[float]) -> bool | None:
    """Whether two samples may have one mean."""
    if min(len(mine), len(theirs)) < 2:
        return None
    if np.ptp(mine) == 0 and np.ptp(theirs) == 0:
        return bool(np.isclose(mine[0], theirs[0], rtol=1e-6))
    low, high = welch(mine, theirs, AGREE_LEVEL)
    return low <= 0 <= high


def _differences_agree(part: Part, one: UnitValues, other: UnitValues) -> bool | None:
    """Whether two differences between groups may be the same, by their standard errors."""
    total = 0.0
    difference = 0.0
    for sign, measured in ((1, one), (-1, other)):
        for side, values in ((1, measured.used()[0]), (-1, measured.used()[1])):
            if len(values) < 2:
                return None
            difference += sign * side * float(np.mean(values))
            total += _variance_of_mean(part, values)
    if total == 0:
        return math.isclose(difference, 0, abs_tol=1e-9)
    quantile = float(stats.norm.ppf((1 + AGREE_LEVEL) / 2))
    return abs(difference) <= quantile * math.sqrt(total)


def _variance_of_mean(part: Part, values: Sequence[float]) -> float:
    """How far a mean or a share may be off, squared."""
    n = len(values)
    if part.kind == "mean difference":
        return float(np.var(values, ddof=1)) / n
    # a share of none or all is not certain: two more of each kind
    share = (sum(values) + 2) / (n + 4)
    return share * (1 - share) / (n + 4)


def compare_records(claim: Claim, one: Record, other: Record) -> bool | None:
    """Whether two measurements of a claim agree in every part that decides; None if none can be
    compared.

    Args:
        claim: says the parts.
        one: measured by one run.
        other: measured by another one.
    """
    answers: list[bool | None] = []
    for part in claim.of_role("required"):
        mine = one.parts.get(part.name, {}).get(PLAIN)
        theirs = other.parts.get(part.name, {}).get(PLAIN)
        if mine is not None and theirs is not None:
            answers.append(agree(part, mine, theirs))
    known = [answer for answer in answers if answer is not None]
    return all(known) if known else None
