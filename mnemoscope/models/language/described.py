"""A language model as a file describes it, and what is common to all models of a type."""

from typing import Any, NamedTuple

from mnemoscope.models.config import ModelConfig
from mnemoscope.models.language.tensor_layouts import Layout

LLAMA: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "rms",
    "bias": False,
    "gated_mlp": True,
    "positions": "rotary",
}
NEOX: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "layer",
    "unembed_bias": False,
    "positions": "rotary",
}
GPT2: dict[str, Any] = {
    "norm": "pre",
    "norm_type": "layer",
    "unembed_bias": False,
    "positions": "learned",
}


class Described(NamedTuple):
    """A model as a file describes it, before its weights are read."""

    layout: Layout
    """Whose names and matrices the file has."""
    config: ModelConfig
    """Its shape."""
    d_vocab: int
    """How many tokens it embeds."""
