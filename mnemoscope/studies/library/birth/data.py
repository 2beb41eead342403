"""B9-B12: what the data decides: which bigrams come first, which triggers are easy, which outputs generalise, what comes late."""

from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.levels import first_fall, first_reach
from mnemoscope.studies.claims import Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import ALL, BIGRAM, GLOBAL, RANDOM, RARE
from mnemoscope.studies.library.birth.curves import curve, drawn, steps_text
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.library.birth.scale_rules import trained
from mnemoscope.studies.statistics import MOST, mean_interval, share_interval, share_verdict
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import by_role


def global_first(evidence: Evidence) -> Outcome:
    """B9."""
    task = task_of(evidence, GLOBAL)
    # the exact reader knows fixed triggers: after another token it pays the bigram, where the context knows nothing at all
    tokens = np.asarray(sampled(task)[0])
    spoken = ~np.isin(tokens[:, :-1], task.fixed_triggers)
    floor = float(-np.log(task.text.bigrams[tokens[:, :-1], tokens[:, 1:]][spoken]).mean())
    times = {}
    for series, best in (("global loss", floor), ("context loss", 0.0)):
        steps, values = curve(evidence, GLOBAL, series)
        times[series] = first_fall(steps, values, (values[:, 0] + best) / 2)
    spoken_first, context = times.values()
    verdict, share, interval = share_verdict(spoken_first < context)
    ends = {series: curve(evidence, GLOBAL, series)[1][:, -1].mean() for series in times}
    sentence = (
        f"Half learned at step (median): global {steps_text(spoken_first)}, in context {steps_text(context)}; global first "
        f"in {share:.0%} of seeds. At the end {ends['global loss']:.2f} nats after other tokens (the exact reader pays "
        f"{floor:.2f}) and {ends['context loss']:.2f} where the context knows (0)."
    )
    last = float(evidence.settings[GLOBAL].spec.steps)
    seeds = {"global": np.minimum(spoken_first, last), "in context": np.minimum(context, last)}
    curves = {name: drawn(evidence, GLOBAL, f"{name} loss") for name in ("global", "context", "first")}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves))


def kinds_of_triggers(evidence: Evidence) -> Outcome:
    """B10."""
    trained(evidence, RARE, "Rarer fixed triggers")
    names = {"frequent": ALL, "rarer": RARE, "random": RANDOM}
    last = float(evidence.settings[ALL].spec.steps)
    times = {title: first_reach(*curve(evidence, name, "right"), 0.9) for title, name in names.items()}
    means = {title: mean_interval(np.minimum(t, last)) for title, t in times.items()}
    pairs = [(a, b) for i, a in enumerate(means) for b in list(means)[i + 1 :]]
    apart = [means[a][1][1] < means[b][1][0] or means[b][1][1] < means[a][1][0] for a, b in pairs]
    verdict: Verdict = "reproduced" if all(apart) else "partly" if any(apart) else "refuted"
    if not any(np.isfinite(t).mean() >= 0.5 for t in times.values()):
        verdict = "undecided"
    table = "; ".join(f"{title} {steps_text(t)}" for title, t in times.items())
    ends = ", ".join(f"{curve(evidence, name, 'right')[1][:, -1].mean():.1%}" for name in names.values())
    sentence = f"90% right at step (median): {table}. Right at the end: {ends}."
    curves = {title: drawn(evidence, name, "right") for title, name in names.items()}
    seeds = {title: np.minimum(t, last) for title, t in times.items()}
    value, interval = means["rarer"][0] - means["frequent"][0], (
        means["rarer"][1][0] - means["frequent"][1][1], means["rarer"][1][1] - means["frequent"][1][0]
    )  # fmt: skip
    return Outcome(verdict, value, interval, sentence, seeds, Pictures(curves=curves))


def crossed(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Right answers with outputs drawn either way."""
    tasks = {kind: task.model_copy(update={"outputs": kind}) for kind in ("uniform", "bigram")}
    return {kind: by_role(other, model, *sampled(other))["right"] for kind, other in tasks.items()}


def outputs_that_generalise(evidence: Evidence) -> Outcome:
    """B11."""
    uniform, bigram = evidence.measure(ALL, crossed), evidence.measure(BIGRAM, crossed)
    least = min(len(uniform["bigram"]), len(bigram["uniform"]))
    gain = uniform["bigram"][:least] - bigram["uniform"][:least]
    value, interval = mean_interval(gain)
    verdict: Verdict = "reproduced" if interval[0] > 0.05 else "partly" if interval[0] > 0 else "refuted"
    sentence = (
        f"Trained on uniform outputs: right in {uniform['uniform'].mean():.1%} of them and in {uniform['bigram'].mean():.1%} "
        f"of bigram ones. Trained on bigram outputs: {bigram['bigram'].mean():.1%} of them and "
        f"{bigram['uniform'].mean():.1%} of uniform ones."
    )
    seeds = {
        "trained uniform, tested uniform": uniform["uniform"], "trained uniform, tested bigram": uniform["bigram"],
        "trained bigram, tested bigram": bigram["bigram"], "trained bigram, tested uniform": bigram["uniform"],
    }  # fmt: skip
    return Outcome(verdict, value, interval, sentence, seeds)


def late_competition(evidence: Evidence) -> Outcome:
    """B12."""
    output, divergence = (curve(evidence, GLOBAL, name)[1] for name in ("output memory", "bigram memory"))
    lost, grown = output.max(axis=1) - output[:, -1], divergence[:, -1] / divergence.min(axis=1) - 1
    hits = {"output memory": lost >= 0.05, "feed-forward memory": grown >= 0.1}
    holds = [bool(hit.mean() >= MOST) for hit in hits.values()]
    verdict: Verdict = "reproduced" if all(holds) else "partly" if any(holds) else "refuted"
    share, interval = share_interval(hits["output memory"] & hits["feed-forward memory"])
    sentence = (
        f"The output memory ends at {output[:, -1].mean():.2f} after a best of {output.max(axis=1).mean():.2f}; the "
        f"feed-forward memory's divergence from the bigrams ends at {divergence[:, -1].mean():.3f} nats after a best of "
        f"{divergence.min(axis=1).mean():.3f}. Seeds in which each leaves its best: "
        f"{', '.join(f'{name} {hit.mean():.0%}' for name, hit in hits.items())}."
    )
    if evidence.scale == "quick":
        verdict, sentence = "undecided", f"{sentence} This scale stops before training is late."
    seeds = {"output memory, lost": lost, "feed-forward divergence, grown by": grown}
    curves = {name: drawn(evidence, GLOBAL, name) for name in ("output memory", "bigram memory")}
    return Outcome(verdict, share, interval, sentence, seeds, Pictures(curves=curves))
