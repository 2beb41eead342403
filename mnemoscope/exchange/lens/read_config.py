"""Reading a HookedTransformerConfig: nothing passes that would make another model than ours."""

import json
import math
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from mnemoscope.core.errors import UserError, short
from mnemoscope.exchange.lens.convert_config import CONFIG, WEIGHTS
from mnemoscope.models import ModelConfig
from mnemoscope.models.transformer_lens_fields import LENS_FIELDS, is_said

# what a HookedTransformerConfig may say without changing what is computed from tokens in
# evaluation, as patterns
NO_MATTER = (
    # where it runs, and where it came from
    "model_name",
    "device",
    "n_devices",
    "n_params",
    "original_architecture",
    "trust_remote_code",
    "from_checkpoint",
    "checkpoint_*",
    "train_seq_length",
    "layer_norm_folding",
    # how it was drawn
    "seed",
    "init_*",
    "initializer_range",
    # what is hooked
    "use_attn_result",
    "use_attn_in",
    "use_split_qkv_input",
    "use_hook_*",
    "ungroup_grouped_query_attention",
    # tokenizers
    "default_prepend_bos",
    "tokenizer_*",
    # details of parts that are refused when they are on, or whose weights are in the file
    "window_size",
    "attn_types",
    "rotary_base_local",
    "NTK_*",
    "yarn_*",
    "experts_per_token",
    "norm_topk_prob",
    "tie_word_embeddings",
)
SIZES = ("n_layers", "d_model", "n_ctx", "d_head", "n_heads", "d_vocab", "d_vocab_out", "d_mlp")
# sizes that follow from others where they are left out
OPTIONAL_SIZES = ("n_key_value_heads", "rotary_dim")
NUMBERS = ("eps", "rotary_base")


def read_config(path: Path) -> dict[str, Any]:
    """A HookedTransformerConfig that says nothing we could not compute.

    Args:
        path: The file, which holds its fields as JSON.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from error
    if not isinstance(data, dict):
        raise UserError(
            f"{str(path)!r} holds a {type(data).__name__}; allowed: the fields of a "
            "HookedTransformerConfig"
        )
    if data.get("d_vocab_out", -1) == -1:  # TransformerLens's default: as many as there are tokens
        data["d_vocab_out"] = data.get("d_vocab")
    _check_sizes(path, data)
    _check_numbers(path, data)
    allowed = dict(_allowed_values(data))
    for name, values in allowed.items():
        if name in data and not any(_same(data[name], value) for value in values):
            _refuse(path, data, name, " or ".join(map(repr, values)))
    _check_other_fields(path, data, {*SIZES, *LENS_FIELDS, *allowed})
    return data


def unreadable(path: Path, error: Exception) -> UserError:
    """What is said of a file that is not there, or not what its name promises.

    Args:
        path: The file.
        error: What reading it ended in.
    """
    why = getattr(error, "strerror", None) or str(error).splitlines()[0]
    return UserError(
        f"cannot read {str(path)!r} ({why}); a model is a folder with {WEIGHTS} and {CONFIG}"
    )


def _refuse(path: Path, data: Mapping[str, Any], name: str, allowed: str) -> NoReturn:
    """Stop at a field of the configuration, with what it says and what it may say."""
    came = f"{name}={short(data[name])}" if name in data else f"no {name}"
    raise UserError(f"{str(path)!r} has {came}; allowed: {allowed}")


def _check_sizes(path: Path, data: Mapping[str, Any]) -> None:
    """Every size is there, and is a number that an array can have."""
    left_out = [name for name in OPTIONAL_SIZES if data.get(name) is None]
    for name in (*SIZES, *OPTIONAL_SIZES):
        if name in left_out or not is_said(data, name):
            continue
        # not isinstance: True is an int
        if type(data.get(name)) is not int or not 1 <= data[name] < 2**31:
            _refuse(path, data, name, "a whole number from 1 up that a computer can hold")


def _check_numbers(path: Path, data: Mapping[str, Any]) -> None:
    """Every number that is no size is one above zero, or left out."""
    for name in NUMBERS:
        if name not in data or not is_said(data, name):
            continue
        # JSON has whole numbers that no float holds
        if type(data[name]) not in (int, float) or not 0 < data[name] < 1e300:
            _refuse(path, data, name, "a number above 0")


def _allowed_values(data: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """What the fields may say that change what is computed; one that is not there says its default,
    which is allowed."""
    for name, row in LENS_FIELDS.items():
        if not is_said(data, name):
            continue
        if not isinstance(row, str):
            yield name, tuple(row)
        elif ModelConfig.model_fields[row].annotation is bool:
            yield name, (False, True)
    yield "attn_only", (False, True)
    yield "use_attn_scale", (True,)
    yield "attn_scale", (-1.0, math.sqrt(data["d_head"]))
    yield "dtype", ("torch.float32", "float32")
    yield "attn_scores_soft_cap", (-1.0,)
    yield "output_logits_soft_cap", (-1.0,)
    if is_said(data, "rotary_scaling_factor"):
        yield "rotary_scaling_factor", (1.0,)
    if data.get("normalization_type") in ("RMS", "RMSPre"):
        # the last norm is an RMS norm in any case
        yield "final_rms", (False, True)


def _check_other_fields(path: Path, data: Mapping[str, Any], known: set[str]) -> None:
    """No field besides the known ones switches a part on that we do not have."""
    for name, value in data.items():
        # a part that is switched off changes nothing, even one that came after this was written
        if name in known or value in (None, False) or not is_said(data, name):
            continue
        if not any(fnmatchcase(name, pattern) for pattern in NO_MATTER):
            _refuse(path, data, name, "None or False, as we have no such part")


def _same(came: Any, value: Any) -> bool:
    """Whether two settings are the same: numbers to six digits, everything else exactly."""
    # JSON has whole numbers that no float holds
    is_number = isinstance(came, int | float) and abs(came) < 1e300
    if is_number and isinstance(value, float):
        return math.isclose(came, value, rel_tol=1e-6)
    return type(came) is type(value) and came == value
