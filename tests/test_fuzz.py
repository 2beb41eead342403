"""Mutated input at every door, a few of each, the same every time;
`make test-long` has 10,000 of them.

What the long version found, and what a hostile author of a store would try, is tested here by name.
"""

import ast
import json
import os
import resource
import sqlite3
import struct
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from fuzz import fuzz, knock
from fuzz_doors import asked
from fuzz_draws import DOORS
from fuzz_good import SPEC, lay_out
from fuzz_watch import plain
from safetensors.numpy import save

import mnemoscope
from mnemoscope.cli import visualize
from mnemoscope.core.errors import UserError
from mnemoscope.execution.local import load_or_train
from mnemoscope.models import ModelConfig
from mnemoscope.models.language import Tokenizer, read_model
from mnemoscope.report.ledger_tables import markdown
from mnemoscope.store import Damage, Store
from mnemoscope.store.checksums import sha256
from mnemoscope.store.schema import put_with_checksum
from mnemoscope.studies.plot_data import AttentionMap, Curve
from mnemoscope.tasks import Corpus, Cycle
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.ledger import Entry, Ledger

HOME = Path(mnemoscope.__file__).parent
FEW = {
    "config": 60,
    "python": 30,
    "cli": 20,
    "rows": 8,
    "prompt": 60,
    "corpus": 40,
    "tensors": 6,
    "language": 30,
    "index": 20,
    "ledger": 3,
}


@pytest.mark.parametrize("door", DOORS)
def test_every_input_is_right_or_refused_in_one_line(door):
    if door == "language" and find_spec("gguf") is None:
        pytest.skip("gguf is not installed: no GGUF file was written or read")
    tally = fuzz(door, FEW[door])
    assert tally.offenses == []
    assert tally.tried >= FEW[door] // 2


@pytest.fixture
def modest():
    """What asks for more than 40 GB gets an error, not the machine."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (40 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.long
@pytest.mark.parametrize("door", DOORS)
def test_ten_thousand_inputs_are_right_or_refused(door, modest):
    share = DOORS[door].share / sum(each.share for each in DOORS.values())
    assert fuzz(door, round(10_000 * share)).offenses == []


def test_the_harness_sees_what_it_should(monkeypatch):
    """A door that reads outside, one that raises, one that talks too much,
    and one that lets markup through.
    """

    def leads_out(_, room):
        (room.parent / "outside" / "canary").read_text()
        return True

    def talks(_, room):
        error = UserError("x")
        error.args = ("two\nlines",)
        raise error

    def writes(_, room):
        plain("<p><fuzz></p>")
        return True

    for ask in (leads_out, lambda *_: {}["x"], talks, writes, lambda *_: os.system("true") == 0):
        monkeypatch.setitem(DOORS, "config", DOORS["config"]._replace(ask=ask))
        assert knock("config", None)[0] == "offense"


FORBIDDEN = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "shelve",
    "marshal",
    "yaml",
    "torch",
}


def dangers(tree):
    """Whatever could turn the bytes of a file into running code."""
    for node in ast.walk(tree):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] in FORBIDDEN)
        if isinstance(node, ast.Call):
            called = (
                node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            )
            if isinstance(node.func, ast.Name) and called in (
                "eval",
                "exec",
                "compile",
                "__import__",
            ):
                yield called
            yield from (word.arg for word in node.keywords if word.arg == "allow_pickle")


# a text is compiled there to be compared with what runs already, and what comes out never runs
COMPARES = {HOME / "core/source.py": ["compile"]}


@pytest.mark.parametrize("file", sorted(HOME.rglob("*.py")), ids=lambda f: str(f.relative_to(HOME)))
def test_nothing_unpickles_or_evaluates(file):
    assert list(dangers(ast.parse(file.read_text()))) == COMPARES.get(file, [])


def test_the_scan_can_fail():
    bad = (
        "import pickle\n"
        "from torch import load\n"
        "import yaml\n"
        "np.load(f, allow_pickle=True)\n"
        "eval('1')\n"
        "exec('1')"
    )
    assert len(list(dangers(ast.parse(bad)))) == 6


@pytest.fixture
def stored(tmp_path):
    """A store with one run, and a file outside it that must stay as it is."""
    (tmp_path / "outside").write_text("sings")
    kept = Store(lay_out(tmp_path, "store"))
    yield kept
    kept.db.close()
    assert (tmp_path / "outside").read_text() == "sings"


def reseal(kept, **fields):
    """Change the run of SPEC as a hostile author would: with a seal that fits."""
    (row,) = kept.rows(SPEC.digest())
    again = row._replace(**fields)
    with kept.db:
        kept.db.execute("DELETE FROM runs WHERE spec=?", (row.spec,))
        put_with_checksum(kept.db, "runs", again[:-1])
    return kept.rows(again.spec)[0]


@pytest.mark.parametrize(
    "name", ["../outside", "/etc/passwd", "runs/../../outside", "index.sqlite3", "."]
)
def test_a_sealed_row_leads_nowhere(stored, name):
    outside = stored.folder.parent / "outside"
    row = reseal(stored, file=name, bytes=5, sha256=sha256(b"sings"))
    with pytest.raises(UserError, match="its file is not where runs are stored"):
        stored.load(row)
    assert [d.name for d in stored.check() if d.kind == "run"] == [row.id]
    stored.delete(row)
    assert outside.exists()
    assert (stored.folder / "index.sqlite3").exists()
    with stored.db:
        put_with_checksum(stored.db, "files", (name, "x", "x"))
    for damage in [*stored.check(), Damage("file", name, "")]:
        stored.forget(damage)
    assert outside.exists()
    assert (stored.folder / "index.sqlite3").exists()
    assert stored.check() == []


def test_links_out_of_a_store_are_not_followed(stored, tmp_path):
    (stored.folder / "ledger/quick/x.json.tmp").symlink_to(tmp_path / "outside")
    stored.write_text("ledger/quick/x.json", "mine")
    assert stored.read_text("ledger/quick/x.json") == "mine", (
        "the link gave way to a file of the store's own"
    )
    (stored.folder / "ledger/quick/y.json").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match=r"y.json .* is damaged"):
        stored.read_text("ledger/quick/y.json")
    (tmp_path / "other").mkdir()
    (tmp_path / "other/index.sqlite3").symlink_to(stored.folder / "index.sqlite3")
    with pytest.raises(UserError, match="leads out of the store"):
        Store(tmp_path / "other")


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE VIEW v AS SELECT 1",
        "CREATE TRIGGER t AFTER DELETE ON runs BEGIN DELETE FROM findings; END",
    ],
)
def test_an_index_that_acts_is_not_opened(stored, sql):
    stored.db.execute(sql)
    with pytest.raises(UserError, match="views or triggers"):
        Store(stored.folder)


def test_more_columns_are_no_harm_and_fewer_are_told(stored):
    stored.db.execute("ALTER TABLE runs ADD COLUMN more TEXT")
    assert len(stored.rows(SPEC.digest())) == 1
    stored.db.execute("ALTER TABLE runs RENAME COLUMN machine TO engine")
    with pytest.raises(UserError, match=r"the index of store .* cannot be read"):
        stored.rows()


def test_a_row_of_other_types_is_told(stored):
    db = sqlite3.connect(stored.folder / "index.sqlite3")
    db.execute("PRAGMA writable_schema=ON")
    db.execute("UPDATE sqlite_master SET sql = replace(sql, 'STRICT', '')")
    db.commit()
    db.close()
    stored.db.close()
    stored.db = sqlite3.connect(stored.folder / "index.sqlite3")
    with stored.db:
        stored.db.execute("UPDATE runs SET spec_json = x'00'")
        stored.db.execute("UPDATE findings SET body = x'00'")
    for read in (stored.rows, stored.check, lambda: stored.finding("a key")):
        with pytest.raises(UserError, match=r"the index of store .* is damaged"):
            read()


def test_a_row_for_all_seeds_takes_no_memory(stored):
    row = reseal(stored, last=2**62)
    assert stored.blocks(SPEC, range(4))[1] == []
    with pytest.raises(UserError, match="is damaged"):
        stored.load(row)


@pytest.mark.parametrize("change", ["shape", "kind", "name", "less", "half", "header"])
def test_sealed_arrays_that_are_not_the_runs_are_refused(stored, change):
    (row,) = stored.rows(SPEC.digest())
    run = stored.load(row)
    arrays = {f"snapshots/{k}": v for k, v in run.snapshots.items()}
    arrays |= {"loss_steps": run.loss_steps, "losses": run.losses, "good_steps": run.finite_steps}
    if change == "shape":
        arrays["losses"] = arrays["losses"][:1]
    elif change == "kind":
        arrays["loss_steps"] = arrays["loss_steps"].astype(np.float32)
    elif change == "name":
        arrays["snapshots/../x"] = arrays["losses"]
    elif change == "less":
        del arrays["good_steps"]
    data = save(arrays)
    if change == "half":
        data = data.replace(b'"F32"', b'"BF16"')
    elif change == "header":
        data = struct.pack("<Q", 2**60) + data[8:]
    (stored.folder / row.file).write_bytes(data)
    row = reseal(stored, bytes=len(data), sha256=sha256(data))
    with pytest.raises(UserError, match=r"stored run .* is damaged") as error:
        stored.load(row)
    assert "\n" not in str(error.value)


def test_a_sealed_spec_is_the_one_it_is_kept_under(stored):
    other = SPEC.model_copy(update={"batch": 5}).canonical_json()
    with pytest.raises(
        UserError, match="its Spec or its seeds are not those that it is stored under"
    ):
        stored.load(reseal(stored, spec_json=other))


@pytest.mark.parametrize(
    "text", ["7", "{", '{"model": 7}', "[" * 5000, json.dumps({"task": "[/]"})]
)
def test_runs_of_which_the_spec_cannot_be_read_are_listed_all_the_same(stored, text):
    reseal(stored, spec_json=text, made="[/] \x1b[31m")
    assert asked("runs", "--store", str(stored.folder))
    asked("runs", "batch=2", "--store", str(stored.folder))  # no traceback, whatever it says


def test_compiled_programs_do_not_come_with_a_store(stored, monkeypatch):
    from mnemoscope.execution.machine import compile_cache_dir

    monkeypatch.setenv("XDG_CACHE_HOME", str(stored.folder.parent / "cache"))
    assert compile_cache_dir() == stored.folder.parent / "cache" / "mnemoscope" / "compiled"
    asked = []
    monkeypatch.setattr(
        "mnemoscope.execution.machine.use_all_devices", lambda cache=None: asked.append(cache)
    )
    with pytest.raises(UserError):
        visualize.explore((SPEC.digest(),), seeds="99", store=stored.folder)
    assert asked == [compile_cache_dir()]


def test_configurations_without_measure_are_refused():
    for make in (
        lambda: ModelConfig(n_layers=10**9),
        lambda: ModelConfig(d_model=10**12, n_heads=7),
        lambda: Spec(task=Cycle(), n_evals=10**12),
        lambda: Spec(task=Cycle(), steps=2**31),
        lambda: Corpus(name="x", characters="ab", counts=((0, 1, 10**400), (1, 0, 1))),
        lambda: ModelConfig(**json.loads('{"self": 1}')),
        lambda: Spec.model_validate_json("[" * 9000),
        lambda: Spec.model_validate(7),
        lambda: ModelConfig.model_validate({"a\nb": "x" * 10**6}),
        lambda: ModelConfig(norm="x" * 10**6),
        lambda: Curve(steps=(1, 2), mean=(1,), low=(1,), high=(1,)),
        lambda: AttentionMap(tokens=("a",), weights=()),
    ):
        with pytest.raises(UserError) as error:
            make()
        assert len(str(error.value).splitlines()) == 1
        assert len(str(error.value)) < 1000


def test_what_a_terminal_would_obey_is_shown():
    assert str(UserError("a\nb \x1b[31m \ud800 é")) == "a\\nb \\x1b[31m \\ud800 é"


def test_markdown_of_a_ledger_holds_no_tags():
    bad = "<script>x</script> | a < b"
    entry = Entry(
        id=bad,
        statement=bad,
        published=bad,
        criterion=bad,
        verdict="partly",
        firm=False,
        value=None,
        interval=None,
        unit=bad,
        units=0,
        failed=0,
        sentence=bad,
    )
    book = Ledger(
        study=bad,
        scale="quick",
        command=f"`{bad}",
        hardware=bad,
        versions={bad: bad},
        finished=bad,
        claims=(entry,),
    )
    outside = "".join(markdown(book).split("`")[::2])  # what stands between backticks is code
    assert "<script" not in outside
    assert "a < b" in outside


@pytest.mark.skipif(
    find_spec("gguf") is None, reason="gguf is not installed: no GGUF file was written or read"
)
def test_a_count_beyond_the_end_of_a_gguf_file_is_not_counted_to(tmp_path):
    # one field, an array of 2^60 bytes of which none is there
    field = struct.pack("<Q", 1) + b"x" + struct.pack("<IIQ", 9, 0, 2**60)
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + field)
    with pytest.raises(UserError, match="it ends before what it announces"):
        read_model(tmp_path / "m.gguf")


def test_names_that_are_no_text_of_this_system(stored):
    assert asked("run", "walk", "--claims", "W3", "--store", str(stored.folder / "\udcff"))
    assert asked(
        "figure",
        "W3",
        "--store",
        str(stored.folder / "\udcff"),
        "--out",
        str(stored.folder / "\udcff.svg"),
    )


def test_half_a_character_is_no_text():
    with pytest.raises(UserError, match="holds half a character"):
        Tokenizer(("a",), (), False).encode("a\ud800")


def test_dollars_in_names_are_no_formulas():
    from mnemoscope.report.claim_figures import claim_figures, svg
    from mnemoscope.studies.plot_data import Plots
    from mnemoscope.studies.presentation import Panel

    panel = [Panel(series=("*",), axis="x"), Panel(series=("*",), axis="x", kind="curves")]
    curve = Curve(steps=(0, 1), mean=(0, 1), low=(0, 1), high=(0, 1))
    drawn = claim_figures(panel, {"$\\frac{$": (1.0, 2.0)}, Plots(curves={"$x_{$": curve}))
    text = [svg(figure, "x", kind) for kind, figure in drawn.items()]
    assert "$\\frac{$" in text[0]
    assert "$x_{$" in text[1]


def test_the_store_of_the_tests_is_what_a_store_is(stored):
    assert stored.check() == []
    assert load_or_train(stored, SPEC, range(2)).seeds == (0, 1)
