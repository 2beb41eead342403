"""The shape of a Llama or GPT-NeoX language model, and its named parameters and sites.

The names are TransformerLens's, as everywhere in the package. Heads may share keys and values: head
h reads those of key-value head h // (n_heads / n_kv_heads), and W_K, W_V have an axis `kv_head`
instead of `head`.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mnemoscope.core.config import Strict
from mnemoscope.models.config import Layers, Size


class LanguageConfig(Strict):
    """One language model.

    Llama: RMS norm, gated SiLU, no biases. GPT-NeoX: layer norm, GELU, biases.
    """

    kind: Literal["llama", "neox"]
    """The type of the model."""

    n_layers: Layers
    """Layers, each of attention and a feed-forward part."""

    d_model: Size
    """Width of the residual stream."""

    n_heads: Size
    """Attention heads of each layer."""

    n_kv_heads: Size
    """Heads that have keys and values of their own; they are shared out evenly."""

    d_head: Size
    """Size of one head's queries, keys and values."""

    d_mlp: Size
    """Hidden units of the feed-forward part."""

    d_vocab: Size
    """Tokens of the vocabulary."""

    n_ctx: Size
    """The longest sequence, in tokens."""

    rotary_dims: Size
    """How many of a head's dimensions, from the first, are turned with the position: dimension i
    together with i + rotary_dims / 2."""

    rotary_base: Annotated[float, Field(gt=0)]
    """The base of the angles by which they are turned."""

    norm_eps: Annotated[float, Field(gt=0)]
    """What a norm adds to the variance."""

    tied: bool
    """Whether the unembedding is the transposed embedding."""

    parallel: bool = False
    """Whether attention and feed-forward part receive the same stream, to which both are added."""

    @model_validator(mode="after")
    def _check(self) -> "LanguageConfig":
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads={self.n_kv_heads} does not divide n_heads={self.n_heads}")
        if self.rotary_dims % 2 or self.rotary_dims > self.d_head:
            raise ValueError(
                f"rotary_dims={self.rotary_dims}; allowed: even numbers up to d_head={self.d_head}"
            )
        return self

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every parameter's name and shape, in the order of the computation."""
        d_model = self.d_model
        d_head = self.d_head
        d_mlp = self.d_mlp
        shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (self.d_vocab, d_model)}

        def add(name: str, weight: tuple[int, ...], bias: tuple[int, ...]) -> None:
            """A weight, and its bias where this type has one: W_Q and b_Q, ln1.w and ln1.b."""
            shapes[name] = weight
            if self.kind == "neox":
                shapes[name.replace(".W_", ".b_").replace(".w", ".b")] = bias

        for layer in range(self.n_layers):
            block = f"blocks.{layer}"
            add(f"{block}.ln1.w", (d_model,), (d_model,))
            for name, heads in self.heads_of_qkv().items():
                add(f"{block}.attn.W_{name}", (heads, d_model, d_head), (heads, d_head))
            add(f"{block}.attn.W_O", (self.n_heads, d_head, d_model), (d_model,))
            add(f"{block}.ln2.w", (d_model,), (d_model,))
            if self.kind == "llama":
                shapes[f"{block}.mlp.W_gate"] = (d_model, d_mlp)
            add(f"{block}.mlp.W_in", (d_model, d_mlp), (d_mlp,))
            add(f"{block}.mlp.W_out", (d_mlp, d_model), (d_model,))
        add("ln_final.w", (d_model,), (d_model,))
        if not self.tied:
            shapes["unembed.W_U"] = (d_model, self.d_vocab)
        return shapes

    def heads_of_qkv(self) -> dict[str, int]:
        """How many heads queries, keys and values have, by the letters of their names."""
        return {"Q": self.n_heads, "K": self.n_kv_heads, "V": self.n_kv_heads}

    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation."""
        sites = {"hook_embed": "pos d_model"}
        for layer in range(self.n_layers):
            sites |= self._layer_sites(f"blocks.{layer}")
        sites["ln_final.hook_normalized"] = "pos d_model"
        return sites

    def _layer_sites(self, block: str) -> dict[str, str]:
        attn = f"{block}.attn"
        mlp = f"{block}.mlp"
        sites = {
            f"{block}.hook_resid_pre": "pos d_model",
            f"{block}.ln1.hook_normalized": "pos d_model",
            f"{attn}.hook_q": "pos head d_head",
            f"{attn}.hook_k": "pos kv_head d_head",
            f"{attn}.hook_v": "pos kv_head d_head",
            f"{attn}.hook_rot_q": "pos head d_head",
            f"{attn}.hook_rot_k": "pos kv_head d_head",
            f"{attn}.hook_attn_scores": "head pos key_pos",
            f"{attn}.hook_pattern": "head pos key_pos",
            f"{attn}.hook_z": "pos head d_head",
            f"{attn}.hook_result": "pos head d_model",
            f"{block}.hook_attn_out": "pos d_model",
        }
        if not self.parallel:
            sites[f"{block}.hook_resid_mid"] = "pos d_model"
        sites[f"{block}.ln2.hook_normalized"] = "pos d_model"
        sites[f"{mlp}.hook_pre"] = "pos d_mlp"
        if self.kind == "llama":
            sites[f"{mlp}.hook_pre_linear"] = "pos d_mlp"
        sites[f"{mlp}.hook_post"] = "pos d_mlp"
        sites[f"{block}.hook_mlp_out"] = "pos d_model"
        sites[f"{block}.hook_resid_post"] = "pos d_model"
        return sites
