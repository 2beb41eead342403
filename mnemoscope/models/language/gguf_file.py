"""GGUF files of the Llama type, with a folder's names and order of rows.

Such a file turns dimensions 2i and 2i + 1 of a head together; its rows are put in the order of
`forward`, which turns i and i + d_head / 2.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.language.described import LLAMA, Described
from mnemoscope.models.language.tensor_layouts import Tensors
from mnemoscope.models.language.tokens import Tokenizer

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


def read_gguf(path: Path) -> tuple[Described, Tensors]:
    """What the file says of its model, and all its tensors.

    Args:
        path: The file.
    """
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
        act="silu",
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


def read_gguf_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in the file.

    Args:
        path: The file.
    """
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
