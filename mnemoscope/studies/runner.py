"""Running a study: train what is missing, judge what is asked, keep what was found.

A finding is kept under a key made of the claim, the Specs and seeds it rests on, and a fingerprint
of the code that measures and judges. So a second start reads everything back in seconds, and a
changed criterion is judged anew from stored runs without training again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

from mnemoscope.core.errors import parsed
from mnemoscope.core.fingerprint import PACKAGE, code_of, source_fingerprint, trained_by
from mnemoscope.core.legacy import PLOTS_FILE
from mnemoscope.execution.local import load_or_train, precompile
from mnemoscope.execution.machine import hardware, versions
from mnemoscope.store import Store
from mnemoscope.studies.claims import (
    ClaimTest,
    Condition,
    Entry,
    Finding,
    Ledger,
    Plots,
    Scale,
    Study,
)
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.folder import PARTS
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec

LIBRARY = "mnemoscope.studies.library."  # what the name of each study's modules starts with
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
    "studies/claims.py",
    "studies/evidence.py",
    "studies/bisection.py",
    "studies/statistics.py",
)

# trains somewhere else: gets the store to fill, and each condition's Spec and seeds by name
TrainElsewhere = Callable[[Store, Mapping[str, tuple[Spec, range]]], None]


@runtime_checkable
class Watcher(Protocol):
    """What a run tells whoever watches it."""

    def plan(self, conditions: Mapping[str, Condition], claims: int) -> None:
        """What is about to be trained, and how many claims judged."""
        ...

    def trained(self, name: str, done: int, total: int) -> None:
        """Steps done of a condition, summed over seeds; called last with done == total."""
        ...

    def judging(self, claim_id: str) -> None:
        """A claim is being judged."""
        ...

    def judged(self, claim_id: str, finding: Finding) -> None:
        """A claim has its verdict."""
        ...


# ---- under which key a finding is kept


def judging_fingerprint(study: Study) -> str:
    """The hash of every file of the package that can change a finding of this study.

    Programs count, and the data that they read.
    """
    modules = [_module_of(test.judge) for test in study.tests]
    folders = {name.split(".")[3] for name in modules if name.startswith(LIBRARY)}
    own = [part for folder in sorted(folders) for part in _judging_files(folder)]
    return source_fingerprint(*SHARED, *own)


def _judging_files(folder: str) -> list[str]:
    """What a study's folder has but for how it is shown and asked for."""
    place = f"studies/library/{folder}"
    return [
        f"{place}/{file.name}" for file in (PACKAGE / place).iterdir() if file.stem not in PARTS
    ]


def _module_of(judge: Callable[..., Any]) -> str:
    """The module that defines a judge, or the function inside it where arguments are bound."""
    while isinstance(judge, partial):
        judge = judge.func
    return judge.__module__ or ""


def finding_key(
    study: Study, test: ClaimTest, scale: Scale, conditions: Mapping[str, Condition], store: Store
) -> str:
    """Changes whenever anything that the finding rests on does.

    That is code, the judge's own too, claim, Specs, seeds, and which program trained them.

    Args:
        study: the study that has the test.
        test: the claim and its judge.
        scale: the scale of the conditions.
        conditions: every condition of the scale, by name.
        store: says which program trained what is stored.
    """
    parts = [
        judging_fingerprint(study),
        code_of(test.judge),
        study.name,
        scale,
        test.claim.canonical_json(),
        study.fingerprint(),
    ]
    for name in test.pick_conditions(conditions):
        condition = conditions[name]
        ours = trained_by().program()
        stored = store.blocks(condition.spec, range(condition.seeds), ours)[0]
        program = stored[0].program if stored else ours
        parts.append(f"{name}={condition.spec.digest()}:{condition.seeds}:{program}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


# ---- train, judge, write


def run_study(
    study: Study,
    scale: Scale,
    store: Store,
    command: str,
    *,
    seeds: int | None = None,
    claims: tuple[str, ...] = (),
    watcher: Watcher,
    sink: Sink | None = None,
    train_elsewhere: TrainElsewhere | None = None,
) -> Ledger:
    """Judge the chosen claims of a study and write its ledger.

    The ledger has every claim that is known at this scale. `<study>.json` is the ledger,
    `<study>.evidence.json` each seed's outcome for every claim, and `<study>.pictures.json`, where
    there are any, curves, attention maps and grids.

    Args:
        study: what is put to the test.
        scale: which of its conditions are trained.
        store: where runs, findings and ledgers are kept.
        command: what the user typed, for the ledger.
        seeds: how many seeds of each condition; the study's own numbers if None.
        claims: the ids of the claims to judge; all if none are given.
        watcher: is told what happens.
        sink: follows what is trained, step by step.
        train_elsewhere: gets all conditions at once and fills the store
            (`mnemoscope.execution.cluster`); what it leaves is trained here.
    """
    conditions = study.conditions(scale)
    if seeds is not None:
        conditions = {
            name: Condition(condition.spec, seeds) for name, condition in conditions.items()
        }
    tests = study.pick(claims)
    keys = {
        test.claim.id: finding_key(study, test, scale, conditions, store) for test in study.tests
    }
    findings = _stored_findings(store, keys)
    open_tests = [test for test in tests if test.claim.id not in findings]
    needed = _needed(open_tests, conditions)
    watcher.plan(needed, len(open_tests))

    def run_of(name: str) -> Run:
        return _load_or_train(store, conditions[name], name, f"{study.name}/{name}", watcher, sink)

    evidence = Evidence(scale, conditions, run_of)
    if train_elsewhere:
        train_elsewhere(store, {name: (x.spec, range(x.seeds)) for name, x in needed.items()})
    _train(store, needed, evidence)
    for test in open_tests:
        claim_id = test.claim.id
        watcher.judging(claim_id)
        findings[claim_id] = _judge(store, keys[claim_id], test, evidence)
        watcher.judged(claim_id, findings[claim_id])
    return _write(store, study, scale, command, findings)


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


def _load_or_train(
    store: Store, condition: Condition, name: str, title: str, watcher: Watcher, sink: Sink | None
) -> Run:
    """Train a condition or read it from the store, and tell the watcher how far it is."""

    def progress(done: int, total: int) -> None:
        # one more than there is, so that done == total is told once, by the call below
        watcher.trained(name, done, total + 1)

    run = load_or_train(store, condition.spec, range(condition.seeds), progress, sink, title)
    total = condition.seeds * condition.spec.steps
    watcher.trained(name, total, total)
    return run


def _train(store: Store, needed: Mapping[str, Condition], evidence: Evidence) -> None:
    """Train what is missing; while one condition trains, the next is compiled."""
    names = list(needed)
    for i, name in enumerate(names):
        if i + 1 < len(names):
            following = needed[names[i + 1]]
            precompile(store, following.spec, range(following.seeds))
        evidence.run(name)


def _judge(store: Store, key: str, test: ClaimTest, evidence: Evidence) -> Finding:
    """A test's finding, kept in the store."""
    with store.lock(key):  # of several processes one judges, and the others read what it found
        body = store.finding(key)
        if body is not None:
            return Finding.model_validate(body)
        finding = evidence.finding(test.pick_conditions(evidence.conditions), test.judge)
        store.keep_finding(key, finding.model_dump(mode="json"))
        return finding


# ---- the ledger and what lies beside it


def _write(
    store: Store, study: Study, scale: Scale, command: str, findings: Mapping[str, Finding]
) -> Ledger:
    """Write the ledger and the files beside it, unless nothing in them is new."""
    with store.lock(f"ledger/{scale}/{study.name}"):
        previous = read_ledger(store, study.name, scale)
        ledger = _ledger(study, scale, command, findings, previous)
        files = _files_beside(store, study, scale, findings)
        changed = {name: text for name, text in files.items() if store.read_text(name) != text}
        if previous is not None and not changed and previous.claims == ledger.claims:
            return previous
        # the ledger comes last: a run that is cut off before it is not taken for finished
        for name, text in changed.items():
            store.write_text(name, text)
        text = ledger.model_dump_json(indent=1) + "\n"
        store.write_text(f"ledger/{scale}/{study.name}.json", text)
    return ledger


def _files_beside(
    store: Store, study: Study, scale: Scale, findings: Mapping[str, Finding]
) -> dict[str, str]:
    """The texts of the evidence and, where there are any, of the plots, by file name."""
    by_seed = _read_beside(store, study, scale, "evidence")
    plots = _read_beside(store, study, scale, PLOTS_FILE)
    for claim_id, finding in findings.items():
        by_seed[claim_id] = finding.by_seed
        if finding.plots != Plots():
            plots[claim_id] = finding.plots.model_dump(mode="json")
    start = f"ledger/{scale}/{study.name}"
    files = {f"{start}.evidence.json": json.dumps(by_seed, indent=1) + "\n"}
    if plots:
        files[f"{start}.{PLOTS_FILE}.json"] = json.dumps(plots) + "\n"
    return files


def _read_beside(store: Store, study: Study, scale: Scale, part: str) -> dict[str, Any]:
    """What an earlier run wrote beside the ledger, by claim."""
    text = store.read_text(f"ledger/{scale}/{study.name}.{part}.json")
    return {} if text is None else parsed(text, f"the {part} of {study.name}")


def read_ledger(store: Store, study: str, scale: Scale) -> Ledger | None:
    """The ledger that an earlier run of this study wrote, if there is one.

    Args:
        store: where it is kept.
        study: the study's name.
        scale: the scale of the ledger.
    """
    text = store.read_text(f"ledger/{scale}/{study}.json")
    return None if text is None else Ledger.model_validate_json(text)


def _ledger(
    study: Study,
    scale: Scale,
    command: str,
    findings: Mapping[str, Finding],
    previous: Ledger | None,
) -> Ledger:
    """The previous ledger with these findings in their places, in the study's order."""
    entries = {entry.id: entry for entry in previous.claims} if previous else {}
    for test in study.tests:
        finding = findings.get(test.claim.id)
        if finding:
            measured = finding.model_dump(exclude={"by_seed", "plots"})
            entries[test.claim.id] = Entry(**test.claim.model_dump(), **measured)
    known = [test.claim.id for test in study.tests if test.claim.id in entries]
    return Ledger(
        study=study.name,
        scale=scale,
        command=command,
        hardware=hardware(),
        versions=versions(),
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        claims=tuple(entries[claim_id] for claim_id in known),
    )
