"""`model.cfg`: the shape of a model in the words of TransformerLens's HookedTransformerConfig."""

from typing import Any

from mnemoscope.core.errors import NoSuchNameError, UserError, unknown
from mnemoscope.models.config import ModelConfig
from mnemoscope.models.transformer_lens_fields import LENS_FIELDS, lens_word


class LensConfig:
    """What a model is, to be read as `model.cfg.d_vocab`.

    It has TransformerLens's names, and every field of the model's own `ModelConfig`.
    """

    def __init__(self, config: ModelConfig, d_vocab: int, n_ctx: int | None, d_vocab_out: int):
        """A model's configuration and the sizes that its weights have.

        Args:
            config: The model.
            d_vocab: How many tokens it embeds.
            n_ctx: The longest prompt; None: any length will do.
            d_vocab_out: How many answers it gives logits for.
        """
        mlps = [config.has_mlp(layer) for layer in range(config.n_layers)]
        own = {name: getattr(config, name) for name in ModelConfig.model_fields}
        # of norms after a layer TransformerLens can only say which they are
        said = config.model_copy(update={"norm": "pre"}) if config.norm == "post" else config
        words = {name: lens_word(said, name) for name in LENS_FIELDS}
        theirs = words | {
            "n_ctx": n_ctx,
            "d_vocab": d_vocab,
            "d_vocab_out": d_vocab_out,
            "attn_only": not any(mlps),
            # what it has no word for is said in ours
            "act_fn": (words["act_fn"] or config.act) if any(mlps) else None,
            "positional_embedding_type": words["positional_embedding_type"] or config.positions,
            "use_attn_scale": config.attention != "linear",
            "attn_scale": config.d_head**0.5,
            "tie_word_embeddings": config.tied,
        }
        object.__setattr__(self, "_fields", own | theirs)

    def to_dict(self) -> dict[str, Any]:
        """Every field by name."""
        return dict(self._fields)

    def __getattr__(self, name: str) -> Any:
        # before there are fields, as while it is copied, there is nothing else either
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            return fields[name]
        if name.startswith("__") or not fields:
            raise AttributeError(name)
        raise NoSuchNameError(unknown("name in cfg", name, fields))

    def __setattr__(self, name: str, value: Any) -> None:
        raise UserError(
            f"cfg.{name} cannot be set: cfg says what a model is; allowed: "
            "a ModelConfig of its own for another model"
        )

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self._fields])

    def __repr__(self) -> str:
        shown = ("n_layers", "n_heads", "d_model", "d_head", "d_mlp", "d_vocab", "n_ctx", "act_fn")
        said = ", ".join(f"{name}={self._fields[name]!r}" for name in shown)
        return f"<cfg: {said}, normalization_type={self.normalization_type!r}>"
