"""Models in TransformerLens's format: the same bits come back,
and what cannot go over is refused by name.
"""

import json

import numpy as np
import pytest
from exchanged import CTX, LENS_ROWS, VOCAB, bits, drawn, row, small
from safetensors.numpy import load_file, save_file

from mnemoscope.core.errors import UserError
from mnemoscope.exchange import read_transformer_lens, write_transformer_lens
from mnemoscope.exchange.lens import SUPPORT
from mnemoscope.models import Init, ModelConfig
from mnemoscope.models.transformer_lens_fields import LENS_FIELDS, from_lens_word, lens_word

ROWS = {name: row(name) for name in LENS_ROWS} | {
    "frozen": small(frozen=("*.W_E",), init=Init(scale=(("*.W_O", 2.0),))),
    "positions of a language model": small(positions="rotary", n_ctx=CTX),
}


@pytest.fixture
def folder(tmp_path):
    write_transformer_lens(drawn(small(norm="pre")), tmp_path / "model")
    return tmp_path / "model"


def rewrite(folder, **fields):
    """Change what a configuration says; an ellipsis leaves a field out."""
    file = folder / "config.json"
    data = json.loads(file.read_text()) | fields
    file.write_text(json.dumps({name: value for name, value in data.items() if value is not ...}))


def without_header(folder):
    """The folder as if TransformerLens had written it."""
    file = folder / "model.safetensors"
    save_file(load_file(file), file)
    return folder


@pytest.mark.parametrize("name", ROWS)
def test_out_and_back_gives_the_same_bits(name, tmp_path):
    model = drawn(ROWS[name])
    write_transformer_lens(model, tmp_path / "model", n_ctx=CTX)
    again = read_transformer_lens(tmp_path / "model")
    assert again.config == model.config
    assert again.config.canonical_json() == model.config.canonical_json()
    assert list(again.params) == list(model.params)
    assert bits(again.params) == bits(model.params)


@pytest.mark.parametrize("name", LENS_ROWS)
def test_without_our_header_it_is_the_model_that_transformer_lens_has(name, tmp_path):
    """Biases, an unembedding and a table of positions are filled in,
    and everything else is said in words.
    """
    model = drawn(ROWS[name])
    write_transformer_lens(model, tmp_path / "model", n_ctx=CTX)
    again = read_transformer_lens(without_header(tmp_path / "model"))
    config = model.config
    filled_in = {"bias": True, "unembed_bias": True, "tied": False}
    if config.positions == "rotary":
        filled_in |= {"n_ctx": CTX}
    else:
        filled_in |= {"positions": "learned"}
    if not config.has_mlp(0):
        filled_in |= {"d_mlp": 0, "mlp_layers": None, "parallel_attn_mlp": False}
    assert again.config == config.model_copy(update=filled_in)
    assert set(model.params) <= set(again.params)
    for param, value in again.params.items():
        if param not in model.params and param != "unembed.W_U":
            assert not value.any(), param
    np.testing.assert_allclose(
        again.run_with_cache([1, 0, 4])[0], model.run_with_cache([1, 0, 4])[0], rtol=1e-5, atol=1e-5
    )


def test_support_lists_what_the_table_of_fields_has():
    assert SUPPORT.values["act"] == ("relu", "gelu", "gelu_new", "silu")
    assert SUPPORT.values["norm"] == ("pre", "none")
    assert SUPPORT.values["norm_type"] == ("layer", "rms")
    assert SUPPORT.values["positions"] == ("learned", "rotary", "none")
    assert "attention" not in SUPPORT.values
    assert "attn_residual" not in SUPPORT.values


@pytest.mark.parametrize("name", LENS_FIELDS)
def test_every_word_means_the_model_that_says_it(name):
    """Writing a word's meaning gives the word, or the first of those that mean the same."""
    words = LENS_FIELDS[name]
    if isinstance(words, str):
        assert words in ModelConfig.model_fields
        assert lens_word(small(), name) == getattr(small(), words)
        return
    first = {}
    for word, meaning in words.items():
        key = json.dumps(meaning)
        first.setdefault(key, word)
        config = small(**meaning)
        assert lens_word(config, name) == first[key]
        assert from_lens_word(name, word) == meaning


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ({"norm": "post"}, "norm='post' (allowed: 'pre', 'none')"),
        ({"act": "linear"}, "act='linear' (allowed: 'relu', 'gelu', 'gelu_new', 'silu')"),
        ({"n_layers": 2, "mlp_layers": (1,)}, "mlp_layers=(1,)"),
        ({"n_layers": 2, "attn_layers": (1,)}, "attn_layers=(1,)"),
        (
            {"positions": "sinusoidal"},
            "positions='sinusoidal' (allowed: 'learned', 'rotary', 'none')",
        ),
        ({"attention": "linear"}, "attention='linear'"),
        ({"attention": "relu"}, "attention='relu'"),
        ({"attn_residual": False}, "attn_residual=False"),
    ],
)
def test_what_transformer_lens_has_no_word_for(setting, word, tmp_path):
    with pytest.raises(UserError, match="TransformerLens has no") as error:
        write_transformer_lens(drawn(small(**setting)), tmp_path / "model", n_ctx=CTX)
    assert word in str(error.value)
    assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("positions", ["rotary", "none"])
def test_how_long_a_prompt_may_be_is_said_by_somebody(positions, tmp_path):
    with pytest.raises(UserError, match=r"this model takes any: give n_ctx"):
        write_transformer_lens(drawn(small(positions=positions)), tmp_path / "model")
    write_transformer_lens(drawn(small(positions=positions, n_ctx=7)), tmp_path / "model")
    assert json.loads((tmp_path / "model/config.json").read_text())["n_ctx"] == 7


ROTARY = {"positional_embedding_type": "rotary"}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            {"act_fn": "solu"},
            "act_fn='solu'; allowed: 'relu' or 'gelu' or 'gelu_new' or 'gelu_pytorch_tanh' or "
            "'gelu_fast' or 'silu'",
        ),
        ({"act_fn": ["relu"]}, "act_fn=['relu']; allowed: 'relu' or 'gelu'"),
        (
            {"positional_embedding_type": "alibi"},
            "positional_embedding_type='alibi'; allowed: 'standard' or 'rotary'",
        ),
        (
            {"normalization_type": "DeepNorm"},
            "normalization_type='DeepNorm'; allowed: 'LN' or 'LNPre' or 'RMS' or 'RMSPre' or None",
        ),
        ({"normalization_type": "RMS"}, "has 'blocks.0.ln1.b', which a model of this config.json"),
        ({"final_rms": True}, "final_rms=True; allowed: None or False"),
        ({"eps": -1}, "eps=-1; allowed: a number above 0"),
        ({"eps": True}, "eps=True; allowed: a number above 0"),
        ({"eps": 10**400}, "allowed: a number above 0"),
        ({"attn_scale": 1.0}, "attn_scale=1.0; allowed: -1.0 or 1.414"),
        ({"attn_scale": 10**400}, "allowed: -1.0 or 1.414"),
        ({"use_attn_scale": False}, "use_attn_scale=False; allowed: True"),
        ({"n_key_value_heads": 2}, "has no 'blocks.0.attn._W_K', which config.json asks for"),
        ({"n_key_value_heads": 3}, "n_key_value_heads=3 does not divide n_heads=2"),
        ({"n_key_value_heads": 0}, "n_key_value_heads=0; allowed: a whole number from 1 up"),
        ({"gated_mlp": 1}, "gated_mlp=1; allowed: False or True"),
        ({"gated_mlp": True}, "has no 'blocks.0.mlp.W_gate', which config.json asks for"),
        ({"parallel_attn_mlp": "yes"}, "parallel_attn_mlp='yes'; allowed: False or True"),
        (ROTARY, "has 'pos_embed.W_pos', which a model of this config.json does not use"),
        (
            ROTARY | {"rotary_dim": 1},
            "describes no model (ModelConfig: rotary_dim=1; allowed: even numbers",
        ),
        (ROTARY | {"rotary_dim": "2"}, "rotary_dim='2'; allowed: a whole number from 1 up"),
        (ROTARY | {"rotary_base": 0}, "rotary_base=0; allowed: a number above 0"),
        (ROTARY | {"rotary_scaling_factor": 8.0}, "rotary_scaling_factor=8.0; allowed: 1.0"),
        (ROTARY | {"rotary_twice": True}, "rotary_twice=True; allowed: None or False"),
        ({"use_NTK_by_parts_rope": True}, "use_NTK_by_parts_rope=True; allowed: None or False"),
        ({"use_qk_norm": True}, "use_qk_norm=True; allowed: None or False"),
        ({"a_later_part": 3}, "a_later_part=3; allowed: None or False"),
        ({"dtype": "torch.bfloat16"}, "dtype='torch.bfloat16'; allowed: 'torch.float32'"),
        ({"d_model": "four"}, "d_model='four'; allowed: a whole number from 1 up"),
        ({"d_model": 2**25}, "describes no model (ModelConfig: d_model: "),
        ({"act_fn": None}, "act_fn=None; allowed: 'relu'"),
        ({"n_ctx": None}, "n_ctx=None; allowed: a whole number from 1 up"),
        ({"n_ctx": ...}, "no n_ctx; allowed: a whole number from 1 up"),
        ({"d_head": 10**400}, "allowed: a whole number from 1 up that a computer can hold"),
        ({"n_ctx": 9}, "'pos_embed.W_pos' in .* has shape (4, 4); config.json says (9, 4)"),
        ({"n_layers": 2}, "has no 'blocks.1.ln1.w', which config.json asks for"),
        ({"n_layers": 10**9}, "config.json has n_layers=1000000000, but model.safetensors in"),
        ({"attn_only": True}, "which a model of this config.json does not use"),
        ({"attention_dir": "bidirectional"}, "describe different models"),
        ({"act_fn": "gelu"}, "describe different models"),
        ({"eps": 1e-6}, "describe different models"),
        ({"parallel_attn_mlp": True}, "describe different models"),
    ],
)
def test_a_configuration_that_is_not_ours(setting, message, folder):
    rewrite(folder, **setting)
    with pytest.raises(UserError) as error:
        read_transformer_lens(folder)
    before, _, after = message.partition(".*")
    assert before in str(error.value)
    assert after in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_prompt_as_long_as_the_header_does_not_say(tmp_path):
    write_transformer_lens(drawn(small(positions="rotary", n_ctx=7)), tmp_path)
    rewrite(tmp_path, n_ctx=9)
    with pytest.raises(UserError, match="describe different models"):
        read_transformer_lens(tmp_path)
    assert read_transformer_lens(without_header(tmp_path)).n_ctx == 9


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"act_fn": "gelu"}, {"act": "gelu"}),
        ({"act_fn": "gelu_fast"}, {"act": "gelu_new"}),
        ({"act_fn": "gelu_pytorch_tanh"}, {"act": "gelu_new"}),
        ({"act_fn": ...}, {}),
        ({"eps": 1}, {"norm_eps": 1.0}),
        ({"eps": ...}, {}),
        ({"normalization_type": ...}, {}),
        ({"parallel_attn_mlp": True}, {"parallel_attn_mlp": True}),
        ({"attention_dir": ...}, {}),
    ],
)
def test_what_another_hand_writes(fields, expected, folder):
    """Words for one thing, whole numbers,
    and fields that are left out and have TransformerLens's defaults.
    """
    rewrite(without_header(folder), **fields)
    assert read_transformer_lens(folder).config == small(norm="pre", **expected)


def test_what_is_switched_off_or_does_not_matter_is_read(folder):
    more = {
        "gated_mlp": False,
        "num_experts": None,
        "device": "cuda",
        # no position is rotated
        "rotary_base": -1,
        "rotary_scaling_factor": 8.0,
        "attn_scale": 2**0.5,
        "a_later_part": False,
    }
    rewrite(folder, **more)
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


def test_what_is_there_is_only_written_over_by_force(folder):
    model = drawn(small(tied=True))
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="a folder with files in it; --force"):
        write_transformer_lens(model, folder)
    assert read_transformer_lens(folder).config == small(norm="pre")
    write_transformer_lens(model, folder, force=True)
    assert bits(read_transformer_lens(folder).params) == bits(model.params)
    assert (folder / "notes.txt").read_text() == "mine"
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]
    with pytest.raises(UserError, match="is a file; allowed: a folder"):
        write_transformer_lens(model, folder / "notes.txt", force=True)


def test_a_used_folder_that_is_cut_off_while_it_is_written_over_has_no_model(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mnemoscope.exchange.atomic_write.os.replace", full)
    with pytest.raises(UserError, match="No space left on device"):
        write_transformer_lens(drawn(small()), folder, force=True)
    monkeypatch.undo()
    # neither the old one nor half of the new one
    with pytest.raises(UserError, match="cannot read"):
        read_transformer_lens(folder)
    assert sorted(p.name for p in folder.parent.iterdir()) == ["model"]
