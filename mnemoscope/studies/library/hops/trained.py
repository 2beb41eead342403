"""H2, H3 and H4: what training on the hardest question, by a curriculum and on a mixture comes to."""

import numpy as np

from mnemoscope.core.axes import Float
from mnemoscope.studies.claims import Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.hops.accuracy import KNOWN, at_chance, at_end, curves, named, steps_to_know, task_of
from mnemoscope.studies.statistics import FEW, MOST, share_interval, share_verdict, slope


def _said(steps: Float[np.ndarray, "seed"]) -> str:
    """The median number of steps, of all seeds."""
    median = np.median(steps)
    return f"{median:,.0f}" if np.isfinite(median) else "never"


def _settled(evidence: Evidence, verdict: Verdict, kept: Verdict) -> Verdict:
    """A short training keeps only the verdict that a longer one could not overturn."""
    return "undecided" if evidence.scale == "quick" and verdict != kept else verdict


def hard_only(evidence: Evidence) -> Outcome:
    """H2."""
    run, mixture = evidence.run("hard/k=4"), evidence.run("mixture/k=4")
    longest = evidence.run("long/k=4") if "long/k=4" in evidence.settings else run
    steps = {k: steps_to_know(evidence.run(f"hard/k={k}"), k) for k in (1, 2)} | {4: steps_to_know(longest, 4)}
    t = {k: float(np.median(x)) for k, x in steps.items()}
    knows, chance = at_end(run, 4) >= KNOWN, at_chance(run, 4)
    taught = at_end(mixture, 4) >= KNOWN
    fails = chance.mean() >= MOST and taught.mean() >= MOST
    at_least = min(t[4], float(longest.spec.steps))
    exponential = t[2] * (t[2] / t[1]) ** 2 if np.isfinite([t[1], t[2]]).all() else np.inf
    verdict: Verdict = "partly"
    if knows.mean() >= MOST:
        verdict = "refuted"
    elif fails and at_least >= exponential:
        verdict = "reproduced"
    share, interval = share_interval(chance)
    beyond = f"{exponential:,.0f}" if np.isfinite(exponential) else "unknown"
    sentence = (
        f"Trained on 4 hops alone, {share:.0%} of seeds end within .1 of chance and {knows.mean():.0%} know 4 hops (mixture: "
        f"{taught.mean():.0%}). Median steps until k hops are known when nothing else is asked: {_said(steps[1])} for k = 1, "
        f"{_said(steps[2])} for k = 2, {_said(steps[4])} within {longest.spec.steps:,} for k = 4, where an exponential would be at "
        f"{beyond}."
    )
    seeds = {"hard only: 4 hops": at_end(run, 4), "mixture: 4 hops": at_end(mixture, 4)}
    seeds |= {f"steps, k = {k}": x[np.isfinite(x)] for k, x in steps.items() if np.isfinite(x).any()}
    pictures = Pictures(curves={**curves(longest, "hard"), **curves(evidence.run("hard/k=2"), "k = 2")})
    return Outcome(_settled(evidence, verdict, "refuted"), share, interval, sentence, seeds, pictures)


def by_curriculum(evidence: Evidence) -> Outcome:
    """H3."""
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
        f"After {runs['pure'].spec.steps:,} steps {share:.0%} of seeds know 4 hops by the pure curriculum (at some look "
        f"{ever['pure']:.0%}; {forgot['pure']:.0%} no longer know 1 hop) and {knows['replay'].mean():.0%} with replay ("
        f"{ever['replay']:.0%}; {forgot['replay']:.0%})."
    )
    seeds = {f"{name}: {named(h)}": at_end(run, h) for name, run in runs.items() for h in (1, 2, 4)}
    pictures = Pictures(curves={k: v for name, run in runs.items() for k, v in curves(run, name).items()})
    return Outcome(_settled(evidence, verdict, "reproduced"), share, interval, sentence, seeds, pictures)


def by_mixture(evidence: Evidence) -> Outcome:
    """H4."""
    run = evidence.run("mixture/k=4")
    verdict, share, interval = share_verdict(at_end(run, 4) >= KNOWN)
    hops_of = {"hard/k=1": 1} | {n: task_of(evidence.run(n)).k for n in evidence.settings if n.startswith("mixture/")}
    steps = {k: steps_to_know(evidence.run(name), k) for name, k in hops_of.items()}
    medians = {k: float(np.median(x)) for k, x in steps.items() if np.isfinite(np.median(x))}
    told = ", ".join(f"{_said(x)} for k = {k}" for k, x in steps.items())
    law = (
        f", as k to the power {slope(np.array([*medians]), np.array([*medians.values()])):.2f}"
        if len(medians) > 1
        else ""
    )
    sentence = f"After {run.spec.steps:,} steps {share:.0%} of seeds know 4 hops. Median steps until k hops are known: {told}{law}."
    seeds = {named(h): at_end(run, h) for h in (1, 2, 4)}
    seeds |= {f"steps, k = {k}": x[np.isfinite(x)] for k, x in steps.items() if np.isfinite(x).any()}
    pictures = Pictures(curves=curves(run, "mixture"))
    return Outcome(_settled(evidence, verdict, "reproduced"), share, interval, sentence, seeds, pictures)
