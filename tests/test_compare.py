"""Two ledgers side by side: the same verdicts, other verdicts, and whether the numbers agree."""

import pytest
from criteria import hits, record_of

from mnemoscope.cli import ledgers
from mnemoscope.core.errors import UserError
from mnemoscope.studies.discover import all_claims
from mnemoscope.studies.published import published_folder
from mnemoscope.verdicts.evidence_file import write_evidence
from mnemoscope.verdicts.ledger import Ledger, make_entry

STUDY = "walk"


def record(learned, of, loss=1e-5):
    """What W1 measures, where so many of so many seeds learn."""
    parts = {"learns": hits(learned, of), "cross-entropy": [loss] * of}
    return record_of(parts, by_seed={"abc": tuple(hits(learned, of))})


def write(folder, scale="full", **records):
    """A ledger of these records, as another store has it."""
    (folder / scale).mkdir(parents=True, exist_ok=True)
    claims = all_claims()[STUDY]
    ledger = Ledger(
        study=STUDY,
        scale=scale,
        command="c",
        hardware=folder.parent.name,
        versions={},
        finished="2026-11-19T00:00:00Z",
        claims=tuple(make_entry(claims[name], each) for name, each in records.items()),
    )
    (folder / scale / f"{STUDY}.json").write_text(ledger.model_dump_json())
    (folder / scale / f"{STUDY}.evidence.json").write_text(write_evidence(records))
    return folder


@pytest.fixture
def compared(tmp_path, capsys, monkeypatch):
    """What `compare` says of these ledgers; the second is published, or another store's."""
    monkeypatch.setenv("COLUMNS", "200")  # so that no sentence is broken

    def compare(mine, theirs, scale="full"):
        write(tmp_path / "mine/ledger", scale, **mine)
        other = write(tmp_path / "theirs/ledger", "full", **theirs)
        monkeypatch.setattr("mnemoscope.studies.ledger_files.published_folder", lambda: other)
        monkeypatch.setattr("mnemoscope.studies.published.published_folder", lambda: other)
        given = other if scale == "full" else None
        try:
            ledgers.compare(STUDY, scale=scale, other=given, store=tmp_path / "mine")
        except SystemExit as end:
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

    return compare


def test_the_same_verdicts(compared):
    code, out = compared({"W1": record(40, 40)}, {"W1": record(60, 60)})
    assert code == 0
    assert "the same verdict on 1 claim" in out
    assert "agrees" in out
    assert "40 of 40" in out  # the same seeds say the same


def test_a_verdict_that_is_firm_is_called_so(compared):
    _, out = compared({"W1": record(40, 40)}, {"W1": record(128, 128)})
    assert out.count("reproduced, firm") == 1


def test_another_verdict_is_named_and_is_the_exit_code(compared):
    code, out = compared({"W1": record(40, 40)}, {"W1": record(0, 40)})
    assert code == 1
    assert "verdicts differ: W1" in out
    assert "differs" in out
    assert "0 of 40" in out


def test_claims_that_one_ledger_lacks_are_left_out(compared):
    one = {"W1": record(40, 40), "W2": record_of({"answers": hits(40, 40)})}
    code, out = compared(one, {"W1": record(40, 40)})
    assert (code, "the same verdict on 1 claim" in out) == (0, True)


def test_two_ledgers_of_other_claims(compared):
    other = {"W2": record_of({"answers": hits(40, 40)})}
    with pytest.raises(UserError, match="the two full ledgers of walk have no claim in common"):
        compared({"W1": record(40, 40)}, other)


def test_quick_is_put_beside_what_is_published(compared):
    """Verdicts may differ there: what is asked is whether this machine measures the same."""
    mine = {
        "W1": record(8, 8),
        "W2": record_of({"answers": hits(8, 8)}),
        "W5": record_of({"last token": hits(8, 8), "trained without attention": hits(8, 8)}),
    }
    theirs = {
        "W1": record(40, 40),
        "W2": record_of({"answers": hits(40, 40)}),
        "W5": record_of({"last token": hits(0, 40), "trained without attention": hits(40, 40)}),
    }
    code, out = compared(mine, theirs, scale="quick")
    assert code == 0
    # W1 trains too short at quick to be compared; of the other claims nothing was measured
    assert "In all: 1 agree, 1 differ, 1 not comparable, 4 not measured." in out
    assert "W1: quick trains a fifth as long" in out


def test_without_two_ledgers_there_is_nothing_to_compare(tmp_path):
    with pytest.raises(UserError, match="no two quick ledgers of all: one in"):
        ledgers.compare(scale="quick", store=tmp_path)
    with pytest.raises(UserError, match="no two full ledgers of walk: one in"):
        ledgers.compare("walk", store=tmp_path)  # the published one is not put beside itself


def test_the_published_ledgers_of_two_devices_agree(tmp_path, capsys):
    """results/cpu holds what two cores of a CPU said of claims that results/full has from a GPU."""
    ledgers.compare(other=published_folder() / "cpu", store=tmp_path)
    assert capsys.readouterr().out.count("the same verdict on all") >= 3
