"""B5-B8: in which order memories form, what each needs, and whether stages would be faster."""

from collections.abc import Mapping

import numpy as np

from mnemoscope.probes.threshold_steps import first_reach
from mnemoscope.studies.claims import Curve, Outcome, Plots, Verdict
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
from mnemoscope.studies.library.birth.curves import MEMORIES, at_step, curve, drawn, steps_text
from mnemoscope.studies.library.birth.scale_rules import settled, trained
from mnemoscope.studies.statistics import (
    MOST,
    mean_interval,
    parts_verdict,
    share_interval,
    share_verdict,
)

SHOWN = ("accuracy", *MEMORIES[:3])


def order_of_memories(evidence: Evidence) -> Outcome:
    """B5: the step at which each of the three memories is half formed.

    Reproduced if output, second-layer keys and first-layer keys come in this order in at least 90%
    of seeds; partly if the output memory is first in at least 90%; else refuted.
    """
    times = {name: first_reach(*curve(evidence, ALL, name), 0.5) for name in MEMORIES[:3]}
    output, second, first = times.values()
    in_order = (output < second) & (second < first)
    output_first = (output < second) & (output < first)
    share, interval = share_interval(in_order)
    verdict: Verdict = "refuted"
    if share >= MOST:
        verdict = "reproduced"
    elif output_first.mean() >= MOST:
        verdict = "partly"
    table = "; ".join(f"{name} {steps_text(t)}" for name, t in times.items())
    sentence = (
        f"Half formed at step (median): {table}. "
        "Output, second-layer keys, first-layer keys come in this order in "
        f"{share:.0%} of seeds, the output memory is first in {output_first.mean():.0%}."
    )
    last = float(evidence.conditions[ALL].spec.steps)
    seeds = {name: np.minimum(t, last) for name, t in times.items()}
    curves = {name: drawn(evidence, ALL, name) for name in SHOWN}
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=curves))


def _when_unfrozen(evidence: Evidence, name: str, series: str) -> np.ndarray:
    """What was read just before what is frozen at first is unfrozen."""
    unfreeze_steps = evidence.conditions[name].spec.unfreeze_steps()
    return at_step(evidence, name, series, max(unfreeze_steps.values()))


def _parts_of_freezing(read: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Which seeds do each of the three parts of B6."""
    no_output_keys = [
        read["output frozen: second keys"],
        read["output frozen: first keys"],
    ]
    output_formed = read["output alone: output memory"] >= 0.75
    not_enough = read["output alone: accuracy"] < 0.7
    return {
        "output frozen: no keys": np.max(no_output_keys, axis=0) <= 0.25,
        "output alone: formed, and not enough": output_formed & not_enough,
        "second-layer keys easier first": _second_minus_first(read) > 0,
    }


def _second_minus_first(read: Mapping[str, np.ndarray]) -> np.ndarray:
    """How much more of each layer's keys forms without the other's, in seeds that both have."""
    second = read["first keys frozen: second keys"]
    first = read["second keys frozen: first keys"]
    n_pairs = min(len(second), len(first))
    return second[:n_pairs] - first[:n_pairs]


def _curves_of_freezing(evidence: Evidence) -> dict[str, Curve]:
    """What every training with something frozen went through."""
    titles = {
        ALL: "all",
        NO_OUTPUT: "output frozen",
        ONLY_OUTPUT: "keys frozen",
        NO_FIRST: "first frozen",
        NO_SECOND: "second frozen",
    }
    curves = {}
    for name, title in titles.items():
        for series in SHOWN:
            curves[f"{title}: {series}"] = drawn(evidence, name, series)
    return curves


def freezing(evidence: Evidence) -> Outcome:
    """B6: what forms while other memories are frozen, at the step that unfreezes them.

    Three parts, each of which holds if it does in at least 90% of seeds: without the output neither
    key memory is above 1/4; the output alone is above 3/4, yet right below 70%; second-layer keys
    without the first's are above first-layer keys without the second's. Reproduced if all three
    hold, refuted if none, else partly.
    """
    first_keys = "first keys, early"
    read = {
        "output frozen: second keys": _when_unfrozen(evidence, NO_OUTPUT, "second keys"),
        "output frozen: first keys": _when_unfrozen(evidence, NO_OUTPUT, first_keys),
        "output alone: output memory": _when_unfrozen(evidence, ONLY_OUTPUT, "output memory"),
        "output alone: accuracy": _when_unfrozen(evidence, ONLY_OUTPUT, "accuracy"),
        "first keys frozen: second keys": _when_unfrozen(evidence, NO_FIRST, "second keys"),
        "second keys frozen: first keys": _when_unfrozen(evidence, NO_SECOND, first_keys),
    }
    hits = _parts_of_freezing(read)
    verdict = parts_verdict(bool(hit.mean() >= MOST) for hit in hits.values())
    value, interval = mean_interval(_second_minus_first(read))
    means = {name: values.mean() for name, values in read.items()}
    parts = ", ".join(f"{name} {hit.mean():.0%}" for name, hit in hits.items())
    sentence = (
        "With the output frozen, second- and first-layer keys are "
        f"{means['output frozen: second keys']:.2f} and "
        f"{means['output frozen: first keys']:.2f} formed when it is unfrozen. "
        f"The output alone forms to {means['output alone: output memory']:.2f} and is "
        f"right in {means['output alone: accuracy']:.1%}. "
        "Second-layer keys without the first's form to "
        f"{means['first keys frozen: second keys']:.2f}, "
        "first-layer keys without the second's to "
        f"{means['second keys frozen: first keys']:.2f}. "
        f"Seeds in which each part holds: {parts}."
    )
    plots = Plots(curves=_curves_of_freezing(evidence))
    return Outcome(verdict, value, interval, sentence, read, plots)


def early_positions(evidence: Evidence) -> Outcome:
    """B7: how much of late positions' keys is formed when early positions' keys are half formed.

    A seed does it if early keys get there and late ones are then at most a quarter formed:
    reproduced if at least 90% of seeds do, refuted if at most 10%, partly in between; the quick
    scale is undecided unless reproduced.
    """
    steps, early = curve(evidence, ALL, "first keys, early")
    late = curve(evidence, ALL, "first keys, late")[1]
    when = first_reach(steps, early, 0.5)
    # at the end of training, for seeds that never get there
    when_or_end = [min(t, steps[-1]) for t in when]
    late_then = np.array(
        [np.interp(t, steps, row) for t, row in zip(when_or_end, late, strict=True)]
    )
    verdict, share, interval = share_verdict(np.isfinite(when) & (late_then <= 0.25))
    verdict = settled(evidence, verdict)
    sentence = (
        "Keys of the first quarter of the positions are half formed "
        f"at step {steps_text(when)}; those of the other "
        f"positions are then {late_then.mean():.2f} formed. "
        f"At the end {early[:, -1].mean():.2f} and {late[:, -1].mean():.2f} of them are."
    )
    seeds = {
        "late positions, when early ones are half formed": late_then,
        "early, end": early[:, -1],
        "late, end": late[:, -1],
    }
    curves = {name: drawn(evidence, ALL, name) for name in MEMORIES[2:]}
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=curves))


def together_or_in_stages(evidence: Evidence) -> Outcome:
    """B8: the steps to 90% right, all memories together against short and against long stages.

    Reproduced if together is faster than both in at least 90% of seeds, refuted if in at most 10%,
    partly in between; undecided if fewer than half of the seeds get there together.
    """
    trained(evidence, SHORT, "Stages")
    names = {"together": ALL, "short stages": SHORT, "long stages": LONG}
    times = {
        title: first_reach(*curve(evidence, name, "accuracy"), 0.9) for title, name in names.items()
    }
    n_pairs = min(map(len, times.values()))
    together, *stages = (t[:n_pairs] for t in times.values())
    verdict, share, interval = share_verdict(together < np.min(stages, axis=0))
    if np.isfinite(together).mean() < 0.5:
        verdict = "undecided"
    table = "; ".join(f"{title} {steps_text(t)}" for title, t in times.items())
    sentence = (
        f"90% right at step (median): {table}. "
        f"Together is faster than both in {share:.0%} of seeds."
    )
    last = float(evidence.conditions[ALL].spec.steps)
    curves = {title: drawn(evidence, name, "accuracy") for title, name in names.items()}
    seeds = {title: np.minimum(t, last) for title, t in times.items()}
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=curves))
