"""Exports of runs and ledgers, and imports: what is written reads back,
and nothing unfinished looks finished.
"""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import tyro
from exchanged import bits, drawn, small

from mnemoscope.cli.main import all_commands
from mnemoscope.core.errors import UserError
from mnemoscope.exchange import imported, read_transformer_lens, run_tables, write_transformer_lens
from mnemoscope.exchange.atomic_write import new_file, new_folder
from mnemoscope.explorer import describe_run, pack_run
from mnemoscope.models import Transformer, parameter_shapes
from mnemoscope.store import Store
from mnemoscope.studies.ledger_files import read_ledger
from mnemoscope.studies.published import published_folder
from mnemoscope.tasks import Cycle, Permutation
from mnemoscope.training.loop import fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with one run of three seeds, drawn instead of trained, and its row."""
    store = Store(tmp_path_factory.mktemp("exchange") / "store")
    spec, rng = (
        Spec(task=Cycle(n_symbols=3, length=2), model=small(), steps=4, batch=2, snapshots=3),
        np.random.default_rng(1),
    )
    shapes = {
        k: (3, 3, *shape) for k, shape in parameter_shapes(spec.model, 3, spec.task.n_ctx).items()
    }
    weights = {k: rng.normal(size=shape).astype("f4") for k, shape in shapes.items()}
    losses = rng.random((3, 2)).astype("f4")
    store.save(
        Run(spec, (0, 1, 2), weights, np.array([2, 4]), losses, np.array([4, 4, 4])),
        1.0,
        "a machine",
    )
    return store, store.rows()[0]


def command(*args, store):
    tyro.extras.subcommand_cli_from_dict(
        all_commands(), args=[str(arg) for arg in (*args, "--store", store.folder)]
    )


def test_an_export_that_stops_leaves_nothing(tmp_path):
    def stops(where):
        where.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "target", False) as where:
        stops(where)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "target", False, "last") as where:
        stops(where / "first")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        write_transformer_lens(drawn(small()), tmp_path / "file" / "model")


def test_export_picks_a_seed_and_a_snapshot(kept, tmp_path, capsys):
    store, row = kept
    run = store.load(row)
    command("export", row.id[:6], "--to", "transformer-lens", tmp_path / "end", store=store)
    command(
        "export",
        row.id,
        tmp_path / "early",
        "--to",
        "transformer-lens",
        "--seed",
        2,
        "--snapshot",
        0,
        store=store,
    )
    assert "Written:" in capsys.readouterr().out
    for name, (seed, snapshot) in {"end": (0, -1), "early": (2, 0)}.items():
        params = {k: np.asarray(v) for k, v in run.model(seed, snapshot).params.items()}
        assert bits(read_transformer_lens(tmp_path / name).params) == bits(params)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ("RUN", "--to", "transformer-lens", "--seed", "9"),
            "no seed 9 in this run; allowed: 0, 1, 2",
        ),
        (("RUN", "--to", "csv", "--seed", "9"), "no seed 9 in this run; allowed: 0, 1, 2"),
        (
            ("RUN", "--to", "transformer-lens", "--snapshot", "7"),
            "no snapshot 7 in this run; allowed: 0 to",
        ),
        (("RUN", "--to", "csv", "--snapshot", "0"), "--snapshot goes with --to transformer-lens"),
        (("RUN", "--to", "csv", "--scale", "full"), "--scale goes with a study"),
        (("RUN", "--to", "numpy"), "a file that ends in .npz"),
        (("birth", "--to", "csv", "--seed", "0"), "--seed goes with a run"),
        (("birth", "--to", "transformer-lens"), "'birth' is a study, which has no weights"),
        (("facts", "--to", "csv", "--scale", "quick"), "no quick ledger of facts"),
        (("zzz", "--to", "csv"), "no stored run starts with 'zzz'; there are: "),
    ],
)
def test_exports_that_cannot_be(args, message, kept, tmp_path):
    store, row = kept
    name, *more = args
    with pytest.raises(UserError) as error:
        command("export", row.id if name == "RUN" else name, tmp_path / "x", *more, store=store)
    assert message in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_for_numpy(kept, tmp_path):
    store, row = kept
    run = store.load(row)
    command("export", row.id, "--to", "numpy", tmp_path / "run.npz", store=store)
    with np.load(tmp_path / "run.npz", allow_pickle=False) as file:
        assert Spec.model_validate_json(str(file["spec"])) == run.spec
        assert file["seeds"].tolist() == [0, 1, 2]
        assert file["snapshot_steps"].tolist() == list(run.spec.snapshot_steps())
        assert np.array_equal(file["losses"], run.losses)
        assert all(np.array_equal(file[f"snapshots/{k}"], v) for k, v in run.snapshots.items())
    with pytest.raises(UserError, match="is there already; --force"):
        command("export", row.id, "--to", "numpy", tmp_path / "run.npz", store=store)
    command(
        "export", row.id, "--to", "numpy", tmp_path / "run.npz", "--seed", 1, "--force", store=store
    )
    with np.load(tmp_path / "run.npz", allow_pickle=False) as file:
        assert np.array_equal(file["losses"], run.losses[1:2])


def run_with_metrics():
    """A run as `fit` would leave it: two seeds, one of which diverged,
    and observations of two shapes.
    """
    spec = Spec(
        task=Cycle(n_symbols=3, length=2), model=small(), steps=4, batch=1, snapshots=2, n_evals=2
    )
    looks = {
        "accuracy": np.arange(6, dtype="f4").reshape(2, 3) / 7,
        "p": np.arange(12, dtype="f4").reshape(2, 3, 2) / 3,
    }
    return Run(
        spec,
        (5, 6),
        {},
        np.array([2, 4]),
        np.array([[1.1, 0.1], [2.0, np.nan]], "f4"),
        np.array([4, 3]),
        looks,
    )


def read_csv(path):
    with open(path, newline="") as file:
        head, *rows = csv.reader(file)
    return {name: [row[i] for row in rows] for i, name in enumerate(head)}


def test_tables_of_a_run(tmp_path):
    run = run_with_metrics()
    run_tables.write_csv(run_tables.tabulate_run(run), {"run": "x"}, tmp_path / "run", False)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "about.json",
        "losses.csv",
        "metrics.csv",
        "seeds.csv",
    ]
    assert read_csv(tmp_path / "run/seeds.csv")["outcome"] == ["finished", "diverged"]
    losses = read_csv(tmp_path / "run/losses.csv")
    assert losses["seed"] == ["5", "5", "6", "6"]
    assert losses["step"] == ["2", "4", "2", "4"]
    # every digit is there
    np.testing.assert_array_equal(np.array(losses["loss"], "f4"), run.losses.reshape(-1))
    metrics = read_csv(tmp_path / "run/metrics.csv")
    assert list(metrics) == ["seed", "step", "accuracy", "p[0]", "p[1]"]
    assert metrics["step"] == ["0", "2", "4"] * 2
    np.testing.assert_array_equal(
        np.array(metrics["p[1]"], "f4"), run.metrics["p"][:, :, 1].reshape(-1)
    )


def test_a_ledger_for_csv_and_numpy(kept, tmp_path):
    store, _ = kept
    book = read_ledger(published_folder() / "full", "birth", "full")
    assert book
    command("export", "birth", "--to", "csv", tmp_path / "birth", store=store)
    command("export", "birth", "--to", "numpy", tmp_path / "birth.npz", store=store)
    claims, outcomes = (
        read_csv(tmp_path / "birth" / f"{name}.csv") for name in ("claims", "outcomes")
    )
    assert claims["id"] == [entry.id for entry in book.claims]
    assert claims["statement"] == [entry.statement for entry in book.claims]
    assert [float(x) for x in claims["low"]] == [
        entry.interval[0] for entry in book.claims if entry.interval
    ]
    assert len(outcomes["value"]) > 100
    assert json.loads((tmp_path / "birth/about.json").read_text())["hardware"] == book.hardware
    with np.load(tmp_path / "birth.npz", allow_pickle=False) as file:
        assert file["claims/verdict"].tolist() == claims["verdict"]
        assert file["outcomes/value"].tolist() == [float(x) for x in outcomes["value"]]


def test_parquet_needs_pyarrow_and_says_so(kept, tmp_path, monkeypatch):
    store, row = kept
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match=r"needs PyArrow: pip install 'mnemoscope\[parquet\]'"):
        command("export", row.id, "--to", "parquet", tmp_path / "run", store=store)
    assert list(tmp_path.iterdir()) == []


def test_parquet(tmp_path):
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="PyArrow is not installed (the extra 'parquet')"
    )
    run = run_with_metrics()
    run_tables.write_parquet(run_tables.tabulate_run(run), {}, tmp_path / "run", False)
    read = {
        name: parquet.read_table(tmp_path / "run" / f"{name}.parquet")
        for name in ("seeds", "losses", "metrics")
    }
    assert read["seeds"]["outcome"].to_pylist() == ["finished", "diverged"]
    np.testing.assert_array_equal(read["losses"]["loss"].to_numpy(), run.losses.reshape(-1))
    assert read["metrics"].column_names == ["seed", "step", "accuracy", "p[0]", "p[1]"]


def test_an_import_is_stored_walked_and_explored_but_never_taken_for_a_training(
    kept, tmp_path, capsys
):
    store, row = kept
    run = store.load(row)
    command(
        "export", row.id, "--to", "transformer-lens", tmp_path / "model", "--seed", 1, store=store
    )
    command("import", tmp_path / "model", "--like", row.id, "--seed", 1, store=store)
    assert "Stored as" in capsys.readouterr().out
    new = store.rows()[-1]
    again = store.load(new)
    assert again.spec.task == run.spec.task
    assert again.spec.digest() != run.spec.digest()
    assert again.outcome(1) == "finished"
    here = {name: x[0, 0] for name, x in again.snapshots.items()}
    assert bits(here) == bits({name: x[1, -1] for name, x in run.snapshots.items()})
    with pytest.raises(UserError, match="stored already with seed 1"):
        command("import", tmp_path / "model", "--like", row.id, "--seed", 1, store=store)
    with pytest.raises(UserError, match="was imported, not trained"):
        fit(again.spec, [0])
    page = pack_run(describe_run(again, new.id))
    assert "imported, not trained here" in page["about"]
    assert page["steps"] == [1]
    command("walk", "--run", new.id, store=store)
    assert "imported" in capsys.readouterr().out
    command("runs", store=store)
    assert "imported" in capsys.readouterr().out
    # a damaged one cannot be trained again, and that stops nothing else
    file = store.folder / new.file
    file.write_bytes(file.read_bytes()[:-4])
    command("check", "--repair", store=store)
    assert "it was imported, so only its folder can bring it back" in capsys.readouterr().out
    assert [each.id for each in store.rows()] == [row.id]


def test_a_model_without_a_table_of_positions_goes_out_and_comes_back(tmp_path, capsys):
    """Only the task says how long its prompts are."""
    store = Store(tmp_path / "store")
    config = small(positions="rotary", norm="pre", norm_type="rms", act="gelu")
    spec = Spec(task=Cycle(n_symbols=3, length=2), model=config, steps=2, batch=2, snapshots=1)
    model = drawn(config, 3, spec.task.n_ctx)
    weights = {name: x[None, None] for name, x in model.params.items()}
    losses = np.ones((1, 1), "f4")
    store.save(Run(spec, (0,), weights, np.array([2]), losses, np.array([2])), 1.0, "a machine")
    run_id = store.rows()[0].id
    command("export", run_id, "--to", "transformer-lens", tmp_path / "model", store=store)
    said = json.loads((tmp_path / "model/config.json").read_text())
    assert said["n_ctx"] == spec.task.n_ctx
    command("import", tmp_path / "model", "--like", run_id, store=store)
    printed = capsys.readouterr().out
    assert "act gelu, norm pre (rms), 3 tokens, any number of positions (rotary)" in printed
    again = store.load(store.rows()[-1])
    assert bits({name: x[0, 0] for name, x in again.snapshots.items()}) == bits(model.params)


def test_an_import_has_the_tokens_of_its_task(tmp_path):
    like = Permutation(n_symbols=3)
    with pytest.raises(
        UserError,
        match=r"'embed.W_E' has shape \(5, 4\); the task 'permutation' of that run has 4 tokens",
    ):
        imported.as_run(drawn(small()), like, 0)
    with pytest.raises(
        UserError, match="--seed must be a whole number from 0 to 2147483647, got -1"
    ):
        imported.as_run(drawn(small(), 4, 5), like, -1)


def test_an_import_takes_the_prompts_of_its_task():
    like = Permutation(n_symbols=3)
    rotary = drawn(small(positions="rotary", n_ctx=4), 4, 4)
    with pytest.raises(UserError, match=r"at most 4 tokens; those of the task .* have 5"):
        imported.as_run(rotary, like, 0)
    longer = Transformer(rotary.config.model_copy(update={"n_ctx": 9}), rotary.params)
    assert np.isfinite(imported.as_run(longer, like, 0).losses).all()


def test_a_fingerprint_is_that_of_the_weights():
    model = drawn(small())
    other = Transformer(
        model.config, model.params | {"unembed.b_U": model.params["unembed.b_U"] + 1}
    )
    assert (
        imported.weights_fingerprint(model)
        == imported.weights_fingerprint(drawn(small()))
        != imported.weights_fingerprint(other)
    )


def test_an_import_that_says_anything_equally_loses_the_logarithm_of_its_tokens():
    like = Permutation(n_symbols=3)
    model = drawn(small(), 4, 5)
    silent = Transformer(
        model.config, model.params | {k: v * 0 for k, v in model.params.items() if "unembed" in k}
    )
    np.testing.assert_allclose(imported.as_run(silent, like, 4).losses, np.log([[4]]), rtol=1e-6)


def test_the_room_is_entered_without_jax():
    code = "import sys, mnemoscope.cli.exchange; print('jax' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "False"
