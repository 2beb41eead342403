"""B9-B12 and B18: what the data decides.

Which bigrams come first, which triggers are easy, which outputs generalize, what comes late.
"""

from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.threshold_steps import first_fall, first_reach
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.birth.conditions import (
    ALL,
    BIGRAM,
    GLOBAL,
    GLOBAL_RANDOM,
    GLOBAL_RARE,
    OTHER,
    RELU,
    SINGLE,
)
from mnemoscope.studies.library.birth.curves import (
    OUTPUT_MEMORY,
    SECOND,
    BySeed,
    curve,
    drawn,
    in_reading,
    not_by_luck,
    of_seeds,
    require_trained,
    trained_readings,
    up_to_end,
)
from mnemoscope.studies.library.birth.sample import sampled, task_of
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Plots
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import by_role

GLOBAL_READINGS = (OTHER, RELU)
TRIGGERS = {"frequent": GLOBAL, "rarer": GLOBAL_RARE, "random": GLOBAL_RANDOM}
HALF = 0.5  # of a memory, above chance
LOST = 0.05  # of the output memory's recall
GROWN = 0.1  # of the feed-forward memory's divergence


def _exact_global_loss(task: Bigrams) -> float:
    """What the exact posterior costs after tokens that are no triggers, in nats, on the sample.

    It knows fixed triggers: after another token it pays for the bigram, and where the context knows
    it pays nothing at all.
    """
    tokens = np.asarray(sampled(task)[0])
    before = tokens[:, :-1]
    after = tokens[:, 1:]
    not_trigger = ~np.isin(before, task.fixed_triggers)
    return float(-np.log(task.text.bigrams[before, after][not_trigger]).mean())


def _steps_to_half_loss(
    evidence: Evidence, name: str, series: str, best: float, until: int | None = None
) -> BySeed:
    """The step at which each seed's loss is half way from its start to the best there is.

    Args:
        evidence: the trained conditions.
        name: the condition.
        series: the loss.
        best: the lowest that it can be.
        until: the last step that counts; None: the end.
    """
    steps, values = _until(*curve(evidence, name, series), until)
    return of_seeds(evidence, name, first_fall(steps, values, (values[:, 0] + best) / 2))


def _until(
    steps: np.ndarray, values: np.ndarray, last: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """A curve up to a step."""
    kept = slice(None) if last is None else steps <= last
    return steps[kept], values[:, kept]


def measure_global_first(evidence: Evidence) -> Measurement:
    """B9: the steps until half of the global and of the in-context bigrams is learned."""
    exact = _exact_global_loss(task_of(evidence, GLOBAL))

    def halves(name: str) -> tuple[BySeed, BySeed]:
        return (
            _steps_to_half_loss(evidence, name, "global loss", exact),
            _steps_to_half_loss(evidence, name, "context loss", 0.0),
        )

    times = {
        reading: halves(in_reading(GLOBAL, reading))
        for reading in trained_readings(evidence, [GLOBAL], GLOBAL_READINGS)
    }
    global_steps, context_steps = times["plain"]
    ends = {
        name: of_seeds(evidence, GLOBAL, curve(evidence, GLOBAL, f"{name} loss")[1][:, -1])
        for name in ("global", "context")
    }
    parts = {
        "global first": {reading: one < other for reading, (one, other) in times.items()},
        "global, half": global_steps,
        "in context, half": context_steps,
        "global loss at the end": ends["global"],
        "in-context loss at the end": ends["context"],
        "exact posterior": exact,
    }
    by_seed = {
        "global": up_to_end(evidence, GLOBAL, global_steps),
        "in context": up_to_end(evidence, GLOBAL, context_steps),
    }
    curves = {
        name: drawn(evidence, GLOBAL, f"{name} loss") for name in ("global", "context", "first")
    }
    return Measurement(parts, by_seed, Plots(curves=curves))


def _common_end(evidence: Evidence) -> int:
    """The last step that all kinds of triggers are trained for."""
    return min(evidence.run(name).spec.steps for name in TRIGGERS.values())


def measure_triggers(evidence: Evidence) -> Measurement:
    """B10: the steps until half of the loss where the context knows is gone, by kind of
    triggers."""
    require_trained(evidence, GLOBAL_RARE)
    last = _common_end(evidence)
    times = {
        reading: {
            title: _steps_to_half_loss(
                evidence, in_reading(name, reading), "context loss", 0.0, last
            )
            for title, name in TRIGGERS.items()
        }
        for reading in trained_readings(evidence, TRIGGERS.values(), (SINGLE,))
    }
    parts: dict[str, Any] = {
        f"before {title}": {
            reading: each["frequent"] < each[title] for reading, each in times.items()
        }
        for title in ("rarer", "random")
    }
    parts |= {f"steps, {title}": each for title, each in times["plain"].items()}
    by_seed = {
        title: np.minimum(each.compressed(), float(last)) for title, each in times["plain"].items()
    }
    curves = {title: drawn(evidence, name, "context loss") for title, name in TRIGGERS.items()}
    return Measurement(parts, by_seed, Plots(curves=curves))


def measure_delays(evidence: Evidence) -> Measurement:
    """B18: how many steps later than with frequent triggers each memory is half formed."""
    require_trained(evidence, GLOBAL_RARE)
    last = _common_end(evidence)

    def half_formed(title: str, series: str) -> BySeed:
        name = TRIGGERS[title]
        steps, values = _until(*curve(evidence, name, series), last)
        return of_seeds(evidence, name, first_reach(steps, values, HALF))

    times = {
        (title, series): half_formed(title, series)
        for title in TRIGGERS
        for series in (OUTPUT_MEMORY, SECOND)
    }

    def delay(title: str, series: str) -> BySeed:
        # what is never formed with frequent triggers cannot be formed later than that
        usual = times["frequent", series]
        known = np.ma.masked_where(~np.isfinite(np.ma.filled(usual, np.inf)), usual)
        return times[title, series] - known

    rarer = {series: delay("rarer", series) for series in (OUTPUT_MEMORY, SECOND)}
    random = {series: delay("random", series) for series in (OUTPUT_MEMORY, SECOND)}
    usual_no_luck = not_by_luck(evidence, GLOBAL)
    rarer_no_luck = usual_no_luck & not_by_luck(evidence, GLOBAL_RARE)
    parts: dict[str, Any] = {
        "rarer: the output memory": _where(rarer_no_luck, rarer[OUTPUT_MEMORY] > rarer[SECOND]),
        "random: second keys": _where(usual_no_luck, random[SECOND] > random[OUTPUT_MEMORY]),
    }
    parts |= {f"steps, {title}, {series}": each for (title, series), each in times.items()}
    by_seed = {
        f"{title}: {series}": np.minimum(each.compressed(), float(last))
        for (title, series), each in times.items()
    }
    curves = {
        f"{title}: {series}": drawn(evidence, name, series)
        for title, name in TRIGGERS.items()
        for series in (OUTPUT_MEMORY, SECOND)
    }
    return Measurement(parts, by_seed, Plots(curves=curves))


def _where(chosen: np.ndarray, values: BySeed) -> BySeed:
    """Values of the chosen seeds; those of others, and those that were masked, are masked."""
    return np.ma.masked_where(~chosen, values)


def crossed(task: Bigrams, model: Transformer, _: Any) -> dict[str, Array]:
    """Accuracy with outputs drawn either way.

    Args:
        task: the text that the model was trained on.
        model: the model of one seed.
        _: the seed's world, of which bigram text has none.
    """
    accuracy: dict[str, Array] = {}
    for kind in ("uniform", "bigram"):
        other = task.model_copy(update={"outputs": kind})
        accuracy[kind] = by_role(other, model, *sampled(other))["accuracy"]
    return accuracy


def measure_outputs(evidence: Evidence) -> Measurement:
    """B11: accuracy on the other kind of outputs, trained on uniform minus on bigram ones."""

    def gain(reading: str) -> BySeed:
        uniform = in_reading(ALL, reading)
        bigram = in_reading(BIGRAM, reading)
        one = of_seeds(evidence, uniform, evidence.measure(uniform, crossed)["bigram"])
        other = of_seeds(evidence, bigram, evidence.measure(bigram, crossed)["uniform"])
        return one - other

    uniform = evidence.measure(ALL, crossed)
    bigram = evidence.measure(BIGRAM, crossed)
    by_seed = {
        "trained uniform, tested uniform": uniform["uniform"],
        "trained uniform, tested bigram": uniform["bigram"],
        "trained bigram, tested bigram": bigram["bigram"],
        "trained bigram, tested uniform": bigram["uniform"],
    }
    gains = {reading: gain(reading) for reading in trained_readings(evidence, [ALL, BIGRAM])}
    return Measurement({"gain": gains, **by_seed}, by_seed)


def measure_competition(evidence: Evidence) -> Measurement:
    """B12: how far the output and the feed-forward memory end from their best point in training."""

    def losses(name: str) -> tuple[BySeed, BySeed]:
        output = curve(evidence, name, OUTPUT_MEMORY)[1]
        divergence = curve(evidence, name, "bigram memory")[1]
        lost = output.max(axis=1) - output[:, -1]
        grown = divergence[:, -1] / divergence.min(axis=1) - 1
        return of_seeds(evidence, name, lost), of_seeds(evidence, name, grown)

    found = {
        reading: losses(in_reading(GLOBAL, reading))
        for reading in trained_readings(evidence, [GLOBAL], GLOBAL_READINGS)
    }
    lost, grown = found["plain"]
    parts = {
        # six digits: a recall that falls from .65 to .60 has lost .05
        "output memory": {
            reading: np.round(each, 6) >= LOST for reading, (each, _) in found.items()
        },
        "feed-forward memory": {reading: each >= GROWN for reading, (_, each) in found.items()},
        "lost": lost,
        "grown": grown,
    }
    by_seed = {
        "output memory, lost": lost.compressed(),
        "feed-forward divergence, grown by": grown.compressed(),
    }
    curves = {name: drawn(evidence, GLOBAL, name) for name in (OUTPUT_MEMORY, "bigram memory")}
    return Measurement(parts, by_seed, Plots(curves=curves))
