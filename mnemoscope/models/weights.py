"""Weights under TransformerLens's names: `W_Q` and the like with the layers stacked, circuits, and
`blocks[0].attn.W_Q`.

All of it holds for one model and, with a seed axis in front, for a stack of models. Where a model
does without biases they are zero here, as TransformerLens would have them; heads that share keys
and values have them repeated. What a model of another kind than `ModelConfig` has no heads or
layers for is refused.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.core.errors import NoSuchNameError, UserError, short, unknown
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.models.factored_matrix import FactoredMatrix, composition_scores
from mnemoscope.models.model import Model, Sizes
from mnemoscope.models.parts import Blocks, Part
from mnemoscope.models.prompts import row_of
from mnemoscope.models.shapes import heads_of_qkv
from mnemoscope.models.transformer_lens_config import LensConfig

MODES = ("Q", "K", "V")


class Weights:
    """What can be read off weights alone."""

    config: Model
    params: Params
    n_leading: ClassVar[int] = 0
    """How many axes stand before those of a parameter: one for a stack of models."""

    # ---- sizes

    @property
    def cfg(self) -> LensConfig:
        """The shape in TransformerLens's words."""
        config = as_transformer(self.config, "cfg")
        return LensConfig(config, self.d_vocab, self.n_ctx, self.d_vocab_out)

    @property
    def d_vocab(self) -> int:
        """How many tokens there are."""
        return self._sizes.d_vocab

    @property
    def d_vocab_out(self) -> int:
        """How many answers there are: the tokens, unless the task has others."""
        return self._sizes.d_vocab_out

    @property
    def n_ctx(self) -> int | None:
        """The longest prompt; None: any length will do."""
        return self._sizes.n_ctx

    @property
    def _sizes(self) -> Sizes:
        """The sizes that the shapes of parameters say."""
        shapes = {name: x.shape[self.n_leading :] for name, x in self.params.items()}
        return self.config.read_sizes(shapes)

    @property
    def _seed_axis(self) -> tuple[int, ...]:
        """The length of the seed axis, if there is one."""
        return next(iter(self.params.values())).shape[: self.n_leading]

    def layers_before(self, layer: int | None, mlp_input: bool = False) -> int:
        """How many layers stand before one that receives the stream.

        Args:
            layer: The layer; -1, None or as many as there are stand for the end.
            mlp_input: Whether its feed-forward part receives it, which the end has not.
        """
        n_layers = self.config.n_layers
        if layer is None or layer == -1:
            layer = n_layers
        if not isinstance(layer, int | np.integer) or not 0 <= layer <= n_layers:
            raise UserError(
                f"layer={short(layer)} of {n_layers}; allowed: 0 to {n_layers}, -1 for the end"
            )
        if mlp_input and layer == n_layers:
            raise UserError(
                f"mlp_input=True at the end, which is the unembedding; allowed: 0 to {n_layers - 1}"
            )
        return int(layer)

    def all_head_labels(self) -> list[str]:
        """`L0H0`, `L0H1`, ... of every head."""
        return [
            f"L{layer}H{head}"
            for layer in range(self.config.n_layers)
            if self.config.has_attn(layer)
            for head in range(self.config.n_heads)
        ]

    # ---- what comes in and goes out

    @property
    def W_E(self) -> Float[Array, "*seed vocab d_model"]:
        """Embeddings of tokens."""
        return self._required("embed.W_E")

    @property
    def W_pos(self) -> Float[Array, "*seed ctx d_model"]:
        """Embeddings of positions."""
        if "pos_embed.W_pos" not in self.params:
            raise UserError(
                f"a model with positions={self.config.positions!r} has no W_pos; allowed: "
                "positions='learned'"
            )
        return jnp.asarray(self.params["pos_embed.W_pos"])

    @property
    def W_E_pos(self) -> Float[Array, "*seed both d_model"]:
        """Embeddings of tokens, and below them those of positions."""
        return jnp.concatenate([self.W_E, self.W_pos], axis=-2)

    @property
    def W_U(self) -> Float[Array, "*seed d_model out"]:
        """The unembedding."""
        if self.config.tied:
            return jnp.swapaxes(self.W_E, -1, -2)
        return self._required("unembed.W_U")

    @property
    def b_U(self) -> Float[Array, "*seed out"]:
        """The bias of the logits."""
        zeros = jnp.zeros((*self.W_U.shape[: self.n_leading], self.d_vocab_out))
        return jnp.asarray(self.params.get("unembed.b_U", zeros))

    def tokens_to_residual_directions(self, tokens: Any) -> Float[Array, "*axes d_model"]:
        """The direction in the stream that each token's logit reads: its column of W_U.

        Args:
            tokens: One token, or an array of them.
        """
        array = row_of(tokens)
        is_whole = array.dtype.kind in "iu" and array.size > 0
        if not is_whole or array.min() < 0 or array.max() >= self.d_vocab_out:
            raise UserError(
                f"answers are whole numbers from 0 to {self.d_vocab_out - 1}, got {short(tokens)}"
            )
        return jnp.moveaxis(jnp.take(self.W_U, array, axis=-1), self.n_leading, -1)

    # ---- attention

    @property
    def W_Q(self) -> Float[Array, "*seed layer head d_model d_head"]:
        """Maps to queries."""
        return self._stacked("attn.W_Q")

    @property
    def W_K(self) -> Float[Array, "*seed layer head d_model d_head"]:
        """Maps to keys."""
        return self._stacked("attn.W_K")

    @property
    def W_V(self) -> Float[Array, "*seed layer head d_model d_head"]:
        """Maps to values."""
        return self._stacked("attn.W_V")

    @property
    def W_O(self) -> Float[Array, "*seed layer head d_head d_model"]:
        """Maps from what heads read to what they write."""
        return self._stacked("attn.W_O")

    @property
    def b_Q(self) -> Float[Array, "*seed layer head d_head"]:
        """Biases of queries."""
        return self._stacked("attn.b_Q")

    @property
    def b_K(self) -> Float[Array, "*seed layer head d_head"]:
        """Biases of keys."""
        return self._stacked("attn.b_K")

    @property
    def b_V(self) -> Float[Array, "*seed layer head d_head"]:
        """Biases of values."""
        return self._stacked("attn.b_V")

    @property
    def b_O(self) -> Float[Array, "*seed layer d_model"]:
        """Biases of what attention writes."""
        return self._stacked("attn.b_O")

    @property
    def QK(self) -> FactoredMatrix:
        """What each head attends to: W_Q W_K^T, (layer, head, d_model, d_model)."""
        return FactoredMatrix(self.W_Q, jnp.swapaxes(self.W_K, -1, -2))

    @property
    def OV(self) -> FactoredMatrix:
        """What each head moves where it attends: W_V W_O, (layer, head, d_model, d_model)."""
        return FactoredMatrix(self.W_V, self.W_O)

    def all_composition_scores(self, mode: str) -> Float[Array, "*seed layer head layer2 head2"]:
        """How much of what the first head writes the second, later one reads.

        Args:
            mode: As its queries (`Q`), its keys (`K`) or its values (`V`).
        """
        if mode not in MODES:
            raise UserError(unknown("mode of composition", mode, MODES))
        readers = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, readers)
        layers = jnp.arange(self.config.n_layers)
        is_later = layers[:, None] < layers[None]
        in_front = (1,) * self.n_leading
        return scores * is_later.reshape(*in_front, *(len(layers), 1, len(layers), 1))

    # ---- feed-forward

    @property
    def W_in(self) -> Float[Array, "*seed layer d_model d_mlp"]:
        """Maps to hidden units."""
        return self._stacked("mlp.W_in")

    @property
    def W_gate(self) -> Float[Array, "*seed layer d_model d_mlp"]:
        """Maps to the gates of hidden units."""
        return self._stacked("mlp.W_gate")

    @property
    def W_out(self) -> Float[Array, "*seed layer d_mlp d_model"]:
        """Maps from hidden units to what they write."""
        return self._stacked("mlp.W_out")

    @property
    def b_in(self) -> Float[Array, "*seed layer d_mlp"]:
        """Biases of hidden units."""
        return self._stacked("mlp.b_in")

    @property
    def b_out(self) -> Float[Array, "*seed layer d_model"]:
        """Biases of what the feed-forward part writes."""
        return self._stacked("mlp.b_out")

    def accumulated_bias(
        self, layer: int | None, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Array, "*seed d_model"]:
        """The sum of the biases that were added to the stream before a layer.

        Args:
            layer: The layer; -1 or None: the end.
            mlp_input: Whether the bias of this layer's attention counts too.
            include_mlp_biases: Whether those of feed-forward parts do.
        """
        config = self.config
        self.require_known_parts()
        total = jnp.zeros((*self.W_E.shape[: self.n_leading], config.d_model))
        stop = self.layers_before(layer, mlp_input)
        for i in range(stop + int(mlp_input)):
            if config.has_attn(i):
                total = total + self.parameter(f"blocks.{i}.attn.b_O")
            if include_mlp_biases and i < stop and config.has_mlp(i):
                total = total + self.parameter(f"blocks.{i}.mlp.b_out")
        return total

    def require_known_parts(self) -> None:
        """Raise unless the stream is made of what attention and feed-forward add to it."""
        if self.config.custom_layers:
            raise UserError(
                "the parts of a stream are those of attention and feed-forward; allowed: a model "
                f"without custom_layers, got {short(self.config.custom_layers)}"
            )

    # ---- parameters by their names

    @property
    def blocks(self) -> Blocks:
        """The layers: `model.blocks[0].attn.W_Q`."""
        return Blocks(Part(self, f"blocks.{i}") for i in range(self.config.n_layers))

    @property
    def embed(self) -> Part:
        """`model.embed.W_E`."""
        return Part(self, "embed")

    @property
    def pos_embed(self) -> Part:
        """`model.pos_embed.W_pos`."""
        return Part(self, "pos_embed")

    @property
    def ln_final(self) -> Part:
        """`model.ln_final.w`."""
        return Part(self, "ln_final")

    @property
    def unembed(self) -> Part:
        """`model.unembed.W_U`."""
        return Part(self, "unembed")

    def named_parameters(self) -> Iterator[tuple[str, Array]]:
        """Every parameter's name and value."""
        for name, x in self.params.items():
            yield (name, jnp.asarray(x))

    def state_dict(self) -> dict[str, Array]:
        """Parameters by name."""
        return dict(self.named_parameters())

    def parameter(self, name: str) -> Array:
        """One parameter as TransformerLens has it.

        Keys and values stand there once for each head, biases that a model does without are zero.

        Args:
            name: Its full name.
        """
        if name == "unembed.W_U":
            return self.W_U
        if name == "unembed.b_U":
            return self.b_U
        if name not in self.params:
            return self._zero_bias(name)
        x = jnp.asarray(self.params[name])
        letter = name.rpartition("_")[2]
        is_of_heads = ".attn." in name and letter in MODES
        if not is_of_heads:
            return x
        repeats = self.config.n_heads // heads_of_qkv(self.config)[letter]
        return jnp.repeat(x, repeats, axis=self.n_leading)

    def _required(self, name: str) -> Array:
        """A parameter under its own name."""
        if name not in self.params:
            raise NoSuchNameError(unknown("parameter", name, self.params))
        return jnp.asarray(self.params[name])

    def _zero_bias(self, name: str) -> Array:
        """Zeros for a bias whose matrix is there; else an error that says what is."""
        matrix = name.replace(".b_", ".W_")
        if name == matrix or matrix not in self.params:
            raise NoSuchNameError(unknown("parameter", name, self.params))
        shape = self.parameter(matrix).shape
        is_b_o = name.endswith("attn.b_O")
        # W_O has a head axis that the bias of their sum has not
        n_kept = self.n_leading if is_b_o else len(shape) - 2
        return jnp.zeros((*shape[:n_kept], shape[-1]))

    def _stacked(self, name: str) -> Array:
        """A parameter of every layer, stacked."""
        part, _, last = name.partition(".")
        layers = range(self.config.n_layers)
        is_there = self.config.has_attn if part == "attn" else self.config.has_mlp
        without = [layer for layer in layers if not is_there(layer)]
        if without:
            kind = "attention" if part == "attn" else "feed-forward part"
            raise UserError(
                f"{last} stacks all layers, but {'layers' if len(without) > 1 else 'layer'} "
                f"{', '.join(map(str, without))} of {self.config.n_layers} has no {kind}; allowed: "
                f"model.blocks[layer].{name} of a layer that has one"
            )
        if last == "W_gate" and not self.config.gated_mlp:
            raise UserError("this model has no W_gate; allowed: gated_mlp=True")
        values = [self.parameter(f"blocks.{layer}.{name}") for layer in layers]
        return jnp.stack(values, axis=self.n_leading)
