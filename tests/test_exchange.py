"""Exports and imports: the same bits come back, what cannot go over is refused by name, and nothing unfinished looks finished."""

import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import tyro
from safetensors.numpy import load_file, save_file

from mnemoscope.cli import COMMANDS
from mnemoscope.core.errors import UserError
from mnemoscope.exchange import imported, read_transformer_lens, tables, write_transformer_lens
from mnemoscope.exchange.files import new_file, new_folder
from mnemoscope.explorer import pack_run
from mnemoscope.models import ModelConfig, Transformer, parameter_shapes
from mnemoscope.report.results import ledger
from mnemoscope.report.site import piece_of
from mnemoscope.store import Store
from mnemoscope.tasks import Cycle, Permutation
from mnemoscope.training.loop import fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

VOCAB, CTX = 5, 4
SHAPES = {
    "plain": {},
    "norm": {"norm": "pre", "n_layers": 2},
    "attention only": {"d_mlp": 0, "norm": "pre"},
    "no feed-forward layer": {"mlp_layers": ()},
    "no biases": {"bias": False},
    "no bias at the read-out": {"unembed_bias": False},
    "tied": {"tied": True},
    "wide heads": {"d_head": 3},
    "both ways": {"causal": False},
    "frozen": {"frozen": ("*.W_E",), "scaled": (("*.W_O", 2.0),)},
}


def drawn(config, vocab=VOCAB, ctx=CTX):
    rng = np.random.default_rng(0)
    shapes = parameter_shapes(config, vocab, ctx)
    return Transformer(
        config, {name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}
    )


def small(**more):
    return ModelConfig(**{"d_model": 4, "n_heads": 2, "d_mlp": 6, **more})


@pytest.fixture
def folder(tmp_path):
    write_transformer_lens(drawn(small(norm="pre")), tmp_path / "model")
    return tmp_path / "model"


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
        COMMANDS, args=[str(arg) for arg in (*args, "--store", store.folder)]
    )


def same_bits(a, b):
    return {k: (v.dtype, v.shape, v.tobytes()) for k, v in a.items()} == {
        k: (v.dtype, v.shape, v.tobytes()) for k, v in b.items()
    }


@pytest.mark.parametrize("kind", SHAPES)
def test_out_and_back_gives_the_same_bits(kind, tmp_path):
    model = drawn(small(**SHAPES[kind]))
    write_transformer_lens(model, tmp_path / "model")
    again = read_transformer_lens(tmp_path / "model")
    assert again.config == model.config
    assert list(again.params) == list(model.params)
    assert same_bits(again.params, model.params)


def test_without_our_header_it_is_the_model_that_transformer_lens_has(tmp_path):
    model = drawn(small(bias=False, tied=True))
    write_transformer_lens(model, tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    save_file(load_file(file), file)
    again = read_transformer_lens(tmp_path / "model")
    assert again.config == small()
    assert not again.params["blocks.0.attn.b_Q"].any()
    np.testing.assert_allclose(
        again.run_with_cache([1, 0, 4])[0], model.run_with_cache([1, 0, 4])[0], atol=1e-6
    )


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"norm": "post"}, "norm='post'"),
        ({"act": "linear"}, "act='linear'"),
        ({"n_layers": 2, "mlp_layers": (1,)}, "mlp_layers=(1,)"),
        ({"positions": "none"}, "positions='none'"),
        ({"attention": "linear"}, "attention='linear'"),
        ({"attn_residual": False}, "attn_residual=False"),
    ],
)
def test_what_transformer_lens_has_no_word_for(setting, word, tmp_path):
    with pytest.raises(UserError, match="TransformerLens has no") as error:
        write_transformer_lens(drawn(small(**setting)), tmp_path / "model")
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"act_fn": "gelu"}, "act_fn='gelu'; allowed: 'relu'"),
        (
            {"positional_embedding_type": "rotary"},
            "positional_embedding_type='rotary'; allowed: 'standard'",
        ),
        (
            {"normalization_type": "RMS"},
            "normalization_type='RMS'; allowed: None or 'LN' or 'LNPre'",
        ),
        ({"eps": 1e-6}, "eps=1e-06; allowed: 1e-05"),
        ({"attn_scale": 1.0}, "attn_scale=1.0; allowed: -1.0 or 1.414"),
        ({"n_key_value_heads": 1}, "n_key_value_heads=1; allowed: None or 2"),
        ({"parallel_attn_mlp": True}, "parallel_attn_mlp=True; allowed: None or False"),
        ({"a_later_part": 3}, "a_later_part=3; allowed: None or False"),
        ({"dtype": "torch.bfloat16"}, "dtype='torch.bfloat16'; allowed: 'torch.float32'"),
        ({"d_model": "four"}, "d_model='four'; allowed: a whole number from 1 up"),
        ({"n_ctx": None}, "n_ctx=None; allowed: a whole number from 1 up"),
        ({"d_head": 10**400}, "allowed: a whole number from 1 up that a computer can hold"),
        ({"attn_scale": 10**400}, "allowed: -1.0 or 1.414"),
        ({"n_ctx": 9}, "'pos_embed.W_pos' in .* has shape (4, 4); config.json says (9, 4)"),
        ({"n_layers": 2}, "has no 'blocks.1.ln1.w', which config.json asks for"),
        ({"n_layers": 10**9}, "config.json has n_layers=1000000000, but model.safetensors in"),
        ({"attn_only": True}, "which a model of this config.json does not use"),
        ({"attention_dir": "bidirectional"}, "describe different models"),
    ],
)
def test_a_configuration_that_is_not_ours(setting, message, folder):
    data = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(data | setting))
    with pytest.raises(UserError) as error:
        read_transformer_lens(folder)
    before, _, after = message.partition(".*")
    assert before in str(error.value)
    assert after in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_switched_off_or_does_not_matter_is_read(folder):
    data = json.loads((folder / "config.json").read_text())
    more = {
        "gated_mlp": False,
        "num_experts": None,
        "device": "cuda",
        "rotary_base": 10000,
        "attn_scale": 2**0.5,
        "a_later_part": False,
    }
    (folder / "config.json").write_text(json.dumps(data | more))
    assert read_transformer_lens(folder).config == small(norm="pre")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("unembed.W_U"), "has no 'unembed.W_U'"),
        (
            lambda t: t.update({"blocks.0.attn.W_Q": t["blocks.0.attn.W_Q"][0]}),
            "'blocks.0.attn.W_Q' in",
        ),
        (
            lambda t: t.update({"unembed.b_U": t["unembed.b_U"].astype("f2")}),
            "is F16; allowed: F32",
        ),
        (
            lambda t: t.update({"unembed.b_U": t["unembed.b_U"] * np.nan}),
            "has numbers that are not finite",
        ),
        (
            lambda t: t.update({"blocks.0.attn.W_Z": t["unembed.b_U"]}),
            "has 'blocks.0.attn.W_Z', which",
        ),
    ],
)
def test_weights_that_do_not_fit(change, message, folder):
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(UserError, match=message) as error:
        read_transformer_lens(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_damaged_and_missing_files(name, folder):
    whole = (folder / name).read_bytes()
    for part in (whole[: len(whole) // 2], b"", b"\xff" * 40, None):
        (folder / name).write_bytes(part) if part is not None else (folder / name).unlink()
        with pytest.raises(UserError, match=r"cannot read .*a model is a folder with") as error:
            read_transformer_lens(folder)
        assert "\n" not in str(error.value)


def test_a_header_that_does_not_fit_its_tensors(tmp_path):
    write_transformer_lens(drawn(small(bias=False)), tmp_path)
    file = tmp_path / "model.safetensors"
    tensors, ours = load_file(file), {"mnemoscope": small(bias=False).canonical_json()}
    save_file(tensors | {"unembed.b_U": np.ones(VOCAB, "f4")}, file, ours)
    with pytest.raises(UserError, match=r"'unembed.b_U' in .* is not what was filled in"):
        read_transformer_lens(tmp_path)
    save_file(tensors, file, {"mnemoscope": '{"d_modl": 4}'})
    with pytest.raises(UserError, match=r"header of .* is damaged"):
        read_transformer_lens(tmp_path)


def test_an_export_that_stops_leaves_nothing(tmp_path):
    def stops(where):
        where.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "target", False) as where:
        stops(where)
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "target", False, "last") as where:
        stops(where / "first")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_only_written_over_by_force(folder):
    model = drawn(small(tied=True))
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="a folder with files in it; --force"):
        write_transformer_lens(model, folder)
    assert read_transformer_lens(folder).config == small(norm="pre")
    write_transformer_lens(model, folder, force=True)
    assert same_bits(read_transformer_lens(folder).params, model.params)
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]
    with pytest.raises(UserError, match="is a file; allowed: a folder"):
        write_transformer_lens(model, folder / "notes.txt", force=True)


def test_a_used_folder_that_is_cut_off_while_it_is_written_over_has_no_model(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnemoscope.exchange.files.os.replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_transformer_lens(drawn(small()), folder, force=True)
    monkeypatch.undo()
    with pytest.raises(
        UserError, match="cannot read"
    ):  # neither the old one nor half of the new one
        read_transformer_lens(folder)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]


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
        assert same_bits(read_transformer_lens(tmp_path / name).params, params)


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
        (("zzz", "--to", "csv"), "'zzz' is neither a run nor a study; runs: "),
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


def observed_run():
    """A run as `fit` would leave it: two seeds, one of which diverged, and observations of two shapes."""
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
    run = observed_run()
    tables.write_csv(tables.run_tables(run), {"run": "x"}, tmp_path / "run", False)
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == [
        "about.json",
        "losses.csv",
        "observed.csv",
        "seeds.csv",
    ]
    assert read_csv(tmp_path / "run/seeds.csv")["outcome"] == ["finished", "diverged"]
    losses = read_csv(tmp_path / "run/losses.csv")
    assert losses["seed"] == ["5", "5", "6", "6"]
    assert losses["step"] == ["2", "4", "2", "4"]
    np.testing.assert_array_equal(
        np.array(losses["loss"], "f4"), run.losses.reshape(-1)
    )  # every digit is there
    observed = read_csv(tmp_path / "run/observed.csv")
    assert list(observed) == ["seed", "step", "accuracy", "p[0]", "p[1]"]
    assert observed["step"] == ["0", "2", "4"] * 2
    np.testing.assert_array_equal(
        np.array(observed["p[1]"], "f4"), run.metrics["p"][:, :, 1].reshape(-1)
    )


def test_a_ledger_for_csv_and_numpy(kept, tmp_path):
    store, _ = kept
    book = ledger(store.folder, "birth", "full")
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
    run = observed_run()
    tables.write_parquet(tables.run_tables(run), {}, tmp_path / "run", False)
    read = {
        name: parquet.read_table(tmp_path / "run" / f"{name}.parquet")
        for name in ("seeds", "losses", "observed")
    }
    assert read["seeds"]["outcome"].to_pylist() == ["finished", "diverged"]
    np.testing.assert_array_equal(read["losses"]["loss"].to_numpy(), run.losses.reshape(-1))
    assert read["observed"].column_names == ["seed", "step", "accuracy", "p[0]", "p[1]"]


def test_an_import_is_stored_walked_and_explored_but_never_taken_for_a_training(
    kept, tmp_path, capsys
):
    store, row = kept
    run = store.load(row)
    command(
        "export", row.id, "--to", "transformer-lens", tmp_path / "model", "--seed", 1, store=store
    )
    command("import", tmp_path / "model", store=store)
    assert "Not stored; --like RUN" in capsys.readouterr().out
    assert len(store.rows()) == 1
    command("import", tmp_path / "model", "--like", row.id, "--seed", 1, store=store)
    assert "Stored as" in capsys.readouterr().out
    new = store.rows()[-1]
    again = store.load(new)
    assert again.spec.task == run.spec.task
    assert again.spec.digest() != run.spec.digest()
    assert again.outcome(1) == "finished"
    assert same_bits(
        {k: v[0, 0] for k, v in again.snapshots.items()},
        {k: v[1, -1] for k, v in run.snapshots.items()},
    )
    with pytest.raises(UserError, match="stored already with seed 1"):
        command("import", tmp_path / "model", "--like", row.id, "--seed", 1, store=store)
    with pytest.raises(UserError, match="was imported, not trained"):
        fit(again.spec, [0])
    page = pack_run(piece_of(again, new.id))
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


def test_an_import_has_the_tokens_of_its_task(tmp_path):
    like = Spec(task=Permutation(n_symbols=3), model=small())
    with pytest.raises(
        UserError,
        match=r"'embed.W_E' has shape \(5, 4\); the task 'permutation' of that run has 4 tokens",
    ):
        imported.as_run(drawn(small()), like, 0)
    with pytest.raises(
        UserError, match="--seed must be a whole number from 0 to 2147483647, got -1"
    ):
        imported.as_run(drawn(small(), 4, 5), like, -1)


def test_a_fingerprint_is_that_of_the_weights():
    model = drawn(small())
    other = Transformer(
        model.config, model.params | {"unembed.b_U": model.params["unembed.b_U"] + 1}
    )
    assert (
        imported.fingerprint(model)
        == imported.fingerprint(drawn(small()))
        != imported.fingerprint(other)
    )


def test_an_import_that_says_anything_equally_loses_the_logarithm_of_its_tokens():
    like = Spec(task=Permutation(n_symbols=3), model=small())
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
