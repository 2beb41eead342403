"""A model's shape as a HookedTransformerConfig, and the shape that one describes.

`mnemoscope.models.transformer_lens_fields` has the words.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from mnemoscope.core.errors import UserError
from mnemoscope.models import HookedModel, Model, ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.models.transformer_lens_fields import (
    LENS_FIELDS,
    from_lens_word,
    is_said,
    lens_word,
    values_with_words,
)

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
SPLIT_BY_GROUPS = ("W_K", "W_V", "b_K", "b_V")


def _supported() -> dict[str, tuple[Any, ...] | None]:
    """What TransformerLens has a word for, and what is filled in where it is left out."""
    found = values_with_words()
    with_table = found["positions"] or ()
    found["positions"] = (*with_table, "none")
    # which layers have what is looked at for all layers together
    for name in ("bias", "unembed_bias", "tied", "attn_layers", "mlp_layers"):
        found[name] = ANY
    return found


SUPPORT = Support("TransformerLens", _supported())


class Sizes(NamedTuple):
    """The sizes that a model's weights have and its configuration does not say."""

    d_vocab: int
    """How many tokens it embeds."""
    n_ctx: int
    """The longest prompt."""
    d_vocab_out: int
    """How many answers it gives logits for."""


def sizes_of(model: HookedModel, n_ctx: int | None) -> Sizes:
    """Tokens, positions and answers of a model.

    Args:
        model: The model.
        n_ctx: The longest prompt, for a model that takes any.
    """
    longest = model.n_ctx or n_ctx
    if longest is None:
        raise UserError(
            "TransformerLens bounds how long a prompt may be, and this model takes any: give n_ctx"
        )
    unembed = model.params.get("unembed.W_U")
    d_vocab_out = model.d_vocab if unembed is None else unembed.shape[1]
    return Sizes(model.d_vocab, longest, d_vocab_out)


def lens_config(model: Model, sizes: Sizes) -> dict[str, Any]:
    """The fields of the HookedTransformerConfig of a model; what TransformerLens has no word for
    raises.

    Args:
        model: The model's configuration.
        sizes: Its tokens, positions and answers.
    """
    config = SUPPORT.require(model)
    _require_like_layers(config)
    if config.positions == "none":  # a table of zeros
        config = config.model_copy(update={"positions": "learned"})
    data = {**sizes._asdict(), "attn_only": not config.has_mlp(0)}
    for name in LENS_FIELDS:
        if is_said(data, name):
            data[name] = lens_word(config, name)
    if data["n_key_value_heads"] == config.n_heads:
        # any number makes groups there, whose parameters have other names
        data["n_key_value_heads"] = None
    return {**data, "use_attn_result": True, "model_name": "mnemoscope"}


def _require_like_layers(config: ModelConfig) -> None:
    """Raise unless all layers have the same parts, attention among them."""
    layers = range(config.n_layers)
    if not all(config.has_attn(layer) for layer in layers):
        raise UserError(
            f"TransformerLens has no attn_layers={config.attn_layers!r} "
            "(allowed: attention in all layers)"
        )
    if len({config.has_mlp(layer) for layer in layers}) > 1:
        raise UserError(
            f"TransformerLens has no mlp_layers={config.mlp_layers!r} "
            "(allowed: a feed-forward part in all layers or none)"
        )


def hooked_config(data: Mapping[str, Any]) -> ModelConfig:
    """The shape that a HookedTransformerConfig describes, with every bias and an unembedding of its
    own."""
    fields: dict[str, Any] = {}
    for name in LENS_FIELDS:
        is_default = name not in data or (data[name] is None and name != "normalization_type")
        if is_said(data, name) and not is_default:
            fields |= from_lens_word(name, data[name])
    if "normalization_type" not in data:
        fields |= from_lens_word("normalization_type", "LN")
    if data.get("attn_only"):
        fields["d_mlp"] = 0
    if fields.get("positions") == "rotary":
        fields["n_ctx"] = data["n_ctx"]
    return ModelConfig(**_without_what_follows(fields))


def _without_what_follows(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields without the sizes that follow from others: left out, they stay out of the JSON."""
    n_heads = fields["n_heads"]
    d_head = fields["d_head"]
    follow = set()
    if n_heads * d_head == fields["d_model"]:
        follow.add("d_head")
    if fields.get("n_key_value_heads") == n_heads:
        follow.add("n_key_value_heads")
    if fields.get("rotary_dim") == d_head:
        follow.add("rotary_dim")
    return {name: value for name, value in fields.items() if name not in follow}


def tensor_name(name: str, has_groups: bool) -> str:
    """What a state dict calls a parameter.

    Args:
        name: Our name for it.
        has_groups: Whether heads are grouped there, so that W_K is what all heads have together.
    """
    path, _, last = name.rpartition(".")
    return f"{path}._{last}" if has_groups and last in SPLIT_BY_GROUPS else name
