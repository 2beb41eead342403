"""F4 and F5: what linear attention goes through while it learns facts, by rule and not by eye."""

from typing import Any, NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Int
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.studies.plot_data import Curve, Plots
from mnemoscope.tasks import Facts
from mnemoscope.training.run import Run

NEAR = 0.1  # nats, and of total variation
LEAST = 0.05  # of the training: a shorter phase is no phase
END = 0.05  # nats


class Phases(NamedTuple):
    """At which evals each seed is in which phase."""

    ignorance: Bool[np.ndarray, "seed eval"]  # every answer is as likely as another
    hallucination: Bool[np.ndarray, "seed eval"]  # the answers are p(a | r): the subject is ignored
    knowledge: Bool[np.ndarray, "seed eval"]  # the fact is answered


def _task(run: Run) -> Facts:
    if not isinstance(run.spec.task, Facts):
        raise ValueError(f"phases are those of the task 'facts', got {run.spec.task.kind_name()!r}")
    return run.spec.task


def _softmax_names(evidence: Evidence) -> list[str]:
    """The conditions of softmax attention with learned embeddings."""
    return [name for name in evidence.conditions if name.startswith("softmax/")]


def phases(run: Run) -> Phases:
    """The rule of F5. All worlds have the same floors, for the table of facts is fixed."""
    seen = {name: x[run.finished] for name, x in run.metrics.items()}
    task = _task(run)
    floor = task.losses(run.world(run.seeds[0]))
    loss = seen["loss, both"]
    relation_loss = np.abs(loss - floor["relation"]) <= NEAR
    relation_answers = seen["distance to p(a | r)"] <= NEAR
    subject_ignored = seen["loss, subject"] >= floor["nothing"] - NEAR
    return Phases(
        ignorance=np.abs(loss - floor["nothing"]) <= NEAR,
        hallucination=relation_loss & relation_answers & subject_ignored,
        knowledge=loss <= NEAR,
    )


def _passes_through(
    ignorant: Int[np.ndarray, "_"],
    hallucinating: Int[np.ndarray, "_"],
    knowing: Int[np.ndarray, "_"],
    last: int,
) -> bool:
    """Whether one seed's phases, each as the steps of its evals, come apart and in order.

    Hallucination must last for so long that it is a phase.
    """
    if not (ignorant.size and hallucinating.size and knowing.size):
        return False
    lasts = hallucinating[-1] - hallucinating[0] >= LEAST * last
    in_order = ignorant[-1] < hallucinating[0] and hallucinating[-1] < knowing[0]
    return bool(lasts and in_order)


def has_plateau(steps: Int[np.ndarray, "eval"], found: Phases) -> Bool[np.ndarray, "seed"]:
    """Which seeds hallucinate for at least 5% of training, after ignorance and before knowledge."""
    hits = [
        _passes_through(steps[ignorant], steps[hallucinating], steps[knowing], int(steps[-1]))
        for ignorant, hallucinating, knowing in zip(*found, strict=True)
    ]
    return np.array(hits, bool)


def measure_zero_loss(evidence: Evidence) -> Measurement:
    """F4: the loss over every fact at the end of training linear attention.

    A seed does it if every fact is answered, the loss is below .05 nats and it is still falling.
    """
    run = evidence.run("linear")
    loss = run.metrics["loss, both"][run.finished]
    accuracy = run.metrics["accuracy"][run.finished]
    falling = loss[:, -1] < loss[:, -2]
    parts = {
        "reaches zero": (accuracy[:, -1] == 1) & (loss[:, -1] < END) & falling,
        "final loss": loss[:, -1],
        "loss half way": loss[:, loss.shape[1] // 2],
        "accuracy": accuracy[:, -1],
    }
    return Measurement(parts, {"final loss": loss[:, -1], "accuracy": accuracy[:, -1]})


def _first_steps(
    steps: Int[np.ndarray, "eval"], where: Bool[np.ndarray, "seed eval"]
) -> np.ma.MaskedArray[Any, Any]:
    """The first step of a phase; masked for the seeds that do not have it."""
    return among(where.any(axis=1), steps[where.argmax(axis=1)])


def _last_steps(
    steps: Int[np.ndarray, "eval"], where: Bool[np.ndarray, "seed eval"]
) -> np.ma.MaskedArray[Any, Any]:
    """The last step of a phase; masked for the seeds that do not have it."""
    return among(where.any(axis=1), steps[::-1][where[:, ::-1].argmax(axis=1)])


def measure_hallucination(evidence: Evidence) -> Measurement:
    """F5: when each seed of linear attention is in ignorance, hallucination and knowledge.

    A seed does it if hallucination lasts at least 5% of training and lies between the other two.
    Softmax attention is measured by the same rule.
    """
    run = evidence.run("linear")
    steps = np.array(run.spec.eval_steps())
    found = phases(run)
    times = {
        "ignorance ends": _last_steps(steps, found.ignorance),
        "hallucination begins": _first_steps(steps, found.hallucination),
        "hallucination ends": _last_steps(steps, found.hallucination),
        "knowledge begins": _first_steps(steps, found.knowledge),
    }
    parts = {
        "hallucinates": has_plateau(steps, found),
        "nearest to p(a | r)": _nearest(run),
        **times,
    }
    for name in _softmax_names(evidence):
        softmax = evidence.run(name)
        evals = np.array(softmax.spec.eval_steps())
        parts[f"hallucinates, {name}"] = has_plateau(evals, phases(softmax))
        parts[f"nearest to p(a | r), {name}"] = _nearest(softmax)
    by_seed = {name: each.compressed() for name, each in times.items()}
    curves = _loss_curves(evidence) | _answer_curves(run, found)
    return Measurement(parts, by_seed, Plots(curves=curves))


def _nearest(run: Run) -> np.ndarray:
    """How near each seed's answers ever come to p(a | r)."""
    return run.metrics["distance to p(a | r)"][run.finished].min(axis=1)


def _loss_curves(evidence: Evidence) -> dict[str, Curve]:
    """Losses with all of the question and with parts of it, and how near p(a | r) is."""
    curves = {}
    for name in ("linear", *_softmax_names(evidence)):
        run = evidence.run(name)
        steps = np.array(run.spec.eval_steps())
        seen = {series: x[run.finished] for series, x in run.metrics.items()}
        for series in ("loss, both", "loss, relation", "loss, subject"):
            curves[f"{name}: {series}"] = Curve.over_seeds(steps, seen[series])
        distance = seen["distance to p(a | r)"]
        curves[f"distance to p(a | r): {name}"] = Curve.over_seeds(steps, distance)
    return curves


def _answer_curves(run: Run, found: Phases) -> dict[str, Curve]:
    """The distribution over answers in the middle of each phase, where a seed has the phase."""
    curves = {}
    said = run.metrics["p(a)"][run.finished]  # seed eval answer
    for phase, where in found._asdict().items():
        middle = np.array(
            [np.flatnonzero(evals)[evals.sum() // 2] for evals in where if evals.any()], int
        )
        if middle.size:
            rows = said[where.any(axis=1), middle]
            curves[f"p(a): {phase}"] = Curve.over_seeds(np.arange(rows.shape[1]), rows)
    return curves
