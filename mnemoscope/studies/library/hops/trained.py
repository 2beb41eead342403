"""H2, H3 and H4: what training on the hardest question, by a curriculum and on a mixture does."""

from collections.abc import Mapping

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.claims import Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.hops.accuracy import (
    KNOWN,
    at_chance,
    at_end,
    curves,
    named,
    steps_to_know,
    task_of,
)
from mnemoscope.studies.statistics import FEW, MOST, share_interval, share_verdict, slope
from mnemoscope.training.run import Run


def _said(steps: Float[np.ndarray, "seed"]) -> str:
    """The median number of steps, of all seeds."""
    median = np.median(steps)
    return f"{median:,.0f}" if np.isfinite(median) else "never"


def _settled(evidence: Evidence, verdict: Verdict, kept: Verdict) -> Verdict:
    """A short training keeps only the verdict that a longer one could not overturn."""
    if evidence.scale == "quick" and verdict != kept:
        return "undecided"
    return verdict


def _finite_steps(steps: Mapping[int, np.ndarray]) -> dict[str, np.ndarray]:
    """For every k that some seed comes to know, the steps of the seeds that do."""
    found = {}
    for k, each_seed in steps.items():
        finite = each_seed[np.isfinite(each_seed)]
        if finite.size:
            found[f"steps, k = {k}"] = finite
    return found


def _extrapolated(t1: float, t2: float) -> float:
    """Where an exponential through t(1) and t(2) is at k = 4; infinite if either is unknown."""
    if not np.isfinite([t1, t2]).all():
        return np.inf
    return t2 * (t2 / t1) ** 2


def _steps_alone(evidence: Evidence, longest: Run) -> dict[int, Float[np.ndarray, "seed"]]:
    """Steps until k hops are known when nothing else is asked."""
    return {
        1: steps_to_know(evidence.run("hard/k=1"), 1),
        2: steps_to_know(evidence.run("hard/k=2"), 2),
        4: steps_to_know(longest, 4),
    }


def hard_only(evidence: Evidence) -> Outcome:
    """H2: how training on 4 hops alone ends, and how its steps grow with k.

    Reproduced if it fails (at least 90% of seeds end within .1 of chance while at least 90% of the
    mixture's know 4 hops) and t(4) is at least where an exponential through t(1) and t(2) would be;
    refuted if at least 90% of seeds know 4 hops; partly in between; the quick scale is undecided
    unless refuted.
    """
    run = evidence.run("hard/k=4")
    mixture = evidence.run("mixture/k=4")
    longest = evidence.run("long/k=4") if "long/k=4" in evidence.conditions else run
    steps = _steps_alone(evidence, longest)
    medians = {k: float(np.median(x)) for k, x in steps.items()}
    # at least so many steps: the longest training, if 4 hops are never known
    t4 = min(medians[4], float(longest.spec.steps))
    exponential = _extrapolated(medians[1], medians[2])
    knows = (at_end(run, 4) >= KNOWN).mean()
    taught = (at_end(mixture, 4) >= KNOWN).mean()
    share, interval = share_interval(at_chance(run, 4))
    verdict: Verdict = "partly"
    if knows >= MOST:
        verdict = "refuted"
    elif share >= MOST and taught >= MOST and t4 >= exponential:
        verdict = "reproduced"
    beyond = f"{exponential:,.0f}" if np.isfinite(exponential) else "unknown"
    sentence = (
        f"Trained on 4 hops alone, {share:.0%} of seeds end within .1 of chance and {knows:.0%} "
        f"know 4 hops (mixture: {taught:.0%}). "
        "Median steps until k hops are known when nothing else is asked: "
        f"{_said(steps[1])} for k = 1, {_said(steps[2])} for k = 2, "
        f"{_said(steps[4])} within {longest.spec.steps:,} for k = 4, "
        f"where an exponential would be at {beyond}."
    )
    seeds = {"hard only: 4 hops": at_end(run, 4), "mixture: 4 hops": at_end(mixture, 4)}
    seeds |= _finite_steps(steps)
    plots = Plots(curves=curves(longest, "hard") | curves(evidence.run("hard/k=2"), "k = 2"))
    verdict = _settled(evidence, verdict, "refuted")
    return Outcome(verdict, share, interval, sentence, seeds, plots)


def by_curriculum(evidence: Evidence) -> Outcome:
    """H3: how many seeds know 4 hops after a curriculum from 1 to 2 to 4, pure and with replay.

    Reproduced if at least 90% of seeds do by the pure one, refuted if at most 10% do by both,
    partly in between; the quick scale is undecided unless reproduced.
    """
    runs = {name: evidence.run(f"curriculum/{name}") for name in ("pure", "replay")}
    knows = {name: at_end(run, 4) >= KNOWN for name, run in runs.items()}
    verdict: Verdict = "partly"
    if knows["pure"].mean() >= MOST:
        verdict = "reproduced"
    elif max(x.mean() for x in knows.values()) <= FEW:
        verdict = "refuted"
    share, interval = share_interval(knows["pure"])
    forgot = {name: float((at_end(run, 1) < KNOWN).mean()) for name, run in runs.items()}
    ever = {name: float(np.isfinite(steps_to_know(run, 4)).mean()) for name, run in runs.items()}
    sentence = (
        f"After {runs['pure'].spec.steps:,} steps {share:.0%} of seeds know 4 hops "
        f"by the pure curriculum (at some evaluation {ever['pure']:.0%}; "
        f"{forgot['pure']:.0%} no longer know 1 hop) and {knows['replay'].mean():.0%} "
        f"with replay ({ever['replay']:.0%}; {forgot['replay']:.0%})."
    )
    seeds = {}
    drawn = {}
    for name, run in runs.items():
        seeds |= {f"{name}: {named(h)}": at_end(run, h) for h in (1, 2, 4)}
        drawn |= curves(run, name)
    verdict = _settled(evidence, verdict, "reproduced")
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=drawn))


def by_mixture(evidence: Evidence) -> Outcome:
    """H4: how many seeds know 4 hops after a mixture of 1, 2 and 4.

    Reproduced if at least 90% of seeds do, refuted if at most 10%, partly in between; the quick
    scale is undecided unless reproduced. Steps until k hops are known, and the exponent of a power
    law through them, are reported beside it.
    """
    run = evidence.run("mixture/k=4")
    verdict, share, interval = share_verdict(at_end(run, 4) >= KNOWN)
    mixtures = [name for name in evidence.conditions if name.startswith("mixture/")]
    steps = {1: steps_to_know(evidence.run("hard/k=1"), 1)}
    for name in mixtures:
        k = task_of(evidence.run(name)).k
        steps[k] = steps_to_know(evidence.run(name), k)
    steps_in_words = ", ".join(f"{_said(x)} for k = {k}" for k, x in steps.items())
    sentence = (
        f"After {run.spec.steps:,} steps {share:.0%} of seeds know 4 hops. "
        f"Median steps until k hops are known: {steps_in_words}{_power_law(steps)}."
    )
    seeds = {named(h): at_end(run, h) for h in (1, 2, 4)}
    seeds |= _finite_steps(steps)
    verdict = _settled(evidence, verdict, "reproduced")
    plots = Plots(curves=curves(run, "mixture"))
    return Outcome(verdict, share, interval, sentence, seeds, plots)


def _power_law(steps: Mapping[int, np.ndarray]) -> str:
    """The exponent of the power law through the medians that are finite, if two of them are."""
    medians = {k: float(np.median(x)) for k, x in steps.items()}
    finite = {k: median for k, median in medians.items() if np.isfinite(median)}
    if len(finite) < 2:
        return ""
    exponent = slope(np.array(list(finite)), np.array(list(finite.values())))
    return f", as k to the power {exponent:.2f}"
