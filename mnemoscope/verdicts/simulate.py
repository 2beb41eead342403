"""How often the rule is wrong: claims whose truth is planted, judged over and over.

    wrong = verdicts that the truth rules out / claims planted

The truth lies at every zone's border and on both sides of it. A truth at a border belongs to one
zone alone, and a verdict for the other is wrong; an undecided claim never is. With fixed numbers of
units, and with a look after every block until the claim is decided.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from mnemoscope.core.theme import Verdict
from mnemoscope.verdicts.claim import PLAIN, Claim, Part
from mnemoscope.verdicts.intervals import MIN_UNITS, estimate
from mnemoscope.verdicts.looks import MAX_LOOKS, has_sequence
from mnemoscope.verdicts.record import Plan, Provenance, Record, UnitValues
from mnemoscope.verdicts.rule import PartResult, decide, measure_parts, state_of

Looking = Literal["once", "until decided", "naively"]
Draw = Callable[[np.random.Generator, int], np.ndarray]
NOBODY = Provenance(date="", command="", hardware="", versions={}, code="", criterion="")
BLOCK = 8


class Planted(NamedTuple):
    """A claim whose truth is known."""

    name: str
    part: Part
    truth: float
    """The number that the part measures, without error."""
    draw: Draw
    """Values of so many units."""
    draw_others: Draw | None = None
    """Values of the second group, for a difference."""


class Errors(NamedTuple):
    """How often verdicts on one planted claim were wrong."""

    planted: Planted
    trials: int
    wrong: int
    undecided: int

    @property
    def share(self) -> float:
        """Of wrong verdicts."""
        return self.wrong / self.trials


def true_verdict(planted: Planted) -> Verdict:
    """The verdict that the truth itself has."""
    found = estimate("exact", [planted.truth])
    return decide([PartResult(planted.part, PLAIN, found, state_of(planted.part, found))])


def simulate(
    planted: Planted, looking: Looking, trials: int, units: int, rng: np.random.Generator
) -> Errors:
    """Judge a planted claim many times.

    Args:
        planted: the claim.
        looking: once at all units, after every block by intervals made for it, or after every
            block by those made for one look.
        trials: how many times.
        units: how many units there are at the end.
        rng: draws them.
    """
    truth = true_verdict(planted)
    verdicts = [_judge_once(planted, looking, units, rng) for _ in range(trials)]
    wrong = sum(verdict not in (truth, "undecided") for verdict in verdicts)
    return Errors(planted, trials, wrong, verdicts.count("undecided"))


def _judge_once(
    planted: Planted, looking: Looking, units: int, rng: np.random.Generator
) -> Verdict:
    """The verdict on one draw of all units."""
    values = planted.draw(rng, units)
    others = planted.draw_others(rng, units) if planted.draw_others else np.zeros(0)
    plan = Plan(kind="until decided" if looking == "until decided" else "fixed")
    for n in _looks(planted.part, looking, units):
        verdict = _verdict(planted.part, values[:n], others[:n], plan)
        if verdict != "undecided":
            return verdict
    return "undecided"


def _looks(part: Part, looking: Looking, units: int) -> Sequence[int]:
    """The numbers of units at which one looks."""
    if looking == "once":
        return (units,)
    if looking == "naively" or has_sequence(part):
        return range(2 * BLOCK, units + 1, BLOCK)
    return [units // 2**k for k in reversed(range(MAX_LOOKS)) if units // 2**k >= MIN_UNITS]


def _verdict(part: Part, values: np.ndarray, others: np.ndarray, plan: Plan) -> Verdict:
    unit_values = UnitValues(values=tuple(values.tolist()), others=tuple(others.tolist()))
    record = Record(parts={part.name: {PLAIN: unit_values}}, plan=plan, provenance=NOBODY)
    claim = Claim(
        id="X", statement="-", published="-", stated="2026-11-19", measure="-", parts=(part,)
    )
    return decide(measure_parts(claim, record, 0.95))


# ---- what is planted: distributions like those that studies have


def _part(kind: str, center: float, half: float, bounds: tuple[float, float] | None = None) -> Part:
    """A part that holds near a number, holds partly farther away, and fails beyond."""
    inner = (center - half, center + half)
    outer = (center - 2 * half, center + 2 * half)
    low, high = ("-1", "1") if kind == "share difference" else ("-inf", "inf")
    begin, end = ("[", "]") if kind == "share difference" else ("(", ")")
    return Part.model_validate(
        {
            "name": "planted",
            "kind": kind,
            "measures": "what is planted",
            "holds": f"[{inner[0]}, {inner[1]}]",
            "partly": f"[{outer[0]}, {inner[0]}) or ({inner[1]}, {outer[1]}]",
            "fails": f"{begin}{low}, {outer[0]}) or ({outer[1]}, {high}{end}",
            "bounds": bounds,
        }
    )


def plant_claims() -> list[Planted]:
    """Planted claims of every kind, with the truth at every border and beyond."""
    return [*_shares(), *_share_differences(), *_means(), *_mean_differences(), *_medians()]


def _shares() -> list[Planted]:
    part = Part(name="planted", kind="share", measures="what is planted")

    def of(p: float) -> Planted:
        return Planted(f"share {p}", part, p, lambda rng, n: (rng.random(n) < p).astype(float))

    return [of(p) for p in (0.0, 0.05, 0.1, 0.12, 0.5, 0.88, 0.899, 0.9, 0.95, 1.0)]


def _share_differences() -> list[Planted]:
    part = _part("share difference", 0.0, 0.25)

    def of(p: float, q: float) -> Planted:
        return Planted(
            f"share difference {p} - {q}",
            part,
            p - q,
            lambda rng, n: (rng.random(n) < p).astype(float),
            lambda rng, n: (rng.random(n) < q).astype(float),
        )

    return [of(0.5, 0.5), of(0.75, 0.5), of(0.751, 0.5), of(0.9, 0.4), of(1.0, 0.2), of(0.1, 0.6)]


def _means() -> list[Planted]:
    """Normal, skewed (a loss that few seeds are far from), and shares of answers near 1."""
    planted: list[Planted] = []
    for truth in (0.0, 1.0, 1.01, 2.0, 2.01, 3.0):

        def normal(rng: np.random.Generator, n: int, truth: float = truth) -> np.ndarray:
            return rng.normal(truth, 1.0, n)

        def skewed(rng: np.random.Generator, n: int, truth: float = truth) -> np.ndarray:
            return truth + (rng.gamma(2.0, 0.5, n) - 1.0)

        planted.append(Planted(f"mean, normal {truth}", _part("mean", 0.0, 1.0), truth, normal))
        planted.append(Planted(f"mean, gamma {truth}", _part("mean", 0.0, 1.0), truth, skewed))
    for a in (1.0, 2.0, 4.0, 6.0, 8.0):

        def beta(rng: np.random.Generator, n: int, a: float = a) -> np.ndarray:
            return rng.beta(a, 2.0, n)

        part = _part("mean", 0.5, 0.1, (0.0, 1.0))
        planted.append(Planted(f"mean, beta {a}", part, a / (a + 2.0), beta))
    return planted


def _mean_differences() -> list[Planted]:
    def of(truth: float) -> Planted:
        return Planted(
            f"mean difference {truth}",
            _part("mean difference", 0.0, 1.0),
            truth,
            lambda rng, n: rng.normal(truth, 2.0, n),
            lambda rng, n: rng.normal(0.0, 0.5, n),
        )

    return [of(truth) for truth in (0.0, 1.0, 1.01, 2.0, 2.01, 4.0)]


def _medians() -> list[Planted]:
    """Of a lognormal: steps until something is learned."""

    def of(truth: float) -> Planted:
        return Planted(
            f"median, lognormal {truth}",
            _part("median", 3.0, 1.0),
            truth,
            lambda rng, n: truth * np.exp(rng.normal(0.0, 0.7, n)),
        )

    return [of(truth) for truth in (2.0, 3.0, 4.0, 4.01, 5.0, 5.01, 8.0)]


# ---- all of it


UNITS = {"once": 40, "until decided": 128, "naively": 128}


def simulate_all(claims: int, seed: int = 0) -> dict[Looking, list[Errors]]:
    """Judge so many planted claims in each way of looking.

    Args:
        claims: about how many for each way, shared out over what is planted.
        seed: of the random numbers.
    """
    planted = plant_claims()
    trials = max(1, round(claims / len(planted)))
    ways: tuple[Looking, ...] = ("once", "until decided", "naively")
    found: dict[Looking, list[Errors]] = {}
    for looking in ways:
        rng = np.random.default_rng(seed)
        found[looking] = [simulate(each, looking, trials, UNITS[looking], rng) for each in planted]
    return found
