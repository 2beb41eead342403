"""The shape of a language model of the Llama or the GPT-NeoX type, and its named parameters and sites.

The names are TransformerLens's, as everywhere in the house. Heads may share keys and values: head h reads those of
key-value head h // (n_heads / n_kv_heads), and W_K, W_V have an axis `kv_head` instead of `head`.
"""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from mnemoscope.core.config import Strict
from mnemoscope.models.config import Layers, Size


class LanguageConfig(Strict):
    """One language model. Llama: RMS norm, gated SiLU, no biases. GPT-NeoX: layer norm, GELU, biases.

    The first `rotary_dims` of each head's dimensions are turned with the position, dimension i together with i + rotary_dims / 2.
    `parallel` feeds attention and feed-forward layer the same stream and adds both.
    """

    kind: Literal["llama", "neox"]
    n_layers: Layers
    d_model: Size
    n_heads: Size
    n_kv_heads: Size
    d_head: Size
    d_mlp: Size
    d_vocab: Size
    n_ctx: Size
    rotary_dims: Size
    rotary_base: Annotated[float, Field(gt=0)]
    norm_eps: Annotated[float, Field(gt=0)]
    tied: bool
    parallel: bool = False

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
        d, h, kv, dh, m, biased = (
            self.d_model,
            self.n_heads,
            self.n_kv_heads,
            self.d_head,
            self.d_mlp,
            self.kind == "neox",
        )
        shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (self.d_vocab, d)}

        def add(name: str, weight: tuple[int, ...], bias: tuple[int, ...]) -> None:
            """A weight, and its bias where this type has one: W_Q and b_Q, ln1.w and ln1.b."""
            shapes[name] = weight
            if biased:
                shapes[name.replace(".W_", ".b_").replace(".w", ".b")] = bias

        for layer in range(self.n_layers):
            at = f"blocks.{layer}"
            add(f"{at}.ln1.w", (d,), (d,))
            for name, heads in (("Q", h), ("K", kv), ("V", kv)):
                add(f"{at}.attn.W_{name}", (heads, d, dh), (heads, dh))
            add(f"{at}.attn.W_O", (h, dh, d), (d,))
            add(f"{at}.ln2.w", (d,), (d,))
            if self.kind == "llama":
                shapes[f"{at}.mlp.W_gate"] = (d, m)
            add(f"{at}.mlp.W_in", (d, m), (m,))
            add(f"{at}.mlp.W_out", (m, d), (d,))
        add("ln_final.w", (d,), (d,))
        if not self.tied:
            shapes["unembed.W_U"] = (d, self.d_vocab)
        return shapes

    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation."""
        sites = {"hook_embed": "pos d_model"}
        for layer in range(self.n_layers):
            at = f"blocks.{layer}"
            sites |= {
                f"{at}.hook_resid_pre": "pos d_model",
                f"{at}.ln1.hook_normalized": "pos d_model",
            }
            sites[f"{at}.attn.hook_q"] = "pos head d_head"
            sites |= {f"{at}.attn.hook_{name}": "pos kv_head d_head" for name in "kv"}
            sites |= {
                f"{at}.attn.hook_rot_q": "pos head d_head",
                f"{at}.attn.hook_rot_k": "pos kv_head d_head",
            }
            sites |= {
                f"{at}.attn.hook_{name}": "head pos key_pos" for name in ("attn_scores", "pattern")
            }
            sites |= {
                f"{at}.attn.hook_z": "pos head d_head",
                f"{at}.attn.hook_result": "pos head d_model",
            }
            sites[f"{at}.hook_attn_out"] = "pos d_model"
            if not self.parallel:
                sites[f"{at}.hook_resid_mid"] = "pos d_model"
            sites |= {f"{at}.ln2.hook_normalized": "pos d_model", f"{at}.mlp.hook_pre": "pos d_mlp"}
            if self.kind == "llama":
                sites[f"{at}.mlp.hook_pre_linear"] = "pos d_mlp"
            sites |= {f"{at}.mlp.hook_post": "pos d_mlp"}
            sites |= {f"{at}.hook_mlp_out": "pos d_model", f"{at}.hook_resid_post": "pos d_model"}
        return sites | {"ln_final.hook_normalized": "pos d_model"}
