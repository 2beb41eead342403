"""What a consumer of models can compute: it lists what it supports; the rest is refused by name.

A consumer is whatever reads a model in a way of its own instead of running the forward pass: a
faster rewrite, the walk, the explorer, an export. A field of a `ModelConfig` that it does not list
must have its default, so that a field or a kind of layer that is added later is refused until the
consumer says that it can. So is a model of another kind, unless that says that it is computed as a
transformer is (`Model.computed_as`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mnemoscope.core.errors import UserError
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.model import Model

ANY: Final = None  # every value that a field can have
# fields that say nothing where a model has no part that they speak of
OF_MLPS = frozenset({"act", "gated_mlp"})
OF_NORMS = frozenset({"norm_type", "norm_eps"})


@dataclass(frozen=True)
class Support:
    """The models that a consumer computes."""

    consumer: str
    """Who it is, as a message begins: `the walk`."""
    values: Mapping[str, tuple[Any, ...] | None]
    """By field the values that it computes, `ANY` for all; other fields must have their default."""

    def why_not(self, config: Model) -> str | None:
        """None if it computes this model; else what it does not, and what is allowed."""
        foreign = why_foreign(config)
        if foreign is not None:
            return foreign
        refused = list(self._refused(as_transformer(config, self.consumer)))
        return "; ".join(refused) if refused else None

    def require(self, config: Model) -> ModelConfig:
        """The model, if it computes it; else raise."""
        why_not = self.why_not(config)
        if why_not is not None:
            raise UserError(f"{self.consumer} has no {why_not}")
        return as_transformer(config, self.consumer)

    def _refused(self, config: ModelConfig) -> Iterator[str]:
        for name, field in type(config).model_fields.items():
            if name in config.sizes or not _matters(config, name):
                continue
            value = getattr(config, name)
            if name not in self.values:
                if name in config.model_fields_set and value != field.default:
                    is_size = name in ModelConfig.filled_in
                    default = "left out" if is_size else repr(field.default)
                    yield f"{name}={value!r} (allowed: {default})"
                continue
            allowed = self.values[name]
            if allowed is None or value in allowed:  # ANY is None
                continue
            yield f"{name}={value!r} (allowed: {', '.join(map(repr, allowed))})"


def why_foreign(config: Model) -> str | None:
    """None for a transformer, and for a kind that extends it and says that it is computed as one;
    else what it is, and what is allowed."""
    ours = ModelConfig.kind_name()
    is_ours = type(config) is ModelConfig
    if is_ours or (isinstance(config, ModelConfig) and config.computed_as == ours):
        return None
    if config.kind_name() == ours:
        return f"{type(config).__name__}, which extends it without a kind of its own"
    return f"kind={config.kind_name()!r} (allowed: {ours!r})"


def as_transformer(config: Model, consumer: str) -> ModelConfig:
    """A model as what computes transformers alone takes it; any other is refused.

    Args:
        config: The model.
        consumer: Who takes it, as a message begins: `the walk`.
    """
    foreign = why_foreign(config)
    if foreign is not None or not isinstance(config, ModelConfig):
        raise UserError(f"{consumer} has no {foreign}")
    return config


def _matters(config: ModelConfig, name: str) -> bool:
    """Whether a field changes what this model computes."""
    if name in OF_MLPS:
        return any(config.has_mlp(layer) for layer in range(config.n_layers))
    if name in OF_NORMS:
        return config.norm != "none"
    if name == "d_head":
        return config.d_head * config.n_heads != config.d_model
    if name == "n_key_value_heads":
        return config.n_key_value_heads != config.n_heads
    if name.startswith("rotary_"):
        return config.positions == "rotary"
    return True
