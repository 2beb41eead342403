"""Models from files: a GGUF file of the Llama type, or a folder with config.json and *.safetensors (Llama or GPT-NeoX).

A file's tensors are matrices y = M x; ours act on rows, x W, with the heads as an axis of their own. So

    W_Q[h] = M_q[h * d_head : (h + 1) * d_head].T        W_O[h] = M_o[:, h * d_head : (h + 1) * d_head].T

GPT-NeoX has one matrix for queries, keys and values: three blocks for each head in turn. A GGUF file of the Llama type turns
dimensions 2i and 2i + 1 of a head together; its rows are put in the order of `forward`, which turns i and i + d_head / 2.

What cannot be read says why in one line. A tensor that the forward pass would not use is refused: leaving it out would be silent.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.axes import Float, Params
from mnemoscope.core.errors import UserError, parsed, short, unknown
from mnemoscope.models.language.config import LanguageConfig
from mnemoscope.models.language.forward import LanguageModel
from mnemoscope.models.language.tokens import Tokenizer

Tensors = dict[str, Callable[[], np.ndarray]]  # by name; a tensor is read when it is asked for
GGUF_TYPES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1")
GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
# buffers of old checkpoints that hold no weights: masks, and angles that follow from the base
NO_WEIGHTS = re.compile(r".*\.(rotary_emb\.inv_freq|attention\.bias|attention\.masked_bias)$")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Around whatever takes a file at its word: one that says anything else than it should is refused in one line."""
    try:
        yield
    except UserError:
        raise
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        MemoryError,
        OSError,
    ) as error:
        said = f"{type(error).__name__}: {short(str(error))}"
        raise UserError(
            f"{str(path)!r} is damaged, or not of a kind that can be read ({said})"
        ) from None


def read_model(path: Path) -> LanguageModel:
    """The model in a GGUF file or a safetensors folder, in float32."""
    with _reading(path):
        return _model(path)


def _model(path: Path) -> LanguageModel:
    config, tensors = _folder(path) if path.is_dir() else _gguf(path)
    found = _llama(config, tensors) if config.kind == "llama" else _neox(config, tensors)
    left = [name for name in tensors if not NO_WEIGHTS.fullmatch(name)]
    if left:
        raise UserError(
            f"{str(path)!r} has {len(left)} tensors that a {config.kind} model of this shape does not use: {left[0]!r}"
        )
    for name, shape in config.shapes().items():
        if found[name].shape != shape:
            raise UserError(
                f"{name} in {str(path)!r} has shape {found[name].shape}; its configuration says {shape}"
            )
    return LanguageModel(config, found)


def read_tokenizer(path: Path) -> Tokenizer:
    """The byte-level tokenizer that comes with a model: inside a GGUF file, or tokenizer.json in a folder."""
    with _reading(path):
        found = _tokenizer(path)
        if not all(
            isinstance(text, str)
            for text in (*found.vocabulary, *(part for pair in found.merges for part in pair))
        ):
            raise TypeError("a token or a merge is no text")
        return found


def _tokenizer(path: Path) -> Tokenizer:
    if path.is_dir():
        data = _json(path / "tokenizer.json")
        if data.get("model", {}).get("type") != "BPE":
            raise UserError(
                f"the tokenizer in {str(path)!r} is {data.get('model', {}).get('type')!r}; allowed: 'BPE'"
            )
        numbers = data["model"]["vocab"] | {
            added["content"]: added["id"] for added in data.get("added_tokens", ())
        }
        vocabulary = {number: token for token, number in numbers.items()}
        if max(vocabulary) > 2 * len(vocabulary) + 1000:  # a few numbers may be unused
            raise UserError(
                f"the tokenizer in {str(path)!r} numbers one of its {len(vocabulary)} tokens {max(vocabulary)}"
            )
        merges = [m if isinstance(m, list) else m.split(" ") for m in data["model"]["merges"]]
        words = tuple(vocabulary.get(i, "") for i in range(max(vocabulary) + 1))
        return Tokenizer(
            words, tuple((a, b) for a, b in merges), '"individual_digits": true' in json.dumps(data)
        )
    fields = _reader(path).fields

    def value(name: str) -> Any:
        return _field(path, fields, f"tokenizer.ggml.{name}")

    kinds = {"smollm": True, "gpt-2": False, "default": False}
    if value("model") != "gpt2" or value("pre") not in kinds:
        came = f"{value('model')!r} with {value('pre')!r}"
        raise UserError(
            f"the tokenizer in {str(path)!r} is {came}; allowed: 'gpt2' with {', '.join(kinds)}"
        )
    pairs = tuple((a, b) for a, b in (merge.split(" ") for merge in value("merges")))
    return Tokenizer(tuple(value("tokens")), pairs, kinds[value("pre")])


def _json(path: Path) -> dict[str, Any]:
    try:
        return parsed(path.read_text(encoding="utf-8"), "it")
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {str(path.parent)!r}") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None


def _take(tensors: Tensors, name: str) -> Float[np.ndarray, "..."]:
    """One tensor in float32; each is taken once, so that what is left was not used."""
    if name not in tensors:
        raise UserError(
            f"the tensor {name!r} is missing"
            if tensors
            else f"the tensor {name!r} is missing: there are none left"
        )
    return np.asarray(tensors.pop(name)(), np.float32)


def _heads(
    matrix: Float[np.ndarray, "rows d_model"], heads: int
) -> Float[np.ndarray, "head d_model d_head"]:
    return np.ascontiguousarray(matrix.reshape(heads, -1, matrix.shape[1]).transpose(0, 2, 1))


def _from_heads(
    matrix: Float[np.ndarray, "d_model columns"], heads: int
) -> Float[np.ndarray, "head d_head d_model"]:
    return np.ascontiguousarray(matrix.T.reshape(heads, -1, matrix.shape[0]))


def _llama(config: LanguageConfig, tensors: Tensors) -> Params:
    def take(name: str) -> np.ndarray:
        return _take(tensors, f"{name}.weight")

    params: Params = {"embed.W_E": take("model.embed_tokens")}
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}", f"model.layers.{layer}"
        params[f"{ours}.ln1.w"] = take(f"{theirs}.input_layernorm")
        for name, heads in (
            ("Q", config.n_heads),
            ("K", config.n_kv_heads),
            ("V", config.n_kv_heads),
        ):
            params[f"{ours}.attn.W_{name}"] = _heads(
                take(f"{theirs}.self_attn.{name.lower()}_proj"), heads
            )
        params[f"{ours}.attn.W_O"] = _from_heads(take(f"{theirs}.self_attn.o_proj"), config.n_heads)
        params[f"{ours}.ln2.w"] = take(f"{theirs}.post_attention_layernorm")
        for name, proj in (("gate", "gate_proj"), ("in", "up_proj"), ("out", "down_proj")):
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(take(f"{theirs}.mlp.{proj}").T)
    params["ln_final.w"] = take("model.norm")
    if config.tied:
        tensors.pop("lm_head.weight", None)  # some folders hold the embedding a second time
    else:
        params["unembed.W_U"] = np.ascontiguousarray(take("lm_head").T)
    return params


def _neox(config: LanguageConfig, tensors: Tensors) -> Params:
    def both(name: str) -> tuple[np.ndarray, np.ndarray]:
        return _take(tensors, f"{name}.weight"), _take(tensors, f"{name}.bias")

    params: Params = {"embed.W_E": _take(tensors, "gpt_neox.embed_in.weight")}
    for layer in range(config.n_layers):
        ours, theirs = f"blocks.{layer}", f"gpt_neox.layers.{layer}"
        params[f"{ours}.ln1.w"], params[f"{ours}.ln1.b"] = both(f"{theirs}.input_layernorm")
        weight, bias = both(f"{theirs}.attention.query_key_value")
        fused, biases = (
            weight.reshape(config.n_heads, 3, -1, weight.shape[1]),
            bias.reshape(config.n_heads, 3, -1),
        )
        for i, name in enumerate("QKV"):
            params[f"{ours}.attn.W_{name}"] = np.ascontiguousarray(fused[:, i].transpose(0, 2, 1))
            params[f"{ours}.attn.b_{name}"] = np.ascontiguousarray(biases[:, i])
        weight, params[f"{ours}.attn.b_O"] = both(f"{theirs}.attention.dense")
        params[f"{ours}.attn.W_O"] = _from_heads(weight, config.n_heads)
        params[f"{ours}.ln2.w"], params[f"{ours}.ln2.b"] = both(
            f"{theirs}.post_attention_layernorm"
        )
        for name, dense in (("in", "dense_h_to_4h"), ("out", "dense_4h_to_h")):
            weight, params[f"{ours}.mlp.b_{name}"] = both(f"{theirs}.mlp.{dense}")
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(weight.T)
    params["ln_final.w"], params["ln_final.b"] = both("gpt_neox.final_layer_norm")
    if not config.tied:
        params["unembed.W_U"] = np.ascontiguousarray(_take(tensors, "embed_out.weight").T)
    return params


def _folder(path: Path) -> tuple[LanguageConfig, Tensors]:
    """A Hugging Face folder: config.json, and all tensors of *.safetensors."""
    from safetensors import SafetensorError
    from safetensors.flax import load_file

    data = _json(path / "config.json")
    kind = "neox" if data.get("model_type") == "gpt_neox" else "llama"
    if data.get("model_type") not in ("llama", "gpt_neox"):
        raise UserError(
            unknown(f"model_type in {str(path)!r}", data.get("model_type"), ("llama", "gpt_neox"))
        )
    # newer folders keep everything about rotation in rope_parameters
    rotation = data.get("rope_parameters") or data.get("rope_scaling") or {}
    scaling, act = (
        rotation.get("rope_type", rotation.get("type", "default")),
        data.get("hidden_act"),
    )
    wanted = "silu" if kind == "llama" else "gelu"
    if scaling != "default" or act != wanted:
        raise UserError(
            f"{str(path)!r} has rope type {scaling!r} and hidden_act {act!r}; allowed: 'default' and {wanted!r}"
        )
    try:
        heads, d = data["num_attention_heads"], data["hidden_size"]
        d_head = data.get("head_dim") or d // heads
        if kind == "llama":
            part, base = 1.0, rotation.get("rope_theta", data.get("rope_theta", 10_000.0))
            eps, tied = data["rms_norm_eps"], data.get("tie_word_embeddings", False)
        else:
            part = rotation.get("partial_rotary_factor", data.get("rotary_pct", 0.25))
            base = rotation.get("rope_theta", data.get("rotary_emb_base", 10_000.0))
            eps, tied = data["layer_norm_eps"], data.get("tie_word_embeddings", False)
        config = LanguageConfig(
            kind=kind, n_layers=data["num_hidden_layers"], d_model=d, n_heads=heads, d_head=d_head, d_vocab=data["vocab_size"],
            n_kv_heads=data.get("num_key_value_heads") or heads, d_mlp=data["intermediate_size"],
            n_ctx=data["max_position_embeddings"], rotary_dims=int(d_head * part), rotary_base=base, norm_eps=eps, tied=tied,
            parallel=kind == "neox" and data.get("use_parallel_residual", True),
        )  # fmt: skip
    except KeyError as error:
        raise UserError(f"config.json in {str(path)!r} does not say {error.args[0]!r}") from None
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise UserError(f"there are no *.safetensors in {str(path)!r}")
    tensors: Tensors = {}
    for file in files:
        try:
            tensors |= {name: lambda x=x: np.asarray(x) for name, x in load_file(file).items()}
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{str(file)!r} is damaged or no safetensors file: {error}") from None
    return config, tensors


def _reader(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise UserError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    if magic != b"GGUF":
        raise UserError(f"{str(path)!r} is no GGUF file: it begins with {magic!r}, not b'GGUF'")
    try:
        from gguf import GGUFReader  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise UserError(
            "reading a GGUF file needs the package gguf: pip install 'mnemoscope[language]'"
        ) from None

    class Bounded(GGUFReader):
        """A reader that stops at the file's end; the original goes on with nothing, as often as a damaged count says."""

        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("it ends before what it announces")
            return super()._get(offset, dtype, count, override_order)

    try:
        return Bounded(path)
    except (
        ValueError,
        IndexError,
        KeyError,
        OverflowError,
        MemoryError,
        UnicodeDecodeError,
    ) as error:
        raise UserError(
            f"{str(path)!r} is damaged or cut off: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from None


def _field(path: Path, fields: Any, name: str, default: Any = None) -> Any:
    if name not in fields and default is None:
        raise UserError(f"{str(path)!r} does not say {name!r}")
    return fields[name].contents() if name in fields else default


def _gguf(path: Path) -> tuple[LanguageConfig, Tensors]:
    """A GGUF file of the Llama type, with its tensors under the names and in the row order of a folder's."""
    reader = _reader(path)
    from gguf.quants import dequantize  # pyright: ignore[reportMissingImports]

    def value(name: str, default: Any = None) -> Any:
        return _field(path, reader.fields, name, default)

    if value("general.architecture") != "llama":
        raise UserError(
            unknown(f"architecture of {str(path)!r}", value("general.architecture"), ("llama",))
        )
    heads, d = value("llama.attention.head_count"), value("llama.embedding_length")
    stored = {tensor.name: tensor for tensor in reader.tensors}
    if "token_embd.weight" not in stored:
        raise UserError(f"the tensor 'token_embd.weight' is missing in {str(path)!r}")
    kv, d_head = (
        value("llama.attention.head_count_kv", heads),
        value("llama.attention.key_length", d // heads),
    )
    if value("llama.rope.scaling.type", "none") != "none":
        raise UserError(
            f"{str(path)!r} has rope scaling {value('llama.rope.scaling.type')!r}; allowed: 'none'"
        )
    config = LanguageConfig(
        kind="llama", n_layers=value("llama.block_count"), d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head,
        d_mlp=value("llama.feed_forward_length"), d_vocab=int(stored["token_embd.weight"].shape[1]),
        n_ctx=value("llama.context_length"), rotary_dims=value("llama.rope.dimension_count", d_head),
        rotary_base=value("llama.rope.freq_base", 10_000.0), norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in stored,
    )  # fmt: skip

    def read(tensor: Any) -> np.ndarray:
        found = dequantize(tensor.data, tensor.tensor_type)
        if tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
            rows = _halves(d_head, config.rotary_dims)
            found = found.reshape(-1, d_head, d)[:, rows].reshape(found.shape)
        return found

    tensors: Tensors = {}
    for name, tensor in stored.items():
        if tensor.tensor_type.name not in GGUF_TYPES:
            raise UserError(
                unknown(f"type of {name!r} in {str(path)!r}", tensor.tensor_type.name, GGUF_TYPES)
            )
        *block, part, _ = name.split(".")
        place = f"model.layers.{block[1]}." if block else ""
        tensors[f"{place}{GGUF_NAMES.get(part, part)}.weight"] = lambda tensor=tensor: read(tensor)
    return config, tensors


def _halves(d_head: int, dims: int) -> np.ndarray:
    """Where each dimension of a head stands in a file that turns neighbours together: 0 2 4 .. 1 3 5 .., then the rest."""
    return np.concatenate([np.arange(0, dims, 2), np.arange(1, dims, 2), np.arange(dims, d_head)])
