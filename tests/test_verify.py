"""Every verdict is derived again: what changed in numbers, criteria or the ledger is noticed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from criteria import MEAN, SHARE, claim_of, hits, record_of

import mnemoscope
from mnemoscope.core.errors import UserError
from mnemoscope.studies.discover import all_claims
from mnemoscope.studies.published import published_folder
from mnemoscope.verdicts.evidence_file import read_evidence, write_evidence
from mnemoscope.verdicts.ledger import Ledger, make_entry
from mnemoscope.verdicts.verify import verify_folder

CLAIMS = {"X1": claim_of(SHARE, MEAN), "X2": claim_of(SHARE, id="X2")}
RECORDS = {
    "X1": record_of({"share": hits(40, 40), "mean": [0.1, -0.1, 0.2] * 12}),
    "X2": record_of({"share": hits(0, 40)}, by_seed={"x": (1.0, None, float("nan"))}),
}


@pytest.fixture
def folder(tmp_path):
    """A ledger of two claims with its evidence."""
    ledger = Ledger(
        study="mine",
        scale="full",
        command="c",
        hardware="h",
        versions={},
        finished="t",
        claims=tuple(make_entry(claim, RECORDS[name]) for name, claim in CLAIMS.items()),
    )
    (tmp_path / "mine.json").write_text(ledger.model_dump_json(indent=1))
    (tmp_path / "mine.evidence.json").write_text(write_evidence(RECORDS))
    return tmp_path


def differences(folder, claims=CLAIMS):
    (checked,) = verify_folder(folder, {"mine": claims})
    return [(each.claim, each.what) for each in checked.differences]


def change(folder, name, edit):
    """Edit one of the files as data."""
    path = folder / name
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


def test_evidence_reads_back():
    assert str(read_evidence(write_evidence(RECORDS), "it")) == str(RECORDS)


def test_a_sound_ledger_has_no_differences(folder):
    assert differences(folder) == []


def test_a_changed_number_is_noticed(folder):
    def edit(data):
        data["claims"]["X1"]["parts"]["share"]["plain"]["values"][0] = 0.0

    change(folder, "mine.evidence.json", edit)
    names = {name for _, name in differences(folder)}
    assert {"verdict", "value", "interval", "sentence", "parts"} <= names


def test_a_changed_criterion_is_noticed(folder):
    stricter = {**SHARE, "holds": "[0.95, 1]", "partly": "(0.1, 0.95)", "fails": "[0, 0.1]"}
    changed = CLAIMS | {"X1": claim_of(stricter, MEAN)}
    found = differences(folder, changed)
    assert ("X1", "verdict") in found
    assert ("X1", "criterion_hash") in found
    assert not [name for name, _ in found if name == "X2"]


def test_a_changed_rule_is_noticed(folder, monkeypatch):
    monkeypatch.setattr("mnemoscope.verdicts.intervals.MOST", 0.95)
    monkeypatch.setattr("mnemoscope.verdicts.rule.USUAL", 0.9999)
    assert ("X1", "verdict") in differences(folder)


@pytest.mark.parametrize("field", ["verdict", "firm", "sentence", "units", "criterion"])
def test_a_ledger_that_was_edited_is_noticed(folder, field):
    other = {"verdict": "partly", "firm": True, "units": 3}.get(field, "something else")

    def edit(data):
        data["claims"][1][field] = other

    change(folder, "mine.json", edit)
    assert differences(folder) == [("X2", field)]


def test_the_last_digits_may_differ(folder):
    def edit(data):
        data["claims"][0]["interval"] = [x * (1 + 1e-8) for x in data["claims"][0]["interval"]]

    change(folder, "mine.json", edit)
    assert differences(folder) == []


def test_what_is_missing_is_noticed(folder):
    change(folder, "mine.evidence.json", lambda data: data["claims"].pop("X2"))
    assert differences(folder) == [("X2", "its evidence")]
    change(folder, "mine.json", lambda data: data["claims"].pop(1))
    assert differences(folder) == []
    change(folder, "mine.json", lambda data: data["claims"].pop(0))
    assert differences(folder) == [("X1", "its entry")]
    assert differences(folder, {}) == [("X1", "its entry")]


def test_a_folder_without_ledgers_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no ledger in"):
        verify_folder(tmp_path, {})


def test_evidence_of_a_format_to_come_is_refused(folder):
    (folder / "mine.evidence.json").write_text('{"format": 9, "claims": {}}')
    with pytest.raises(UserError, match="format 9, which this version cannot read"):
        differences(folder)


def test_the_published_verdicts_follow_from_their_evidence():
    for checked in verify_folder(published_folder(), all_claims()):
        assert checked.differences == ()


def test_a_ledger_of_0_1_is_read_and_shown_as_such(tmp_path):
    """Its verdicts were decided by judges: nothing is derived, and nothing is called wrong."""
    old = Path(__file__).parent / "golden" / "ledger_0_1"
    shutil.copytree(old, tmp_path / "full")
    (checked,) = verify_folder(tmp_path, all_claims())
    assert checked.ledger.format == 1
    assert checked.differences == ()
    assert checked.underivable == ("W1", "W2", "W3", "W4", "W5")
    entry = checked.ledger.claims[0]
    assert entry.firm is None
    assert entry.units == 256
    assert entry.published == "cross-entropy 0.0001"


def test_verify_needs_no_jax(tmp_path):
    """In seconds: nothing of it loads JAX."""
    code = (
        "import sys; from mnemoscope.cli.ledgers import verify; verify(); "
        "sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(mnemoscope.__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    assert "differences" in done.stdout
