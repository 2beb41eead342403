"""The command line on a screen: 80 columns, runs by their names, the command as it was typed, and
what is said where the screen has gone.
"""

import contextlib
import csv
import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from test_cli import ENV, mnemoscope, one_line

import mnemoscope as ms
from mnemoscope.cli import console, main
from mnemoscope.cli.options import in_paragraphs
from mnemoscope.cli.studies import portable_command
from mnemoscope.core.errors import UserError, counted, in_any_case
from mnemoscope.core.seeds import different_seeds
from mnemoscope.exchange.run_tables import write_csv
from mnemoscope.execution import machine
from mnemoscope.execution.local import select
from mnemoscope.report.ledger_tables import FEW, print_claim, print_ledger
from mnemoscope.store import Store
from mnemoscope.studies.published import published_folder
from mnemoscope.studies.run_names import find_run, read_run_names
from mnemoscope.verdicts.ledger import Ledger

SPEC = ms.Spec(
    task=ms.Cycle(), model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0), steps=1, batch=2
)
# what a study has trained under these names, of which the first two are stored
OTHER = SPEC.model_copy(update={"steps": 2})
LEDGERS = {
    "quick": {"small": SPEC, "small/norm": OTHER, "gone": SPEC.model_copy(update={"steps": 3})},
    "full": {"small": OTHER, "k=2": OTHER},
}


def write_evidence(store, study="mine"):
    """Evidence of a study that says what its conditions were."""
    for scale, specs in LEDGERS.items():
        conditions = {name: {"spec": spec.digest(), "seeds": 2} for name, spec in specs.items()}
        evidence = {"format": 2, "claims": {"C1": {"conditions": conditions}, "C2": []}}
        store.write_text(f"ledger/{scale}/{study}.evidence.json", json.dumps(evidence))


@pytest.fixture(scope="module")
def runs():
    """Two runs of two Specs, the second trained from the first's program."""
    return [ms.fit(spec, 4, progress=False) for spec in (SPEC, OTHER)]


@pytest.fixture
def named(runs, tmp_path):
    """A store in which the first Spec has two blocks of seeds and the second has one."""
    store = Store(tmp_path / "store")
    store.save(select([runs[0]], (0, 1)), 1.0, "a machine")
    store.save(select([runs[0]], (2, 3)), 1.0, "a machine")
    store.save(select([runs[1]], (0, 1)), 1.0, "a machine")
    write_evidence(store)
    return store


# ---- names


def test_a_run_is_found_by_its_name_and_by_its_id(named):
    names = read_run_names(named)
    assert names.all_names() == [
        "mine/small:quick",
        "mine/small/norm",
        "mine/small:full",
        "mine/k=2",
    ]
    found = find_run(named, "mine/small/norm")
    assert (found.spec, found.first) == (OTHER.digest(), 0)
    for asked in ("MINE/Small/Norm", "mine/k=2", "mine/small:full", "mine/small:full/0-1"):
        assert find_run(named, asked) == found
    assert find_run(named, OTHER.digest()[:9].upper()) == found
    assert find_run(named, "mine/small:quick/2-3").first == 2
    assert find_run(named, f"mine/small:quick/{find_run(named, 'mine/small:quick/2-3').id[17:]}")


def refused(store, asked):
    with pytest.raises(UserError) as error:
        find_run(store, asked)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_a_name_of_several_runs_says_which(named):
    line = refused(named, "mine/small:quick")
    assert line.startswith("'mine/small:quick' is 2 stored runs: mine/small:quick/0-1 (")
    assert "mine/small:quick/2-3 (" in line
    line = refused(named, "mine/small")
    assert "'mine/small' is 3 stored runs: " in line
    assert "mine/small/norm/0-1 (" in line
    assert line.endswith("; needed: one")


def test_a_name_that_is_none_says_what_there_is(named):
    line = refused(named, "mine/smal/norm")
    assert "(did you mean 'mine/small/norm'?); there are: mine/small:quick, " in line
    # the second is what a study here would train, and has not
    line = refused(named, "walk/abc")
    assert line.startswith("'walk/abc' is not stored in ")
    assert line.endswith("train it with 'mnemoscope run walk'")
    assert "no stored run starts with ''" in refused(named, "")


def test_what_was_not_judged_yet_is_found_in_its_study(named, monkeypatch):
    from mnemoscope.studies import run_names
    from mnemoscope.studies.discover import STUDIES

    conditions = {"late": ms.Condition(OTHER, seeds=2)}
    study = ms.Study(title="?", name="walk", conditions=lambda scale: conditions)
    monkeypatch.setattr(type(STUDIES), "__getitem__", lambda self, name: study)
    assert run_names.find_run(named, "walk/late").spec == OTHER.digest()


def test_names_survive_ledgers_that_are_damaged_or_anybodys(named):
    (named.folder / "ledger/quick/mine.evidence.json").write_text("{}")
    named.write_text("ledger/full/odd.evidence.json", '{"claims": {"C": {"conditions": [1]}}}')
    assert read_run_names(named).all_names() == ["mine/small", "mine/k=2"]


def test_runs_are_listed_and_deleted_by_name(named):
    out = mnemoscope("runs", store=named.folder).stdout
    assert out.startswith("3 runs, ")
    assert "mine/small:quick" in out
    assert mnemoscope("runs", "mine", store=named.folder).stdout.startswith("3 runs, ")
    assert mnemoscope("runs", "mine/k=2", store=named.folder).stdout.startswith("1 run, ")
    assert mnemoscope("runs", "steps=2", store=named.folder).stdout.startswith("1 run, ")
    other = Store(named.folder)
    with other.lock(SPEC.digest()):
        line = one_line(mnemoscope("runs", "mine/small:quick", "--delete", store=named.folder))
    assert "is being trained or read by another process, so it stays; 0 runs deleted" in line
    assert len(named.rows()) == 3
    out = mnemoscope("runs", "mine/small/norm", "--delete", store=named.folder).stdout
    assert out.startswith("deleted 1 run, ")
    assert {row.spec for row in named.rows()} == {SPEC.digest()}


def test_every_command_that_takes_a_run_takes_its_name(named, tmp_path):
    out = tmp_path / "out.npz"
    done = mnemoscope("export", "mine/k=2", out, "--to", "numpy", store=named.folder)
    assert done.stdout == f"Written: {out}\n"
    assert np.load(out)["seeds"].tolist() == [0, 1]
    for args in (("export", "mine/k=3", out, "--to", "numpy"), ("walk", "--run", "mine/k=3")):
        line = one_line(mnemoscope(*args, store=named.folder))
        assert "no stored run starts with 'mine/k=3' (did you mean 'mine/k=2'?)" in line
    line = one_line(mnemoscope("explore", "mine/k=3", "--no-open", store=named.folder))
    assert "(did you mean 'mine/k=2'?)" in line


def test_reading_a_store_makes_none(named):
    typo = named.folder.with_name("stor")
    for command in ("runs", "check", "explore", "site"):
        line = one_line(mnemoscope(command, store=typo))
        assert f"there is no store at {str(typo)!r} (did you mean {str(named.folder)!r}?)" in line
    assert not typo.exists()


def test_files_that_nothing_reads_are_listed(named):
    lost = named.folder / "runs" / SPEC.digest() / "8-9.safetensors"
    lost.write_bytes(b"x")
    assert named.orphans() == [], "it may be on its way into the index"
    os.utime(lost, (0, 0))
    assert named.orphans() == [f"runs/{SPEC.digest()}/8-9.safetensors"]
    out = mnemoscope("check", store=named.folder).stdout
    assert out.startswith("nothing is damaged: 3 runs")
    assert "1 file that the index does not know (0.0 MB)" in out


# ---- 80 columns


def lines_at(width, show):
    """What a function prints on a console of this width."""
    from rich.console import Console

    file = io.StringIO()
    show(Console(file=file, width=width, no_color=True))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return lines


def test_a_ledger_is_legible_at_80_columns():
    ledger = Ledger.model_validate_json((published_folder() / "full/walk.json").read_text())
    narrow = lines_at(80, lambda console: print_ledger(console, ledger))
    wide = lines_at(160, lambda console: print_ledger(console, ledger))
    # no line of a sentence is short because the next word had no room
    assert sum(len(line.strip("│ ")) > 60 for line in narrow) > len(ledger.claims)
    assert len(narrow) < 3 * len(wide)
    for entry in ledger.claims:
        assert any(f"│ {entry.id} " in line for line in narrow)
        assert any(entry.number() in line for line in narrow)
    assert "rests on" in wide[2]


def test_many_seeds_are_summed_up_and_shown_when_asked_for():
    ledger = Ledger.model_validate_json((published_folder() / "full/walk.json").read_text())
    entry = ledger.claims[0]
    many = {"loss": list(np.arange(101) / 10), "lost": [None] * 101, "none": [-0.0] * 101}

    def shown(width=80, by_seed=many, **options):
        return lines_at(
            width, lambda console: print_claim(console, ledger, entry, by_seed, **options)
        )

    def cells(lines, name):
        """What stands in a series' row."""
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines]
        return next(row[1:] for row in rows if row and row[0] == name)

    short = shown()
    # of 0, .1, .. 10
    assert cells(short, "loss") == ["101", "5", "0", "5", "10"]
    assert cells(shown(160), "loss") == ["101", "5", "0", "2.5", "5", "7.5", "10"]
    assert cells(short, "lost") == ["0", "", "", "", ""]
    assert cells(short, "none") == ["101", "0", "0", "0", "0"], "nothing has no sign"
    assert "--seeds shows each of them (101)" in "\n".join(short)
    assert len(shown(all_seeds=True)) > 100
    few = {name: values[:FEW] for name, values in many.items()}
    assert "every seed that finished" in "\n".join(shown(by_seed=few))
    # columns that do not fit beside each other stand below, and nothing is cut off
    long = {f"measured number {i}": [1.234e-05] * 3 for i in range(9)}
    assert "\n".join(shown(by_seed=long, all_seeds=True)).count("1.234e-05") == 27


def test_a_claim_is_shown_in_any_case():
    named = mnemoscope("show", "R13", "--scale", "full").stdout
    assert mnemoscope("show", "r13", "--scale", "full").stdout == named
    assert len(named.splitlines()) < 40
    assert len(mnemoscope("show", "r13", "--scale", "full", "--seeds").stdout.splitlines()) > 256
    assert in_any_case("B1", ["b1", "B1"]) == "B1"
    assert in_any_case("B1", ["b1"]) == "b1"


def test_help_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ([], *([name] for name in main.all_commands()), ["new", "study"]):
        page = io.StringIO()
        monkeypatch.setattr(sys, "argv", ["mnemoscope", *command, "--help"])
        with contextlib.redirect_stdout(page), pytest.raises(SystemExit):
            main.main()
        lines = page.getvalue().splitlines()
        assert len(lines) > 5
        assert max(map(len, lines)) <= 80, command
    assert "a folder with a claim" in page.getvalue(), "`new study --help` says what it writes"
    doc = "Do.\n\nArgs:\n    one: This\n        goes on.\n    two: That."
    assert in_paragraphs(doc) == "Do.\n\nArgs:\n    one: This goes on.\n    two: That."


def test_columns_count_where_no_terminal_is(monkeypatch):
    monkeypatch.setenv("COLUMNS", "93")
    assert console.make_console().width == 93
    monkeypatch.delenv("COLUMNS")
    assert console.make_console().width == console.LOG


def test_one_is_not_several():
    assert counted(1, "run") == "1 run"
    assert counted(0, "run") == "0 runs"
    assert counted(1234, "finding or file", "findings and files") == "1,234 findings and files"


# ---- the command as it was typed


@pytest.mark.parametrize(
    ("typed", "is_on_path", "said"),
    [
        ("/usr/local/bin/mnemoscope", True, "mnemoscope"),
        (".venv/bin/mnemoscope", False, ".venv/bin/mnemoscope"),
        ("/somewhere/mnemoscope/__main__.py", False, "python -m mnemoscope"),
        ("pytest", False, "mnemoscope"),
    ],
)
def test_the_command_is_written_as_it_must_be_typed(monkeypatch, typed, is_on_path, said):
    monkeypatch.setattr(sys, "argv", [typed])
    monkeypatch.setattr(console.shutil, "which", lambda name: typed if is_on_path else None)
    console.typed_command.cache_clear()
    try:
        text = (
            "no ledger in 'mnemoscope-store'; 'mnemoscope run walk' makes one; mnemoscope.fit too"
        )
        assert console.as_typed(text) == text.replace("'mnemoscope run", f"'{said} run")
        assert console.as_typed("Next: mnemoscope run ./x (now)") == f"Next: {said} run ./x (now)"
    finally:
        console.typed_command.cache_clear()


# ---- where the screen has gone


def test_an_output_that_cannot_be_written_is_one_line():
    start = [sys.executable, "-m", "mnemoscope"]
    command = [*start, "verify"]
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=ENV)
        assert one_line(done).startswith("mnemoscope: the output cannot be written (No space left")
    closed = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True, env=ENV
    )
    assert (closed.returncode, closed.stderr) == (0, "")
    cut = subprocess.run(
        [
            "bash",
            "-c",
            '"$@" | head -1; exit "${PIPESTATUS[0]}"',
            "sh",
            *start,
            *("show", "R13", "--scale", "full", "--seeds"),
        ],
        capture_output=True,
        text=True,
        env=ENV,
    )
    assert (cut.returncode, cut.stdout, cut.stderr) == (0, "R13 of remember\n", "")


def test_errors_of_files_are_not_taken_for_the_outputs():
    full = OSError(errno.ENOSPC, "No space left on device")
    assert main._is_of_output(full)
    full.filename = "a file"
    assert not main._is_of_output(full)


def test_a_platform_that_is_not_there_is_one_line(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    with pytest.raises(UserError, match=r"JAX finds no device \(JAX_PLATFORMS='cuda': .*=cpu"):
        machine._require_devices()


@pytest.mark.parametrize("seeds", [2**31, [2**31], 2**40, [0, -1], range(2**50)])
def test_seeds_are_few_and_fit_32_bits(seeds):
    with pytest.raises(UserError, match=r"no more than 1,000,000, each below 2\^31"):
        different_seeds(seeds)
    assert different_seeds([2**31 - 1]) == (2**31 - 1,)


def test_a_table_runs_nothing(tmp_path):
    words = np.array(["=cmd()", "@x", "+1", "-", "-1 to 1", "plain", "\tx"])
    numbers = np.array([-1.0, 2, 3, 4, 5, 6, 7])
    write_csv({"t": {"words": words, "numbers": numbers}}, {}, tmp_path / "out", False)
    with open(Path(tmp_path) / "out" / "t.csv", newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert [row[0] for row in rows] == ["'=cmd()", "'@x", "'+1", "-", "'-1 to 1", "plain", "'\tx"]
    assert [float(row[1]) for row in rows] == numbers.tolist()


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        (["run", "walk", "--scale", "full"], "run walk --scale full"),
        (["run", "walk", "--store", "/home/me/runs", "--seeds", "8"], "run walk --seeds 8"),
        (["run", "walk", "--store=/home/me/runs", "--seeds=8"], "run walk --seeds=8"),
        (["run", "all", "--cluster", "tcp://node7:8786", "--block-timeout", "60"], "run all"),
        (["run", "all", "--store"], "run all"),
        (["run", "birth", "--corpus", "/home/me/my text.txt"], "run birth --corpus 'my text.txt'"),
        (["run", "language", "--model=/data/m.gguf"], "run language --model=m.gguf"),
        (["run", "./my_study", "--plugin", "../tasks.py"], "run ./my_study --plugin ../tasks.py"),
    ],
)
def test_a_ledger_tells_a_command_that_any_machine_has(typed, told):
    assert portable_command(typed) == f"mnemoscope {told}"
