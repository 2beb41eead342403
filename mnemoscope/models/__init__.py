"""WHAT IS COMPUTED: one forward pass that returns logits and a trace of every site, and edits."""

from mnemoscope.models.activation_cache import Cache
from mnemoscope.models.config import Init, ModelConfig
from mnemoscope.models.edits import (
    Edit,
    add_to_site,
    force_pattern,
    head_mask,
    knock_out_head,
    knock_out_mlp,
    patch_site,
    patch_sites,
    replace_site,
)
from mnemoscope.models.factored_matrix import FactoredMatrix
from mnemoscope.models.forward_pass import early_logits, forward, unembed
from mnemoscope.models.initialize import init
from mnemoscope.models.layer import Layer
from mnemoscope.models.model import AnyModel, Model, Site, draw_by_shape
from mnemoscope.models.shapes import parameter_shapes
from mnemoscope.models.sites import recorded_sites, site_axes
from mnemoscope.models.stack import Stack
from mnemoscope.models.transformer import HookedModel, Transformer, bind

__all__ = [
    "AnyModel",
    "Cache",
    "Edit",
    "FactoredMatrix",
    "HookedModel",
    "Init",
    "Layer",
    "Model",
    "ModelConfig",
    "Site",
    "Stack",
    "Transformer",
    "add_to_site",
    "bind",
    "draw_by_shape",
    "early_logits",
    "force_pattern",
    "forward",
    "head_mask",
    "init",
    "knock_out_head",
    "knock_out_mlp",
    "parameter_shapes",
    "patch_site",
    "patch_sites",
    "recorded_sites",
    "replace_site",
    "site_axes",
    "unembed",
]
