"""A model to hold in the hand: what it computes, and its weights.

    model = bind(config, params)        # what `run.model(seed)` gives
    logits, cache = model.run_with_cache([3, 1, 2])

Runs, caches and names of weights are those of TransformerLens: `mnemoscope.models.hooked_model`,
`mnemoscope.models.activation_cache` and `mnemoscope.models.weights`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import jax
import numpy as np

from mnemoscope.core import notebook
from mnemoscope.core.axes import Array, Logits, Params, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.models.config import Init, ModelConfig
from mnemoscope.models.edits import Intervention
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.hooked_model import Hooked
from mnemoscope.models.model import Model
from mnemoscope.models.positions import POSITIONS
from mnemoscope.models.shapes import parameter_shapes


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class HookedModel(Hooked):
    """One model of one seed. Being a pytree, it goes through `jit` and `vmap` like an array."""

    config: Model = field(metadata={"static": True})
    """What it computes."""
    params: Params
    """Its weights by name."""

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def run_with_trace(
        self, tokens: Tokens, edits: Iterable[Intervention] = ()
    ) -> tuple[Logits, dict[str, Array]]:
        """Logits and the plain trace, unchecked: for use inside `jit` and `vmap`."""
        return forward(self.config, self.params, tokens, edits)

    def _title(self) -> str:
        """What it is, in a line."""
        return self.config.describe()

    def _repr_html_(self) -> str:
        frozen = self.config.frozen_names()
        rows = [
            (name, notebook.format_numbers(x), "frozen" if name in frozen else "")
            for name, x in self.params.items()
        ]
        total = sum(int(np.size(x)) for x in self.params.values())
        return notebook.format_table(
            f"{self._title()}; {total:,} numbers", ("parameter", "values", ""), rows
        )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Transformer(HookedModel):
    """A transformer of one seed."""

    config: ModelConfig = field(metadata={"static": True})  # pyright: ignore[reportIncompatibleVariableOverride] (it is frozen)
    """Its shape."""
    params: Params
    """Its weights by name."""

    def __repr__(self) -> str:
        config = self.config
        return (
            f"<Transformer: {config.n_layers} layers, {config.n_heads} heads, d_model "
            f"{config.d_model}, d_mlp {config.d_mlp}, norm {config.norm}>"
        )

    def after(self, layer: int) -> "Transformer":
        """The layers from this one on as a model of their own.

        Put a stream in at `hook_embed`, and it goes on from there.
        """
        config = self.config
        kind = POSITIONS[config.positions]
        is_in_stream = kind.turned is None
        if kind.added is not None and not is_in_stream:
            raise UserError(
                f"positions={config.positions!r} stand in the stream and turn what heads read of "
                "it; allowed for later layers alone: one of the two"
            )

        def still(layers: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if layers is None else tuple(i - layer for i in layers if i >= layer)

        tail = config.model_copy(
            update={
                "n_layers": config.n_layers - layer,
                "custom_layers": tuple(
                    (i - layer, custom) for i, custom in config.custom_layers if i >= layer
                ),
                "attn_layers": still(config.attn_layers),
                "mlp_layers": still(config.mlp_layers),
                # a stream has its positions already, but heads turn what they read of it
                "positions": "none" if is_in_stream else config.positions,
                "n_ctx": self.n_ctx,
                # what training did with parameters does not matter, and may name earlier layers
                "frozen": (),
                "init": Init(),
            }
        )

        def name_here(name: str) -> str:
            return re.sub(r"^blocks\.(\d+)", lambda m: f"blocks.{int(m[1]) + layer}", name)

        names = parameter_shapes(tail, 1, 1)
        return Transformer(tail, {name: self.params[name_here(name)] for name in names})

    def _title(self) -> str:
        shape = ("n_layers", "n_heads", "d_model", "d_mlp", "norm")
        title = ", ".join(f"{name} {getattr(self.config, name)}" for name in shape)
        return f"Transformer: {title}"


def bind(config: Model, params: Params) -> HookedModel:
    """A model with weights: a `Transformer` where it is one.

    Args:
        config: The model.
        params: Its parameters by name, for `vmap` with a leading seed axis.
    """
    if isinstance(config, ModelConfig):
        return Transformer(config, params)
    return HookedModel(config, params)
