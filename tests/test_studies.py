"""Running a study: a planted true claim and a planted false one come out right, too little
evidence settles nothing, and what is known already is not done again.
"""

import json
import re

import numpy as np
import pytest
from criteria import SHARE, claim_of
from planted import NOWHERE, evidence_of, planted

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig
from mnemoscope.probes.skills import both_skills
from mnemoscope.store import Damage, Store
from mnemoscope.studies import runner
from mnemoscope.studies.discover import STUDIES, find_claim, find_study
from mnemoscope.studies.ledger_files import find_folder, read_ledger
from mnemoscope.studies.measurement import Groups, InconclusiveError, Measurement
from mnemoscope.studies.merge import merge_store
from mnemoscope.studies.runner import measure_claim, run_study
from mnemoscope.studies.study import ClaimTest, Condition, Study
from mnemoscope.tasks import Permutation
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.ledger import Ledger, make_entry

SPEC = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=16, n_heads=1, d_mlp=32),
    optimizer=Adam(lr=0.01, schedule="cosine"),
    steps=200,  # enough to be better than a guess
    batch=16,
    snapshots=2,
)
WILD = SPEC.model_copy(update={"optimizer": Adam(lr=1e18), "steps": 20})


def measure_learning(evidence):
    """Whether the last losses are below a guess's, ln 3."""
    losses = evidence.run("good").losses[:, -1]
    return Measurement({"share": losses < np.log(3)}, {"loss": losses})


def measure_recall(evidence):
    rates = evidence.measure("good", both_skills)["recall"]
    return Measurement({"share": rates >= 0.99}, {"recall": rates})


def measure_anything(evidence):
    return Measurement({"share": np.ones(40)})


def measure_nothing(evidence):
    raise InconclusiveError("Nothing repeats.")


def a_test(name, needs, measure, *parts, **fields):
    return ClaimTest(claim_of(*(parts or (SHARE,)), id=name, **fields), needs, measure)


PLANTED = Study(
    name="planted",
    title="t",
    paper="s",
    conditions=lambda scale: {"good": Condition(SPEC, 36), "wild": Condition(WILD, 8)},
    tests=(
        a_test("P1", ("good",), measure_learning),
        a_test("P2", ("good",), measure_recall),
        a_test("P3", ("wild",), measure_anything),
        a_test("P4", (), measure_anything),
    ),
)


class Watch:
    """A watcher that writes down what it is told."""

    def __init__(self):
        self.planned, self.trained_, self.judged_ = [], {}, []

    def plan(self, conditions, claims):
        self.planned.append((sorted(conditions), claims))
        self.trained_.clear()

    def trained(self, name, done, total):
        assert done >= self.trained_.get(name, 0)
        self.trained_[name] = done

    def judging(self, claim_id):
        pass

    def judged(self, entry):
        self.judged_.append(entry.id)


def stored_ledger(store):
    return read_ledger(find_folder(store.folder, "planted", "quick"), "planted", "quick")


def test_a_true_claim_a_false_claim_and_a_diverged_one(store):
    watch = Watch()
    with pytest.warns(
        RuntimeWarning,
        match=r"planted/wild: diverged and left out of what is judged: seed 0 \(after",
    ):
        ledger = run_study(PLANTED, "quick", store, "mnemoscope run planted", watcher=watch)
    verdicts = {entry.id: entry for entry in ledger.claims}
    assert verdicts["P1"].verdict == "reproduced"
    assert verdicts["P1"].firm is False  # 36 seeds: 98 would be firm
    assert verdicts["P1"].value == 1
    assert verdicts["P1"].units == 36
    # nothing repeats in training, so nothing teaches recall
    assert verdicts["P2"].verdict == "refuted"
    assert verdicts["P3"].verdict == "undecided"  # whatever is measured
    assert verdicts["P3"].failed == 8
    assert "8 of 8 seeds of wild diverged" in verdicts["P3"].sentence
    assert re.search(
        r"Diverged in wild: seed 0 \(after \d+ of 20 steps\), seed 1 ", verdicts["P3"].sentence
    )
    assert "iverged" not in verdicts["P1"].sentence
    assert verdicts["P4"].verdict == "reproduced"
    assert watch.planned == [(["good", "wild"], 4)]
    assert watch.trained_ == {"good": 36 * SPEC.steps, "wild": 8 * 20}
    # the files say the same, in the published form
    data = json.loads((store.folder / "ledger/quick/planted.json").read_text())
    assert data["format"] == 2
    assert Ledger.model_validate(data) == ledger
    evidence = json.loads((store.folder / "ledger/quick/planted.evidence.json").read_text())
    record = evidence["claims"]["P1"]
    assert record["parts"]["share"]["plain"]["values"] == [1.0] * 36
    assert len(record["by_seed"]["loss"]) == 36
    assert max(record["by_seed"]["loss"]) < np.log(3) - 0.1, "P1 is no border case on any CPU"
    assert record["conditions"]["good"]["spec"] == SPEC.digest()
    assert record["provenance"]["command"] == "mnemoscope run planted"

    # a second start trains and judges nothing and leaves the ledger as it was
    again = Watch()
    assert (
        run_study(PLANTED, "quick", Store(store.folder), "another command", watcher=again) == ledger
    )
    assert again.planned == [([], 0)]
    assert again.trained_ == {}

    # what measures in another way measures anew, from stored runs
    changed = a_test("P1", ("good",), measure_recall)
    third = Watch()
    entry = run_study(with_tests(changed), "quick", store, "c", watcher=third).claims[0]
    assert third.judged_ == ["P1"]
    assert entry.verdict == "refuted"

    # another criterion is judged anew from what was measured
    zones = {"holds": "[0, 0.5]", "fails": "(0.5, 1]"}
    stricter = a_test("P1", ("good",), measure_recall, {**SHARE, **zones})
    fourth = Watch()
    entry = run_study(with_tests(stricter), "quick", store, "c", watcher=fourth).claims[0]
    assert fourth.judged_ == []
    assert entry.verdict == "reproduced"
    assert entry.criterion_hash != entry.provenance.criterion


def with_tests(first):
    return Study(**vars(PLANTED) | {"tests": (first, *PLANTED.tests[1:])})


def test_the_ledger_is_that_of_the_last_command(store):
    """Findings that are known already come into the ledger,
    and what was lost beside it is written again.
    """
    few, many = (
        run_study(PLANTED, "quick", store, "c", seeds=n, claims=("P1",), watcher=Watch())
        for n in (4, 8)
    )
    assert [each.claims[0].units for each in (few, many)] == [4, 8]
    again = run_study(PLANTED, "quick", store, "c", seeds=4, claims=("P1",), watcher=Watch())
    assert again.claims == few.claims
    assert stored_ledger(store) == again
    for part in ("evidence", "planted"):
        path = next(store.folder.glob(f"ledger/quick/*{part}.json"))
        text = path.read_text()
        store.forget(Damage("file", path.relative_to(store.folder).as_posix(), "on purpose"))
        assert not path.exists()
        run_study(PLANTED, "quick", store, "c", seeds=4, claims=("P1",), watcher=Watch())
        assert json.loads(path.read_text()).keys() == json.loads(text).keys()


def test_a_ledger_of_0_1_is_put_aside(store):
    old = {"study": "planted", "scale": "quick", "command": "c", "hardware": "h", "versions": {}}
    entry = {
        "id": "P4",
        "statement": "s",
        "source_figure": "f",
        "criterion": "c",
        "verdict": "partly",
        "value": 1.0,
        "interval": [0.9, 1.0],
        "seeds": 8,
        "failed_seeds": 0,
        "sentence": "So.",
    }
    body = json.dumps({**old, "finished": "t", "claims": [entry]})
    store.write_text("ledger/quick/planted.json", body)
    store.write_text("ledger/quick/planted.evidence.json", '{"P4": {"x": [1.0]}}')
    assert stored_ledger(store).format == 1
    ledger = run_study(PLANTED, "quick", store, "c", claims=("P4",), watcher=Watch())
    assert [each.verdict for each in ledger.claims] == ["reproduced"]
    assert store.read_text("ledger/quick/planted.0.1.json") == body
    assert store.read_text("ledger/quick/planted.0.1.evidence.json") == '{"P4": {"x": [1.0]}}'


def test_seeds_are_added_until_a_claim_is_decided(store):
    """10 of 10 settle nothing, nor do 40 of 40 for who looks again and again; 80 of 80 do."""
    watch = Watch()
    ledger = run_study(
        PLANTED,
        "quick",
        store,
        "c",
        seeds=10,
        claims=("P1",),
        until_decided=100,
        watcher=watch,
    )
    (entry,) = ledger.claims
    assert (entry.verdict, entry.units) == ("reproduced", 80)
    assert entry.plan.kind == "until decided"
    assert entry.plan.looks == 4
    assert watch.judged_ == ["P1"] * 4
    assert watch.trained_ == {"good": 80 * SPEC.steps}
    assert [names for names, _ in watch.planned] == [["good"]] * 4
    few = run_study(
        PLANTED, "quick", store, "c", seeds=10, claims=("P1",), until_decided=20, watcher=Watch()
    ).claims[0]
    assert (few.verdict, few.units) == ("undecided", 20)


def test_what_was_measured_elsewhere_is_taken_over(store, tmp_path, monkeypatch):
    """Numbers without weights, small enough to carry; what was measured last counts."""
    elsewhere = Store(tmp_path / "elsewhere")
    run_study(PLANTED, "quick", elsewhere, "c", claims=("P1",), keep_weights=False, watcher=Watch())
    assert elsewhere.rows() == []
    run_study(PLANTED, "quick", store, "c", claims=("P4",), watcher=Watch())
    by_study = {"planted": {test.claim.id: test.claim for test in PLANTED.tests}}
    monkeypatch.setattr("mnemoscope.studies.merge.all_claims", lambda: by_study)
    merged = merge_store(store, elsewhere, "mnemoscope merge")
    assert merged == (0, 1, ("planted P1 (quick)",))
    ledger = stored_ledger(store)
    assert [(each.id, each.verdict, each.units) for each in ledger.claims] == [
        ("P1", "reproduced", 36),
        ("P4", "reproduced", 40),
    ]
    again = merge_store(store, elsewhere, "mnemoscope merge")
    assert again == (0, 0, ())
    # the other way: runs too
    run_study(PLANTED, "quick", store, "c", claims=("P2",), watcher=Watch())
    assert merge_store(elsewhere, store, "mnemoscope merge").runs == 1
    assert len(elsewhere.rows()) == 1
    with pytest.raises(UserError, match="is this store itself"):
        merge_store(store, Store(store.folder), "c")


def test_changed_code_is_judged_anew(store, monkeypatch):
    run_study(PLANTED, "quick", store, "c", claims=("P4",), watcher=Watch())
    monkeypatch.setattr(runner, "judging_fingerprint", lambda study: "other code")
    watch = Watch()
    run_study(PLANTED, "quick", store, "c", claims=("P4",), watcher=watch)
    assert watch.judged_ == ["P4"]


def test_choosing_claims_trains_only_what_they_need_and_keeps_the_rest(store):
    watch = Watch()
    run_study(PLANTED, "quick", store, "c", claims=("P4",), watcher=watch)
    assert watch.planned == [([], 1)]
    with pytest.warns(RuntimeWarning, match="diverged"):
        run_study(PLANTED, "quick", store, "c", claims=("P3",), watcher=watch)
    assert watch.planned[1] == (["wild"], 1)
    ledger = stored_ledger(store)
    assert ledger is not None
    assert [entry.id for entry in ledger.claims] == ["P3", "P4"]
    with pytest.raises(
        UserError, match=r"unknown claim of study 'planted' 'P9'.*allowed: P1, P2, P3, P4"
    ):
        run_study(PLANTED, "quick", store, "c", claims=("P9",), watcher=watch)


def test_a_verdict_says_which_seed_it_rests_without():
    """One of twenty diverged: the rest settles the claim, and the sentence names the one."""
    evidence = evidence_of({"good": planted(SPEC, 20, finite_steps={13: 117})}, "quick")
    test = a_test("P1", ("good",), measure_anything)
    entry = make_entry(test.claim, measure_claim(test, evidence, NOWHERE).record)
    assert (entry.verdict, entry.failed) == ("reproduced", 1)
    assert entry.sentence.endswith("Diverged in good: seed 13 (after 117 of 200 steps).")


def test_where_nothing_can_be_measured_the_ledger_says_why():
    test = a_test("P1", (), measure_nothing)
    record = measure_claim(test, evidence_of({}, conditions={}), NOWHERE).record
    entry = make_entry(test.claim, record)
    assert (entry.verdict, entry.value, entry.sentence) == ("undecided", None, "Nothing repeats.")


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"shar": np.ones(40)}, r"unknown part of P1 'shar' \(did you mean 'share'\?\)"),
        ({"share": {"post": np.ones(40)}}, "unknown reading of P1 'post'; allowed: plain"),
        ({"share": np.ones((4, 10))}, r"one value for each unit, got an array of \(4, 10\)"),
        ({"share": "all of them"}, "P1, part 'share': could not convert"),
        ({"share": Groups(np.ones(4), np.ones(4))}, "one array by unit is needed, got Groups"),
    ],
)
def test_what_is_measured_is_checked(parts, message):
    test = a_test("P1", (), lambda evidence: Measurement(parts))
    with pytest.raises(UserError, match=message):
        measure_claim(test, evidence_of({}, conditions={}), NOWHERE)


def test_too_few_seeds_settle_nothing(store):
    entry = run_study(
        PLANTED, "quick", store, "c", seeds=4, claims=("P1",), watcher=Watch()
    ).claims[0]
    assert entry.verdict == "undecided"
    assert entry.units == 4


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_every_study_is_whole(scale):
    for study in STUDIES.values():
        conditions = study.conditions(scale)
        needed = {name for test in study.tests for name in test.pick_conditions(conditions)}
        assert needed == set(conditions), "every condition is needed by some claim"
        assert all(condition.seeds >= 8 for condition in conditions.values())
    assert [test.claim.id for test in STUDIES["remember"].tests] == [f"R{i}" for i in range(1, 30)]


def test_full_scale_has_the_paper_budget_and_the_promised_seeds():
    conditions = find_study("remember").conditions("full")
    for name, condition in conditions.items():
        longer = 5 if "five times the steps" in name else 1
        assert 0.999 < condition.spec.steps * condition.spec.batch / 5_000_000 / longer <= 1, name
        assert condition.seeds >= (
            256 if name.startswith(("repeat/d16h1", "repeat/d32h1", "repeat/d32h2")) else 128
        )


def test_unknown_names():
    with pytest.raises(
        UserError, match=r"unknown study 'remembr' \(did you mean 'remember'\?\); allowed: remember"
    ):
        find_study("remembr")
    with pytest.raises(UserError, match="unknown claim 'X1'; allowed: R1, R2"):
        find_claim("X1")
