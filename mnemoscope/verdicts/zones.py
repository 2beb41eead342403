"""Zones of the number line: where a part of a claim holds, holds partly, and fails.

A zone is a union of intervals with stated ends, written as in "[0.9, 1]" or "(-inf, 0) or (2, 3]".
The zones of a part cover its whole range and do not overlap, so that every value is in one of them.
"""

import math
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Literal, NamedTuple

from mnemoscope.core.errors import short

ZoneName = Literal["holds", "partly", "fails"]
ZONES: tuple[ZoneName, ...] = ("holds", "partly", "fails")

_NUMBER = r"[+-]?(?:inf|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)"
_SPAN = re.compile(rf"([\[(])\s*({_NUMBER})\s*,\s*({_NUMBER})\s*([\])])")


class Span(NamedTuple):
    """An interval of the line; an end that is closed belongs to it."""

    low: float
    high: float
    low_closed: bool
    high_closed: bool

    def __str__(self) -> str:
        opening = "[" if self.low_closed else "("
        closing = "]" if self.high_closed else ")"
        return f"{opening}{self.low:g}, {self.high:g}{closing}"

    def in_words(self, lowest: float, highest: float) -> str:
        """The interval as a person says it.

        Args:
            lowest: where the range of what is measured begins.
            highest: where it ends.
        """
        if self.low == self.high:
            return f"{self.low:g}"
        if self.high == highest:
            return f"{'at least' if self.low_closed else 'more than'} {self.low:g}"
        if self.low == lowest:
            return f"{'at most' if self.high_closed else 'less than'} {self.high:g}"
        if self.low_closed and self.high_closed:
            return f"{self.low:g} to {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"

    def contains(self, x: float) -> bool:
        """Whether a number is in it."""
        above = x > self.low or (self.low_closed and x == self.low)
        below = x < self.high or (self.high_closed and x == self.high)
        return above and below

    def meets(self, low: float, high: float) -> bool:
        """Whether it shares a number with the closed interval from low to high."""
        first = max(low, self.low)
        last = min(high, self.high)
        return first < last or (first == last and self.contains(first))


class Zone(tuple[Span, ...]):
    """A union of intervals."""

    def __str__(self) -> str:
        return " or ".join(map(str, self))

    def in_words(self, lowest: float, highest: float) -> str:
        """The zone as a person says it.

        Args:
            lowest: where the range of what is measured begins.
            highest: where it ends.
        """
        return " or ".join(span.in_words(lowest, highest) for span in self)

    def meets(self, low: float, high: float) -> bool:
        """Whether it shares a number with the closed interval from low to high."""
        return any(span.meets(low, high) for span in self)


def parse_zone(text: str) -> Zone:
    """The zone that a text describes.

    Args:
        text: intervals joined by "or": "[0.9, 1]", "(-inf, -0.02) or (0.02, inf)".
    """
    return Zone(_parse_span(part.strip(), text) for part in text.split(" or "))


def _parse_span(part: str, text: str) -> Span:
    """One interval of a zone's text."""
    match = _SPAN.fullmatch(part)
    if match is None:
        raise ValueError(
            f"a zone must be intervals joined by 'or', such as '[0.9, 1]' or "
            f"'(-inf, 0) or (2, 3]', got {short(text)}"
        )
    opening, low, high, closing = match.groups()
    span = Span(float(low), float(high), opening == "[", closing == "]")
    is_point = span.low == span.high and span.low_closed and span.high_closed
    if not (span.low < span.high or is_point):
        raise ValueError(f"a zone's interval must not be empty, got {short(part)}")
    if (math.isinf(span.low) and span.low_closed) or (math.isinf(span.high) and span.high_closed):
        raise ValueError(f"an infinite end is open: '(-inf, 0]', got {short(part)}")
    return span


def check_zones(zones: Mapping[ZoneName, Zone], low: float, high: float) -> None:
    """Refuse zones that overlap or leave a gap.

    Args:
        zones: by name; one that a part does not have is left out.
        low: where the range of what is measured begins.
        high: where it ends.
    """
    spans = sorted(_named_spans(zones), key=lambda named: named[1][:2])
    if not spans:
        raise ValueError(f"a part needs zones: {', '.join(ZONES)}")
    _check_ends(spans[0][1], spans[-1][1], low, high)
    for (name, span), (next_name, next_span) in pairwise(spans):
        touch = span.high == next_span.low
        twice = touch and span.high_closed and next_span.low_closed
        if next_span.low < span.high or twice:
            raise ValueError(f"zones overlap: {name} {span} and {next_name} {next_span}")
        if not touch or not (span.high_closed or next_span.low_closed):
            raise ValueError(f"zones leave a gap between {name} {span} and {next_name} {next_span}")


def _named_spans(zones: Mapping[ZoneName, Zone]) -> Iterable[tuple[ZoneName, Span]]:
    for name, zone in zones.items():
        for span in zone:
            yield name, span


def _check_ends(first: Span, last: Span, low: float, high: float) -> None:
    """Refuse zones that do not begin and end where the range does."""
    begins = first.low == low and (first.low_closed or math.isinf(low))
    ends = last.high == high and (last.high_closed or math.isinf(high))
    if not (begins and ends):
        raise ValueError(
            f"zones must cover everything from {low:g} to {high:g}, got {first} to {last}"
        )
