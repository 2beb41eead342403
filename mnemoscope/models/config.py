"""The shape of a transformer, in TransformerLens's words, and its named parameters and sites.

Parameters and sites are flat, with the names that TransformerLens gives them, so that what is
stored, frozen, edited and read has one name everywhere. `parameter_shapes` and `site_axes` say
which axes a name carries.
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
class HasSites(Protocol):
    """What edits and caches need to know of a model's shape: its heads, layers and sites."""

    @property
    def n_heads(self) -> int: ...

    @property
    def n_layers(self) -> int: ...

    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation."""
        ...


class ModelConfig(Strict):
    """One transformer, causal unless said otherwise.

    Vocabulary and context length come from the task. Fields that take parameter names take
    patterns too: `blocks.0.attn.W_V`, `*.W_E`.
    """

    omit_if_default = frozenset(
        {
            "unembed_bias",
            "act",
            "mlp_layers",
            "identity",
            "head_dim",
            "positions",
            "attention",
            "attn_residual",
            "unit_embeddings",
            "constant",
            "causal",
            "scaled",
            "orthogonal",
        }
    )

    d_model: Size = 32
    """Width of the residual stream."""

    n_heads: Size = 2
    """Attention heads of each layer."""

    n_layers: Layers = 1
    """Layers, each of attention and, unless left out, a feed-forward part."""

    d_mlp: Annotated[int, Field(ge=0, le=2**24)] = 64
    """Hidden units of the feed-forward layer; 0 leaves it out."""

    norm: Literal["none", "pre", "post"] = "none"
    """Where layer norms stand: nowhere; before attention and feed-forward, and once before the
    unembedding; or after each residual addition."""

    bias: bool = True
    """Whether linear maps have biases."""

    tied: bool = False
    """Whether the unembedding is the transposed embedding."""

    frozen: tuple[str, ...] = ()
    """Parameters that training leaves as they were drawn."""

    unembed_bias: bool = True
    """False leaves out the bias of the unembedding alone."""

    act: Literal["relu", "linear"] = "relu"
    """What stands between the two matrices of the feed-forward layer."""

    mlp_layers: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """The layers that have a feed-forward part; None: all of them."""

    identity: tuple[str, ...] = ()
    """Square matrices that start as the identity. Frozen as well, `*.W_Q` makes a model whose
    queries are the stream itself."""

    head_dim: Size | None = None
    """Size of a head; None: d_model / n_heads."""

    positions: bool = True
    """False leaves positions out: a sequence is then a bag of tokens with a last one."""

    attention: Literal["softmax", "linear"] = "softmax"
    """Linear attention takes scores as they are, neither divided nor normalized."""

    attn_residual: bool = True
    """False leaves out the residual connection around attention."""

    unit_embeddings: bool = False
    """Draw embeddings and unembedding of about unit length, N(0, 1/d)."""

    constant: tuple[tuple[str, float], ...] = ()
    """(parameter, value): parameters that start at one value everywhere."""

    causal: bool = True
    """False lets every position see every other."""

    scaled: tuple[tuple[str, float], ...] = ()
    """(parameter, factor): parameters that start so many times as large as they are drawn."""

    orthogonal: bool = False
    """Draw the embeddings of tokens and positions at right angles to each other, of the length
    that they would have on average."""

    @property
    def d_head(self) -> int:
        return self.head_dim or self.d_model // self.n_heads

    @property
    def unusual(self) -> tuple[str, ...]:
        """What sets this attention apart from a plain transformer's.

        What is written for the plain one has to say no to it.
        """
        plain = {
            "head_dim": None,
            "positions": True,
            "attention": "softmax",
            "attn_residual": True,
            "causal": True,
        }
        own = {name: getattr(self, name) for name in plain}
        return tuple(f"{name}={own[name]!r}" for name in plain if own[name] != plain[name])

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        self._check_heads()
        self._check_mlp_layers()
        # each raises for a pattern that matches nothing
        self.frozen_names()
        self._check_identity()
        self.constants()
        self.factors()
        return self

    def _check_heads(self) -> None:
        if self.head_dim is not None or self.d_model % self.n_heads == 0:
            return
        small = [n for n in range(1, isqrt(self.d_model) + 1) if self.d_model % n == 0]
        large = [self.d_model // n for n in small]
        fitting = sorted({*small, *large})
        raise ValueError(
            f"n_heads={self.n_heads} does not divide d_model={self.d_model}; allowed: {fitting}"
        )

    def _check_mlp_layers(self) -> None:
        if self.mlp_layers is None:
            return
        exist = set(self.mlp_layers) <= set(range(self.n_layers))
        if self.d_mlp and exist:
            return
        raise ValueError(
            f"mlp_layers={list(self.mlp_layers)} with d_mlp={self.d_mlp} and "
            f"{self.n_layers} layers; allowed: layers from 0 to {self.n_layers - 1}, "
            "and a d_mlp above 0"
        )

    def _check_identity(self) -> None:
        # the real vocabulary and context come later; here any size that fits a square will do
        shapes = parameter_shapes(self, self.d_model, self.d_model)
        for name in self.identity_names():
            shape = shapes[name]
            is_square = len(shape) > 1 and shape[-2] == shape[-1]
            is_one_head_of_many = ".attn." in name and self.n_heads > 1
            if "W_" not in name or not is_square or is_one_head_of_many:
                raise ValueError(
                    f"identity names {name!r}, which is no square matrix in this model"
                )

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
        """The parameters that `constant` names, with their values.

        A pattern that matches nothing raises.
        """
        return self._numbered("constant", self.constant)

    def factors(self) -> dict[str, float]:
        """The parameters that `scaled` names, with their factors.

        A pattern that matches nothing raises.
        """
        return self._numbered("scaled", self.scaled)

    def _numbered(self, field: str, pairs: tuple[tuple[str, float], ...]) -> dict[str, float]:
        found: dict[str, float] = {}
        for pattern, number in pairs:
            for name in self._named(field, (pattern,)):
                found[name] = number  # the last pattern that matches counts
        return found

    def _named(self, field: str, patterns: tuple[str, ...]) -> frozenset[str]:
        names = parameter_shapes(self, 1, 1)
        found: set[str] = set()
        for pattern in patterns:
            matching = [name for name in names if fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(unknown(f"parameter in {field}", pattern, names))
            found.update(matching)
        return frozenset(found)


Shapes = dict[str, tuple[int, ...]]


def parameter_shapes(
    config: ModelConfig, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
) -> Shapes:
    """Every parameter's name and shape, in the order of the computation.

    Args:
        config: The model.
        d_vocab: Tokens of the vocabulary.
        n_ctx: Positions of a sequence.
        d_vocab_out: How many answers there are, where they are not the tokens.
    """
    d_model = config.d_model
    n_out = d_vocab if d_vocab_out is None else d_vocab_out
    if config.tied and n_out != d_vocab:
        raise UserError(
            f"tied=True reads out with the embedding of {d_vocab} tokens, "
            f"but there are {n_out} answers"
        )
    shapes: Shapes = {"embed.W_E": (d_vocab, d_model)}
    if config.positions:
        shapes["pos_embed.W_pos"] = (n_ctx, d_model)
    for layer in range(config.n_layers):
        shapes |= _attention_shapes(config, f"blocks.{layer}")
        if config.has_mlp(layer):
            shapes |= _mlp_shapes(config, f"blocks.{layer}")
    if config.norm == "pre":
        shapes["ln_final.w"] = (d_model,)
        shapes["ln_final.b"] = (d_model,)
    if not config.tied:
        shapes["unembed.W_U"] = (d_model, n_out)
    if config.bias and config.unembed_bias:
        shapes["unembed.b_U"] = (n_out,)
    return shapes


def _attention_shapes(config: ModelConfig, block: str) -> Shapes:
    n_heads = config.n_heads
    d_model = config.d_model
    d_head = config.d_head
    shapes: Shapes = {}
    if config.norm != "none":
        shapes[f"{block}.ln1.w"] = (d_model,)
        shapes[f"{block}.ln1.b"] = (d_model,)
    for name in "QKV":
        shapes[f"{block}.attn.W_{name}"] = (n_heads, d_model, d_head)
        if config.bias:
            shapes[f"{block}.attn.b_{name}"] = (n_heads, d_head)
    shapes[f"{block}.attn.W_O"] = (n_heads, d_head, d_model)
    if config.bias:
        shapes[f"{block}.attn.b_O"] = (d_model,)
    return shapes


def _mlp_shapes(config: ModelConfig, block: str) -> Shapes:
    d_model = config.d_model
    d_mlp = config.d_mlp
    shapes: Shapes = {}
    if config.norm != "none":
        shapes[f"{block}.ln2.w"] = (d_model,)
        shapes[f"{block}.ln2.b"] = (d_model,)
    shapes[f"{block}.mlp.W_in"] = (d_model, d_mlp)
    shapes[f"{block}.mlp.W_out"] = (d_mlp, d_model)
    if config.bias:
        shapes[f"{block}.mlp.b_in"] = (d_mlp,)
        shapes[f"{block}.mlp.b_out"] = (d_model,)
    return shapes


def site_axes(config: ModelConfig) -> dict[str, str]:
    """Every site's name and axes, in the order of the computation."""
    sites = {"hook_embed": "pos d_model"}
    if config.positions:
        sites["hook_pos_embed"] = "pos d_model"
    for layer in range(config.n_layers):
        sites |= _attention_sites(config, f"blocks.{layer}")
        if config.has_mlp(layer):
            sites |= _mlp_sites(config, f"blocks.{layer}")
        sites[f"blocks.{layer}.hook_resid_post"] = "pos d_model"
    if config.norm == "pre":
        sites["ln_final.hook_normalized"] = "pos d_model"
    return sites


def _attention_sites(config: ModelConfig, block: str) -> dict[str, str]:
    sites = {f"{block}.hook_resid_pre": "pos d_model"}
    if config.norm == "pre":
        sites[f"{block}.ln1.hook_normalized"] = "pos d_model"
    for name in "qkv":
        sites[f"{block}.attn.hook_{name}"] = "pos head d_head"
    sites[f"{block}.attn.hook_attn_scores"] = "head pos key_pos"
    sites[f"{block}.attn.hook_pattern"] = "head pos key_pos"
    sites[f"{block}.attn.hook_z"] = "pos head d_head"
    sites[f"{block}.attn.hook_result"] = "pos head d_model"
    sites[f"{block}.hook_attn_out"] = "pos d_model"
    if config.norm == "post":
        sites[f"{block}.ln1.hook_normalized"] = "pos d_model"
    sites[f"{block}.hook_resid_mid"] = "pos d_model"
    return sites


def _mlp_sites(config: ModelConfig, block: str) -> dict[str, str]:
    sites: dict[str, str] = {}
    if config.norm == "pre":
        sites[f"{block}.ln2.hook_normalized"] = "pos d_model"
    sites[f"{block}.mlp.hook_pre"] = "pos d_mlp"
    sites[f"{block}.mlp.hook_post"] = "pos d_mlp"
    sites[f"{block}.hook_mlp_out"] = "pos d_model"
    if config.norm == "post":
        sites[f"{block}.ln2.hook_normalized"] = "pos d_model"
    return sites


def full_site_name(config: HasSites, name: str | tuple[str, int]) -> str:
    """A site's full name from the short forms of TransformerLens: ("pattern", 0), "embed"."""
    sites = config.sites()
    if isinstance(name, tuple):
        short, layer = name
        block = f"blocks.{layer + config.n_layers if layer < 0 else layer}"
        candidates = [
            f"{block}.attn.hook_{short}",
            f"{block}.hook_{short}",
            f"{block}.mlp.hook_{short}",
            f"{block}.{short}",
        ]
    else:
        candidates = [name, f"hook_{name}"]
    for candidate in candidates:
        if candidate in sites:
            return candidate
    raise UserError(unknown("site", name, sites))
