"""Parts of a model by their names: `model.blocks[0].attn.W_Q`, `model.unembed(stream)`.

A part has its parameters as attributes, and can be called as in TransformerLens: it makes of what
it receives what it does in a whole pass, without edits. `attn` and `mlp` receive a stream after its
norm, `blocks[0]` the stream itself.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float
from mnemoscope.core.errors import UserError, short
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.models.forward_pass import run_part
from mnemoscope.models.hooks import HookPoint
from mnemoscope.models.prompts import check_rows

if TYPE_CHECKING:
    from mnemoscope.models.weights import Weights

NORMS_OF_BLOCK = ("ln1", "ln2")
# what reads tokens instead of streams
READ_TOKENS = ("embed", "pos_embed")


class Part:
    """A part of a model, whose parameters are its attributes."""

    def __init__(self, weights: "Weights", name: str):
        """A part of some weights.

        Args:
            weights: The model.
            name: What the names of its parameters begin with.
        """
        self._weights = weights
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}: {', '.join(self._names())}>"

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name.partition(".")[0] for name in self._names())})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        full = f"{self._name}.{name}"
        is_norm = self._is_block and name in NORMS_OF_BLOCK
        if is_norm or any(each.startswith(f"{full}.") for each in self._weights.params):
            return Part(self._weights, full)
        if full in self._weights.config.sites():
            return HookPoint(full)
        return self._weights.parameter(full)

    def __call__(self, *inputs: Any) -> Float[Array, "*axes out"]:
        """What the part makes of what it receives, for one prompt, a batch, or a stack of models.

        Args:
            *inputs: Tokens for `embed` and `pos_embed`, else a stream (..., pos, d_model), with the
                seed axis of a stack in front; for `attn` also three, that queries, keys and values
                are made from.
        """
        weights = self._weights
        config = as_transformer(weights.config, "a part that is called")
        name = self._name
        is_attn = name.endswith(".attn")
        if len(inputs) != 1 and not (is_attn and len(inputs) == 3):
            allowed = "1 or 3, for queries, keys and values" if is_attn else "1"
            raise UserError(f"{name} takes {allowed}, got {len(inputs)}")
        if name == "pos_embed" and "hook_pos_embed" not in config.sites():
            raise UserError(
                f"a model with positions={config.positions!r} adds none to the embedding; "
                "allowed: 'learned' or 'sinusoidal'"
            )
        if name in READ_TOKENS:
            arrays = [check_rows(inputs[0], weights.d_vocab, weights.n_ctx)]
        else:
            arrays = self._streams(inputs)

        def one(params: Any, *x: Array) -> Array:
            return run_part(config, params, name, *x)

        run = one
        n_own = 1 if name in READ_TOKENS else 2
        # streams of a stack have its seed axis in front, tokens are the same for all
        n_seeds = weights.n_leading
        n_batch = arrays[0].ndim - n_own - n_seeds * (name not in READ_TOKENS)
        for _ in range(n_batch):
            run = jax.vmap(run, in_axes=(None, *(0 for _ in arrays)))
        if n_seeds:
            axis = None if name in READ_TOKENS else 0
            run = jax.vmap(run, in_axes=(0, *(axis for _ in arrays)))
        return run(weights.params, *arrays)

    @property
    def _is_block(self) -> bool:
        return self._name.startswith("blocks.") and self._name.count(".") == 1

    def _streams(self, inputs: Iterable[Any]) -> list[Array]:
        """Streams as arrays of one shape, or an error that says what they may be."""
        weights = self._weights
        n_axes = 2 + weights.n_leading
        found = []
        for x in inputs:
            array = jnp.asarray(x)
            in_front = array.shape[: weights.n_leading]
            fits = (
                array.ndim >= n_axes
                and array.shape[-1] == weights.config.d_model
                and in_front == weights.W_E.shape[: weights.n_leading]
                and array.dtype.kind == "f"
                and (not found or array.shape == found[0].shape)
            )
            if not fits:
                seeds = "seed, " if weights.n_leading else ""
                raise UserError(
                    f"{self._name} reads streams ({seeds}..., pos, {weights.config.d_model}), got "
                    f"{short(array)} of shape {array.shape}"
                )
            found.append(array)
        return found

    def _names(self) -> list[str]:
        """The parameters in this part, without what they all begin with."""
        start = f"{self._name}."
        return [name.removeprefix(start) for name in self._weights.params if name.startswith(start)]


class Blocks(tuple[Part, ...]):
    """The layers of a model."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        """A layer by its number; a slice is a tuple of them."""
        try:
            return super().__getitem__(index)
        except (IndexError, TypeError):
            raise UserError(
                f"no layer {short(index)} in a model of {len(self)}; allowed: 0 to {len(self) - 1}"
            ) from None
