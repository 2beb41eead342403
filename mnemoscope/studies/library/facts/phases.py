"""F4 and F5: what linear attention goes through while it learns facts, by rule and not by eye."""

from typing import NamedTuple

import numpy as np

from mnemoscope.core.axes import Bool, Int
from mnemoscope.studies.claims import Curve, Outcome, Pictures
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.statistics import mean_interval, share_interval, share_verdict
from mnemoscope.tasks import Facts
from mnemoscope.training.run import Run

NEAR = 0.1  # nats, and of total variation
LEAST = 0.05  # of the training: a shorter phase is no phase
END = 0.05  # nats


class Phases(NamedTuple):
    """At which looks each seed is in which phase."""

    ignorance: Bool[np.ndarray, "seed look"]
    hallucination: Bool[np.ndarray, "seed look"]
    knowledge: Bool[np.ndarray, "seed look"]


def _task(run: Run) -> Facts:
    if not isinstance(run.spec.task, Facts):
        raise ValueError(f"phases are those of the task 'facts', got {run.spec.task.kind!r}")
    return run.spec.task


def phases(run: Run) -> Phases:
    """The rule of F5. All worlds have the same floors, for the table of facts is fixed."""
    seen = {name: x[run.finished] for name, x in run.observed.items()}
    task = _task(run)
    floor = task.losses(run.world(run.seeds[0]))
    loss = seen["loss, both"]
    return Phases(
        ignorance=np.abs(loss - floor["nothing"]) <= NEAR,
        hallucination=(np.abs(loss - floor["relation"]) <= NEAR)
        & (seen["distance to p(a | r)"] <= NEAR)
        & (seen["loss, subject"] >= floor["nothing"] - NEAR),
        knowledge=loss <= NEAR,
    )


def has_plateau(steps: Int[np.ndarray, "look"], found: Phases) -> Bool[np.ndarray, "seed"]:
    """Which seeds hallucinate for at least 5% of training, after ignorance and before knowledge."""
    hits = []
    for ignorant, wrong, knows in zip(*found, strict=True):
        at = steps[wrong]
        long = at.size > 0 and at[-1] - at[0] >= LEAST * steps[-1]
        hits.append(
            long
            and steps[ignorant].size
            and steps[knows].size
            and steps[ignorant][-1] < at[0]
            and at[-1] < steps[knows][0]
        )
    return np.array(hits, bool)


def zero_loss(evidence: Evidence) -> Outcome:
    """F4."""
    run = evidence.run("linear")
    loss, right = (run.observed[name][run.finished] for name in ("loss, both", "right"))
    half = loss.shape[1] // 2
    verdict, share, interval = share_verdict((right[:, -1] == 1) & (loss[:, -1] < END) & (loss[:, -1] < loss[:, -2]))
    mean, (low, high) = mean_interval(loss[:, -1])
    sentence = (
        f"After {run.spec.steps:,} steps the loss over every fact is {mean:.4f} [{low:.4f}, {high:.4f}] (half way "
        f"{loss[:, half].mean():.2f}) and {right[:, -1].mean():.1%} of the facts are answered right."
    )
    seeds = {"final loss": loss[:, -1], "right": right[:, -1]}
    return Outcome(verdict, share, interval, sentence, seeds)


def _span(steps: np.ndarray, where: Bool[np.ndarray, "seed look"], end: int) -> np.ndarray:
    """The first (0) or last (-1) step of a phase, for the seeds that have it."""
    return np.array([steps[each][end] for each in where if each.any()], float)


def _nearest(run: Run) -> np.ndarray:
    """How near each seed's answers ever come to p(a | r)."""
    return run.observed["distance to p(a | r)"][run.finished].min(axis=1)


def _typical(x: np.ndarray) -> str:
    return f"{np.median(x):,.0f}" if x.size else "never"


def hallucination(evidence: Evidence) -> Outcome:
    """F5."""
    run = evidence.run("linear")
    steps, found = np.array(run.spec.look_steps()), phases(run)
    hits = has_plateau(steps, found)
    verdict, share, interval = share_verdict(hits)
    times = {
        "ignorance ends": _span(steps, found.ignorance, -1), "hallucination begins": _span(steps, found.hallucination, 0),
        "hallucination ends": _span(steps, found.hallucination, -1), "knowledge begins": _span(steps, found.knowledge, 0),
    }  # fmt: skip
    said = ", ".join(f"{name} at {_typical(x)}" for name, x in times.items())
    others = []
    for name in evidence.settings:
        if name.startswith("softmax/"):
            other = evidence.run(name)
            there = has_plateau(np.array(other.spec.look_steps()), phases(other))
            near, learned = _nearest(other), other.observed["right"][other.finished][:, -1]
            others.append(
                f"{name.split('/')[1]} {share_interval(there)[0]:.0%} of seeds (nearest to p(a | r) {near.mean():.2f}, "
                f"{learned.mean():.1%} right at the end)"
            )
    sentence = (
        f"{share:.0%} of seeds pass through ignorance, hallucination and knowledge: {said} (median steps; published 1,500, 2,000, "
        f"4,000, 5,500), and come as near as {_nearest(run).mean():.2f} to p(a | r). Softmax attention with learned embeddings has "
        f"such a phase in: {'; '.join(others)}."
    )
    return Outcome(verdict, share, interval, sentence, times, _pictures(evidence, run, steps, found))


def _pictures(evidence: Evidence, run: Run, steps: np.ndarray, found: Phases) -> Pictures:
    curves = {}
    for name in ("linear", *(n for n in evidence.settings if n.startswith("softmax/"))):
        each = evidence.run(name)
        at, seen = np.array(each.spec.look_steps()), {k: v[each.finished] for k, v in each.observed.items()}
        for what in ("loss, both", "loss, relation", "loss, subject"):
            curves[f"{name}: {what}"] = Curve.over_seeds(at, seen[what])
        curves[f"distance to p(a | r): {name}"] = Curve.over_seeds(at, seen["distance to p(a | r)"])
    said = run.observed["p(a)"][run.finished]  # seed look answer
    for phase, where in found._asdict().items():
        middle = np.array([np.flatnonzero(w)[w.sum() // 2] for w in where if w.any()], int)
        if middle.size:
            rows = said[where.any(axis=1), middle]
            curves[f"p(a): {phase}"] = Curve.over_seeds(np.arange(rows.shape[1]), rows)
    return Pictures(curves=curves)
