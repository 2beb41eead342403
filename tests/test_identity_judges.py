"""Judges and measures are known by what they do: one that is changed judges anew."""

from functools import partial, wraps
from typing import ClassVar

import jax
import numpy as np
from criteria import claim_of
from test_identity import SPEC
from test_identity_store import other_program
from test_studies import Watch

from mnemoscope.core import fingerprint
from mnemoscope.core.code_identity import code_of
from mnemoscope.execution.local import load_or_train
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.runner import finding_key, judging_fingerprint, run_study
from mnemoscope.studies.study import ClaimTest, Condition, Study
from mnemoscope.training.loop import fit

# ---- measures and judges


def test_measures_are_kept_by_function_and_not_by_name():
    run = fit(SPEC, range(8))
    evidence = Evidence("quick", {"a": Condition(SPEC, 8)}, lambda name: run)
    ones = evidence.measure("a", lambda task, model, world: model.params["embed.W_E"].sum() * 0 + 1)
    twos = evidence.measure("a", lambda task, model, world: model.params["embed.W_E"].sum() * 0 + 2)
    assert (ones.tolist(), twos.tolist()) == ([1.0] * 8, [2.0] * 8)

    def scaled(factor, task, model, world):
        return model.params["embed.W_E"].sum() * 0 + factor

    assert evidence.measure("a", partial(scaled, 3.0)).tolist() == [3.0] * 8
    assert evidence.measure("a", partial(scaled, 4.0)).tolist() == [4.0] * 8


ONE = {
    "name": "number",
    "kind": "exact",
    "measures": "a number",
    "holds": "[1, inf)",
    "fails": "(-inf, 1)",
}


def judge_text(factor, helper="1.0"):
    return f"""
from mnemoscope.studies.measurement import Measurement
def helper():
    '''A docstring.'''
    return {helper}
def judge(evidence):
    return Measurement({{"number": {factor} * helper()}})
"""


def judge_from(text):
    names: dict = {"__name__": "somebodys_study"}
    exec(text, names)
    return names["judge"]


def study_of(judge):
    claim = claim_of(ONE, id="P1")
    return Study(
        name="planted",
        title="t",
        paper="s",
        conditions=lambda scale: {},
        tests=(ClaimTest(claim, (), judge),),
    )


def test_a_changed_judge_from_outside_judges_anew(store):
    """Its own code, its helpers' and their constants count; comments and docstrings do not."""
    seen = []
    for text in (
        judge_text("1.0"),
        judge_text("1.0").replace("A docstring.", "Another docstring.") + "# a comment\n",
        judge_text("0.5"),
        judge_text("0.5", helper="0.5"),
    ):
        watch = Watch()
        entry = run_study(study_of(judge_from(text)), "quick", store, "c", watcher=watch).claims[0]
        seen.append((entry.verdict, entry.value, bool(watch.judged_)))
    assert seen == [
        ("reproduced", 1.0, True),
        ("reproduced", 1.0, False),
        ("refuted", 0.5, True),
        ("refuted", 0.25, True),
    ]


class Outside:
    """A class from outside with a constant."""

    limit: ClassVar[float] = 0.5

    def judge(self, evidence):
        return self.limit


def test_what_a_function_does_is_told_by_all_that_it_reaches(monkeypatch):
    table = np.arange(3)

    def closed(over):
        return lambda x: x + over

    assert code_of(closed(1)) != code_of(closed(2))
    assert code_of(closed(table)) != code_of(closed(table + 1))
    assert code_of(closed(table)) == code_of(closed(table.copy()))
    assert code_of(partial(closed, 1)) != code_of(partial(closed, 2))
    before = code_of(Outside().judge)
    monkeypatch.setattr(Outside, "limit", 0.6)
    assert code_of(Outside().judge) != before

    def wrapped(factor):
        @wraps(closed)
        def scaled(x):
            return factor * closed(1)(x)

        return scaled

    assert code_of(wrapped(1)) != code_of(wrapped(2)), "a decorator counts too"
    jitted = jax.jit(closed(1))
    assert code_of(jitted) == code_of(closed(1))


def test_editing_one_study_judges_only_that_one_anew(store, monkeypatch):
    from mnemoscope.studies.discover import STUDIES

    hashes = {name: judging_fingerprint(study) for name, study in STUDIES.items()}
    assert len(set(hashes.values())) == len(STUDIES), "each rests on its own folder"
    read = fingerprint._file_digest

    def changed_by(edited):
        """The studies that are judged anew when files of this name are edited."""
        monkeypatch.setattr(
            fingerprint, "_file_digest", lambda f: read(f) + (b"x" if f.match(edited) else b"")
        )
        return [
            name for name, study in STUDIES.items() if judging_fingerprint(study) != hashes[name]
        ]

    changed = changed_by("library/walk/judges.py")
    all_changed = changed_by("core/xla.py")
    assert changed == ["walk"]
    assert all_changed == list(STUDIES), "training rests on core/xla.py"


def test_a_finding_rests_on_the_program_that_trained(store, monkeypatch):
    study = Study(
        **{
            **vars(study_of(judge_from(judge_text("1.0")))),
            "conditions": lambda scale: {"a": Condition(SPEC, 8)},
        }
    )
    test = ClaimTest(study.tests[0].claim, ("a",), study.tests[0].measure)
    conditions = study.conditions("quick")
    before = finding_key(study, test, "quick", conditions, store)
    load_or_train(store, SPEC, range(8))
    assert finding_key(study, test, "quick", conditions, store) == before
    other_program(monkeypatch)
    assert finding_key(study, test, "quick", conditions, store) == before, (
        "it would be judged on what is stored"
    )
    for row in store.rows():
        store.delete(row)
    assert finding_key(study, test, "quick", conditions, store) != before
