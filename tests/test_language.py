"""Language models read from files, against loops in NumPy and Hugging Face's own code,
and under edits.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from language_files import (
    GPT2,
    LLAMA,
    NEOX,
    TOKENS,
    WIDE,
    folder,
    has_gguf,
    llama_tensors,
    neox_tensors,
    write_gguf,
)

from mnemoscope.core.errors import UserError
from mnemoscope.models import (
    forward,
    knock_out_head,
    knock_out_mlp,
    parameter_shapes,
    patch_site,
    recorded_sites,
    replace_site,
)
from mnemoscope.models.language import (
    read_model,
)


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
@pytest.mark.parametrize("kind", ["llama", "neox", "gpt2"])
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
    elif kind == "neox":
        config = transformers.GPTNeoXConfig(**{k: v for k, v in NEOX.items() if k != "model_type"})
        theirs = transformers.GPTNeoXForCausalLM(config)
    else:
        fields = ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions")
        config = transformers.GPT2Config(**{name: GPT2[name] for name in fields})
        theirs = transformers.GPT2LMHeadModel(config)
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
