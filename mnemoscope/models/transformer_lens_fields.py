"""The fields of TransformerLens's HookedTransformerConfig beside those of a `ModelConfig`.

One table for both ways: what a field there says of a model of ours, and what a field from there
means here. What no row has, the other side has no word for.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from mnemoscope.models.config import ModelConfig

# what a word means: fields of a ModelConfig with their values
Words = Mapping[str | None, Mapping[str, Any]]

LENS_FIELDS: Mapping[str, str | Words] = MappingProxyType(
    {
        # a name: our field has the same values. Words: of several with one meaning the first is
        # written, and the first of all is TransformerLens's default
        "n_layers": "n_layers",
        "d_model": "d_model",
        "n_heads": "n_heads",
        "n_key_value_heads": "n_key_value_heads",
        "d_head": "d_head",
        "d_mlp": "d_mlp",
        "act_fn": {
            "relu": {"act": "relu"},
            "gelu": {"act": "gelu"},
            "gelu_new": {"act": "gelu_new"},
            "gelu_pytorch_tanh": {"act": "gelu_new"},
            "gelu_fast": {"act": "gelu_new"},
            "silu": {"act": "silu"},
        },
        "gated_mlp": "gated_mlp",
        "parallel_attn_mlp": "parallel_attn_mlp",
        "normalization_type": {
            "LN": {"norm": "pre", "norm_type": "layer"},
            "LNPre": {"norm": "pre", "norm_type": "layer"},
            "RMS": {"norm": "pre", "norm_type": "rms"},
            "RMSPre": {"norm": "pre", "norm_type": "rms"},
            None: {"norm": "none"},
        },
        "eps": "norm_eps",
        "attention_dir": {
            "causal": {"causal": True},
            "bidirectional": {"causal": False},
        },
        "positional_embedding_type": {
            "standard": {"positions": "learned"},
            "rotary": {"positions": "rotary"},
        },
        "rotary_dim": "rotary_dim",
        "rotary_base": "rotary_base",
        "rotary_adjacent_pairs": "rotary_adjacent_pairs",
    }
)


def lens_word(config: ModelConfig, name: str) -> Any:
    """What a field of a HookedTransformerConfig says of a model; None where it has no word.

    Args:
        config: The model.
        name: The name of the field there.
    """
    row = LENS_FIELDS[name]
    if isinstance(row, str):
        return getattr(config, row)
    for word, meaning in row.items():
        if all(getattr(config, ours) == value for ours, value in meaning.items()):
            return word
    return None


def from_lens_word(name: str, word: Any) -> Mapping[str, Any]:
    """What a field of a HookedTransformerConfig means: our fields with their values.

    Args:
        name: The name of the field there.
        word: One of its words, or the value that both sides write alike.
    """
    row = LENS_FIELDS[name]
    return {row: word} if isinstance(row, str) else row[word]


def values_with_words() -> dict[str, tuple[Any, ...] | None]:
    """By field of a `ModelConfig` the values that have a word there; None: all of them."""
    found: dict[str, tuple[Any, ...] | None] = {}
    for row in LENS_FIELDS.values():
        if isinstance(row, str):
            found[row] = None
            continue
        for meaning in row.values():
            for ours, value in meaning.items():
                before = found.get(ours) or ()
                found[ours] = before if value in before else (*before, value)
    return found


def is_said(data: Mapping[str, Any], name: str) -> bool:
    """Whether a model has the part that a field of its HookedTransformerConfig speaks of.

    Args:
        data: The fields of the configuration, at least those that come before this one.
        name: The name of the field.
    """
    if name in ("d_mlp", "act_fn", "gated_mlp", "parallel_attn_mlp"):
        return not data.get("attn_only")
    if name == "eps":
        return data.get("normalization_type", "LN") is not None
    if name.startswith("rotary_"):
        return data.get("positional_embedding_type") == "rotary"
    return True
