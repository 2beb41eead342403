"""B5-B8: in which order memories form, what each needs, and whether stages would be faster."""

import numpy as np

from mnemoscope.probes.levels import first_reach
from mnemoscope.studies.claims import Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, LONG, NO_FIRST, NO_OUTPUT, NO_SECOND, ONLY_OUTPUT, SHORT
from mnemoscope.studies.library.birth.curves import MEMORIES, at_step, curve, drawn, steps_text
from mnemoscope.studies.library.birth.scale_rules import settled, trained
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval, share_verdict

SHOWN = ("right", *MEMORIES[:3])


def order_of_memories(evidence: Evidence) -> Outcome:
    """B5."""
    times = {name: first_reach(*curve(evidence, ALL, name), 0.5) for name in MEMORIES[:3]}
    output, second, first = times.values()
    hits, leading = (output < second) & (second < first), (output < second) & (output < first)
    share, interval = share_interval(hits)
    verdict: Verdict = "reproduced" if share >= MOST else "partly" if leading.mean() >= MOST else "refuted"
    table = "; ".join(f"{name} {steps_text(t)}" for name, t in times.items())
    sentence = (
        f"Half formed at step (median): {table}. Output, second-layer keys, first-layer keys come in this order in "
        f"{share:.0%} of seeds, the output memory is first in {leading.mean():.0%}."
    )
    last = float(evidence.settings[ALL].spec.steps)
    seeds = {name: np.minimum(t, last) for name, t in times.items()}
    curves = {name: drawn(evidence, ALL, name) for name in SHOWN}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves))


def freezing(evidence: Evidence) -> Outcome:
    """B6."""

    def read(name: str, series: str) -> np.ndarray:
        return at_step(evidence, name, series, max(evidence.settings[name].spec.released().values()))

    keys = {series: read(NO_OUTPUT, series) for series in ("second keys", "first keys, early")}
    output, right = read(ONLY_OUTPUT, "output memory"), read(ONLY_OUTPUT, "right")
    second, first = read(NO_FIRST, "second keys"), read(NO_SECOND, "first keys, early")
    least = min(len(second), len(first))
    hits = {
        "output held back: no keys": np.max(list(keys.values()), axis=0) <= 0.25,
        "output alone: formed, and not enough": (output >= 0.75) & (right < 0.7),
        "second-layer keys easier first": second[:least] > first[:least],
    }
    holds = {name: bool(hit.mean() >= MOST) for name, hit in hits.items()}
    verdict: Verdict = "reproduced" if all(holds.values()) else "partly" if any(holds.values()) else "refuted"
    value, interval = mean_interval(second[:least] - first[:least])
    sentence = (
        f"With the output held back, second- and first-layer keys are {keys['second keys'].mean():.2f} and "
        f"{keys['first keys, early'].mean():.2f} formed at the release. The output alone forms to {output.mean():.2f} and is "
        f"right in {right.mean():.1%}. Second-layer keys without the first's form to {second.mean():.2f}, first-layer keys "
        f"without the second's to {first.mean():.2f}. Seeds in which each part holds: "
        f"{', '.join(f'{name} {hit.mean():.0%}' for name, hit in hits.items())}."
    )
    seeds = {
        "output held back: second keys": keys["second keys"], "output held back: first keys": keys["first keys, early"],
        "output alone: output memory": output, "output alone: right": right,
        "first keys held back: second keys": second, "second keys held back: first keys": first,
    }  # fmt: skip
    titles = {
        ALL: "all",
        NO_OUTPUT: "output held",
        ONLY_OUTPUT: "keys held",
        NO_FIRST: "first held",
        NO_SECOND: "second held",
    }
    curves = {f"{title}: {series}": drawn(evidence, name, series) for name, title in titles.items() for series in SHOWN}
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves))


def early_positions(evidence: Evidence) -> Outcome:
    """B7."""
    steps, early = curve(evidence, ALL, "first keys, early")
    late = curve(evidence, ALL, "first keys, late")[1]
    when = first_reach(steps, early, 0.5)
    then = np.array([np.interp(min(t, steps[-1]), steps, row) for t, row in zip(when, late, strict=True)])
    verdict, share, interval = share_verdict(np.isfinite(when) & (then <= 0.25))
    verdict = settled(evidence, verdict)
    sentence = (
        f"Keys of the first quarter of the positions are half formed at step {steps_text(when)}; those of the other "
        f"positions are then {then.mean():.2f} formed. At the end {early[:, -1].mean():.2f} and {late[:, -1].mean():.2f} of "
        "them are."
    )
    seeds = {
        "late positions, when early ones are half formed": then,
        "early, end": early[:, -1],
        "late, end": late[:, -1],
    }
    curves = {name: drawn(evidence, ALL, name) for name in MEMORIES[2:]}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves))


def together_or_in_stages(evidence: Evidence) -> Outcome:
    """B8."""
    trained(evidence, SHORT, "Stages")
    names = {"together": ALL, "short stages": SHORT, "long stages": LONG}
    times = {title: first_reach(*curve(evidence, name, "right"), 0.9) for title, name in names.items()}
    least = min(map(len, times.values()))
    together, *stages = (t[:least] for t in times.values())
    verdict, share, interval = share_verdict(together < np.min(stages, axis=0))
    if np.isfinite(together).mean() < 0.5:
        verdict = "undecided"
    table = "; ".join(f"{title} {steps_text(t)}" for title, t in times.items())
    sentence = f"90% right at step (median): {table}. Together is faster than both in {share:.0%} of seeds."
    last = float(evidence.settings[ALL].spec.steps)
    curves = {title: drawn(evidence, name, "right") for title, name in names.items()}
    seeds = {title: np.minimum(t, last) for title, t in times.items()}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves))
