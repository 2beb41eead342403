"""B9-B12: what the data decides.

Which bigrams come first, which triggers are easy, which outputs generalize, what comes late.
"""

from itertools import combinations
from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.threshold_steps import first_fall, first_reach
from mnemoscope.studies.claims import Outcome, Plots, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, BIGRAM, GLOBAL, RANDOM, RARE
from mnemoscope.studies.library.birth.curves import curve, drawn, steps_text
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.library.birth.scale_rules import trained
from mnemoscope.studies.statistics import (
    MOST,
    Interval,
    mean_interval,
    parts_verdict,
    share_interval,
    share_verdict,
)
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import by_role


def _exact_global_loss(task: Bigrams) -> float:
    """What the exact reader pays after tokens that are no triggers, in nats, on the sample.

    It knows fixed triggers: after another token it pays for the bigram, and where the context knows
    it pays nothing at all.
    """
    tokens = np.asarray(sampled(task)[0])
    before = tokens[:, :-1]
    after = tokens[:, 1:]
    not_trigger = ~np.isin(before, task.fixed_triggers)
    return float(-np.log(task.text.bigrams[before, after][not_trigger]).mean())


def _steps_to_half(evidence: Evidence, series: str, best: float) -> np.ndarray:
    """The step at which each seed's loss is half way from its start to the best there is."""
    steps, values = curve(evidence, GLOBAL, series)
    return first_fall(steps, values, (values[:, 0] + best) / 2)


def global_first(evidence: Evidence) -> Outcome:
    """B9: the steps until half of the global and of the in-context bigrams is learned.

    Reproduced if global ones come first in at least 90% of seeds, refuted if in at most 10%, partly
    in between.
    """
    exact = _exact_global_loss(task_of(evidence, GLOBAL))
    global_steps = _steps_to_half(evidence, "global loss", exact)
    context_steps = _steps_to_half(evidence, "context loss", 0.0)
    verdict, share, interval = share_verdict(global_steps < context_steps)
    global_end = curve(evidence, GLOBAL, "global loss")[1][:, -1].mean()
    context_end = curve(evidence, GLOBAL, "context loss")[1][:, -1].mean()
    sentence = (
        f"Half learned at step (median): global {steps_text(global_steps)}, "
        f"in context {steps_text(context_steps)}; global first "
        f"in {share:.0%} of seeds. At the end {global_end:.2f} nats after other tokens "
        f"(the exact reader pays {exact:.2f}) and {context_end:.2f} where the context knows (0)."
    )
    last = float(evidence.conditions[GLOBAL].spec.steps)
    seeds = {
        "global": np.minimum(global_steps, last),
        "in context": np.minimum(context_steps, last),
    }
    curves = {
        name: drawn(evidence, GLOBAL, f"{name} loss") for name in ("global", "context", "first")
    }
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=curves))


def _are_apart(a: Interval, b: Interval) -> bool:
    """Whether two intervals have nothing in common."""
    return a[1] < b[0] or b[1] < a[0]


def _difference(a: tuple[float, Interval], b: tuple[float, Interval]) -> tuple[float, Interval]:
    """One mean minus another, with the widest interval that theirs allow."""
    mean_a, (low_a, high_a) = a
    mean_b, (low_b, high_b) = b
    return mean_a - mean_b, (low_a - high_b, high_a - low_b)


def kinds_of_triggers(evidence: Evidence) -> Outcome:
    """B10: the steps to 90% right with frequent, with rarer and with random triggers.

    Reproduced if the 95% intervals of the three means are apart from each other, partly if one pair
    is, else refuted; undecided if in none of the three half of the seeds get there.
    """
    trained(evidence, RARE, "Rarer fixed triggers")
    names = {"frequent": ALL, "rarer": RARE, "random": RANDOM}
    accuracy = {title: curve(evidence, name, "accuracy") for title, name in names.items()}
    times = {title: first_reach(*each, 0.9) for title, each in accuracy.items()}
    # a seed that never gets there counts with the last step
    last = float(evidence.conditions[ALL].spec.steps)
    seeds = {title: np.minimum(t, last) for title, t in times.items()}
    means = {title: mean_interval(t) for title, t in seeds.items()}
    intervals = [interval for _, interval in means.values()]
    verdict = parts_verdict(_are_apart(a, b) for a, b in combinations(intervals, 2))
    if not any(np.isfinite(t).mean() >= 0.5 for t in times.values()):
        verdict = "undecided"
    table = "; ".join(f"{title} {steps_text(t)}" for title, t in times.items())
    ends = ", ".join(f"{values[:, -1].mean():.1%}" for _, values in accuracy.values())
    sentence = f"90% right at step (median): {table}. Right at the end: {ends}."
    curves = {title: drawn(evidence, name, "accuracy") for title, name in names.items()}
    value, interval = _difference(means["rarer"], means["frequent"])
    return Outcome(verdict, value, interval, sentence, seeds, Plots(curves=curves))


def crossed(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Right answers with outputs drawn either way.

    Args:
        task: the text that the model was trained on.
        model: the model of one seed.
        _: the seed's world, of which bigram text has none.
    """
    accuracy = {}
    for kind in ("uniform", "bigram"):
        other = task.model_copy(update={"outputs": kind})
        accuracy[kind] = by_role(other, model, *sampled(other))["accuracy"]
    return accuracy


def outputs_that_generalize(evidence: Evidence) -> Outcome:
    """B11: accuracy on the other kind of outputs, trained on uniform minus on bigram ones.

    Reproduced if the 95% interval lies above 5 points, partly if above 0, else refuted.
    """
    uniform = evidence.measure(ALL, crossed)
    bigram = evidence.measure(BIGRAM, crossed)
    n_pairs = min(len(uniform["bigram"]), len(bigram["uniform"]))
    gain = uniform["bigram"][:n_pairs] - bigram["uniform"][:n_pairs]
    value, interval = mean_interval(gain)
    verdict: Verdict = "refuted"
    if interval[0] > 0.05:
        verdict = "reproduced"
    elif interval[0] > 0:
        verdict = "partly"
    sentence = (
        f"Trained on uniform outputs: right in {uniform['uniform'].mean():.1%} of them "
        f"and in {uniform['bigram'].mean():.1%} of bigram ones. "
        f"Trained on bigram outputs: {bigram['bigram'].mean():.1%} of them and "
        f"{bigram['uniform'].mean():.1%} of uniform ones."
    )
    seeds = {
        "trained uniform, tested uniform": uniform["uniform"],
        "trained uniform, tested bigram": uniform["bigram"],
        "trained bigram, tested bigram": bigram["bigram"],
        "trained bigram, tested uniform": bigram["uniform"],
    }
    return Outcome(verdict, value, interval, sentence, seeds)


def late_competition(evidence: Evidence) -> Outcome:
    """B12: how far the output and the feed-forward memory end from their best point in training.

    A memory leaves its ideal form if, in at least 90% of seeds, the output memory's recall ends at
    least 5 points lower, or the feed-forward memory's divergence from the bigrams at least a tenth
    higher: reproduced if both do, partly if one does, else refuted; the quick scale is undecided.
    """
    output = curve(evidence, GLOBAL, "output memory")[1]
    divergence = curve(evidence, GLOBAL, "bigram memory")[1]
    lost = output.max(axis=1) - output[:, -1]
    grown = divergence[:, -1] / divergence.min(axis=1) - 1
    hits = {"output memory": lost >= 0.05, "feed-forward memory": grown >= 0.1}
    verdict = parts_verdict(bool(hit.mean() >= MOST) for hit in hits.values())
    share, interval = share_interval(hits["output memory"] & hits["feed-forward memory"])
    shares = ", ".join(f"{name} {hit.mean():.0%}" for name, hit in hits.items())
    sentence = (
        f"The output memory ends at {output[:, -1].mean():.2f} "
        f"after a best of {output.max(axis=1).mean():.2f}; the "
        "feed-forward memory's divergence from the bigrams ends at "
        f"{divergence[:, -1].mean():.3f} nats after a best of "
        f"{divergence.min(axis=1).mean():.3f}. Seeds in which each leaves its best: {shares}."
    )
    if evidence.scale == "quick":
        verdict = "undecided"
        sentence = f"{sentence} This scale stops before training is late."
    seeds = {"output memory, lost": lost, "feed-forward divergence, grown by": grown}
    curves = {name: drawn(evidence, GLOBAL, name) for name in ("output memory", "bigram memory")}
    return Outcome(verdict, share, interval, sentence, seeds, Plots(curves=curves))
