"""WHAT IS COMPUTED: one forward pass that returns logits and a trace of every site, and edits."""

from mnemoscope.models.config import Init, ModelConfig
from mnemoscope.models.edits import (
    Edit,
    force_pattern,
    head_mask,
    knock_out_head,
    knock_out_mlp,
    patch,
    replace,
)
from mnemoscope.models.forward_pass import early_logits, forward, unembed
from mnemoscope.models.initialize import init
from mnemoscope.models.shapes import parameter_shapes
from mnemoscope.models.sites import recorded_sites, site_axes
from mnemoscope.models.transformer import Cache, Transformer

__all__ = [
    "Cache",
    "Edit",
    "Init",
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
    "recorded_sites",
    "replace",
    "site_axes",
    "unembed",
]
