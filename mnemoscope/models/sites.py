"""The named values of a forward pass, with their axes, in the order of the computation.

A site has TransformerLens's name and TransformerLens's value. An edit can be made at every one of
them, and a trace holds what each was, after edits.
"""

import difflib
import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from mnemoscope.core.errors import UserError, unknown
from mnemoscope.models.model import Model, Sites
from mnemoscope.models.positions import POSITIONS

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig

# a full name or one of TransformerLens's short forms
SiteName = str | tuple[Any, ...]
# TransformerLens's other words in short forms, for what stands at a site and for parts of a layer
OTHER_WORDS = {
    "attn": "pattern",
    "attn_logits": "attn_scores",
    "query": "q",
    "key": "k",
    "value": "v",
    "mlp_pre": "pre",
    "mlp_post": "post",
}
OTHER_KINDS = {"a": "attn", "attention": "attn", "m": "mlp", "b": "", "block": "", "blocks": ""}
COMPACT = re.compile(r"([a-z_]+)(\d+)([a-z]+\d?)?")
# what each head's queries, keys and values are made from: copies of one stream, which a trace holds
# only where one of them was edited
SPLIT_INPUTS = ("hook_q_input", "hook_k_input", "hook_v_input")


def site_axes(config: "ModelConfig") -> Sites:
    """Every site's name and axes, in the order of the computation."""
    sites: Sites = {"hook_embed": "pos d_model"}
    if POSITIONS[config.positions].added is not None:
        sites["hook_pos_embed"] = "pos d_model"
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        sites[f"{block}.hook_resid_pre"] = "pos d_model"
        custom = config.custom_layer(layer)
        if custom is not None:
            sites |= {f"{block}.{name}": axes for name, axes in custom.sites(config).items()}
        if config.has_attn(layer):
            sites |= _attention_sites(config, block)
            if config.norm == "post":
                sites |= _norm_sites(f"{block}.ln1")
        if custom is None and not config.parallel_attn_mlp:
            sites[f"{block}.hook_resid_mid"] = "pos d_model"
        if config.has_mlp(layer):
            sites |= _mlp_sites(config, block)
        sites[f"{block}.hook_resid_post"] = "pos d_model"
    if config.norm == "pre":
        sites |= _norm_sites("ln_final")
    return sites


def recorded_sites(config: "ModelConfig") -> tuple[str, ...]:
    """The sites that every trace holds, edited or not."""
    return tuple(name for name in site_axes(config) if not name.endswith(SPLIT_INPUTS))


def held_for(names: Iterable[str], edited: Collection[str]) -> tuple[str, ...]:
    """The sites that a trace has to hold to answer for some: of what heads read, unless it was
    edited, the stream.

    Args:
        names: The full names of the sites that are asked for.
        edited: Those of the sites that are edited.
    """
    held = {}
    for name in names:
        block, _, last = name.rpartition(".")
        is_copy = last in SPLIT_INPUTS and name not in edited
        held[f"{block}.hook_resid_pre" if is_copy else name] = None
    return tuple(held)


def _norm_sites(name: str) -> Sites:
    # what a norm's weights receive, as in TransformerLens since version 3: before, a layer norm's
    # `hook_normalized` was what it hands on
    return {f"{name}.hook_scale": "pos 1", f"{name}.hook_normalized": "pos d_model"}


def _attention_sites(config: "ModelConfig", block: str) -> Sites:
    attn = f"{block}.attn"
    kv_head = "head" if config.n_key_value_heads == config.n_heads else "kv_head"
    heads = {"q": "head", "k": kv_head, "v": kv_head}
    sites: Sites = {}
    for name in "qkv":
        sites[f"{block}.hook_{name}_input"] = f"pos {heads[name]} d_model"
    if config.norm == "pre":
        sites |= _norm_sites(f"{block}.ln1")
    for name in "qkv":
        sites[f"{attn}.hook_{name}"] = f"pos {heads[name]} d_head"
    if POSITIONS[config.positions].turned is not None:
        for name in "qk":
            sites[f"{attn}.hook_rot_{name}"] = f"pos {heads[name]} d_head"
    sites[f"{attn}.hook_attn_scores"] = "head pos key_pos"
    sites[f"{attn}.hook_pattern"] = "head pos key_pos"
    sites[f"{attn}.hook_z"] = "pos head d_head"
    sites[f"{attn}.hook_result"] = "pos head d_model"
    sites[f"{block}.hook_attn_out"] = "pos d_model"
    return sites


def _mlp_sites(config: "ModelConfig", block: str) -> Sites:
    mlp = f"{block}.mlp"
    sites: Sites = {}
    if config.norm == "pre":
        sites |= _norm_sites(f"{block}.ln2")
    sites[f"{mlp}.hook_pre"] = "pos d_mlp"
    if config.gated_mlp:
        sites[f"{mlp}.hook_pre_linear"] = "pos d_mlp"
    sites[f"{mlp}.hook_post"] = "pos d_mlp"
    sites[f"{block}.hook_mlp_out"] = "pos d_model"
    if config.norm == "post":
        sites |= _norm_sites(f"{block}.ln2")
    return sites


def full_site_name(config: Model, name: SiteName | Any) -> str:
    """A site's full name from TransformerLens's short forms.

    They are ("pattern", 0), ("scale", 0, "ln1"), "embed", "pattern0" and "scale0ln1".
    """
    sites = config.sites()
    if isinstance(name, str):
        candidates = [name, f"hook_{name}", f"ln_final.hook_{name}"]
        compact = COMPACT.fullmatch(name)
        if compact:
            short, layer, kind = compact.groups()
            candidates += _names_in_layer(short, int(layer), kind)
    else:
        candidates = _candidates(config, name) if isinstance(name, tuple) else []
    for candidate in candidates:
        if candidate in sites:
            return candidate
    raise UserError(unknown("site", name, sites, near=_near(sites, name)))


def _near(sites: Sites, name: SiteName | Any) -> str | None:
    """The site that a short form with a slip in it means; None if it is like none."""
    parts: list[Any] = list(name) if isinstance(name, tuple) else []
    if not parts or not isinstance(parts[0], str):
        return None
    by_short: dict[str, str] = {}
    for full in sites:
        block = re.match(r"blocks\.(\d+)\.", full)
        layers = (int(block[1]), None) if block else (None,)
        if len(parts) > 1 and parts[1] not in layers:
            continue
        by_short.setdefault(full.rpartition(".hook_")[2].removeprefix("hook_"), full)
    similar = difflib.get_close_matches(parts[0], by_short, n=1)
    return by_short[similar[0]] if similar else None


def _candidates(config: Model, name: tuple[Any, ...]) -> list[str]:
    """What a tuple may mean: (name, layer, part of the layer), the last two of which may be
    missing."""
    short, layer, kind, *rest = (*name, None, None, None)
    if any(part is not None for part in rest) or not isinstance(short, str):
        return []
    if layer is None:
        return [short, f"hook_{short}", f"{kind or 'ln_final'}.hook_{short}"]
    if not hasattr(layer, "__index__"):
        return []
    number = int(layer)
    return _names_in_layer(short, number + config.n_layers if number < 0 else number, kind)


def _names_in_layer(short: str, layer: int, kind: str | None) -> list[str]:
    """The full names that a short one may have in a layer, the likeliest first."""
    block = f"blocks.{layer}"
    name = OTHER_WORDS.get(short, short)
    parts = ["attn", "", "mlp"]
    if kind:
        # as in TransformerLens, a name that says by itself where it belongs needs no right kind
        parts.insert(0, OTHER_KINDS.get(kind, kind))
    found = [".".join(filter(None, (block, part, f"hook_{name}"))) for part in parts]
    return [*found, f"{block}.{short}"]
