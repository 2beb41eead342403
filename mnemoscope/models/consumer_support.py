"""What a consumer of models can compute: it lists what it supports; the rest is refused by name.

A consumer is whatever reads a model in a way of its own instead of running the forward pass: a
faster rewrite, the walk, the explorer, an export. A field of a `ModelConfig` that it does not list
must have its default, so that a field or a kind of layer that is added later is refused until the
consumer says that it can.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from mnemoscope.core.errors import UserError
from mnemoscope.models.config import ModelConfig

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

    def why_not(self, config: ModelConfig) -> str | None:
        """None if it computes this model; else what it does not, and what is allowed."""
        refused = list(self._refused(config))
        return "; ".join(refused) if refused else None

    def require(self, config: ModelConfig) -> None:
        """Raise unless it computes this model."""
        why_not = self.why_not(config)
        if why_not is not None:
            raise UserError(f"{self.consumer} has no {why_not}")

    def _refused(self, config: ModelConfig) -> Iterator[str]:
        for name, field in type(config).model_fields.items():
            if name in ModelConfig.sizes or not _matters(config, name):
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
