"""Models from elsewhere: read whichever format they have, stored without a task of ours,
and refused in one line where anything would be computed otherwise.
"""

import json
import pickle
from math import tanh

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tyro
from compiled import forward
from exchanged import bits, drawn, small
from language_files import (
    GPT2,
    LLAMA,
    NEOX,
    TOKENS,
    byte_tokenizer,
    folder,
    gpt2_tensors,
    llama_tensors,
    neox_tensors,
)
from numpy_pass import numpy_logits
from safetensors.numpy import load_file, save_file

import mnemoscope as ms
from mnemoscope.cli.main import all_commands
from mnemoscope.core.errors import Notice, UserError
from mnemoscope.exchange import write_transformer_lens
from mnemoscope.exchange.imported import as_run, vocabulary_of
from mnemoscope.explorer import describe_run, pack, pack_run
from mnemoscope.models import knock_out_head, patch_site
from mnemoscope.models.language import LanguageModel
from mnemoscope.report.walk import choose_prompt
from mnemoscope.tasks import Vocabulary
from mnemoscope.training.loop import fit

TINY = {
    "llama": (LLAMA, llama_tensors),
    "gpt_neox": (NEOX, neox_tensors),
    "gpt2": (GPT2, gpt2_tensors),
}
WITH_TEXT = LLAMA | {"num_hidden_layers": 1, "vocab_size": 260}


def tiny(kind, path):
    """A folder with a model of a type, and its tensors."""
    config, tensors_of = TINY[kind]
    tensors = tensors_of(config)
    return folder(path / kind, config, tensors), tensors


@pytest.fixture(scope="module")
def talker(tmp_path_factory):
    """A folder with a model and a tokenizer."""
    path = folder(tmp_path_factory.mktemp("talker") / "m", WITH_TEXT, llama_tensors(WITH_TEXT))
    (path / "tokenizer.json").write_text(json.dumps(byte_tokenizer("th", "Ġt")))
    return path


def command(*args, store):
    tyro.extras.subcommand_cli_from_dict(
        all_commands(), args=[str(arg) for arg in (*args, "--store", store.folder)]
    )


# ---- what is computed


@pytest.mark.parametrize("kind", TINY)
def test_a_model_computes_what_loops_over_its_numbers_do(kind, tmp_path):
    path, _ = tiny(kind, tmp_path)
    model = ms.load_model(path)
    found, _ = forward(model.config, model.params, jnp.array(TOKENS))
    expected = numpy_logits(model.config, model.params, TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def gpt2_loop(c, w, tokens):
    """A GPT-2 in float64, straight from a folder's matrices, which act on rows."""
    w = {n: x.astype(float) for n, x in w.items()}
    d_head = c["n_embd"] // c["n_head"]

    def norm(x, name):
        scaled = (x - x.mean()) / np.sqrt(x.var() + c["layer_norm_epsilon"])
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def linear(x, name):
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def gelu(u):
        return u / 2 * (1 + tanh(np.sqrt(2 / np.pi) * (u + 0.044715 * u**3)))

    xs = [w["wte.weight"][token] + w["wpe.weight"][t] for t, token in enumerate(tokens)]
    for layer in range(c["n_layer"]):
        at = f"h.{layer}"
        fused = [linear(norm(x, f"{at}.ln_1"), f"{at}.attn.c_attn") for x in xs]
        qs, ks, vs = (
            [row.reshape(3, c["n_head"], d_head)[part] for row in fused] for part in range(3)
        )
        for t in range(len(xs)):
            heads = []
            for h in range(c["n_head"]):
                e = np.exp([qs[t][h] @ ks[s][h] / np.sqrt(d_head) for s in range(t + 1)])
                heads.append(sum(e[s] / e.sum() * vs[s][h] for s in range(t + 1)))
            xs[t] = xs[t] + linear(np.concatenate(heads), f"{at}.attn.c_proj")
        for t, x in enumerate(xs):
            hidden = linear(norm(x, f"{at}.ln_2"), f"{at}.mlp.c_fc")
            xs[t] = x + linear(np.array([gelu(u) for u in hidden]), f"{at}.mlp.c_proj")
    return np.array([w["wte.weight"] @ norm(x, "ln_f") for x in xs])


@pytest.mark.parametrize("start", ["", "transformer."])
def test_gpt2_against_a_loop_over_its_own_matrices(start, tmp_path):
    path, tensors = tiny("gpt2", tmp_path)
    stored = {f"{start}{name}": x for name, x in tensors.items()}
    # a mask of older files, which is no weight
    stored[f"{start}h.0.attn.bias"] = np.ones((1, 1, 16, 16), "f4")
    save_file(stored, path / "model.safetensors")
    model = ms.load_model(path)
    found, _ = forward(model.config, model.params, jnp.array(TOKENS))
    np.testing.assert_allclose(found, gpt2_loop(GPT2, tensors, TOKENS), rtol=1e-4, atol=1e-4)


def test_a_model_is_edited_and_patched(tmp_path):
    config = NEOX | {"num_hidden_layers": 1}
    model = ms.load_model(folder(tmp_path / "m", config, neox_tensors(config)))
    w_o = np.array(model.params["blocks.0.attn.W_O"])
    w_o[2] = 0
    cut = ms.Transformer(model.config, model.params | {"blocks.0.attn.W_O": w_o})

    @jax.jit
    def compute(model, cut):
        plain, cache = model.run_with_cache(TOKENS)
        # what another prompt had at the last layer's end is all that the read-out sees
        patched = model(TOKENS[::-1], patch_site("blocks.0.hook_resid_post", cache))
        return plain, patched, model(TOKENS, knock_out_head(model.config, 0, 2)), cut(TOKENS)

    plain, patched, without, expected = compute(model, cut)
    np.testing.assert_allclose(patched, plain, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(without, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(without - plain).max() > 0.01


def test_a_state_dict_with_its_configuration(tmp_path):
    """As a TransformerLens user saves both: nothing of ours in the header of the file."""
    model = drawn(small(norm="pre", act="gelu"))
    write_transformer_lens(model, tmp_path / "m")
    tensors = load_file(tmp_path / "m/model.safetensors")
    tensors["blocks.0.attn.mask"] = np.tri(4, dtype="f4")
    save_file(tensors, tmp_path / "m/model.safetensors")
    again = ms.load_model(tmp_path / "m")
    assert bits(again.params) == bits(model.params)
    assert again.config == model.config


# ---- text


def test_text_is_a_prompt_where_there_is_a_tokenizer(talker):
    model = ms.load_model(talker)
    assert isinstance(model, LanguageModel)
    numbers = [256, *b"e", 257, *b"o"]  # th e, and a space with its t, o
    assert model.tokenizer.encode("the to") == numbers
    assert model.check("the to").tolist() == numbers
    assert model.check_rows(["the", "to"]).tolist() == [[256, *b"e"], [*b"to"]]
    assert model.check_rows([numbers]).tolist() == [numbers]
    # it goes through `jit` like any other model
    found = jax.jit(lambda model: model.run_with_cache("the to")[0])(model)
    expected, _ = forward(model.config, model.params, jnp.array(numbers))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    longer = model.generate("the", max_new_tokens=2)
    assert longer.shape == (4,)
    assert model.tokenizer.decode(longer).startswith("the")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("", "the text is empty; allowed: a text of one token or more"),
        (["the", "a to"], r"texts of \[2, 3\] tokens; allowed: one text, or texts of as many"),
        (["the", 3], "a prompt is one row of 1 to 16 whole numbers"),
        ("x" * 17, "a prompt is one row of 1 to 16 whole numbers"),
    ],
)
def test_text_that_is_no_prompt(talker, prompt, message):
    with pytest.raises(UserError, match=message) as error:
        ms.load_model(talker)(prompt)
    assert "\n" not in str(error.value)


def test_text_without_a_tokenizer_is_refused(tmp_path):
    model = ms.load_model(tiny("llama", tmp_path)[0])
    with pytest.raises(UserError, match="which a tokenizer has to make into numbers first"):
        model("the")
    with pytest.raises(UserError, match="load_model"):
        _ = model.tokenizer


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({"model": {"type": "Unigram"}}, "'Unigram'; allowed: 'BPE'"),
        (byte_tokenizer(*("abcdefgh"[i : i + 2] for i in range(5))), "has 261 tokens, and the m"),
    ],
)
def test_a_tokenizer_that_cannot_be_used_is_a_notice(talker, tmp_path, tokenizer, message):
    path = folder(tmp_path / "m", WITH_TEXT, llama_tensors(WITH_TEXT))
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.warns(Notice, match=f"prompts are token numbers, not text: .*{message}"):
        model = ms.load_model(path)
    assert type(model) is ms.Transformer


# ---- what is refused


@pytest.mark.parametrize("name", ["m.pt", "m.pth", "m.bin", "m.pkl", "m.weights"])
def test_a_pickle_is_never_read(name, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    (tmp_path / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(
        UserError, match=r"is a pickle, .* never read; save its state_dict"
    ) as error:
        ms.load_model(tmp_path / name)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("config", [None, {"d_model": 4}, LLAMA])
def test_a_folder_with_a_pickle_for_its_weights(config, tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    if config:
        (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=r"model.bin'? is a pickle, which could .* read[:;] save"):
        ms.load_model(tmp_path)


@pytest.mark.parametrize(
    ("name", "holds", "message"),
    [
        ("nowhere", None, "there is no .*nowhere'; a model is a folder with config.json"),
        ("m.safetensors", b"", "has the weights of a model and not its configuration"),
        ("m.gguf", b"what", "is no GGUF file: it begins with b'what'"),
        ("config.json", b"{}", "has neither model_type, .* nor d_model, .*; it has: 'nothing'"),
        ("config.json", b'{"layers": 3}', "has neither .*; it has: 'layers'"),
        ("config.json", b"{", "cannot be read: .* no JSON"),
        ("config.json", b"[]", "no JSON object"),
        ("config.json", b'{"model_type": []}', "damaged, or not of a kind that can be read"),
    ],
)
def test_what_is_no_model(name, holds, message, tmp_path):
    if holds is not None:
        (tmp_path / name).write_bytes(holds)
    with pytest.raises(UserError, match=message) as error:
        ms.load_model(tmp_path if name == "config.json" else tmp_path / name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("llama", {"attention_bias": True}, "has attention_bias=True; allowed: False"),
        ("llama", {"mlp_bias": True}, "has mlp_bias=True; allowed: False"),
        ("llama", {"sliding_window": 8}, "has 'sliding_window'=8, which is not known to change"),
        ("llama", {"rms_norm_eps": None}, "does not say 'rms_norm_eps'"),
        ("llama", {"hidden_size": "wide"}, "is damaged, or not of a kind"),
        ("llama", {"hidden_size": -24}, "d_model: .* greater than or equal to 1"),
        ("llama", {"num_hidden_layers": 10**9}, "n_layers: .* less than or equal to 1024"),
        ("llama", {"vocab_size": 12}, r"embed.W_E .* has shape \(11, 24\); .* says \(12, 24\)"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2}}, "rope type 'linear'"),
        ("gpt_neox", {"attention_bias": False}, "has attention_bias=False; allowed: True"),
        ("gpt_neox", {"intermediate_size": 23}, r"W_in .* has shape \(32, 24\)"),
        ("gpt_neox", {"rotary_pct": 0.4}, "rotary_dim=3; allowed: even numbers"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "layer_idx=True; allowed: False"),
        ("gpt2", {"scale_attn_weights": False}, "has scale_attn_weights=False; allowed: True"),
        ("gpt2", {"n_ctx": 8}, "has n_ctx=8; allowed: 16"),
        ("gpt2", {"n_positions": 8, "n_ctx": 8}, r"W_pos .* has shape \(16, 24\)"),
        ("gpt2", {"tie_word_embeddings": False}, "the tensor 'lm_head.weight' is missing"),
        ("gpt2", {"activation_function": "tanh"}, "unknown activation_function .* 'tanh'"),
    ],
)
def test_a_configuration_that_says_what_we_do_not_compute(kind, change, message, tmp_path):
    config, tensors_of = TINY[kind]
    path = folder(tmp_path / "m", config | change, tensors_of(config))
    with pytest.raises(UserError, match=message) as error:
        ms.load_model(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("h.1.ln_2.bias"), "the tensor 'h.1.ln_2.bias' is missing"),
        (lambda t: t.update({"h.1.extra": t["wpe.weight"]}), "does not use: 'h.1.extra'"),
        (lambda t: t.update({"ln_f.bias": t["ln_f.bias"][:3]}), r"ln_final.b .* shape \(3,\)"),
        (lambda t: t["wpe.weight"].fill(np.nan), "W_pos .* has numbers that are not finite"),
        (lambda t: t.update({"wte.weight": np.ones((11, 24), "i1")}), "holds int8; allowed: fl"),
    ],
)
def test_tensors_that_do_not_fit(change, message, tmp_path):
    path, tensors = tiny("gpt2", tmp_path)
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(UserError, match=message) as error:
        ms.load_model(path)
    assert "\n" not in str(error.value)


def test_one_tensor_in_two_files(tmp_path):
    path, tensors = tiny("gpt2", tmp_path)
    save_file({"wte.weight": tensors["wte.weight"]}, path / "other.safetensors")
    with pytest.raises(UserError, match=r"two files in .* have a tensor 'wte.weight'"):
        ms.load_model(path)


# ---- stored without a task of ours


def test_a_model_is_stored_listed_walked_explored_and_exported(
    talker, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "200")  # so that no sentence is broken
    store = ms.Store(tmp_path / "store")
    command("import", talker, store=store)
    said = capsys.readouterr().out
    (row,) = store.rows()
    assert f"260 tokens, 16 positions (rotary): 16,584 parameters\nStored as {row.id}; in P" in said
    assert f"mnemoscope.load_model({str(talker)!r}), since run {row.spec} has 260 tokens" in said
    run = store.load(row)
    task = run.spec.task
    assert task == Vocabulary(n_tokens=260, n_positions=16, names=task.token_names)
    assert (*task.token_names[-6:],) == ("þ", "ÿ", "th", "Ġt", "<258>", "<259>")
    assert run.losses.shape == (1, 0)
    assert run.outcome(0) == "finished"
    assert repr(run).endswith("1 steps of 1, 1 finished, 1 snapshots>")
    assert "loss" not in run._repr_html_()
    assert bits({k: x[0, 0] for k, x in run.snapshots.items()}) == bits(
        ms.load_model(talker).params
    )
    command("runs", store=store)
    said = capsys.readouterr().out
    assert "vocabulary n_positions=16 n_tokens=260; imported" in " ".join(said.split())
    command("walk", "--run", row.id, "--prompt", "th e Ġt", store=store)
    assert f"The walk of th e Ġt through run {row.id}, seed 0, imported" in capsys.readouterr().out
    with pytest.raises(UserError, match="of a model from elsewhere no training sequences"):
        command("walk", "--run", row.id, store=store)
    with pytest.raises(UserError, match=r"unknown token 'the' .*: 1 to 16 of .* and 132 more"):
        command("walk", "--run", row.id, "--prompt", "the", store=store)
    with pytest.raises(UserError, match="has 260 tokens; the explorer shows at most 128"):
        command("explore", row.id, "--no-open", "--out", tmp_path / "x.html", store=store)
    command("export", row.id, tmp_path / "run.npz", "--to", "numpy", store=store)
    with np.load(tmp_path / "run.npz") as file:
        assert file["losses"].shape == (1, 0)
    command("export", row.id, tmp_path / "csv", "--to", "csv", store=store)
    command("export", row.id, tmp_path / "back", "--to", "transformer-lens", store=store)
    assert bits(ms.load_model(tmp_path / "back").params) == bits(ms.load_model(talker).params)
    with pytest.raises(UserError, match="stored already with seed 0"):
        command("import", talker, store=store)
    # what went out and came back without names is known by its numbers
    command("import", tmp_path / "back", store=store)
    assert store.load(store.rows()[-1]).spec.task == Vocabulary(n_tokens=260, n_positions=16)


def test_only_the_configuration_says_how_long_a_prompt_of_some_models_may_be(tmp_path):
    """A rotary model of ours takes any; as TransformerLens bounds it, so does its import."""
    store = ms.Store(tmp_path / "store")
    model = drawn(small(positions="rotary", rotary_dim=2))
    write_transformer_lens(model, tmp_path / "m", n_ctx=7)
    command("import", tmp_path / "m", store=store)
    assert store.load(store.rows()[0]).spec.task.n_ctx == 7


def test_the_explorer_shows_a_model_from_elsewhere(tmp_path):
    config = NEOX | {"num_hidden_layers": 1}
    model = ms.load_model(folder(tmp_path / "m", config, neox_tensors(config)))
    run = as_run(model, vocabulary_of(model, 16), 3)
    page = pack_run(describe_run(run, "x"))
    assert page["outcomes"] == {}
    assert page["losses"] == [[]]
    assert "vocabulary: n_tokens 11, n_positions 16; imported, not trained here" in page["about"]
    assert [preset["tokens"] for preset in page["presets"]] == [[0, 1, 2, 3, 4, 5, 6, 7], [0]]
    answer = next(each for each in page["golden"] if not each["off"] and len(each["tokens"]) == 8)
    expected = jax.nn.softmax(model(jnp.arange(8)), axis=-1)
    np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-6)


def test_what_is_too_large_to_be_shown_says_how_large_it_may_be(tmp_path, monkeypatch):
    model = drawn(small(d_model=8))
    run = as_run(model, vocabulary_of(model, 4), 0)
    size = sum(x.size for x in model.params.values())
    monkeypatch.setattr(pack, "MAX_WEIGHTS", size)
    pack.require_shown(describe_run(run, "x"))
    monkeypatch.setattr(pack, "MAX_WEIGHTS", size - 1)
    with pytest.raises(UserError, match=f"has {size} numbers .* carries at most {size - 1}"):
        pack.require_shown(describe_run(run, "x"))
    monkeypatch.setattr(choose_prompt, "MAX_NUMBERS", size - 1)
    with pytest.raises(UserError, match=f"every number, and m has {size}; .* at most {size - 1}"):
        choose_prompt.walk_prompt(choose_prompt.choose_model(run, "m"), "1 2")


def test_nothing_is_drawn_or_trained_from_a_vocabulary(tmp_path):
    with pytest.raises(UserError, match="of a model from elsewhere no training sequences") as error:
        fit(ms.Spec(task=Vocabulary(n_tokens=5, n_positions=4), model=small(), steps=1), [0])
    assert "\n" not in str(error.value)
    model = drawn(small())
    with pytest.raises(UserError, match="was imported, not trained"):
        fit(as_run(model, vocabulary_of(model, 4), 0).spec, [0])


def test_answers_that_are_no_tokens(tmp_path):
    model = drawn(small(), n_out=3)
    task = vocabulary_of(model, 4)
    assert task == Vocabulary(n_tokens=5, n_positions=4, n_answers=3)
    assert as_run(model, task, 0).spec.task.d_vocab_out == 3


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b"), "2 names for 3 tokens"),
        (("a", "b", "a"), "two tokens have one name"),
        (("a", "b", "c d"), "a token is named 'c d'; allowed: names without spaces"),
        (("a", "b", ""), "a token is named ''"),
    ],
)
def test_names_of_tokens(names, message):
    with pytest.raises(UserError, match=message):
        Vocabulary(n_tokens=3, n_positions=2, names=names)


def test_tokens_that_have_one_name_are_told_apart(tmp_path):
    """Added tokens are written as they are, and may look like others."""
    path = folder(tmp_path / "m", WITH_TEXT, llama_tensors(WITH_TEXT))
    tokenizer = byte_tokenizer()
    added = [{"content": " ", "id": 256}, {"content": "<258>", "id": 257}]
    (path / "tokenizer.json").write_text(json.dumps(tokenizer | {"added_tokens": added}))
    names = vocabulary_of(ms.load_model(path), 16).token_names
    assert names[32] == "Ġ"
    assert names[256:] == ("<256>", "<258>", "<<258>>", "<259>")
