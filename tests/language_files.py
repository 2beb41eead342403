"""Language models as they lie on a disk: small ones, drawn at random, in both formats."""

import json
from importlib.util import find_spec

import numpy as np
import pytest
from safetensors.numpy import save_file

has_gguf = pytest.mark.skipif(
    find_spec("gguf") is None, reason="gguf is not installed: no GGUF file was written or read"
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
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 24,
    "n_layer": 2,
    "n_head": 4,
    "n_inner": None,
    "vocab_size": 11,
    "n_positions": 16,
    "n_ctx": 16,
    "layer_norm_epsilon": 1e-5,
    "activation_function": "gelu_new",
    # what such files say besides
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 10,
    "initializer_range": 0.02,
    "summary_type": "cls_index",
    "task_specific_params": {"text-generation": {"do_sample": True}},
    "transformers_version": "4.50.0",
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


def gpt2_tensors(c, seed=0):
    draw = np.random.default_rng(seed)
    d = c["n_embd"]
    shapes = {"wte.weight": (c["vocab_size"], d), "wpe.weight": (c["n_positions"], d)}
    pairs = {"ln_f": (d,)}
    for i in range(c["n_layer"]):
        pairs |= {f"h.{i}.ln_1": (d,), f"h.{i}.ln_2": (d,)}
        pairs |= {f"h.{i}.attn.c_attn": (d, 3 * d), f"h.{i}.attn.c_proj": (d, d)}
        pairs |= {f"h.{i}.mlp.c_fc": (d, 4 * d), f"h.{i}.mlp.c_proj": (4 * d, d)}
    shapes |= {f"{n}.weight": s for n, s in pairs.items()}
    shapes |= {f"{n}.bias": s[-1:] for n, s in pairs.items()}
    return {n: draw.normal(0, 0.4, s).astype(np.float32) for n, s in shapes.items()}


def folder(path, config, tensors):
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(tensors, path / "model.safetensors")
    return path


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


def byte_tokenizer(*merged):
    """A tokenizer.json of every byte and of some tokens that are two of them in a row."""
    from mnemoscope.models.language.tokens import byte_characters

    tokens = (*byte_characters(), *merged)
    return {
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [list(token) for token in merged],
        },
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    }
