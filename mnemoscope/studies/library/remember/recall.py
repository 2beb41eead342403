"""R8-R10, R16, R18 and R19: which sizes learn to recall, and what they can recall."""

import numpy as np

from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.remember.conditions import ANY, PLAIN, SMALL, TWO, WIDE, WIDER
from mnemoscope.studies.library.remember.elimination import elimination_rate
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
from mnemoscope.studies.statistics import FEW, MOST, mean_interval, share_verdict


def _by_reading(evidence: Evidence, name: str) -> dict[str, np.ndarray]:
    """Recall of every seed, in the plain reading and in the others."""
    plain = {"recall": recall(evidence, name)}
    return plain | {
        f"recall {other}": recall(evidence, other) for other in readings(evidence, name)
    }


def small_model(evidence: Evidence) -> Outcome:
    """R8: recall of d=16 with one head.

    A seed fails if it recalls at most 10% of held-out repeats: reproduced if at least 90% of seeds
    fail, refuted if at most 10% do, partly in between or where another reading says otherwise. A
    short training cannot reproduce it.
    """

    def judge(name: str) -> tuple[Verdict, float]:
        rates = recall(evidence, name)
        return share_verdict(rates <= 0.1)[0], float(rates.mean())

    rates = recall(evidence, SMALL)
    value, interval = mean_interval(rates)
    verdict, note = over_readings(evidence, SMALL, judge(SMALL)[0], judge, "mean recall")
    if verdict == "reproduced" and short(evidence, SMALL):
        verdict = "undecided"
    sentence = (
        f"d=16 with one head recalls x1 in {percent(value)} of held-out repeats; "
        f"{percent((rates <= 0.1).mean())} of seeds stay at or below 10% and "
        f"{percent((rates >= 0.99).mean())} reach 99%.{note}"
    )
    return Outcome(verdict, value, interval, sentence, _by_reading(evidence, SMALL))


def wide_model(evidence: Evidence) -> Outcome:
    """R9: mean recall of d=32 with one head.

    Reproduced if its interval lies within .05 and .95, refuted if wholly outside, else partly;
    partly too where another reading says otherwise. Undecided after a short training.
    """

    def judge(name: str) -> tuple[Verdict, float]:
        value, (low, high) = mean_interval(recall(evidence, name))
        if low >= 0.05 and high <= 0.95:
            return "reproduced", value
        outside = high < 0.05 or low > 0.95
        return "refuted" if outside else "partly", value

    rates = recall(evidence, WIDE)
    value, interval = mean_interval(rates)
    verdict, note = over_readings(evidence, WIDE, judge(WIDE)[0], judge, "mean recall")
    if short(evidence, WIDE):  # how much is learned hangs on the rate, as the readings show
        verdict = "undecided"
    sentence = (
        f"d=32 with one head recalls x1 in {percent(value)} of held-out repeats on average; "
        f"{percent((rates >= 0.99).mean())} of seeds reach 99% and "
        f"{percent((rates <= 0.1).mean())} stay at or below 10%.{note}"
    )
    return Outcome(verdict, value, interval, sentence, _by_reading(evidence, WIDE))


def two_heads(evidence: Evidence) -> Outcome:
    """R10: seeds of d=32 with two heads that make no mistake at step 5, repeated or not.

    Reproduced if at least 90% of seeds are such, refuted if at most 10%, partly in between or where
    another reading says otherwise. A short training cannot refute it.
    """

    def perfect(name: str) -> np.ndarray:
        return (recall(evidence, name) == 1) & (eliminates(evidence, name) == 1)

    def judge(name: str) -> tuple[Verdict, float]:
        verdict, share, _ = share_verdict(perfect(name))
        return verdict, share

    verdict, share, interval = share_verdict(perfect(TWO))
    verdict, note = over_readings(evidence, TWO, verdict, judge, "share of seeds")
    if verdict != "reproduced" and short(evidence, TWO):
        verdict = "undecided"
    errors = card(evidence, TWO)
    sentence = (
        f"{percent(share)} of seeds with d=32 and two heads make no mistake on either skill "
        f"({percent(masters(evidence, TWO).mean())} make at most 1% of mistakes); at step 5 the "
        f"mean MAE is {errors['recall_mae'][:, 0].mean():.2g} for recall and "
        f"{errors['mae'][:, -1].mean():.2g} for elimination.{note}"
    )
    by_seed = _by_reading(evidence, TWO) | {"elimination": eliminates(evidence, TWO)}
    return Outcome(verdict, share, interval, sentence, by_seed)


def _shapes(evidence: Evidence, start: str) -> list[str]:
    """The plain readings of all conditions whose names start so."""
    return [name for name in evidence.conditions if name.startswith(start) and name.count("/") == 1]


def head_or_width(evidence: Evidence) -> Outcome:
    """R16: what a second head, and what twice the width, adds to the share of seeds that recall.

    Reproduced if the head adds at least .5 at d=32 and the width less than .25, partly if the head
    adds at least .25 and more than the width, else refuted. A seed recalls from 99% on. After a
    short training undecided unless one head is enough.
    """
    grid = _shapes(evidence, "repeat/")
    learned = {name: recall(evidence, name) >= 0.99 for name in grid}
    share = {name: float(hits.mean()) for name, hits in learned.items()}
    by_head = share[TWO] - share[WIDE]
    by_width = share[WIDER] - share[WIDE]
    rng = np.random.default_rng(0)
    head, width = (_resampled(rng, learned[name], 9999) for name in (TWO, WIDER))
    low, high = np.percentile(head - width, [2.5, 97.5])
    verdict: Verdict = "refuted"
    if by_head >= 0.25 and by_head > by_width:
        verdict = "reproduced" if by_head >= 0.5 and by_width < 0.25 else "partly"
    if short(evidence, TWO) and share[WIDE] < MOST:
        # one head that learns it is final; one that fails may lack time
        verdict = "undecided"
    table = ", ".join(f"{name.removeprefix('repeat/')} {percent(x)}" for name, x in share.items())
    sentence = (
        f"Seeds that learn recall: {table}. At d=32 a second head changes the share by "
        f"{by_head:+.2f}; doubling the width instead changes it by {by_width:+.2f}."
    )
    by_seed = {f"recall {name}": recall(evidence, name) for name in grid}
    value = by_head - by_width
    return Outcome(verdict, value, (float(low), float(high)), sentence, by_seed)


def _resampled(rng: np.random.Generator, hits: np.ndarray, n: int) -> np.ndarray:
    """The share of hits when seeds are drawn again, n times."""
    return rng.choice(hits, (n, len(hits))).mean(axis=1)


def _smallest(shares: dict[int, float]) -> float:
    """The smallest width at which half of the seeds work; beyond the grid, twice its end."""
    return next((float(d) for d, share in shares.items() if share >= 0.5), 2.0 * max(shares))


def dimensions(evidence: Evidence) -> Outcome:
    """R18: the smallest width at which half of the seeds eliminate (99% right at step 5).

    Reproduced if it is 16 or 24, else refuted. After a short training undecided unless it is
    smaller.
    """
    skill = {}
    for name in _shapes(evidence, "plain/d"):
        d = evidence.conditions[name].spec.model.d_model
        skill[d] = np.asarray(evidence.measure(name, elimination_rate))
    works = {d: rates >= 0.99 for d, rates in skill.items()}
    value = _smallest({d: float(hits.mean()) for d, hits in works.items()})
    rng = np.random.default_rng(0)
    draws = {d: _resampled(rng, hits, 2000) for d, hits in works.items()}
    again = [_smallest({d: x[i] for d, x in draws.items()}) for i in range(2000)]
    low, high = np.percentile(again, [2.5, 97.5])
    verdict: Verdict = "reproduced" if value in (16, 24) else "refuted"
    if value >= 16 and short(evidence, PLAIN):
        verdict = "undecided"
    table = ", ".join(f"d={d} {percent(hits.mean())}" for d, hits in works.items())
    two_heads = [n for n in evidence.conditions if n.startswith("repeat/") and n.endswith("h2")]
    both = ", ".join(
        f"{name.removeprefix('repeat/')} {percent(masters(evidence, name).mean())}"
        for name in two_heads
    )
    sentence = (
        f"Seeds that eliminate (99% right at step 5), one head: {table}. "
        f"Seeds that also recall, two heads: {both}."
    )
    by_seed = {f"step 5 accuracy, d={d}": x for d, x in skill.items()}
    return Outcome(verdict, value, (float(low), float(high)), sentence, by_seed)


def other_pairs(evidence: Evidence) -> Outcome:
    """R19: mean recall of pairs 2 to 4 by models trained on repeats of the first.

    Reproduced if at least .9, refuted if at most .1, else partly. Undecided after a short training
    in which the first pair is recalled in less than half.
    """
    first = card(evidence, TWO)["recall"]
    every = card(evidence, ANY)["recall"]
    others = first[:, 1:].mean(axis=1)
    value, interval = mean_interval(others)
    verdict: Verdict = "partly"
    if value >= MOST:
        verdict = "reproduced"
    elif value <= FEW:
        verdict = "refuted"
    if short(evidence, TWO) and first[:, 0].mean() < 0.5:
        verdict = "undecided"
    by_first, by_any = (" ".join(map(percent, part.mean(axis=0))) for part in (first, every))
    sentence = (
        f"Recall of pairs 1 2 3 4: {by_first} when only the first pair repeats in training; "
        f"{by_any} when any earlier pair may."
    )
    by_seed = {"others, trained on the first": others, "all, trained on any": every.mean(axis=1)}
    return Outcome(verdict, value, interval, sentence, by_seed)
