"""What was found, in words: the one place that writes the sentence of a ledger."""

from collections.abc import Collection, Sequence

from mnemoscope.verdicts.claim import PLAIN, Claim, Part
from mnemoscope.verdicts.intervals import RANGES
from mnemoscope.verdicts.rule import Judgment, PartResult, State, excluded_readings
from mnemoscope.verdicts.zones import ZONES

IN_WORDS = {"holds": "holds", "partly": "holds partly", "fails": "fails"}


def write_sentence(claim: Claim, judgment: Judgment, note: str = "") -> str:
    """What was measured of a claim, part by part.

    Args:
        claim: says the parts.
        judgment: what they came to.
        note: what else must be known of the measurement.
    """
    found = [judgment.why_not] if judgment.why_not else []
    excluded = excluded_readings(judgment.results)
    n_required = sum(part.role == "required" for part in claim.parts)
    for part in claim.parts:
        results = [result for result in judgment.results if result.part == part]
        if results:
            found.append(_of_part(part, results, excluded, names_state=n_required > 1))
    if note:
        found.append(note.strip())
    return " ".join(found)


def _of_part(
    part: Part, results: Sequence[PartResult], excluded: Collection[str], names_state: bool
) -> str:
    """A part in the plain reading, and how it is in the others."""
    by_reading = {result.reading: result for result in results}
    plain = by_reading.get(PLAIN, results[0])
    text = part.says or f"{part.measures[0].upper()}{part.measures[1:]}: {{value}}"
    text = text.replace("{value}", format_estimate(plain))
    text = text.replace("{units}", str(plain.estimate.units))
    state = ""
    if part.role == "control" or (names_state and part.role == "required"):
        state = f" ({'control ' if part.role == 'control' else ''}{describe_state(plain.state)})"
    others = [
        f"{reading} {format_estimate(result)}{_in_brackets(result, excluded)}"
        for reading, result in by_reading.items()
        if result is not plain
    ]
    other_readings = f" Other readings: {', '.join(others)}." if others else ""
    return f"{text.rstrip('.')}{state}.{other_readings}"


def _in_brackets(result: PartResult, excluded: Collection[str]) -> str:
    """Where a part is in another reading, or that this reading does not count."""
    if not result.state:
        return ""
    if result.part.role != "admits" and result.reading in excluded:
        return " (does not count)"
    return f" ({describe_state(result.state)})"


def describe_state(state: State) -> str:
    """Where a part is: in one zone, or between several."""
    names = [IN_WORDS[zone] for zone in ZONES if zone in state]
    return names[0] if len(names) == 1 else f"open: {' or '.join(names)}"


def format_estimate(result: PartResult) -> str:
    """A value with its interval, or why there is none."""
    found = result.estimate
    if found.value is None:
        return f"nothing ({found.why_open})"
    value = format_number(result.part, found.value)
    if found.interval is None:
        # no number of units would make it decide anything
        why = f"{found.units} units" if result.part.role == "beside" else found.why_open
        return f"{value} ({why})"
    low, high = (format_number(result.part, end) for end in found.interval)
    return value if result.part.kind == "exact" else f"{value} [{low}, {high}]"


def format_number(part: Part, number: float) -> str:
    """A number as a person writes it: a share in percent, others with four digits."""
    if part.percent or RANGES[part.kind] == (0.0, 1.0):
        return f"{100 * number:.3g}%" if abs(number) < 0.999 else f"{100 * number:.4g}%"
    return short_number(number)


def short_number(number: float) -> str:
    """Four digits, or a whole number with commas where it is large; zero has no sign."""
    number += 0.0  # makes 0.0 of -0.0
    return f"{number:.4g}" if abs(number) < 1e4 else f"{number:,.0f}"
