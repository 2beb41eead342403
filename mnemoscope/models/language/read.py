"""Models from files: GGUF files (Llama), or config.json and *.safetensors (Llama or GPT-NeoX).

A file's tensors are matrices y = M x; ours act on rows, x W, with the heads as an axis of their
own. So

    W_Q[h] = M_q[h * d_head : (h + 1) * d_head].T
    W_O[h] = M_o[:, h * d_head : (h + 1) * d_head].T

GPT-NeoX has one matrix for queries, keys and values: three blocks for each head in turn. A GGUF
file of the Llama type turns dimensions 2i and 2i + 1 of a head together; its rows are put in the
order of `forward`, which turns i and i + d_head / 2.

What cannot be read says why in one line. A tensor that the forward pass would not use is refused:
leaving it out would be silent.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from mnemoscope.core.axes import Float, Params
from mnemoscope.core.errors import UserError, parsed, short, unknown
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.language.tokens import Tokenizer
from mnemoscope.models.shapes import heads_of_qkv, parameter_shapes
from mnemoscope.models.transformer import Transformer

Tensors = dict[str, Callable[[], np.ndarray]]  # by name; a tensor is read when it is asked for
GGUF_TYPES = ("F32", "F16", "Q8_0", "Q4_0", "Q4_1")
# the parts of a GGUF file's names, and what a folder calls them
GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# buffers of old checkpoints that hold no weights: masks, and angles that follow from the base
NO_WEIGHTS = re.compile(r".*\.(rotary_emb\.inv_freq|attention\.bias|attention\.masked_bias)$")
# what is common to all models of a type
LLAMA: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "rms",
    "bias": False,
    "act": "silu",
    "gated_mlp": True,
    "positions": "rotary",
}
NEOX: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "layer",
    "unembed_bias": False,
    "act": "gelu",
    "positions": "rotary",
}
# what is raised where a file says anything else than it should
DAMAGE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RecursionError,
    MemoryError,
    OSError,
)


class Described(NamedTuple):
    """A model as a file describes it, before its weights are read."""

    kind: Literal["llama", "neox"]
    """Whose names the file has for its tensors."""
    config: ModelConfig
    d_vocab: int


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Around whatever takes a file at its word: a damaged one is refused in one line."""
    try:
        yield
    except UserError:
        raise
    except DAMAGE as error:
        said = f"{type(error).__name__}: {short(str(error))}"
        raise UserError(
            f"{str(path)!r} is damaged, or not of a kind that can be read ({said})"
        ) from None


# ---- models


def read_model(path: Path) -> Transformer:
    """The model in a GGUF file or a safetensors folder, in float32."""
    with _reading(path):
        return _model(path)


def _model(path: Path) -> Transformer:
    described, tensors = _folder(path) if path.is_dir() else _gguf(path)
    config = described.config
    read = _llama if described.kind == "llama" else _neox
    found = read(config, tensors)
    left = [name for name in tensors if not NO_WEIGHTS.fullmatch(name)]
    if left:
        raise UserError(
            f"{str(path)!r} has {len(left)} tensors that a {described.kind} model of this shape "
            f"does not use: {left[0]!r}"
        )
    for name, shape in parameter_shapes(config, described.d_vocab, 1).items():
        if found[name].shape != shape:
            raise UserError(
                f"{name} in {str(path)!r} has shape {found[name].shape}; "
                f"its configuration says {shape}"
            )
    return Transformer(config, found)


def _take(tensors: Tensors, name: str) -> Float[np.ndarray, "..."]:
    """One tensor in float32; each is taken once, so that what is left was not used."""
    if name not in tensors:
        none_left = "" if tensors else ": there are none left"
        raise UserError(f"the tensor {name!r} is missing{none_left}")
    return np.asarray(tensors.pop(name)(), np.float32)


def _heads(
    matrix: Float[np.ndarray, "rows d_model"], heads: int
) -> Float[np.ndarray, "head d_model d_head"]:
    by_head = matrix.reshape(heads, -1, matrix.shape[1])
    return np.ascontiguousarray(by_head.transpose(0, 2, 1))


def _from_heads(
    matrix: Float[np.ndarray, "d_model columns"], heads: int
) -> Float[np.ndarray, "head d_head d_model"]:
    return np.ascontiguousarray(matrix.T.reshape(heads, -1, matrix.shape[0]))


def _llama(config: ModelConfig, tensors: Tensors) -> Params:
    """The tensors of a Llama folder under our names."""

    def take(name: str) -> np.ndarray:
        return _take(tensors, f"{name}.weight")

    params: Params = {"embed.W_E": take("model.embed_tokens")}
    for layer in range(config.n_layers):
        ours = f"blocks.{layer}"
        theirs = f"model.layers.{layer}"
        params[f"{ours}.ln1.w"] = take(f"{theirs}.input_layernorm")
        for name, heads in heads_of_qkv(config).items():
            projection = take(f"{theirs}.self_attn.{name.lower()}_proj")
            params[f"{ours}.attn.W_{name}"] = _heads(projection, heads)
        projection = take(f"{theirs}.self_attn.o_proj")
        params[f"{ours}.attn.W_O"] = _from_heads(projection, config.n_heads)
        params[f"{ours}.ln2.w"] = take(f"{theirs}.post_attention_layernorm")
        for name, proj in (("gate", "gate_proj"), ("in", "up_proj"), ("out", "down_proj")):
            matrix = take(f"{theirs}.mlp.{proj}")
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(matrix.T)
    params["ln_final.w"] = take("model.norm")
    if config.tied:
        tensors.pop("lm_head.weight", None)  # some folders hold the embedding a second time
    else:
        params["unembed.W_U"] = np.ascontiguousarray(take("lm_head").T)
    return params


def _neox(config: ModelConfig, tensors: Tensors) -> Params:
    """The tensors of a GPT-NeoX folder under our names."""

    def both(name: str) -> tuple[np.ndarray, np.ndarray]:
        return _take(tensors, f"{name}.weight"), _take(tensors, f"{name}.bias")

    params: Params = {"embed.W_E": _take(tensors, "gpt_neox.embed_in.weight")}
    for layer in range(config.n_layers):
        ours = f"blocks.{layer}"
        theirs = f"gpt_neox.layers.{layer}"
        params[f"{ours}.ln1.w"], params[f"{ours}.ln1.b"] = both(f"{theirs}.input_layernorm")
        weight, bias = both(f"{theirs}.attention.query_key_value")
        # head, one of query, key and value, d_head, d_model
        weights = weight.reshape(config.n_heads, 3, -1, weight.shape[1])
        biases = bias.reshape(config.n_heads, 3, -1)
        for i, name in enumerate("QKV"):
            by_head = weights[:, i].transpose(0, 2, 1)
            params[f"{ours}.attn.W_{name}"] = np.ascontiguousarray(by_head)
            params[f"{ours}.attn.b_{name}"] = np.ascontiguousarray(biases[:, i])
        weight, params[f"{ours}.attn.b_O"] = both(f"{theirs}.attention.dense")
        params[f"{ours}.attn.W_O"] = _from_heads(weight, config.n_heads)
        norm = both(f"{theirs}.post_attention_layernorm")
        params[f"{ours}.ln2.w"], params[f"{ours}.ln2.b"] = norm
        for name, dense in (("in", "dense_h_to_4h"), ("out", "dense_4h_to_h")):
            weight, params[f"{ours}.mlp.b_{name}"] = both(f"{theirs}.mlp.{dense}")
            params[f"{ours}.mlp.W_{name}"] = np.ascontiguousarray(weight.T)
    params["ln_final.w"], params["ln_final.b"] = both("gpt_neox.final_layer_norm")
    if not config.tied:
        params["unembed.W_U"] = np.ascontiguousarray(_take(tensors, "embed_out.weight").T)
    return params


# ---- tokenizers


def read_tokenizer(path: Path) -> Tokenizer:
    """The byte-level tokenizer of a model: in its GGUF file, or tokenizer.json in its folder."""
    with _reading(path):
        found = _folder_tokenizer(path) if path.is_dir() else _gguf_tokenizer(path)
        parts = [part for pair in found.merges for part in pair]
        if not all(isinstance(text, str) for text in (*found.vocabulary, *parts)):
            raise TypeError("a token or a merge is no text")
        return found


def _folder_tokenizer(path: Path) -> Tokenizer:
    data = _json(path / "tokenizer.json")
    kind = data.get("model", {}).get("type")
    if kind != "BPE":
        raise UserError(f"the tokenizer in {str(path)!r} is {kind!r}; allowed: 'BPE'")
    added = {token["content"]: token["id"] for token in data.get("added_tokens", ())}
    numbers = data["model"]["vocab"] | added
    token_of = {number: token for token, number in numbers.items()}
    last = max(token_of)
    if last > 2 * len(token_of) + 1000:  # a few numbers may be unused
        raise UserError(
            f"the tokenizer in {str(path)!r} numbers one of its {len(token_of)} tokens {last}"
        )
    merges = []
    for merge in data["model"]["merges"]:
        first, second = merge if isinstance(merge, list) else merge.split(" ")
        merges.append((first, second))
    vocabulary = tuple(token_of.get(number, "") for number in range(last + 1))
    single_digits = '"individual_digits": true' in json.dumps(data)  # wherever it stands
    return Tokenizer(vocabulary, tuple(merges), single_digits)


def _gguf_tokenizer(path: Path) -> Tokenizer:
    fields = _reader(path).fields

    def value(name: str) -> Any:
        return _field(path, fields, f"tokenizer.ggml.{name}")

    # whether every digit is a word of its own, by the kind of cut
    kinds = {"smollm": True, "gpt-2": False, "default": False}
    if value("model") != "gpt2" or value("pre") not in kinds:
        came = f"{value('model')!r} with {value('pre')!r}"
        allowed = f"'gpt2' with {', '.join(kinds)}"
        raise UserError(f"the tokenizer in {str(path)!r} is {came}; allowed: {allowed}")
    merges = []
    for merge in value("merges"):
        first, second = merge.split(" ")
        merges.append((first, second))
    return Tokenizer(tuple(value("tokens")), tuple(merges), kinds[value("pre")])


# ---- folders


def _json(path: Path) -> dict[str, Any]:
    try:
        return parsed(path.read_text(encoding="utf-8"), "it")
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {str(path.parent)!r}") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None


def _folder(path: Path) -> tuple[Described, Tensors]:
    """A Hugging Face folder: config.json, and all tensors of *.safetensors."""
    data = _json(path / "config.json")
    try:
        described = _folder_config(path, data)
    except KeyError as error:
        raise UserError(f"config.json in {str(path)!r} does not say {error.args[0]!r}") from None
    return described, _folder_tensors(path)


def _folder_config(path: Path, data: dict[str, Any]) -> Described:
    """What config.json says, in our words; a KeyError names what it leaves out."""
    model_type = data.get("model_type")
    if model_type not in ("llama", "gpt_neox"):
        raise UserError(unknown(f"model_type in {str(path)!r}", model_type, ("llama", "gpt_neox")))
    is_neox = model_type == "gpt_neox"
    # newer folders keep everything about rotation in rope_parameters
    rotation = data.get("rope_parameters") or data.get("rope_scaling") or {}
    _check_supported(path, data, rotation, act="gelu" if is_neox else "silu")
    n_heads = data["num_attention_heads"]
    d_model = data["hidden_size"]
    d_head = data.get("head_dim") or d_model // n_heads
    turned_part = 1.0
    if is_neox:
        turned_part = rotation.get("partial_rotary_factor", data.get("rotary_pct", 0.25))
    old_base = data.get("rotary_emb_base" if is_neox else "rope_theta", 10_000.0)
    config = ModelConfig(
        **(NEOX if is_neox else LLAMA),
        norm_eps=data["layer_norm_eps" if is_neox else "rms_norm_eps"],
        n_layers=data["num_hidden_layers"],
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_head,
        n_key_value_heads=data.get("num_key_value_heads") or n_heads,
        d_mlp=data["intermediate_size"],
        n_ctx=data["max_position_embeddings"],
        rotary_dim=int(d_head * turned_part),
        rotary_base=rotation.get("rope_theta", old_base),
        tied=data.get("tie_word_embeddings", False),
        parallel_attn_mlp=is_neox and data.get("use_parallel_residual", True),
    )
    return Described("neox" if is_neox else "llama", config, data["vocab_size"])


def _check_supported(path: Path, data: dict[str, Any], rotation: dict[str, Any], act: str) -> None:
    """Refuse what our forward pass does not compute: stretched rotations, other activations."""
    rope_type = rotation.get("rope_type", rotation.get("type", "default"))
    hidden_act = data.get("hidden_act")
    if rope_type != "default" or hidden_act != act:
        raise UserError(
            f"{str(path)!r} has rope type {rope_type!r} and hidden_act {hidden_act!r}; "
            f"allowed: 'default' and {act!r}"
        )


def _folder_tensors(path: Path) -> Tensors:
    from safetensors import SafetensorError
    from safetensors.flax import load_file

    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise UserError(f"there are no *.safetensors in {str(path)!r}")
    tensors: Tensors = {}
    for file in files:
        try:
            loaded = load_file(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{str(file)!r} is damaged or no safetensors file: {error}") from None
        for name, tensor in loaded.items():
            tensors[name] = partial(np.asarray, tensor)
    return tensors


# ---- GGUF files


def _reader(path: Path) -> Any:
    """An open GGUF file."""
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
        """A reader that stops at the file's end.

        The original goes on with nothing, as often as a damaged count says.
        """

        def _get(self, offset: Any, dtype: Any, count: Any = 1, override_order: Any = None) -> Any:
            end = int(offset) + np.dtype(dtype).itemsize * int(count)
            if end > len(self.data):
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
        said = str(error).splitlines()[0] if str(error) else repr(error)
        raise UserError(f"{str(path)!r} is damaged or cut off: {said}") from None


def _field(path: Path, fields: Any, name: str, default: Any = None) -> Any:
    """What a GGUF file says under a name; without a default it has to say something."""
    if name in fields:
        return fields[name].contents()
    if default is None:
        raise UserError(f"{str(path)!r} does not say {name!r}")
    return default


def _gguf(path: Path) -> tuple[Described, Tensors]:
    """A GGUF file of the Llama type, with a folder's names and order of rows."""
    reader = _reader(path)
    stored = {tensor.name: tensor for tensor in reader.tensors}
    described = _gguf_config(path, reader.fields, stored)
    tensors: Tensors = {}
    for name, tensor in stored.items():
        if tensor.tensor_type.name not in GGUF_TYPES:
            kind = f"type of {name!r} in {str(path)!r}"
            raise UserError(unknown(kind, tensor.tensor_type.name, GGUF_TYPES))
        *block, part, _ = name.split(".")
        place = f"model.layers.{block[1]}." if block else ""
        theirs = f"{place}{GGUF_NAMES.get(part, part)}.weight"
        tensors[theirs] = partial(_gguf_tensor, described.config, tensor)
    return described, tensors


def _gguf_config(path: Path, fields: Any, stored: dict[str, Any]) -> Described:
    """What a GGUF file's fields say, in our words."""

    def value(name: str, default: Any = None) -> Any:
        return _field(path, fields, name, default)

    architecture = value("general.architecture")
    if architecture != "llama":
        raise UserError(unknown(f"architecture of {str(path)!r}", architecture, ("llama",)))
    n_heads = value("llama.attention.head_count")
    d_model = value("llama.embedding_length")
    if "token_embd.weight" not in stored:
        raise UserError(f"the tensor 'token_embd.weight' is missing in {str(path)!r}")
    n_kv_heads = value("llama.attention.head_count_kv", n_heads)
    d_head = value("llama.attention.key_length", d_model // n_heads)
    scaling = value("llama.rope.scaling.type", "none")
    if scaling != "none":
        raise UserError(f"{str(path)!r} has rope scaling {scaling!r}; allowed: 'none'")
    config = ModelConfig(
        **LLAMA,
        n_layers=value("llama.block_count"),
        d_model=d_model,
        n_heads=n_heads,
        n_key_value_heads=n_kv_heads,
        d_head=d_head,
        d_mlp=value("llama.feed_forward_length"),
        n_ctx=value("llama.context_length"),
        rotary_dim=value("llama.rope.dimension_count", d_head),
        rotary_base=value("llama.rope.freq_base", 10_000.0),
        norm_eps=value("llama.attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in stored,
    )
    return Described("llama", config, int(stored["token_embd.weight"].shape[1]))


def _gguf_tensor(config: ModelConfig, tensor: Any) -> np.ndarray:
    """A tensor as numbers; the rows of queries and keys in the order of `forward`."""
    from gguf.quants import dequantize  # pyright: ignore[reportMissingImports]

    found = dequantize(tensor.data, tensor.tensor_type)
    if not tensor.name.endswith(("attn_q.weight", "attn_k.weight")):
        return found
    by_head = found.reshape(-1, config.d_head, config.d_model)
    rows = _rotary_permutation(config.d_head, config.rotary_dim)
    return by_head[:, rows].reshape(found.shape)


def _rotary_permutation(d_head: int, dims: int) -> np.ndarray:
    """Where each dimension of a head stands in a file that turns neighbors together.

    0 2 4 .. 1 3 5 .., then the rest.
    """
    even = np.arange(0, dims, 2)
    odd = np.arange(1, dims, 2)
    rest = np.arange(dims, d_head)
    return np.concatenate([even, odd, rest])
