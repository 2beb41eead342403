"""Train what a study needs, measure its claims, write the ledger.

    conditions -> trained runs -> evidence -> measurements -> records -> ledger

Runs and findings are kept in the store. A finding's key holds everything that it rests on, so a
study that is run again measures only what changed; a criterion that changed is judged anew from
what was measured, without measuring or training again.
"""

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from mnemoscope.core.code_identity import code_of
from mnemoscope.core.fingerprint import (
    PACKAGE,
    files_fingerprint,
    source_fingerprint,
    trained_by,
)
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.strict import Strict
from mnemoscope.execution.local import load_or_train, precompile
from mnemoscope.execution.machine import hardware, versions
from mnemoscope.store import Store
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.folder import judging_files, path_of
from mnemoscope.studies.ledger_files import write_ledger
from mnemoscope.studies.measurement import (
    InconclusiveError,
    Measurement,
    record_parts,
    require_measurement,
)
from mnemoscope.studies.plot_data import Plots
from mnemoscope.studies.presentation import require_presentable
from mnemoscope.studies.scales import Scale
from mnemoscope.studies.study import ClaimTest, Condition, Study, with_seeds
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.ledger import Entry, Ledger, make_entry
from mnemoscope.verdicts.looks import MAX_LOOKS
from mnemoscope.verdicts.record import Plan, Provenance, Record

# what a finding of any study may depend on; each study adds its own folder
SHARED = (
    "core/axes.py",
    "core/strict.py",
    "core/numerics.py",
    "core/seeds.py",
    "core/xla.py",
    "tasks",
    "models",
    "probes",
    "training",
    "theory",
    "studies/evidence.py",
    "studies/measurement.py",
    "studies/bisection.py",
)

FIXED = Plan()

# trains somewhere else: gets the store to fill, and each condition's Spec and seeds by name
TrainElsewhere = Callable[[Store, Mapping[str, tuple[Spec, range]]], None]


@runtime_checkable
class Watcher(Protocol):
    """What a run tells whoever watches it."""

    def plan(self, conditions: Mapping[str, Condition], claims: int) -> None:
        """What is about to be trained, and how many claims measured."""
        ...

    def trained(self, name: str, done: int, total: int) -> None:
        """Steps done of a condition, summed over seeds; called last with done == total."""
        ...

    def judging(self, claim_id: str) -> None:
        """A claim is being measured."""
        ...

    def judged(self, entry: Entry) -> None:
        """A claim has its verdict."""
        ...


class Finding(Strict):
    """What is kept of the measurement of one claim."""

    record: Record
    """Every number that its verdict rests on."""
    plots: Plots = Plots()
    """What there is to draw."""


class _Job(NamedTuple):
    """One run of a study."""

    study: Study
    scale: Scale
    store: Store
    command: str
    watcher: Watcher
    sink: Sink | None
    train_elsewhere: TrainElsewhere | None


# ---- under which key a finding is kept


def judging_fingerprint(study: Study) -> str:
    """The hash of every file that can change a finding of this study.

    Those of the package on which any study rests, and all of the study's own folder: programs, and
    the data that they read. Criteria do not count, for they change no measurement.
    """
    shared = source_fingerprint(*SHARED)
    if study.package is None:
        return shared
    folder = path_of(study.package)
    return f"{shared} {files_fingerprint(folder, judging_files(folder))}"


def finding_key(
    study: Study,
    test: ClaimTest,
    scale: Scale,
    conditions: Mapping[str, Condition],
    store: Store,
    plan: Plan = FIXED,
) -> str:
    """Changes whenever anything that the measurement rests on does.

    That is code, the measuring function's own too, the parts that it must measure, Specs, seeds,
    and which program trained them.

    Args:
        study: the study that has the test.
        test: the claim and its function.
        scale: the scale of the conditions.
        conditions: every condition of the scale, by name.
        store: says which program trained what is stored.
        plan: how the number of seeds is chosen.
    """
    parts = [
        judging_fingerprint(study),
        code_of(test.measure),
        study.name,
        scale,
        test.claim.id,
        *(f"{part.name}:{part.kind}" for part in test.claim.parts),
        *test.claim.readings,
        study.fingerprint(),
        plan.canonical_json(),
    ]
    for name in test.pick_conditions(conditions):
        condition = conditions[name]
        ours = trained_by().program()
        stored = store.blocks(condition.spec, condition.seed_range, ours)[0]
        program = stored[0].program if stored else ours
        parts.append(f"{name}={condition.spec.digest()}:{condition.seed_range}:{program}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# ---- train, measure, write


def run_study(
    study: Study,
    scale: Scale,
    store: Store,
    command: str,
    *,
    seeds: int | None = None,
    claims: tuple[str, ...] = (),
    until_decided: int | None = None,
    keep_weights: bool = True,
    watcher: Watcher,
    sink: Sink | None = None,
    train_elsewhere: TrainElsewhere | None = None,
) -> Ledger:
    """Measure the chosen claims of a study, judge them and write the ledger.

    The ledger has every claim that is known at this scale.

    Args:
        study: what is put to the test.
        scale: which of its conditions are trained.
        store: where runs, findings and ledgers are kept.
        command: what the user typed, for the ledger.
        seeds: how many seeds of each condition; the study's own numbers if None.
        claims: the ids of the claims to judge; all if none are given.
        until_decided: double the seeds of what is undecided, up to so many; None leaves the number
            that was chosen before.
        keep_weights: whether runs that are trained now stay in the store when all is measured.
        watcher: is told what happens.
        sink: follows what is trained, step by step.
        train_elsewhere: gets all conditions at once and fills the store
            (`mnemoscope.execution.cluster`); what it leaves is trained here.
    """
    job = _Job(study, scale, store, command, watcher, sink, train_elsewhere)
    require_presentable(study)
    conditions = study.list_conditions(scale)
    if seeds is not None:
        conditions = with_seeds(conditions, seeds)
    known = {row.id for row in store.rows()}
    if until_decided is None:
        ledger = _look(job, study.pick(claims), conditions, FIXED)
    else:
        ledger = _look_until_decided(job, study.pick(claims), conditions, until_decided)
    if not keep_weights:
        _delete_new_runs(store, conditions, known)
    return ledger


def _delete_new_runs(
    store: Store, conditions: Mapping[str, Condition], known: Collection[str]
) -> None:
    """Delete the runs of a study that were not in the store before."""
    digests = {condition.spec.digest() for condition in conditions.values()}
    for row in store.rows():
        if row.id not in known and row.spec in digests:
            store.delete(row)


def _look_until_decided(
    job: _Job,
    tests: tuple[ClaimTest, ...],
    conditions: Mapping[str, Condition],
    most_seeds: int,
) -> Ledger:
    """Look, and look again with twice the seeds at what is still undecided."""
    n_seeds = max((each.seeds for each in conditions.values()), default=0)
    looks = 1
    while True:
        plan = Plan(kind="until decided", looks=looks)
        ledger = _look(job, tests, conditions, plan)
        undecided = {each.id for each in ledger.claims if each.verdict == "undecided"}
        tests = tuple(test for test in tests if test.claim.id in undecided and test.needs)
        if not tests or looks == MAX_LOOKS or n_seeds >= most_seeds:
            return ledger
        looks += 1
        n_seeds = min(2 * n_seeds, most_seeds)
        conditions = {
            name: Condition(each.spec, min(2 * each.seeds, most_seeds), each.first_seed)
            for name, each in conditions.items()
        }


def _look(
    job: _Job, tests: tuple[ClaimTest, ...], conditions: Mapping[str, Condition], plan: Plan
) -> Ledger:
    """Train, measure and judge once, and write the ledger."""
    keys = {
        test.claim.id: finding_key(job.study, test, job.scale, conditions, job.store, plan)
        for test in job.study.tests
    }
    findings = _stored_findings(job.store, keys)
    open_tests = [test for test in tests if test.claim.id not in findings]
    needed = _needed(open_tests, conditions)
    job.watcher.plan(needed, len(open_tests))
    runs = _train(job, needed)
    evidence = Evidence(job.scale, conditions, runs.__getitem__)
    for test in open_tests:
        claim_id = test.claim.id
        job.watcher.judging(claim_id)
        findings[claim_id] = _measure(job, keys[claim_id], test, evidence, plan)
        job.watcher.judged(make_entry(test.claim, findings[claim_id].record))
    return write_ledger(
        job.store,
        job.study.name,
        job.scale,
        job.command,
        {test.claim.id: test.claim for test in job.study.tests},
        {name: finding.record for name, finding in findings.items()},
        {name: finding.plots for name, finding in findings.items()},
    )


def _stored_findings(store: Store, keys: Mapping[str, str]) -> dict[str, Finding]:
    """What the store knows already, by claim."""
    bodies = {claim_id: store.finding(key) for claim_id, key in keys.items()}
    return {
        claim_id: Finding.model_validate(body)
        for claim_id, body in bodies.items()
        if body is not None
    }


def _needed(
    tests: Iterable[ClaimTest], conditions: Mapping[str, Condition]
) -> dict[str, Condition]:
    """The conditions that any of these tests needs, in the study's order."""
    wanted = {name for test in tests for name in test.pick_conditions(conditions)}
    return {name: condition for name, condition in conditions.items() if name in wanted}


def _train(job: _Job, needed: Mapping[str, Condition]) -> dict[str, Run]:
    """The runs of these conditions, trained or read from the store.

    While one condition trains, the next is compiled.
    """
    if job.train_elsewhere:
        wanted = {name: (each.spec, each.seed_range) for name, each in needed.items()}
        job.train_elsewhere(job.store, wanted)
    names = list(needed)
    runs: dict[str, Run] = {}
    for i, name in enumerate(names):
        if i + 1 < len(names):
            following = needed[names[i + 1]]
            precompile(job.store, following.spec, following.seed_range)
        runs[name] = _load_or_train(job, needed[name], name)
    return runs


def _load_or_train(job: _Job, condition: Condition, name: str) -> Run:
    """Train a condition or read it from the store, and tell the watcher how far it is."""

    def progress(done: int, total: int) -> None:
        # one more than there is, so that done == total is told once, by the call below
        job.watcher.trained(name, done, total + 1)

    title = f"{job.study.name}/{name}"
    run = load_or_train(job.store, condition.spec, condition.seed_range, progress, job.sink, title)
    total = condition.seeds * condition.spec.steps
    job.watcher.trained(name, total, total)
    return run


def _measure(job: _Job, key: str, test: ClaimTest, evidence: Evidence, plan: Plan) -> Finding:
    """What a test measures, kept in the store."""
    with job.store.lock(
        key
    ):  # of several processes one measures, and the others read what it found
        body = job.store.finding(key)
        if body is not None:
            return Finding.model_validate(body)
        provenance = Provenance(
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            command=job.command,
            hardware=hardware(),
            versions=versions(),
            code=hashlib.sha256(
                f"{judging_fingerprint(job.study)} {code_of(test.measure)}".encode()
            ).hexdigest()[:16],
            criterion=test.claim.criterion_hash(),
            commit=commit(),
        )
        finding = measure_claim(test, evidence, provenance, plan)
        job.store.keep_finding(key, finding.model_dump(mode="json"))
        return finding


@fixed_numerics()
def measure_claim(
    test: ClaimTest, evidence: Evidence, provenance: Provenance, plan: Plan = FIXED
) -> Finding:
    """The record of one claim on this evidence.

    Args:
        test: the claim and the function that measures it.
        evidence: the trained conditions.
        provenance: when, where and with what.
        plan: how the number of seeds was chosen.
    """
    names = test.pick_conditions(evidence.conditions)
    why_not = ""
    try:
        measurement = test.measure(evidence)
        require_measurement(test.claim, measurement)
    except InconclusiveError as why:
        why_not = str(why)
        measurement = Measurement({})
    record = Record(
        parts=record_parts(test.claim, measurement),
        conditions=evidence.trained(names),
        plan=plan,
        short_training=evidence.scale == "quick",
        why_not=why_not,
        note=f"{measurement.note} {evidence.note(names)}".strip(),
        provenance=provenance,
        by_seed={name: six_digits(values) for name, values in measurement.by_seed.items()},
    )
    return Finding(record=record, plots=measurement.plots)


def six_digits(values: Any) -> tuple[float, ...]:
    """What a figure shows of every unit; not a number where a unit has none.

    Args:
        values: by unit; masked where there is none.
    """
    array = np.ma.filled(np.ma.asarray(values, float), np.nan)
    return tuple(float(f"{x:.6g}") for x in array)


def commit() -> str:
    """The commit of the clone that this package is part of; empty where that is not known."""
    git = PACKAGE.parent / ".git"
    try:
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if head.startswith("ref: "):
            head = (git / head.removeprefix("ref: ")).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return head
