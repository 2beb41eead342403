"""The command line as a user meets it: by its exit code and what it prints.

Most commands are called in this process, where JAX is loaded already. What only a process of its
own can show (what is imported, signals, warnings, the environment) starts one.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest

from mnemoscope.cli import main as command_line
from mnemoscope.store import Store
from mnemoscope.store.checkpoints import SECONDS_BETWEEN

LOOKS = {"COLUMNS": "160", "NO_COLOR": "1"}
ENV = {**os.environ, **LOOKS}


def started(*args, store=None):
    """The command in a process of its own."""
    env = ENV | ({"MNEMOSCOPE_STORE": str(store)} if store else {})
    command = [sys.executable, "-m", "mnemoscope", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=300)


def mnemoscope(*args, store=None):
    """The command in this process."""
    line = ["mnemoscope", *map(str, args), *(("--store", str(store)) if store else ())]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        for name, value in LOOKS.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", line)
        # put back: the command changes it
        patch.setattr(warnings, "showwarning", warnings.showwarning)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                command_line.main()
            except SystemExit as end:
                code = end.code or 0
    return subprocess.CompletedProcess(line, code, out.getvalue(), err.getvalue())


def one_line(result, code=2):
    """The failure is one line on the error stream, without a traceback."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store with the exact claims judged, which train nothing."""
    folder = tmp_path_factory.mktemp("cli") / "store"
    result = started("run", "remember", "--claims", "R1,R2", store=folder)
    assert result.returncode == 0, result.stderr
    assert "2 reproduced" in result.stdout
    return folder


def test_help_teaches_and_does_not_wait_for_jax():
    result = started("--help")
    for word in ("list", "run", "ledger", "show", "runs", "walk", "mnemoscope show R1 "):
        assert word in result.stdout
    code = "import sys, mnemoscope.cli.main; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=ENV, check=True
    )
    modules = loaded.stdout.split()
    assert "jax" not in modules
    of_studies = [name for name in modules if name.startswith("mnemoscope.studies.library.")]
    assert of_studies == [], "a study's command is loaded when it is asked for"
    usage = " ".join(mnemoscope("run", "--help").stdout.replace("│", " ").split())
    assert "--seeds" in usage
    assert "quick: minutes on a laptop. full: the paper's own budget, for a GPU." in usage


def test_list_shows_every_claim_and_what_is_done(store):
    out = mnemoscope("list", store=store).stdout
    assert all(f"R{i} " in out for i in range(1, 20))
    assert out.count("reproduced") >= 2


def test_ledger_as_data_is_the_file(store):
    data = json.loads(mnemoscope("ledger", "remember", "--json", store=store).stdout)
    assert data == json.loads((store / "ledger/quick/remember.json").read_text())
    assert [claim["id"] for claim in data["claims"]] == ["R1", "R2"]
    assert "R1" in mnemoscope("ledger", store=store).stdout
    assert "| R1 |" in (store / "ledger/quick/remember.md").read_text()


def test_a_second_run_finds_everything_finished(store):
    result = mnemoscope("run", "remember", "--claims", "R1,R2", store=store)
    assert "everything is finished" in result.stdout


def test_show_one_claim(store):
    out = mnemoscope("show", "R1", "--scale", "quick", store=store).stdout
    for word in ("criterion", "0.9575", "reproduced", "exact"):
        assert word in out


def test_runs_lists_filters_and_deletes(tmp_path):
    from mnemoscope.execution.local import load_or_train
    from mnemoscope.models import ModelConfig
    from mnemoscope.tasks import Permutation
    from mnemoscope.training.spec import Spec

    for d in (4, 6):
        model = ModelConfig(d_model=d, n_heads=1, d_mlp=0)
        load_or_train(
            Store(tmp_path),
            Spec(task=Permutation(n_symbols=2), model=model, steps=3, batch=2),
            range(2),
        )
    assert "2 runs" in mnemoscope("runs", store=tmp_path).stdout
    assert "1 run," in mnemoscope("runs", "d_model=6", store=tmp_path).stdout
    assert "unknown key of a Spec 'd_modl'" in one_line(
        mnemoscope("runs", "d_modl=6", store=tmp_path)
    )
    assert "nothing to delete" in one_line(mnemoscope("runs", "zzz", "--delete", store=tmp_path))
    assert "deleted 1 run," in mnemoscope("runs", "d_model=6", "--delete", store=tmp_path).stdout
    assert len(Store(tmp_path).rows()) == 1
    assert len(list(tmp_path.rglob("*.safetensors"))) == 1


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("run", "remembr"),
            "unknown study 'remembr' (did you mean 'remember'?); allowed: remember",
        ),
        (("run", "remember", "--claims", "R99"), "unknown claim of study 'remember' 'R99'"),
        (("run", "remember", "--seeds", "0"), "--seeds must be 1 to 1,000,000, got 0"),
        (("run", "remember", "--block-timeout", "9"), "--block-timeout goes with --cluster"),
        (
            ("run", "remember", "--follow", "wandb", "--cluster", "tcp://h:1"),
            "--follow goes without --cluster",
        ),
        (("run", "all", "--claims", "R1"), "--claims goes with one study"),
        (("show", "R77"), "unknown claim 'R77'"),
        (("show", "R8", "--scale", "quick"), "no verdict on R8"),
        (("ledger", "nothing"), "unknown study 'nothing'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(args, message, tmp_path):
    assert message in one_line(mnemoscope(*args, store=tmp_path / "s"))


def test_a_process_says_what_a_call_says(store):
    for args in (("show", "R77"), ("list",)):
        alone, called = started(*args, store=store), mnemoscope(*args, store=store)
        assert (alone.returncode, alone.stdout, alone.stderr) == (
            called.returncode,
            called.stdout,
            called.stderr,
        )


def test_words_that_the_parser_does_not_know():
    for args in (
        ("run", "remember", "--scale", "medium"),
        ("run", "remember", "--sedes", "3"),
        ("walk-the-dog",),
    ):
        result = mnemoscope(*args)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("profile", "remember", "--setting=repeat/d32h2"),
            "unknown option --setting (did you mean --condition?)",
        ),
        (
            ("memories", "grid", "--optimiser", "adam"),
            "unknown option --optimiser (did you mean --optimizer?)",
        ),
    ],
)
def test_an_option_of_0_1_is_refused_with_the_name_to_use(args, message):
    assert message in one_line(mnemoscope(*args))


def test_a_store_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "cannot use" in one_line(
        mnemoscope("run", "remember", "--claims", "R1", store=tmp_path / "file" / "s")
    )
    if os.path.exists("/dev/full"):
        assert "cannot use" in one_line(mnemoscope("runs", store="/dev/full"))


def test_ctrl_c_ends_with_130_and_keeps_what_was_finished(tmp_path):
    # whoever runs this in the background of a script has SIGINT ignored, and children inherit that
    start = (
        "import signal; "
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from mnemoscope.cli.main import main; "
        "main()"
    )
    command = [sys.executable, "-c", start, "run", "walk", "--claims", "W2", "--seeds", "2"]
    env = ENV | {"MNEMOSCOPE_STORE": str(tmp_path)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    # a run counts once the index has it, which is after its file has its name
    deadline = time.monotonic() + 300
    while not Store(tmp_path).rows():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "finished runs are stored" in err
    assert f"every {SECONDS_BETWEEN} seconds" in err
    assert "0 runs" not in mnemoscope("runs", store=tmp_path).stdout


def test_a_notice_is_one_line():
    program = """
import sys, warnings
from mnemoscope.cli import main
from mnemoscope.core.errors import Notice
def tell() -> None:
    warnings.warn("seed 3 diverged", Notice)
main.COMMANDS = {"tell": tell, "list": main.list_}
sys.argv = ["mnemoscope", "tell"]
main.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=ENV, timeout=300
    )
    assert (result.returncode, result.stderr) == (0, "mnemoscope: seed 3 diverged\n")
