"""The shape of a transformer, in TransformerLens's words, and its named parameters and sites.

Parameters and sites are flat, with the names that TransformerLens gives them, so that what is stored, frozen, edited
and read has one name everywhere. Both tables below say which axes a name carries.
"""

from fnmatch import fnmatchcase
from math import isqrt
from typing import Annotated, Literal, Protocol, runtime_checkable

from pydantic import Field, model_validator

from mnemoscope.core.config import Strict
from mnemoscope.core.errors import UserError, unknown

# no model of ours comes near these; a file that says more would only fill the memory
Size = Annotated[int, Field(ge=1, le=2**24)]
Layers = Annotated[int, Field(ge=1, le=1024)]


@runtime_checkable
class Sited(Protocol):
    """What edits and caches need to know of a model's shape, whatever its type: its heads, its layers and its sites."""

    @property
    def n_heads(self) -> int: ...

    @property
    def n_layers(self) -> int: ...

    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation."""
        ...


class ModelConfig(Strict):
    """One transformer, causal unless said otherwise. Vocabulary and context length come from the task.

    `norm` is none, pre (before attention and feed-forward, and once before the read-out) or post (after each
    residual addition). `d_mlp=0` leaves the feed-forward layer out. `tied` reads out with the embedding. `frozen`
    lists parameter names or patterns (`blocks.0.attn.W_V`, `*.W_E`) that training leaves as they were drawn.
    `unembed_bias=False` leaves out the bias of the read-out alone. `act` stands between the two matrices of the
    feed-forward layer, which `mlp_layers` gives to some layers only. `identity` lists square matrices, as `frozen`
    does, that start as the identity: frozen as well, `*.W_Q` makes a model whose queries are the stream itself.

    `head_dim` makes heads of another size than d_model / n_heads. `positions=False` leaves positions out: a sequence is then a
    bag of tokens with a last one. `attention="linear"` takes scores as they are, neither divided nor normalised.
    `attn_residual=False` leaves out the stream's way around attention. `unit_embeddings` draws embeddings and read-out of about
    unit length, N(0, 1/d). `constant` lists (name or pattern, value): parameters that start at one value everywhere.

    `causal=False` lets every position see every other. `scaled` lists (name or pattern, factor): parameters that start so many
    times as large as they are drawn. `orthogonal` draws the embeddings of tokens and positions at right angles to each other, of
    the length that they would have on average.
    """

    later = frozenset({
        "unembed_bias", "act", "mlp_layers", "identity", "head_dim", "positions", "attention", "attn_residual", "unit_embeddings",
        "constant", "causal", "scaled", "orthogonal",
    })  # fmt: skip

    d_model: Size = 32
    n_heads: Size = 2
    n_layers: Layers = 1
    d_mlp: Annotated[int, Field(ge=0, le=2**24)] = 64
    norm: Literal["none", "pre", "post"] = "none"
    bias: bool = True
    tied: bool = False
    frozen: tuple[str, ...] = ()
    unembed_bias: bool = True
    act: Literal["relu", "linear"] = "relu"
    mlp_layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    identity: tuple[str, ...] = ()
    head_dim: Size | None = None
    positions: bool = True
    attention: Literal["softmax", "linear"] = "softmax"
    attn_residual: bool = True
    unit_embeddings: bool = False
    constant: tuple[tuple[str, float], ...] = ()
    causal: bool = True
    scaled: tuple[tuple[str, float], ...] = ()
    orthogonal: bool = False

    @property
    def d_head(self) -> int:
        return self.head_dim or self.d_model // self.n_heads

    @property
    def unusual(self) -> tuple[str, ...]:
        """What sets this attention apart from a plain transformer's: what is written for the plain one has to say no to it."""
        plain = {"head_dim": None, "positions": True, "attention": "softmax", "attn_residual": True, "causal": True}
        return tuple(f"{name}={getattr(self, name)!r}" for name, usual in plain.items() if getattr(self, name) != usual)

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        if self.d_model % self.n_heads and self.head_dim is None:
            small = [h for h in range(1, isqrt(self.d_model) + 1) if self.d_model % h == 0]
            fitting = sorted({*small, *(self.d_model // h for h in small)})
            raise ValueError(f"n_heads={self.n_heads} does not divide d_model={self.d_model}; allowed: {fitting}")
        if self.mlp_layers is not None and not (self.d_mlp and set(self.mlp_layers) <= set(range(self.n_layers))):
            came = f"mlp_layers={list(self.mlp_layers)} with d_mlp={self.d_mlp} and {self.n_layers} layers"
            raise ValueError(f"{came}; allowed: layers from 0 to {self.n_layers - 1}, and a d_mlp above 0")
        self.frozen_names()
        shapes = parameter_shapes(self, self.d_model, self.d_model)
        for name in self.identity_names():
            *_, rows, columns = 1, *shapes[name]
            if "W_" not in name or rows != columns or (".attn." in name and self.n_heads > 1):
                raise ValueError(f"identity names {name!r}, which is no square matrix in this model")
        self.constants()
        self.factors()
        return self

    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation."""
        return site_axes(self)

    def has_mlp(self, layer: int) -> bool:
        """Whether a layer has a feed-forward part."""
        return self.d_mlp > 0 and (self.mlp_layers is None or layer in self.mlp_layers)

    def frozen_names(self) -> frozenset[str]:
        """The parameters that `frozen` names; a pattern that matches nothing raises."""
        return self._named("frozen", self.frozen)

    def identity_names(self) -> frozenset[str]:
        """The parameters that `identity` names; a pattern that matches nothing raises."""
        return self._named("identity", self.identity)

    def constants(self) -> dict[str, float]:
        """The parameters that `constant` names, with their values; a pattern that matches nothing raises."""
        return {name: value for pattern, value in self.constant for name in self._named("constant", (pattern,))}

    def factors(self) -> dict[str, float]:
        """The parameters that `scaled` names, with their factors; a pattern that matches nothing raises."""
        return {name: factor for pattern, factor in self.scaled for name in self._named("scaled", (pattern,))}

    def _named(self, field: str, patterns: tuple[str, ...]) -> frozenset[str]:
        names = parameter_shapes(self, 1, 1)
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ValueError(unknown(f"parameter in {field}", pattern, names))
        return frozenset(n for n in names if any(fnmatchcase(n, p) for p in patterns))


def parameter_shapes(
    config: ModelConfig, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
) -> dict[str, tuple[int, ...]]:
    """Every parameter's name and shape, in the order of the computation; answers are tokens unless `d_vocab_out` counts others."""
    n_out = d_vocab if d_vocab_out is None else d_vocab_out
    if config.tied and n_out != d_vocab:
        raise UserError(f"tied=True reads out with the embedding of {d_vocab} tokens, but there are {n_out} answers")
    d, h, dh, m = config.d_model, config.n_heads, config.d_head, config.d_mlp
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (d_vocab, d)}
    if config.positions:
        shapes["pos_embed.W_pos"] = (n_ctx, d)
    for layer in range(config.n_layers):
        at = f"blocks.{layer}"
        if config.norm != "none":
            shapes |= {f"{at}.ln1.w": (d,), f"{at}.ln1.b": (d,)}
        for name in "QKV":
            shapes[f"{at}.attn.W_{name}"] = (h, d, dh)
            if config.bias:
                shapes[f"{at}.attn.b_{name}"] = (h, dh)
        shapes[f"{at}.attn.W_O"] = (h, dh, d)
        if config.bias:
            shapes[f"{at}.attn.b_O"] = (d,)
        if config.has_mlp(layer):
            if config.norm != "none":
                shapes |= {f"{at}.ln2.w": (d,), f"{at}.ln2.b": (d,)}
            shapes[f"{at}.mlp.W_in"] = (d, m)
            shapes[f"{at}.mlp.W_out"] = (m, d)
            if config.bias:
                shapes |= {f"{at}.mlp.b_in": (m,), f"{at}.mlp.b_out": (d,)}
    if config.norm == "pre":
        shapes |= {"ln_final.w": (d,), "ln_final.b": (d,)}
    if not config.tied:
        shapes["unembed.W_U"] = (d, n_out)
    if config.bias and config.unembed_bias:
        shapes["unembed.b_U"] = (n_out,)
    return shapes


def site_axes(config: ModelConfig) -> dict[str, str]:
    """Every site's name and axes, in the order of the computation."""
    sites = {"hook_embed": "pos d_model"}
    if config.positions:
        sites["hook_pos_embed"] = "pos d_model"
    for layer in range(config.n_layers):
        at = f"blocks.{layer}"
        sites[f"{at}.hook_resid_pre"] = "pos d_model"
        if config.norm == "pre":
            sites[f"{at}.ln1.hook_normalized"] = "pos d_model"
        sites |= {f"{at}.attn.hook_{name}": "pos head d_head" for name in "qkv"}
        sites[f"{at}.attn.hook_attn_scores"] = "head pos key_pos"
        sites[f"{at}.attn.hook_pattern"] = "head pos key_pos"
        sites[f"{at}.attn.hook_z"] = "pos head d_head"
        sites[f"{at}.attn.hook_result"] = "pos head d_model"
        sites[f"{at}.hook_attn_out"] = "pos d_model"
        if config.norm == "post":
            sites[f"{at}.ln1.hook_normalized"] = "pos d_model"
        sites[f"{at}.hook_resid_mid"] = "pos d_model"
        if config.has_mlp(layer):
            if config.norm == "pre":
                sites[f"{at}.ln2.hook_normalized"] = "pos d_model"
            sites[f"{at}.mlp.hook_pre"] = "pos d_mlp"
            sites[f"{at}.mlp.hook_post"] = "pos d_mlp"
            sites[f"{at}.hook_mlp_out"] = "pos d_model"
            if config.norm == "post":
                sites[f"{at}.ln2.hook_normalized"] = "pos d_model"
        sites[f"{at}.hook_resid_post"] = "pos d_model"
    if config.norm == "pre":
        sites["ln_final.hook_normalized"] = "pos d_model"
    return sites


def full_site_name(config: Sited, name: str | tuple[str, int]) -> str:
    """A site's full name from the short forms TransformerLens users write: ("pattern", 0), "embed"."""
    sites = config.sites()
    candidates: list[str]
    if isinstance(name, tuple):
        short, layer = name
        layer = layer + config.n_layers if layer < 0 else layer
        at = f"blocks.{layer}"
        candidates = [f"{at}.attn.hook_{short}", f"{at}.hook_{short}", f"{at}.mlp.hook_{short}", f"{at}.{short}"]
    else:
        candidates = [name, f"hook_{name}"]
    for candidate in candidates:
        if candidate in sites:
            return candidate
    raise UserError(unknown("site", name, sites))
