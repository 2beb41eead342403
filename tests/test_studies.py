"""Verdicts: a planted true claim and a planted false one come out right,
and too little evidence settles nothing.
"""

import json
import re

import numpy as np
import pytest
from mnemoscope.studies.claims import Claim, ClaimTest, Condition, Ledger, Outcome, Study
from planted import evidence_of, planted
from scipy import stats

from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig
from mnemoscope.probes.skills import both_skills
from mnemoscope.store import Damage, Store
from mnemoscope.studies import runner
from mnemoscope.studies.discover import STUDIES, find_claim, find_study
from mnemoscope.studies.runner import read_ledger, run_study
from mnemoscope.studies.statistics import mean_interval, share_interval, share_verdict
from mnemoscope.tasks import Permutation
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

SPEC = Spec(
    task=Permutation(n_symbols=3),
    model=ModelConfig(d_model=16, n_heads=1, d_mlp=32),
    optimizer=Adam(lr=0.01, schedule="cosine"),
    steps=1000,
    batch=64,
    snapshots=2,
)
WILD = SPEC.model_copy(update={"optimizer": Adam(lr=1e18), "steps": 20})


def eliminates(evidence):
    rates = evidence.measure("good", both_skills)["elimination"]
    return Outcome(*share_verdict(rates >= 0.99), "Elimination is learned.", {"elimination": rates})


def recalls(evidence):
    rates = evidence.measure("good", both_skills)["recall"]
    return Outcome(*share_verdict(rates >= 0.99), "Recall is learned.", {"recall": rates})


def any_answer(evidence):
    return Outcome("reproduced", 1.0, (1.0, 1.0), "This judge would say yes to anything.")


def nothing_finite(evidence):
    return Outcome("reproduced", float("nan"), (0.0, float("inf")), "This judge divided by zero.")


def nothing_finite_by_seed(evidence):
    return Outcome(
        "reproduced", 1.0, (1.0, 1.0), "Some never learn.", {"steps": np.array([1.0, np.inf])}
    )


def claimed(name, needs, judge):
    return ClaimTest(
        Claim(id=name, statement="s", source_figure="f", criterion=f"c {name}"), needs, judge
    )


PLANTED = Study(
    name="planted",
    title="t",
    paper="s",
    conditions=lambda scale: {"good": Condition(SPEC, 8), "wild": Condition(WILD, 8)},
    tests=(
        claimed("P1", ("good",), eliminates),
        claimed("P2", ("good",), recalls),
        claimed("P3", ("wild",), any_answer),
        claimed("P4", (), any_answer),
    ),
)


class Watch:
    """A watcher that writes down what it is told."""

    def __init__(self):
        self.planned, self.trained_, self.judged_ = [], {}, []

    def plan(self, conditions, claims):
        self.planned.append((sorted(conditions), claims))

    def trained(self, name, done, total):
        assert done >= self.trained_.get(name, 0)
        self.trained_[name] = done

    def judging(self, claim_id):
        pass

    def judged(self, claim_id, finding):
        self.judged_.append(claim_id)


def test_a_true_claim_a_false_claim_and_a_diverged_one(store):
    watch = Watch()
    with pytest.warns(
        RuntimeWarning,
        match=r"planted/wild: diverged and left out of what is judged: seed 0 \(after",
    ):
        ledger = run_study(PLANTED, "quick", store, "mnemoscope run planted", watcher=watch)
    verdicts = {entry.id: entry for entry in ledger.claims}
    assert verdicts["P1"].verdict == "reproduced"
    assert verdicts["P1"].value == 1
    assert verdicts["P1"].seeds == 8
    # nothing repeats in training, so nothing teaches recall
    assert verdicts["P2"].verdict == "refuted"
    assert verdicts["P3"].verdict == "undecided"  # whatever its judge says
    assert verdicts["P3"].failed_seeds == 8
    assert "8 of 8 seeds of wild diverged" in verdicts["P3"].sentence
    assert re.search(
        r"Diverged in wild: seed 0 \(after \d+ of 20 steps\), seed 1 ", verdicts["P3"].sentence
    )
    assert "iverged" not in verdicts["P1"].sentence
    assert verdicts["P4"].verdict == "reproduced"
    assert watch.planned == [(["good", "wild"], 4)]
    assert watch.trained_ == {"good": 8 * 1000, "wild": 8 * 20}
    # the files say the same, in the published form
    data = json.loads((store.folder / "ledger/quick/planted.json").read_text())
    assert list(data) == ["study", "scale", "command", "hardware", "versions", "finished", "claims"]
    assert list(data["claims"][0]) == [
        "id",
        "statement",
        "source_figure",
        "criterion",
        "verdict",
        "value",
        "interval",
        "seeds",
        "failed_seeds",
        "sentence",
    ]
    assert Ledger.model_validate(data) == ledger
    evidence = json.loads((store.folder / "ledger/quick/planted.evidence.json").read_text())
    assert len(evidence["P1"]["elimination"]) == 8

    # a second start trains and judges nothing and leaves the ledger as it was
    again = Watch()
    assert (
        run_study(PLANTED, "quick", Store(store.folder), "another command", watcher=again) == ledger
    )
    assert again.planned == [([], 0)]
    assert again.trained_ == {}

    # a changed criterion is judged anew, from stored runs
    changed = Study(
        **vars(PLANTED) | {"tests": (claimed("P1", ("good",), recalls), *PLANTED.tests[1:])}
    )
    changed.tests[0].__dict__["claim"] = Claim(
        id="P1", statement="s", source_figure="f", criterion="another"
    )
    third = Watch()
    entry = run_study(changed, "quick", store, "c", watcher=third).claims[0]
    assert third.judged_ == ["P1"]
    assert entry.verdict == "refuted"
    assert entry.criterion == "another"


def test_the_ledger_is_that_of_the_last_command(store):
    """Findings that are known already come into the ledger,
    and what was lost beside it is written again.
    """
    few, many = (
        run_study(PLANTED, "quick", store, "c", seeds=n, claims=("P1",), watcher=Watch())
        for n in (4, 8)
    )
    assert [each.claims[0].seeds for each in (few, many)] == [4, 8]
    again = run_study(PLANTED, "quick", store, "c", seeds=4, claims=("P1",), watcher=Watch())
    assert again.claims == few.claims
    assert read_ledger(store, "planted", "quick") == again
    for part in ("evidence", "planted"):
        path = next(store.folder.glob(f"ledger/quick/*{part}.json"))
        text = path.read_text()
        store.forget(Damage("file", path.relative_to(store.folder).as_posix(), "on purpose"))
        assert not path.exists()
        run_study(PLANTED, "quick", store, "c", seeds=4, claims=("P1",), watcher=Watch())
        assert json.loads(path.read_text()).keys() == json.loads(text).keys()


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
    ledger = read_ledger(store, "planted", "quick")
    assert ledger is not None
    assert [entry.id for entry in ledger.claims] == ["P3", "P4"]
    with pytest.raises(
        UserError, match=r"unknown claim of study 'planted' 'P9'.*allowed: P1, P2, P3, P4"
    ):
        run_study(PLANTED, "quick", store, "c", claims=("P9",), watcher=watch)


def test_a_verdict_says_which_seed_it_rests_without():
    """One of twenty diverged: the rest settles the claim, and the sentence names the one."""
    evidence = evidence_of({"good": planted(SPEC, 20, finite_steps={13: 417})}, "quick")
    finding = evidence.finding(("good",), any_answer)
    assert (finding.verdict, finding.failed_seeds) == ("reproduced", 1)
    assert finding.sentence.endswith(
        "to anything. Diverged in good: seed 13 (after 417 of 1,000 steps)."
    )
    finding = evidence.finding(("good",), nothing_finite)
    assert (finding.verdict, finding.value) == ("undecided", None)
    assert finding.sentence.startswith(
        "What was measured, nan (0.0, inf) is not a finite number everywhere and settles nothing"
    )
    finding = evidence.finding(("good",), nothing_finite_by_seed)
    assert (finding.verdict, finding.by_seed) == ("undecided", {})
    assert "What was measured as 'steps' is not a finite number" in finding.sentence


def test_too_few_seeds_settle_nothing(store):
    entry = run_study(
        PLANTED, "quick", store, "c", seeds=3, claims=("P1",), watcher=Watch()
    ).claims[0]
    assert entry.verdict == "undecided"
    assert entry.seeds == 3


def test_intervals_against_their_formulas():
    share, (low, high) = share_interval([True] * 9 + [False])
    z, n, p = stats.norm.ppf(0.975), 10, 0.9
    middle, half = (
        (p + z**2 / (2 * n)) / (1 + z**2 / n),
        z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n),
    )
    assert share == 0.9
    np.testing.assert_allclose([low, high], [middle - half, middle + half])
    values = np.random.default_rng(1).normal(3, 2, 400)
    mean, (low, high) = mean_interval(values)
    half = 1.96 * values.std() / np.sqrt(400)
    np.testing.assert_allclose(
        [mean, low, high], [values.mean(), values.mean() - half, values.mean() + half], atol=0.04
    )
    assert mean_interval(values) == mean_interval(values)
    assert mean_interval([0.5] * 8) == (0.5, (0.5, 0.5))


@pytest.mark.parametrize(
    ("hits", "n", "verdict"),
    [
        (8, 8, "reproduced"),
        (0, 8, "refuted"),
        (4, 8, "partly"),
        (9, 10, "reproduced"),
        (8, 10, "partly"),
        (1, 1, "reproduced"),
    ],
)
def test_share_verdicts(hits, n, verdict):
    assert share_verdict([True] * hits + [False] * (n - hits))[0] == verdict


def test_so_few_seeds_that_anything_is_possible():
    assert share_verdict([True, False])[0] == "undecided"


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
