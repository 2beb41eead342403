"""Two ledgers side by side: the same verdicts, other verdicts,
and how near values and seeds are.
"""

import json

import pytest
from mnemoscope.report.find_ledgers import published

from mnemoscope.cli import ledgers
from mnemoscope.core.errors import UserError

SAME = {"F4": [1.0, 2.0, 3.0]}


def entry(name, verdict, value, interval):
    told = {
        "id": name,
        "statement": "s",
        "source_figure": "f",
        "criterion": "c",
        "seeds": 3,
        "failed_seeds": 0,
        "sentence": ".",
    }
    return told | {"verdict": verdict, "value": value, "interval": interval}


def write(folder, claims, by_seed):
    (folder / "full").mkdir(parents=True)
    body = {
        "study": "facts",
        "scale": "full",
        "command": "c",
        "hardware": folder.parent.name,
        "versions": {},
        "finished": "t",
    }
    (folder / "full/facts.json").write_text(json.dumps(body | {"claims": claims}))
    (folder / "full/facts.evidence.json").write_text(
        json.dumps({name: {"x": x} for name, x in by_seed.items()})
    )
    return folder


@pytest.fixture
def told(tmp_path, capsys):
    """What `compare` says of a ledger with F4 and F5 and another one."""
    write(
        tmp_path / "mine/ledger",
        [entry("F4", "reproduced", 1.0, [0.9, 1.0]), entry("F5", "partly", 0.5, [0.4, 0.6])],
        SAME,
    )

    def compare(*claims, by_seed=SAME):
        other = write(tmp_path / "theirs/ledger", claims, by_seed)
        try:
            ledgers.compare("facts", other=other, store=tmp_path / "mine")
        except SystemExit as end:
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

    return compare


def test_the_same_verdicts(told):
    code, out = told(
        entry("F5", "partly", 0.7, [0.55, 0.8]), entry("F4", "reproduced", 1.00001, [1.0, 1.1])
    )
    assert code == 0
    assert "the same verdict on all 2 claims" in out
    lines = [
        [cell.strip() for cell in line.split("│")[6:8]]
        for line in out.splitlines()
        if line.startswith("│")
    ]
    assert lines == [["the same to four digits", "3 of 3"], ["intervals overlap", "-"]]


def test_another_verdict_is_named_and_is_the_exit_code(told):
    code, out = told(
        entry("F4", "refuted", 0.2, [0.1, 0.3]),
        entry("F5", "undecided", None, None),
        by_seed={"F4": [1.005, 2.5, 3.5]},
    )
    assert code == 1
    assert "verdicts differ: F4, F5" in out
    assert "intervals apart" in out
    assert "1 of 3" in out  # 1.005 is within a hundredth of 1
    assert "not measured twice" in out


def test_claims_that_one_ledger_lacks_are_left_out(told):
    code, out = told(entry("F4", "reproduced", 1.0, [1.0, 1.0]))
    assert (code, "the same verdict on all 1 claims" in out) == (0, True)


def test_seeds_are_not_put_beside_others(told):
    """Of three seeds two have an outcome: which ones, nobody can tell."""
    code, out = told(entry("F4", "reproduced", 1.0, [1.0, 1.0]), by_seed={"F4": [1.0, 3.0]})
    assert (code, " of " in out.splitlines()[-3]) == (0, False)


def test_two_ledgers_of_other_claims(told):
    with pytest.raises(UserError, match="the two full ledgers of facts have no claim in common"):
        told(entry("F1", "reproduced", 1.0, [1.0, 1.0]))


def test_without_two_ledgers_there_is_nothing_to_compare(tmp_path):
    with pytest.raises(UserError, match="no two quick ledgers of all: one in"):
        ledgers.compare(scale="quick", store=tmp_path)
    with pytest.raises(UserError, match="no two full ledgers of facts: one in"):
        ledgers.compare("facts", store=tmp_path)  # the published one is not put beside itself


def test_the_published_ledgers_of_two_devices_agree(tmp_path, capsys):
    """results/cpu holds what two cores of a CPU said of claims that results/full has from a GPU."""
    ledgers.compare(other=published() / "cpu", store=tmp_path)
    assert capsys.readouterr().out.count("the same verdict on all") >= 3
