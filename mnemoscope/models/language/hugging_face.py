"""Hugging Face folders: config.json, *.safetensors and tokenizer.json.

Every field of config.json is either used, or known to change nothing that is computed from tokens,
or switched off; any other is refused by name. So is a tokenizer that cuts text in another way than
`tokens` does: it would make other tokens without a word.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError, parsed, short, unknown
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.language.described import GPT2, LLAMA, NEOX, Described
from mnemoscope.models.language.tensor_layouts import Tensors
from mnemoscope.models.language.tokens import Tokenizer

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
# what an activation is called there, and here
HIDDEN_ACTS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# fields that change nothing of what is computed from tokens, as patterns
NO_MATTER = (
    # who wrote it, with what, and for which classes of models
    "_*",
    "architectures",
    "auto_map",
    "is_decoder",
    "is_llama_config",
    "name_or_path",
    "tokenizer_class",
    "torchscript",
    "transformers*",
    "*dtype",
    # how it was drawn, trained and cut into devices
    "initializer_*",
    "*dropout*",
    "*_pdrop",
    "gradient_checkpointing",
    "pretraining_tp",
    "reorder_and_upcast_attn",
    # what is returned, and what heads for other purposes are told
    "use_cache",
    "output_*",
    "return_dict*",
    "id2label",
    "label2id",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "summary_*",
    # which tokens are special, and how text is drawn
    "*_token_id",
    "do_sample",
    "diversity_penalty",
    "length_penalty",
    "max_length",
    "min_length",
    "num_beams",
    "num_beam_groups",
    "num_return_sequences",
    "repetition_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
)
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


class Fields:
    """The fields of a config.json; those that were never asked for are refused in the end."""

    def __init__(self, path: Path):
        """The fields of a file.

        Args:
            path: The file.
        """
        self._path = path
        self._fields = read_json(path)
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        """A field that must be there."""
        found = self.get(name)
        if found is None:
            raise UserError(f"{CONFIG} in {str(self._path.parent)!r} does not say {name!r}")
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or what it means to leave it out."""
        self._asked.add(name)
        found = self._fields.get(name)
        return default if found is None else found

    def require(self, name: str, allowed: object) -> None:
        """Refuse any value of a field but one, which is also what it means to leave it out."""
        came = self.get(name, allowed)
        if came != allowed:
            raise UserError(
                f"{str(self._path)!r} has {name}={short(came)}; allowed: {allowed}, as we have no "
                "such part"
            )

    def one_of(self, name: str, table: Mapping[str, str]) -> str:
        """What the word in a field means."""
        word = self[name]
        if word not in table:
            raise UserError(unknown(f"{name} in {str(self._path)!r}", word, table))
        return table[word]

    def refuse_rest(self) -> None:
        """Raise for a field that was never asked for, and that may change what is computed."""
        for name, value in self._fields.items():
            is_off = value in (None, False, "", [], {})
            if name in self._asked or is_off:
                continue
            if not any(fnmatchcase(name, pattern) for pattern in NO_MATTER):
                raise UserError(
                    f"{str(self._path)!r} has {short(name)}={short(value)}, which is not known to "
                    "change nothing; allowed: to take the field out if that is so"
                )


# ---- models


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object.

    Args:
        path: The file.
    """
    try:
        return parsed(path.read_text(encoding="utf-8"), "it")
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {str(path.parent)!r}") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{str(path)!r} cannot be read: {error}") from None


def read_folder(path: Path) -> tuple[Described, Tensors]:
    """What the folder says of its model, and all its tensors.

    Args:
        path: The folder.
    """
    fields = Fields(path / CONFIG)
    model_type = fields["model_type"]
    if model_type not in _DESCRIBE:
        raise UserError(unknown(f"model_type in {str(path)!r}", model_type, _DESCRIBE))
    described = _DESCRIBE[model_type](fields)
    fields.refuse_rest()
    tensors = _read_tensors(path)
    if described.layout == "gpt2":  # some files have the name of the class in front, some have not
        tensors = {name.removeprefix("transformer."): tensors[name] for name in tensors}
    return described, tensors


def _describe_llama(fields: Fields) -> Described:
    n_heads = fields["num_attention_heads"]
    d_model = fields["hidden_size"]
    d_head = fields.get("head_dim", d_model // n_heads)
    base, rotated_part = _read_rotation(fields, "rope_theta", 1.0)
    for name in ("attention_bias", "mlp_bias", "rope_interleaved"):
        fields.require(name, False)
    config = ModelConfig(
        **LLAMA,
        act=fields.one_of("hidden_act", HIDDEN_ACTS),
        norm_eps=fields["rms_norm_eps"],
        n_layers=fields["num_hidden_layers"],
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_head,
        n_key_value_heads=fields.get("num_key_value_heads", n_heads),
        d_mlp=fields["intermediate_size"],
        n_ctx=fields["max_position_embeddings"],
        rotary_dim=int(d_head * rotated_part),
        rotary_base=base,
        tied=fields.get("tie_word_embeddings", False),
    )
    return Described("llama", config, fields["vocab_size"])


def _describe_neox(fields: Fields) -> Described:
    n_heads = fields["num_attention_heads"]
    d_model = fields["hidden_size"]
    d_head = d_model // n_heads
    base, rotated_part = _read_rotation(fields, "rotary_emb_base", fields.get("rotary_pct", 0.25))
    fields.require("attention_bias", True)
    config = ModelConfig(
        **NEOX,
        act=fields.one_of("hidden_act", HIDDEN_ACTS),
        norm_eps=fields["layer_norm_eps"],
        n_layers=fields["num_hidden_layers"],
        d_model=d_model,
        n_heads=n_heads,
        d_head=d_head,
        d_mlp=fields["intermediate_size"],
        n_ctx=fields["max_position_embeddings"],
        rotary_dim=int(d_head * rotated_part),
        rotary_base=base,
        tied=fields.get("tie_word_embeddings", False),
        parallel_attn_mlp=fields.get("use_parallel_residual", True),
    )
    return Described("neox", config, fields["vocab_size"])


def _read_rotation(fields: Fields, name: str, rotated_part: float) -> tuple[float, float]:
    """The base of the angles, and how much of a head is rotated.

    Args:
        fields: The fields.
        name: The field that the base has in older folders.
        rotated_part: How much is rotated where the folder is an older one.
    """
    old_base = fields.get(name, 10_000.0)
    # newer folders keep everything about rotation in rope_parameters
    scaling = fields.get("rope_scaling")
    rotation = fields.get("rope_parameters") or scaling or {}
    rope_type = rotation.get("rope_type", rotation.get("type", "default"))
    if rope_type != "default":
        raise UserError(f"{CONFIG} has rope type {short(rope_type)}; allowed: 'default'")
    base = rotation.get("rope_theta", old_base)
    return base, rotation.get("partial_rotary_factor", rotated_part)


def _describe_gpt2(fields: Fields) -> Described:
    d_model = fields["n_embd"]
    fields.require("scale_attn_weights", True)
    for name in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        fields.require(name, False)
    n_ctx = fields["n_positions"]
    fields.require("n_ctx", n_ctx)
    config = ModelConfig(
        **GPT2,
        act=fields.one_of("activation_function", HIDDEN_ACTS),
        norm_eps=fields["layer_norm_epsilon"],
        n_layers=fields["n_layer"],
        d_model=d_model,
        n_heads=fields["n_head"],
        d_mlp=fields.get("n_inner", 4 * d_model),
        n_ctx=n_ctx,
        tied=fields.get("tie_word_embeddings", True),
    )
    return Described("gpt2", config, fields["vocab_size"])


# by model_type
_DESCRIBE: dict[str, Callable[[Fields], Described]] = {
    "llama": _describe_llama,
    "gpt_neox": _describe_neox,
    "gpt2": _describe_gpt2,
}


def _read_tensors(path: Path) -> Tensors:
    """All tensors of all *.safetensors of a folder."""
    from safetensors import SafetensorError
    from safetensors.flax import load_file

    files = sorted(path.glob("*.safetensors"))
    if not files:
        pickles = [file.name for pattern in PICKLES for file in sorted(path.glob(pattern))]
        instead = ""
        if pickles:
            instead = (
                f"; {pickles[0]} is a pickle, which could run code and is not read: save the model "
                "with model.save_pretrained(DIR, safe_serialization=True)"
            )
        raise UserError(f"there are no *.safetensors in {str(path)!r}{instead}")
    tensors: Tensors = {}
    for file in files:
        try:
            loaded = load_file(file)
        except (SafetensorError, OSError, ValueError) as error:
            raise UserError(f"{str(file)!r} is damaged or no safetensors file: {error}") from None
        for name, tensor in loaded.items():
            if name in tensors:
                raise UserError(
                    f"two files in {str(path)!r} have a tensor {name!r}; allowed: a folder with "
                    "the files of one model"
                )
            tensors[name] = partial(np.asarray, tensor)
    return tensors


# ---- tokenizers


def read_folder_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a folder's tokenizer.json.

    Args:
        path: The folder.
    """
    data = read_json(path / TOKENIZER)
    model = data.get("model", {})
    if model.get("type") != "BPE":
        raise UserError(
            f"the tokenizer in {str(path)!r} is {short(model.get('type'))}; allowed: 'BPE'"
        )
    for name in (
        "byte_fallback",
        "continuing_subword_prefix",
        "dropout",
        "end_of_word_suffix",
        "ignore_merges",
    ):
        if model.get(name):
            raise UserError(
                f"the tokenizer in {str(path)!r} has {name}={short(model[name])}; allowed: none"
            )
    added = {token["content"]: token["id"] for token in data.get("added_tokens", ())}
    numbers = model["vocab"] | added
    token_of = {number: token for token, number in numbers.items()}
    last = max(token_of)
    if last > 2 * len(token_of) + 1000:  # a few numbers may be unused
        raise UserError(
            f"the tokenizer in {str(path)!r} numbers one of its {len(token_of)} tokens {last}"
        )
    merges = []
    for merge in model["merges"]:
        first, second = merge if isinstance(merge, list) else merge.split(" ")
        merges.append((first, second))
    vocabulary = tuple(token_of.get(number, "") for number in range(last + 1))
    return Tokenizer(
        vocabulary,
        tuple(merges),
        single_digits=_read_cut(path, data),
        nfc=_read_normalizer(path, data),
    )


def _steps(data: Mapping[str, Any], name: str, inside: str) -> list[dict[str, Any]]:
    """The steps of a part of a tokenizer, of which there may be none, one or a sequence."""
    part = data.get(name)
    if part is None:
        return []
    return part[inside] if part["type"] == "Sequence" else [part]


def _read_cut(path: Path, data: Mapping[str, Any]) -> bool:
    """Whether every digit is a word of its own; a cut into other words is refused."""
    steps = _steps(data, "pre_tokenizer", "pretokenizers")
    single_digits = steps[:1] == [{"type": "Digits", "individual_digits": True}]
    others = steps[1:] if single_digits else steps
    is_ours = [_is_byte_level(step) for step in others] == [True]
    if not is_ours:
        said = short([{k: v for k, v in step.items() if k != "trim_offsets"} for step in steps])
        raise UserError(
            f"the tokenizer in {str(path)!r} cuts text by {said}; allowed: ByteLevel with "
            "add_prefix_space=False and use_regex=True, after Digits with individual_digits=True "
            "or alone"
        )
    return single_digits


def _is_byte_level(step: Mapping[str, Any]) -> bool:
    """Whether a step cuts as `tokens` does."""
    return (
        step["type"] == "ByteLevel"
        and not step.get("add_prefix_space", True)
        and step.get("use_regex", True)
    )


def _read_normalizer(path: Path, data: Mapping[str, Any]) -> bool:
    """Whether text is put into Unicode's form NFC first; any other change of it is refused."""
    kinds = [step["type"] for step in _steps(data, "normalizer", "normalizers")]
    if kinds not in ([], ["NFC"]):
        raise UserError(
            f"the tokenizer in {str(path)!r} normalizes text by {short(kinds)}; allowed: NFC, or "
            "nothing"
        )
    return bool(kinds)
