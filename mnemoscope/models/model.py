r"""What every model offers: named parameters, sites, and one pass over one sequence.

    class Gru(ms.Model):
        kind: Literal["gru"] = "gru"
        d_hidden: int = 32

        def parameter_shapes(self, d_vocab, n_ctx, d_vocab_out=None): ...   # by name
        def sites(self): ...                            # {"hook_hidden": "pos d_hidden"}
        def forward(self, params, tokens, site): ...    # logits (pos, vocab)

is all that it takes to train, store, edit and measure it: every value that `forward` hands to
`site(name, x)` can be edited, hooked and cached, and what `site` returns is what it goes on with.
`ModelConfig`, the transformer, is one such kind; what reads a model in a way of its own (the walk,
the explorer, rewrites) lists the kinds that it computes (`mnemoscope.models.consumer_support`).
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from pydantic import model_validator

from mnemoscope.core.axes import Array, Logits, Params, PRNGKeyArray, Tokens
from mnemoscope.core.errors import NoSuchNameError, UserError, short, unknown
from mnemoscope.core.kinds import Kind, any_kind, is_ours
from mnemoscope.core.users_code import require_arguments

Shapes = dict[str, tuple[int, ...]]
Sites = dict[str, str]
# parameters that are drawn N(0, 1), by the last part of their names
EMBEDDINGS = ("W_E", "W_pos")


@runtime_checkable
class Site(Protocol):
    """What every named value of a forward pass goes through."""

    @property
    def edited(self) -> frozenset[str]:
        """The sites that are edited, for values that are only made where somebody edits them."""
        ...

    def __call__(self, name: str, x: Array) -> Array:
        """Record a value, and give what stands there after edits, with which the pass goes on.

        Args:
            name: of the site, one of `sites`.
            x: what was computed there.
        """
        ...


class NoSite:
    """A `Site` of a pass that nobody edits or looks at: every value stays as it was computed."""

    edited: frozenset[str] = frozenset()
    """The sites that are edited: none."""

    def __call__(self, name: str, x: Array) -> Array:
        """The value itself.

        Args:
            name: of the site.
            x: what was computed there.
        """
        return x


no_site = NoSite()


class Sizes(NamedTuple):
    """What the shapes of parameters say of what a model reads and answers."""

    d_vocab: int
    """How many tokens it embeds."""
    n_ctx: int | None
    """The longest sequence; None: any."""
    d_vocab_out: int
    """How many answers it gives logits for."""


class Model(Kind):
    """A model: what its parameters are, how they start, and what it computes with them."""

    family: ClassVar[str] = "model"

    computed_as: ClassVar[str] = ""
    """The kind whose readers (rewrites, the walk, the explorer, exports) compute this one too:
    `transformer` for one that extends `ModelConfig` and differs in how it starts alone, say, with
    its own fields among `sizes`. They refuse any other kind."""

    frozen: tuple[str, ...] = ()
    """Parameters that training leaves as they were drawn: names or patterns."""

    # ---- what a kind has to say

    @abstractmethod
    def parameter_shapes(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
    ) -> dict[str, tuple[int, ...]]:
        """Every parameter's name and shape, in the order of the computation.

        Args:
            d_vocab: tokens of the vocabulary.
            n_ctx: positions of a sequence.
            d_vocab_out: how many answers there are, where they are not the tokens.
        """

    @abstractmethod
    def sites(self) -> dict[str, str]:
        """Every site's name and axes, in the order of the computation: `pos d_hidden`."""

    @abstractmethod
    def forward(self, params: Params, tokens: Tokens, site: Site) -> Logits:
        """Logits after every token of one sequence.

        A value inside of a `jax.lax.scan` is none that `site` can take: hand it the values of all
        positions, before the scan or after it.

        Args:
            params: the parameters by name.
            tokens: the sequence.
            site: what every named value goes through.
        """

    # ---- what it may say besides

    def draw_parameters(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None, *, key: PRNGKeyArray
    ) -> Params:
        """Draw parameters: by their names and shapes, unless a kind says more (`draw_by_shape`).

        Args:
            d_vocab: tokens of the vocabulary.
            n_ctx: positions of a sequence.
            d_vocab_out: how many answers there are, where they are not the tokens.
            key: what the draws are made from.
        """
        return draw_by_shape(self.parameter_shapes(d_vocab, n_ctx, d_vocab_out), key=key)

    def frozen_names(self) -> frozenset[str]:
        """The parameters that `frozen` names; a pattern that matches nothing raises."""
        return self.names_matching("frozen", self.frozen)

    def read_sizes(self, shapes: Mapping[str, tuple[int, ...]]) -> Sizes:
        """How many tokens, positions and answers there are, by the shapes of parameters.

        Args:
            shapes: of all parameters, by name.
        """
        n_ctx = self._size(shapes, (0, 1, 0))
        d_vocab = self._size(shapes, (1, 0, 0), (1, 0, 1))
        d_vocab_out = self._size(shapes, (0, 0, 1))
        if d_vocab is None:
            raise UserError(
                f"the parameters of {self.kind_name()!r} do not say how many tokens it reads; "
                "allowed: a shape that grows with d_vocab, or a read_sizes of its own"
            )
        return Sizes(d_vocab, n_ctx, d_vocab if d_vocab_out is None else d_vocab_out)

    @property
    def is_causal(self) -> bool:
        """Whether no position sees a later one, which `generate` has to know."""
        return False

    @property
    def relative_cost(self) -> float:
        """About how long a sequence takes, in no unit, for estimates of how far a training is."""
        sizes = [max(shape, default=1) for shape in self.parameter_shapes(1, 1).values()]
        return 16.0 + max(sizes)

    def describe(self) -> str:
        """The kind and its fields in a few words."""
        fields = [name for name in type(self).model_fields if name not in ("kind", "frozen")]
        said = [f"{name} {short(getattr(self, name))}" for name in fields]
        return f"{self.kind_name()}: {', '.join(said)}" if said else self.kind_name()

    # ---- what all of them share

    def names_matching(self, field: str, patterns: Iterable[str]) -> frozenset[str]:
        """The parameters that patterns match; one that matches nothing raises.

        Args:
            field: where the patterns stand, for the message.
            patterns: names or patterns: `*.W_E`.
        """
        names = self.parameter_shapes(1, 1) if patterns else {}
        return frozenset(
            name for pattern in patterns for name in match_pattern(field, pattern, names)
        )

    def _size(
        self, shapes: Mapping[str, tuple[int, ...]], *directions: tuple[int, int, int]
    ) -> int | None:
        """The size along one of the three directions (d_vocab, n_ctx, d_vocab_out), off a shape
        that grows with it; None if none does."""
        begin = 2
        for direction in directions:
            try:
                before = self.parameter_shapes(begin, begin, begin)
                after = self.parameter_shapes(*(begin + step for step in direction))
            except UserError:  # of sizes that do not go together
                continue
            for name, small in before.items():
                for axis, n in enumerate(small):
                    slope = after[name][axis] - n
                    if slope:
                        return begin + (shapes[name][axis] - n) // slope
        return None

    @model_validator(mode="after")
    def _check_frozen(self) -> "Model":
        if not is_ours(type(self)):
            whose = f"the model {self.kind_name()!r}"
            require_arguments(whose, self.parameter_shapes, "d_vocab", "n_ctx", "d_vocab_out=None")
            require_arguments(whose, self.forward, "params", "tokens", "site")
        self.frozen_names()  # raises for a pattern that matches nothing
        return self

    def __getattr__(self, name: str) -> Any:
        # what is read of transformers, such as n_heads, is refused in one line
        if name.startswith("_"):
            return super().__getattr__(name)  # pyright: ignore (pydantic hides it from checkers)
        raise NoSuchNameError(
            f"the model {self.kind_name()!r} has no {name!r}; it has: "
            f"{', '.join(type(self).model_fields)}"
        )


AnyModel = Annotated[Model, *any_kind(Model, default="transformer")]


def draw_by_shape(shapes: Mapping[str, tuple[int, ...]], *, key: PRNGKeyArray) -> Params:
    r"""Draw parameters by their names and shapes.

        W_E, W_pos            N(0, 1)
        two axes and more     uniform in +-1/sqrt(fan in), the fan in being the last axis but one
        w                     1, as the scale of a norm
        any other             0, as a bias

    Args:
        shapes: by name, of which the last part counts.
        key: what the draws are made from.
    """
    for_normal, for_uniform = jax.random.split(key)
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    embeddings = [name for name in shapes if _last(name) in EMBEDDINGS]
    matrices = [name for name, shape in shapes.items() if len(shape) > 1 and name not in embeddings]
    # one draw of each sort, cut into pieces: a draw for each parameter takes seconds to compile
    normal = jax.random.normal(for_normal, (sum(sizes[name] for name in embeddings),))
    uniform = jax.random.uniform(for_uniform, (sum(sizes[name] for name in matrices),), minval=-1.0)
    params: Params = {}
    for name, shape in shapes.items():
        if name in embeddings:
            params[name] = normal[: sizes[name]].reshape(shape)
            normal = normal[sizes[name] :]
        elif name in matrices:
            params[name] = uniform[: sizes[name]].reshape(shape) * shape[-2] ** -0.5
            uniform = uniform[sizes[name] :]
        else:
            params[name] = jnp.ones(shape) if _last(name) == "w" else jnp.zeros(shape)
    return params


def _last(name: str) -> str:
    """The last part of a parameter's name."""
    return name.rpartition(".")[2]


def match_pattern(field: str, pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern matches; one that matches nothing raises.

    Args:
        field: where the pattern stands, for the message.
        pattern: a name or a pattern: `*.W_E`.
        names: of all parameters, listed once for many patterns.
    """
    matching = [name for name in names if fnmatchcase(name, pattern)]
    if not matching:
        raise ValueError(unknown(f"parameter in {field}", pattern, names))
    return matching
