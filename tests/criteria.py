"""Claims and records that nobody measured, for tests of the rule."""

from planted import NOWHERE

from mnemoscope.verdicts.claim import Claim
from mnemoscope.verdicts.record import Record, TrainedCondition, unit_values

SHARE = {"name": "share", "kind": "share", "measures": "share of seeds that do it"}
MEAN = {
    "name": "mean",
    "kind": "mean",
    "measures": "mean of it",
    "holds": "[-1, 1]",
    "partly": "[-2, -1) or (1, 2]",
    "fails": "(-inf, -2) or (2, inf)",
}


def claim_of(*parts, **fields):
    """A claim with these parts."""
    stated = {
        "id": "X1",
        "statement": "So it is.",
        "published": "-",
        "stated": "2026-11-19",
        "measure": "file.function",
    }
    return Claim(**stated | fields, parts=parts)


def record_of(parts, **fields):
    """A record of these values: by part, an array, or arrays by reading."""
    by_reading = {
        name: values if isinstance(values, dict) else {"plain": values}
        for name, values in parts.items()
    }
    measured = {
        name: {
            reading: unit_values(*x) if isinstance(x, tuple) else unit_values(x)
            for reading, x in each.items()
        }
        for name, each in by_reading.items()
    }
    return Record(parts=measured, provenance=NOWHERE, **fields)


def hits(n, of):
    """So many units of so many that do it."""
    return [1.0] * n + [0.0] * (of - n)


def trained(seeds, failed=0):
    """A condition of which so many seeds diverged."""
    return {"a": TrainedCondition(spec="0" * 16, seeds=seeds, failed=failed)}
