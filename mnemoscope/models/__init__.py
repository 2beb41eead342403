"""WHAT IS COMPUTED: one forward pass that returns logits and a trace of every site, and edits."""

from mnemoscope.models.config import ModelConfig, parameter_shapes, site_axes
from mnemoscope.models.edits import (
    Edit,
    force_pattern,
    head_mask,
    knock_out_head,
    knock_out_mlp,
    patch,
    replace,
)
from mnemoscope.models.forward import early_logits, forward, init
from mnemoscope.models.transformer import Cache, Transformer

__all__ = [
    "Cache",
    "Edit",
    "ModelConfig",
    "Transformer",
    "early_logits",
    "force_pattern",
    "forward",
    "head_mask",
    "init",
    "knock_out_head",
    "knock_out_mlp",
    "parameter_shapes",
    "patch",
    "replace",
    "site_axes",
]
