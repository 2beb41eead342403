"""R8-R10, R16, R18 and R19: which sizes learn to recall, and what they can recall."""

import numpy as np

from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.mastery import (
    card,
    eliminates,
    masters,
    over_readings,
    percent,
    readings,
    recall,
    short,
)
from mnemoscope.studies.library.remember.elimination import elimination_rate
from mnemoscope.studies.library.remember.conditions import ANY, PLAIN, SMALL, TWO, WIDE, WIDER
from mnemoscope.studies.statistics import FEW, MOST, mean_interval, share_verdict


def _by_reading(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    return {"recall": recall(evidence, name)} | {f"recall {r}": recall(evidence, r) for r in readings(evidence, name)}


def small_model(evidence: Evidence) -> Outcome:
    """R8."""

    def judge(name: str) -> tuple[Verdict, float]:
        return share_verdict(recall(evidence, name) <= 0.1)[0], float(recall(evidence, name).mean())

    rates = recall(evidence, SMALL)
    value, interval = mean_interval(rates)
    verdict, note = over_readings(evidence, SMALL, judge(SMALL)[0], judge, "mean recall")
    if verdict == "reproduced" and short(evidence, SMALL):
        verdict = "undecided"
    sentence = (
        f"d=16 with one head recalls x1 in {percent(value)} of held-out repeats; {percent((rates <= 0.1).mean())} of seeds stay "
        f"at or below 10% and {percent((rates >= 0.99).mean())} reach 99%.{note}"
    )
    return Outcome(verdict, value, interval, sentence, _by_reading(evidence, SMALL))


def wide_model(evidence: Evidence) -> Outcome:
    """R9."""

    def judge(name: str) -> tuple[Verdict, float]:
        value, (low, high) = mean_interval(recall(evidence, name))
        inside, outside = low >= 0.05 and high <= 0.95, high < 0.05 or low > 0.95
        return "reproduced" if inside else "refuted" if outside else "partly", value

    rates = recall(evidence, WIDE)
    value, interval = mean_interval(rates)
    verdict, note = over_readings(evidence, WIDE, judge(WIDE)[0], judge, "mean recall")
    if short(evidence, WIDE):  # how much is learned hangs on the rate, as the readings show
        verdict = "undecided"
    sentence = (
        f"d=32 with one head recalls x1 in {percent(value)} of held-out repeats on average; "
        f"{percent((rates >= 0.99).mean())} of seeds reach 99% and {percent((rates <= 0.1).mean())} stay at or below 10%.{note}"
    )
    return Outcome(verdict, value, interval, sentence, _by_reading(evidence, WIDE))


def two_heads(evidence: Evidence) -> Outcome:
    """R10."""

    def perfect(name: str) -> np.ndarray:
        return (recall(evidence, name) == 1) & (eliminates(evidence, name) == 1)

    verdict, share, interval = share_verdict(perfect(TWO))
    verdict, note = over_readings(
        evidence, TWO, verdict, lambda name: share_verdict(perfect(name))[:2], "share of seeds"
    )
    if verdict != "reproduced" and short(evidence, TWO):
        verdict = "undecided"
    errors = card(evidence, TWO)
    sentence = (
        f"{percent(share)} of seeds with d=32 and two heads make no mistake on either skill "
        f"({percent(masters(evidence, TWO).mean())} make at most 1% of mistakes); at step 5 the mean MAE is "
        f"{errors['recall_mae'][:, 0].mean():.2g} for recall and {errors['mae'][:, -1].mean():.2g} for elimination.{note}"
    )
    by_seed = _by_reading(evidence, TWO) | {"elimination": eliminates(evidence, TWO)}
    return Outcome(verdict, share, interval, sentence, by_seed)


def head_or_width(evidence: Evidence) -> Outcome:
    """R16."""
    grid = [name for name in evidence.settings if name.startswith("repeat/") and name.count("/") == 1]
    learned = {name: recall(evidence, name) >= 0.99 for name in grid}
    share = {name: float(hits.mean()) for name, hits in learned.items()}
    by_head, by_width = share[TWO] - share[WIDE], share[WIDER] - share[WIDE]
    rng = np.random.default_rng(0)
    head, width = (rng.choice(learned[name], (9999, len(learned[name]))).mean(axis=1) for name in (TWO, WIDER))
    low, high = np.percentile(head - width, [2.5, 97.5])
    verdict: Verdict = "refuted"
    if by_head >= 0.25 and by_head > by_width:
        verdict = "reproduced" if by_head >= 0.5 and by_width < 0.25 else "partly"
    if short(evidence, TWO) and share[WIDE] < MOST:  # one head that learns it is final; one that fails may lack time
        verdict = "undecided"
    table = ", ".join(f"{name.removeprefix('repeat/')} {percent(x)}" for name, x in share.items())
    sentence = (
        f"Seeds that learn recall: {table}. At d=32 a second head changes the share by {by_head:+.2f}; doubling the width "
        f"instead changes it by {by_width:+.2f}."
    )
    by_seed = {f"recall {name}": recall(evidence, name) for name in grid}
    return Outcome(verdict, by_head - by_width, (float(low), float(high)), sentence, by_seed)


def dimensions(evidence: Evidence) -> Outcome:
    """R18."""
    names = [name for name in evidence.settings if name.startswith("plain/d") and name.count("/") == 1]
    skill = {evidence.settings[n].spec.model.d_model: np.asarray(evidence.measure(n, elimination_rate)) for n in names}
    works = {d: rates >= 0.99 for d, rates in skill.items()}

    def smallest(shares: dict[int, float]) -> float:
        """The smallest width at which half of the seeds work; beyond the grid, twice its end."""
        return next((float(d) for d, share in shares.items() if share >= 0.5), 2.0 * max(shares))

    value = smallest({d: float(hits.mean()) for d, hits in works.items()})
    rng = np.random.default_rng(0)
    draws = {d: rng.choice(hits, (2000, len(hits))).mean(axis=1) for d, hits in works.items()}
    low, high = np.percentile([smallest({d: x[i] for d, x in draws.items()}) for i in range(2000)], [2.5, 97.5])
    verdict: Verdict = "reproduced" if value in (16, 24) else "refuted"
    if value >= 16 and short(evidence, PLAIN):
        verdict = "undecided"
    table = ", ".join(f"d={d} {percent(hits.mean())}" for d, hits in works.items())
    recallers = [name for name in evidence.settings if name.startswith("repeat/") and name.endswith("h2")]
    both = ", ".join(f"{name.removeprefix('repeat/')} {percent(masters(evidence, name).mean())}" for name in recallers)
    sentence = (
        f"Seeds that eliminate (99% right at step 5), one head: {table}. Seeds that also recall, two heads: {both}."
    )
    return Outcome(
        verdict, value, (float(low), float(high)), sentence, {f"step 5 right, d={d}": x for d, x in skill.items()}
    )


def other_pairs(evidence: Evidence) -> Outcome:
    """R19."""
    first, every = card(evidence, TWO)["recall"], card(evidence, ANY)["recall"]
    others = first[:, 1:].mean(axis=1)
    value, interval = mean_interval(others)
    verdict: Verdict = "reproduced" if value >= MOST else "refuted" if value <= FEW else "partly"
    if short(evidence, TWO) and first[:, 0].mean() < 0.5:
        verdict = "undecided"
    by_first, by_any = (" ".join(percent(x) for x in part.mean(axis=0)) for part in (first, every))
    sentence = (
        f"Recall of pairs 1 2 3 4: {by_first} when only the first pair repeats in training; {by_any} when any earlier pair "
        "may."
    )
    by_seed = {"others, trained on the first": others, "all, trained on any": every.mean(axis=1)}
    return Outcome(verdict, value, interval, sentence, by_seed)
