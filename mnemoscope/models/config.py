"""The shape of a transformer, in TransformerLens's words.

Tiny models and language models are described by the same fields and computed by the same forward
pass. `activations`, `attention_kinds`, `norms` and `positions` beside this file have what the words
for kinds of layers mean, `shapes` the parameters that a shape has, `sites` the named values of its
forward pass.
"""

from collections.abc import Mapping
from math import isqrt
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from mnemoscope.core.axes import Logits, Params, PRNGKeyArray, Tokens
from mnemoscope.core.errors import unknown
from mnemoscope.core.legacy import MODEL_NAMES, model_from_stored, model_to_stored
from mnemoscope.core.strict import Strict
from mnemoscope.models.activations import ACTIVATIONS
from mnemoscope.models.attention_kinds import ATTENTION
from mnemoscope.models.forward_pass import transformer_logits
from mnemoscope.models.initialize import init
from mnemoscope.models.layer import AnyLayer, Layer
from mnemoscope.models.model import Model, Site, Sizes, match_pattern
from mnemoscope.models.norms import NORMS
from mnemoscope.models.positions import POSITIONS
from mnemoscope.models.shapes import parameter_shapes
from mnemoscope.models.sites import site_axes

# no model of ours comes near these; a file that says more would only fill the memory
Size = Annotated[int, Field(ge=1, le=2**24)]
Layers = Annotated[int, Field(ge=1, le=1024)]
Positive = Annotated[float, Field(gt=0)]
LayerNumbers = tuple[Annotated[int, Field(ge=0)], ...]


def _one_of(kind: str, table: Mapping[str, Any]) -> AfterValidator:
    """A field that holds a name from a table, to which others may add."""

    def check(name: str) -> str:
        if name not in table:
            raise ValueError(unknown(kind, name, table))
        return name

    return AfterValidator(check)


class Init(Strict):
    """How parameters start, where that is not as they are drawn.

    Embeddings are drawn N(0, 1), matrices and biases uniform in +-1/sqrt(fan in); a norm starts as
    the identity. Fields that take parameter names take patterns too: `blocks.0.attn.W_V`, `*.W_E`;
    the last pattern that matches counts.
    """

    omit_if_default = frozenset({"embeddings", "orthogonal", "identity", "constant", "scale"})

    embeddings: Literal["normal", "unit"] = "normal"
    """How embeddings are drawn: N(0, 1), or, the unembedding too, N(0, 1/d_model), which makes
    them about as long as one."""

    orthogonal: bool = False
    """Whether the embeddings of tokens and positions are put at right angles to each other, each as
    long as they are on average."""

    identity: tuple[str, ...] = ()
    """Square matrices that start as the identity. Frozen as well, `*.W_Q` makes a model whose
    queries are the stream itself."""

    constant: tuple[tuple[str, float], ...] = ()
    """(parameter, value): parameters that start at one value everywhere."""

    scale: tuple[tuple[str, float], ...] = ()
    """(parameter, factor): parameters that start so many times as large as they are drawn."""


class ModelConfig(Model):
    """One transformer, causal unless said otherwise: the kind of model that a Spec names by no
    kind.

    Vocabulary and context length come from the task, or from the file that a model was read from.
    """

    omit_if_default = frozenset(
        {
            "unembed_bias",
            "act",
            "gated_mlp",
            "mlp_layers",
            "attn_layers",
            "parallel_attn_mlp",
            "d_head",
            "n_key_value_heads",
            "positions",
            "rotary_dim",
            "rotary_base",
            "rotary_adjacent_pairs",
            "n_ctx",
            "attention",
            "attn_residual",
            "causal",
            "norm_type",
            "norm_eps",
            "custom_layers",
            "init",
        }
    )
    renamed = MODEL_NAMES

    # what is counted, named or drawn, but is not another way to compute
    sizes: ClassVar[frozenset[str]] = frozenset(
        {"kind", "d_model", "n_heads", "n_layers", "d_mlp", "n_ctx", "frozen", "init"}
    )

    # sizes that follow from others where they are left out
    filled_in: ClassVar[frozenset[str]] = frozenset({"d_head", "n_key_value_heads", "rotary_dim"})

    kind: Literal["transformer"] = "transformer"
    """The name of this kind of model; files leave it out."""

    d_model: Size = 32
    """Width of the residual stream."""

    n_heads: Size = 2
    """Attention heads of each layer."""

    n_layers: Layers = 1
    """Layers, each of attention and, unless left out, a feed-forward part."""

    d_mlp: Annotated[int, Field(ge=0, le=2**24)] = 64
    """Hidden units of the feed-forward layer; 0 leaves it out."""

    d_head: Size = 0
    """Size of one head's queries, keys and values; left out: d_model / n_heads."""

    n_key_value_heads: Size = 0
    """Heads that have keys and values of their own, which groups of heads share; left out: all."""

    norm: Literal["none", "pre", "post"] = "none"
    """Where norms stand: nowhere; before attention and feed-forward, and once before the
    unembedding; or after each residual addition."""

    norm_type: Annotated[str, _one_of("norm_type", NORMS)] = "layer"
    """Which norm it is: `layer` or `rms`."""

    norm_eps: Positive = 1e-5
    """What a norm adds to the mean square, so that nothing is divided by zero."""

    bias: bool = True
    """Whether linear maps have biases."""

    unembed_bias: bool = True
    """False leaves out the bias of the unembedding alone."""

    tied: bool = False
    """Whether the unembedding is the transposed embedding."""

    act: Annotated[str, _one_of("activation", ACTIVATIONS)] = "relu"
    """What stands between the two matrices of the feed-forward layer."""

    gated_mlp: bool = False
    """Whether hidden units are act(x W_gate) * (x W_in) instead of act(x W_in)."""

    parallel_attn_mlp: bool = False
    """Whether attention and feed-forward receive the same stream, to which both are added."""

    attn_layers: LayerNumbers | None = None
    """The layers that have attention; None: all of them."""

    mlp_layers: LayerNumbers | None = None
    """The layers that have a feed-forward part; None: all of them."""

    custom_layers: tuple[tuple[Annotated[int, Field(ge=0)], AnyLayer], ...] = ()
    """(layer, Layer): layers of other kinds, which have a block's place in the stack and neither
    attention nor a feed-forward part."""

    attention: Annotated[str, _one_of("attention", ATTENTION)] = "softmax"
    """How scores become a pattern: `softmax`; `linear`, which takes them as they are, neither
    divided nor normalized; or `relu`, which leaves out the negative ones."""

    attn_residual: bool = True
    """False leaves out the residual connection around attention."""

    causal: bool = True
    """False lets every position see every other."""

    positions: Annotated[str, _one_of("positions", POSITIONS)] = "learned"
    """How a model knows where a token stands: `learned`, `none`, `rotary` or `sinusoidal`."""

    rotary_dim: Size = 0
    """How many of a head's dimensions are rotated, from the first; left out: all."""

    rotary_base: Positive = 10_000.0
    """The base of the angles by which they are."""

    rotary_adjacent_pairs: bool = False
    """Whether dimensions 2i and 2i + 1 are rotated together, as in GPT-J, instead of i and
    i + rotary_dim / 2, as in GPT-NeoX and Llama."""

    n_ctx: Size | None = None
    """The longest sequence, where no table of positions bounds it; None: any."""

    init: Init = Init()
    """How parameters start."""

    # ---- 0.1 wrote some of this under other names

    @classmethod
    def to_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return model_to_stored(fields)

    @classmethod
    def from_stored(cls, fields: dict[str, Any]) -> dict[str, Any]:
        return model_from_stored(fields)

    # ---- what follows from the fields

    @model_validator(mode="after")
    def _check(self) -> "ModelConfig":
        self._fill_in()
        self._check_heads()
        self._check_rotary()
        self._check_layers("attn_layers", self.attn_layers)
        self._check_layers("mlp_layers", self.mlp_layers)
        self._check_custom_layers()
        self._check_parallel()
        # each raises for a pattern that matches nothing
        self._check_identity()
        self.constants()
        self.factors()
        return self

    def _fill_in(self) -> None:
        """Sizes that were left out; they do not count as stated, in JSON or in a copy."""
        if "d_head" not in self.model_fields_set:
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if "n_key_value_heads" not in self.model_fields_set:
            object.__setattr__(self, "n_key_value_heads", self.n_heads)
        if "rotary_dim" not in self.model_fields_set:
            object.__setattr__(self, "rotary_dim", self.d_head)

    def _check_heads(self) -> None:
        if self.n_heads % self.n_key_value_heads:
            raise ValueError(
                f"n_key_value_heads={self.n_key_value_heads} does not divide "
                f"n_heads={self.n_heads}; allowed: {_divisors(self.n_heads)}"
            )
        if "d_head" in self.model_fields_set or self.d_model % self.n_heads == 0:
            return
        raise ValueError(
            f"n_heads={self.n_heads} does not divide d_model={self.d_model}; "
            f"allowed: {_divisors(self.d_model)}"
        )

    def _check_rotary(self) -> None:
        if self.positions != "rotary":
            return
        if self.rotary_dim % 2 or self.rotary_dim > self.d_head:
            raise ValueError(
                f"rotary_dim={self.rotary_dim}; allowed: even numbers up to d_head={self.d_head}"
            )

    def _check_layers(self, field: str, layers: tuple[int, ...] | None) -> None:
        if layers is None:
            return
        exist = set(layers) <= set(range(self.n_layers))
        if exist and (self.d_mlp or field != "mlp_layers"):
            return
        d_mlp = f" with d_mlp={self.d_mlp} and" if field == "mlp_layers" else " with"
        also = ", and a d_mlp above 0" if field == "mlp_layers" else ""
        raise ValueError(
            f"{field}={list(layers)}{d_mlp} {self.n_layers} layers; "
            f"allowed: layers from 0 to {self.n_layers - 1}{also}"
        )

    def _check_custom_layers(self) -> None:
        numbers = [layer for layer, _ in self.custom_layers]
        taken = {*(self.attn_layers or ()), *(self.mlp_layers or ())}
        free = sorted(set(range(self.n_layers)) - taken)
        if len(set(numbers)) < len(numbers) or not set(numbers) <= set(free):
            raise ValueError(
                f"custom_layers at {numbers} of {self.n_layers} layers; allowed: each of "
                f"{free} once, which attn_layers and mlp_layers do not name"
            )

    def _check_parallel(self) -> None:
        if self.parallel_attn_mlp and (self.norm == "post" or not self.attn_residual):
            raise ValueError(
                f"parallel_attn_mlp=True with norm={self.norm!r} and "
                f"attn_residual={self.attn_residual}; allowed: norm 'none' or 'pre', "
                "and a residual connection around attention"
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
                    f"init.identity names {name!r}, which is no square matrix in this model"
                )

    # ---- what every model says

    def parameter_shapes(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
    ) -> dict[str, tuple[int, ...]]:
        return parameter_shapes(self, d_vocab, n_ctx, d_vocab_out)

    def draw_parameters(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None, *, key: PRNGKeyArray
    ) -> Params:
        return init(self, d_vocab, n_ctx, d_vocab_out, key=key)

    def sites(self) -> dict[str, str]:
        return site_axes(self)

    def forward(self, params: Params, tokens: Tokens, site: Site) -> Logits:
        return transformer_logits(self, params, tokens, site)

    def read_sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
        d_vocab = shapes["embed.W_E"][0]
        positions = shapes.get("pos_embed.W_pos")
        unembedding = shapes.get("unembed.W_U")
        return Sizes(
            d_vocab=d_vocab,
            n_ctx=self.n_ctx if positions is None else positions[0],
            d_vocab_out=d_vocab if unembedding is None else unembedding[-1],
        )

    @property
    def is_causal(self) -> bool:
        return self.causal

    @property
    def relative_cost(self) -> float:
        return self.d_model + 16.0

    def describe(self) -> str:
        return (
            f"d_model {self.d_model}, heads {self.n_heads}, layers {self.n_layers}, "
            f"norm {self.norm}"
        )

    def _is_omitted(self, name: str) -> bool:
        if name == "kind":  # what extends this class is told by the kind of its own
            return type(self) is ModelConfig
        return super()._is_omitted(name)

    # ---- its parts

    def has_attn(self, layer: int) -> bool:
        """Whether a layer has attention."""
        if self.custom_layer(layer) is not None:
            return False
        return self.attn_layers is None or layer in self.attn_layers

    def has_mlp(self, layer: int) -> bool:
        """Whether a layer has a feed-forward part."""
        if self.custom_layer(layer) is not None:
            return False
        return self.d_mlp > 0 and (self.mlp_layers is None or layer in self.mlp_layers)

    def custom_layer(self, layer: int) -> Layer | None:
        """What stands in a layer instead of attention and feed-forward; None: nothing."""
        return dict(self.custom_layers).get(layer)

    def identity_names(self) -> frozenset[str]:
        """The parameters that start as the identity; a pattern that matches nothing raises."""
        return self.names_matching("init.identity", self.init.identity)

    def constants(self) -> dict[str, float]:
        """The parameters that start at one value, with it.

        A pattern that matches nothing raises.
        """
        return self._numbered("init.constant", self.init.constant)

    def factors(self) -> dict[str, float]:
        """The parameters that start larger or smaller than drawn, with their factors.

        A pattern that matches nothing raises.
        """
        return self._numbered("init.scale", self.init.scale)

    def _numbered(self, field: str, pairs: tuple[tuple[str, float], ...]) -> dict[str, float]:
        names = self.parameter_shapes(1, 1) if pairs else {}
        found: dict[str, float] = {}
        for pattern, number in pairs:
            for name in match_pattern(field, pattern, names):
                found[name] = number
        return found


def _divisors(n: int) -> list[int]:
    small = [k for k in range(1, isqrt(n) + 1) if n % k == 0]
    large = [n // k for k in small]
    return sorted({*small, *large})
