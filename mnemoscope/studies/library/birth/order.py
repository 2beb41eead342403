"""B5-B8: in which order memories form, what each needs, and whether stages would be faster.

First-layer keys are read as the authors read them, an early position's key among those of early
positions; our own probe, in which the keys of late positions compete, stands beside.
"""

import numpy as np

from mnemoscope.probes.threshold_steps import first_reach
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    LONG,
    NO_FIRST,
    NO_OUTPUT,
    NO_SECOND,
    ONLY_OUTPUT,
    SHORT,
)
from mnemoscope.studies.library.birth.curves import (
    EARLY,
    EARLY_AMONG_ALL,
    LATE,
    OUTPUT_MEMORY,
    SECOND,
    BySeed,
    at_step,
    curve,
    drawn,
    in_reading,
    not_by_luck,
    of_seeds,
    require_trained,
    steps_to,
    trained_readings,
    up_to_end,
)
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.verdicts.claim import PLAIN

SHOWN = ("accuracy", OUTPUT_MEMORY, SECOND, EARLY)
HELD = (NO_OUTPUT, ONLY_OUTPUT, NO_FIRST, NO_SECOND)
HALF = 0.5  # of a memory, above chance
QUARTER = 0.25
FORMED = 0.75
ENOUGH = 0.7  # accuracy
RIGHT = 0.9  # accuracy


def measure_order(evidence: Evidence) -> Measurement:
    """B5: the step at which each of the three memories is half formed.

    A seed whose second-layer keys are half formed by luck before training shows no order.
    """
    in_order: dict[str, BySeed] = {}
    output_first: dict[str, BySeed] = {}
    times: dict[str, BySeed] = {}
    for reading in trained_readings(evidence, [ALL]):
        name = in_reading(ALL, reading)
        output, second, first = (
            steps_to(evidence, name, series, HALF) for series in (OUTPUT_MEMORY, SECOND, EARLY)
        )
        no_luck = not_by_luck(evidence, name)
        in_order[reading] = among(no_luck, (output < second) & (second < first))
        output_first[reading] = among(no_luck, (output < second) & (output < first))
        if reading == PLAIN:
            times = {OUTPUT_MEMORY: output, SECOND: second, EARLY: first}
    ours = steps_to(evidence, ALL, EARLY_AMONG_ALL, HALF)
    parts = {
        "in order": in_order,
        "output first": output_first,
        **{f"half formed: {name}": each for name, each in times.items()},
        f"half formed: {EARLY_AMONG_ALL}": ours,
    }
    by_seed = {name: up_to_end(evidence, ALL, each) for name, each in times.items()}
    curves = {name: drawn(evidence, ALL, name) for name in SHOWN}
    return Measurement(parts, by_seed, Plots(curves=curves))


def measure_freezing(evidence: Evidence) -> Measurement:
    """B6: what forms while other memories are frozen, just before they are unfrozen."""
    found = {
        reading: _read_of_freezing(evidence, reading)
        for reading in trained_readings(evidence, HELD)
    }
    read = found[PLAIN]

    def of(name: str) -> dict[str, BySeed]:
        return {reading: each[name] for reading, each in found.items()}

    parts = {
        "second keys without the output": of("output frozen: second keys"),
        "first keys without the output": of("output frozen: first keys"),
        "output alone forms": {
            reading: each["output alone: output memory"] > FORMED for reading, each in found.items()
        },
        "output alone is not enough": {
            reading: each["output alone: accuracy"] < ENOUGH for reading, each in found.items()
        },
        "second keys are easier": {
            reading: each["first keys frozen: second keys"] > each["second keys frozen: first keys"]
            for reading, each in found.items()
        },
        "output alone": read["output alone: output memory"],
        "accuracy of the output alone": read["output alone: accuracy"],
        "second keys alone": read["first keys frozen: second keys"],
        "first keys alone": read["second keys frozen: first keys"],
        "first keys alone, among all": _when_unfrozen(evidence, NO_SECOND, EARLY_AMONG_ALL),
    }
    by_seed = {name: values.compressed() for name, values in read.items()}
    return Measurement(parts, by_seed, Plots(curves=_curves_of_freezing(evidence)))


def _read_of_freezing(evidence: Evidence, reading: str) -> dict[str, BySeed]:
    """What B6 reads, by name, in one reading."""
    wanted = {
        "output frozen: second keys": (NO_OUTPUT, SECOND),
        "output frozen: first keys": (NO_OUTPUT, EARLY),
        "output alone: output memory": (ONLY_OUTPUT, OUTPUT_MEMORY),
        "output alone: accuracy": (ONLY_OUTPUT, "accuracy"),
        "first keys frozen: second keys": (NO_FIRST, SECOND),
        "second keys frozen: first keys": (NO_SECOND, EARLY),
    }
    return {
        title: _when_unfrozen(evidence, in_reading(name, reading), series)
        for title, (name, series) in wanted.items()
    }


def _when_unfrozen(evidence: Evidence, name: str, series: str) -> BySeed:
    """What was read just before what is frozen at first is unfrozen."""
    unfreeze_steps = evidence.conditions[name].spec.unfreeze_steps()
    return at_step(evidence, name, series, max(unfreeze_steps.values()))


def _curves_of_freezing(evidence: Evidence) -> dict[str, Curve]:
    """What every training with something frozen went through."""
    titles = {
        ALL: "all",
        NO_OUTPUT: "output frozen",
        ONLY_OUTPUT: "keys frozen",
        NO_FIRST: "first frozen",
        NO_SECOND: "second frozen",
    }
    curves: dict[str, Curve] = {}
    for name, title in titles.items():
        for series in SHOWN:
            curves[f"{title}: {series}"] = drawn(evidence, name, series)
    return curves


def measure_early_positions(evidence: Evidence) -> Measurement:
    """B7: how much of late positions' keys is formed when early positions' keys are half formed."""

    def does_it(name: str, early: str) -> BySeed:
        late = _late_when_early(evidence, name, early)
        return np.ma.logical_and(steps_to(evidence, name, early, HALF) < np.inf, late <= QUARTER)

    late_then = _late_when_early(evidence, ALL, EARLY)
    early_end = curve(evidence, ALL, EARLY)[1][:, -1]
    late_end = curve(evidence, ALL, LATE)[1][:, -1]
    parts = {
        "early before late": {
            reading: does_it(in_reading(ALL, reading), EARLY)
            for reading in trained_readings(evidence, [ALL])
        },
        "early before late, among all": does_it(ALL, EARLY_AMONG_ALL),
        "late then": late_then,
        "early, end": of_seeds(evidence, ALL, early_end),
        "late, end": of_seeds(evidence, ALL, late_end),
    }
    by_seed = {
        "late positions, when early ones are half formed": late_then.compressed(),
        "early, end": early_end,
        "late, end": late_end,
    }
    curves = {name: drawn(evidence, ALL, name) for name in (EARLY, EARLY_AMONG_ALL, LATE)}
    return Measurement(parts, by_seed, Plots(curves=curves))


def _late_when_early(evidence: Evidence, name: str, early: str) -> BySeed:
    """How far late positions' keys are formed when early ones are half formed, or at the end."""
    steps, values = curve(evidence, name, early)
    late = curve(evidence, name, LATE)[1]
    when = np.minimum(first_reach(steps, values, HALF), steps[-1])
    then = [np.interp(t, steps, row) for t, row in zip(when, late, strict=True)]
    return of_seeds(evidence, name, then)


def measure_stages(evidence: Evidence) -> Measurement:
    """B8: the steps to 90% accuracy, all memories together against short and against long
    stages."""
    require_trained(evidence, SHORT)
    names = {"together": ALL, "short stages": SHORT, "long stages": LONG}
    times = {
        reading: {
            title: steps_to(evidence, in_reading(name, reading), "accuracy", RIGHT)
            for title, name in names.items()
        }
        for reading in trained_readings(evidence, names.values())
    }
    parts: dict[str, object] = {
        "together is faster": {
            reading: (each["together"] < each["short stages"])
            & (each["together"] < each["long stages"])
            for reading, each in times.items()
        },
        "gets there": {reading: each["together"] < np.inf for reading, each in times.items()},
    }
    parts |= {f"steps, {title}": each for title, each in times[PLAIN].items()}
    by_seed = {
        title: up_to_end(evidence, names[title], each) for title, each in times[PLAIN].items()
    }
    curves = {title: drawn(evidence, name, "accuracy") for title, name in names.items()}
    return Measurement(parts, by_seed, Plots(curves=curves))
