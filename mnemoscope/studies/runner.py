"""Running a study: train what is missing, judge what is asked, keep what was found.

A finding is kept under a key made of the claim, the Specs and seeds it rests on, and a fingerprint of the code that
measures and judges. So a second start reads everything back in seconds, and a changed criterion is judged anew from
stored runs without training again.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Protocol, runtime_checkable

from mnemoscope.core.errors import parsed
from mnemoscope.core.fingerprint import code_of, source_fingerprint, trained_by
from mnemoscope.execution.local import hardware, obtain, prepare, versions
from mnemoscope.store import Store
from mnemoscope.studies.claims import Entry, Finding, Ledger, Pictures, Scale, Setting, Study, Test
from mnemoscope.studies.evidence import Evidence
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec

# what every study's findings rest on; a study's own folder comes on top
LIBRARY = "mnemoscope.studies.library."
# what a finding of any study may depend on; each study adds its own folder
SHARED = (
    "core/axes.py",
    "core/config.py",
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
    "studies/search.py",
    "studies/statistics.py",
)


@runtime_checkable
class Watcher(Protocol):
    """What a run tells whoever watches it."""

    def plan(self, settings: Mapping[str, Setting], claims: int) -> None:
        """What is about to be trained, and how many claims judged."""
        ...

    def trained(self, name: str, done: int, total: int) -> None:
        """Steps done of a setting, summed over seeds; called last with done == total."""
        ...

    def judging(self, claim_id: str) -> None:
        """A claim is being judged."""
        ...

    def judged(self, claim_id: str, finding: Finding) -> None:
        """A claim has its verdict."""
        ...


def judging_fingerprint(study: Study) -> str:
    """The hash of every file of the package that can change a finding of this study: programs and what they read."""
    own = {name.split(".")[3] for test in study.tests if (name := _module_of(test.judge)).startswith(LIBRARY)}
    return source_fingerprint(*SHARED, *sorted(f"studies/library/{folder}" for folder in own))


def _module_of(judge: Callable[..., Any]) -> str:
    while isinstance(judge, partial):
        judge = judge.func
    return judge.__module__ or ""


def finding_key(study: Study, test: Test, scale: Scale, settings: Mapping[str, Setting], store: Store) -> str:
    """Changes whenever anything that the finding rests on does: code, the judge's own too, claim, Specs, seeds, and which
    program trained them."""
    parts = [judging_fingerprint(study), code_of(test.judge), study.name, scale, test.claim.canonical_json()]
    parts += [study.rests_on()]
    for name in test.settings(settings):
        spec, seeds = settings[name].spec, settings[name].seeds
        ours = trained_by().program()
        stored = store.blocks(spec, range(seeds), ours)[0]
        parts += [f"{name}={spec.digest()}:{seeds}:{stored[0].program if stored else ours}"]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def run_study(
    study: Study, scale: Scale, store: Store, command: str, *, seeds: int | None = None, claims: tuple[str, ...] = (),
    watcher: Watcher, sink: Sink | None = None,
    train_elsewhere: Callable[[Store, Mapping[str, tuple[Spec, range]]], None] | None = None,
) -> Ledger:  # fmt: skip
    """Judge the chosen claims of a study and write its ledger, with every claim that is known at this scale.

    `train_elsewhere` gets all settings at once and fills the store (`mnemoscope.execution.cluster`); what it leaves is
    trained here.

    `<study>.json` is the ledger, `<study>.evidence.json` each seed's outcome for every claim, and `<study>.pictures.json`,
    where there are any, curves, attention maps and grids.
    """
    settings = study.settings(scale)
    if seeds is not None:
        settings = {name: Setting(setting.spec, seeds) for name, setting in settings.items()}
    tests = study.pick(claims)
    keys = {test.claim.id: finding_key(study, test, scale, settings, store) for test in study.tests}
    known = {name: body for name, key in keys.items() if (body := store.finding(key)) is not None}
    findings = {name: Finding.model_validate(body) for name, body in known.items()}
    open_tests = [test for test in tests if test.claim.id not in findings]
    watcher.plan({n: settings[n] for n in _needed(open_tests, settings)}, len(open_tests))

    def get(name: str) -> Run:
        setting = settings[name]
        total = setting.seeds * setting.spec.steps
        run = obtain(
            store, setting.spec, range(setting.seeds), lambda d, t: watcher.trained(name, d, t + 1), sink, f"{study.name}/{name}"
        )  # fmt: skip
        watcher.trained(name, total, total)
        return run

    evidence = Evidence(scale, settings, get)
    needed = _needed(open_tests, settings)
    if train_elsewhere:
        train_elsewhere(store, {name: (settings[name].spec, range(settings[name].seeds)) for name in needed})
    for i, name in enumerate(needed):
        for after in needed[i + 1 : i + 2]:
            prepare(store, settings[after].spec, range(settings[after].seeds))
        evidence.run(name)
    for test in open_tests:
        watcher.judging(test.claim.id)
        with store.alone(keys[test.claim.id]):  # of several processes one judges, and the others read what it found
            if (body := store.finding(keys[test.claim.id])) is not None:
                finding = Finding.model_validate(body)
            else:
                finding = evidence.finding(test.settings(settings), test.judge)
                store.keep_finding(keys[test.claim.id], finding.model_dump(mode="json"))
        findings[test.claim.id] = finding
        watcher.judged(test.claim.id, finding)
    with store.alone(f"ledger/{scale}/{study.name}"):
        previous = read_ledger(store, study.name, scale)
        ledger = _ledger(study, scale, command, findings, previous)
        by_seed, pictures = (_beside(store, study, scale, part) for part in ("evidence", "pictures"))
        by_seed |= {name: finding.by_seed for name, finding in findings.items()}
        pictures |= {n: f.pictures.model_dump(mode="json") for n, f in findings.items() if f.pictures != Pictures()}
        files = {f"ledger/{scale}/{study.name}.evidence.json": json.dumps(by_seed, indent=1) + "\n"}
        if pictures:
            files[f"ledger/{scale}/{study.name}.pictures.json"] = json.dumps(pictures) + "\n"
        changed = {name: text for name, text in files.items() if store.read_text(name) != text}
        if previous is not None and not changed and previous.claims == ledger.claims:
            return previous
        # the ledger comes last: a run that is cut off before it is not taken for finished
        for name, text in changed.items():
            store.write_text(name, text)
        store.write_text(f"ledger/{scale}/{study.name}.json", ledger.model_dump_json(indent=1) + "\n")
    return ledger


def read_ledger(store: Store, study: str, scale: Scale) -> Ledger | None:
    """The ledger that an earlier run of this study wrote, if there is one."""
    text = store.read_text(f"ledger/{scale}/{study}.json")
    return None if text is None else Ledger.model_validate_json(text)


def _beside(store: Store, study: Study, scale: Scale, part: str) -> dict[str, Any]:
    text = store.read_text(f"ledger/{scale}/{study.name}.{part}.json")
    return {} if text is None else parsed(text, f"the {part} of {study.name}")


def _needed(tests: Iterable[Test], settings: Mapping[str, Setting]) -> list[str]:
    wanted = {name for test in tests for name in test.settings(settings)}
    return [name for name in settings if name in wanted]


def _ledger(
    study: Study, scale: Scale, command: str, findings: Mapping[str, Finding], previous: Ledger | None
) -> Ledger:
    known = {entry.id: entry for entry in previous.claims} if previous else {}
    for test in study.tests:
        if finding := findings.get(test.claim.id):
            known[test.claim.id] = Entry(
                **test.claim.model_dump(), **finding.model_dump(exclude={"by_seed", "pictures"})
            )
    entries = tuple(known[test.claim.id] for test in study.tests if test.claim.id in known)
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Ledger(study=study.name, scale=scale, command=command, hardware=hardware(), versions=versions(),
                  finished=finished, claims=entries)  # fmt: skip
