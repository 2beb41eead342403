"""A layer of one's own in a transformer's stack, where a block's attention and feed-forward stand.

    class Mixer(ms.Layer):
        kind: Literal["mixer"] = "mixer"

        def parameter_shapes(self, config, n_ctx):
            return {"mixer.W": (n_ctx, n_ctx)}

        def sites(self, config):
            return {"mixer.hook_out": "pos d_model"}

        def forward(self, config, params, x, site):
            ...
            return x + site("mixer.hook_out", out)

    ms.ModelConfig(n_layers=2, custom_layers=((1, Mixer()),))

Names are the layer's own; in the model they begin with its block: `blocks.1.mixer.W`. Embedding,
other layers and unembedding are the model's.
"""

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, ClassVar

from mnemoscope.core.axes import Array, Float, Params, PRNGKeyArray
from mnemoscope.core.kinds import Kind, any_kind
from mnemoscope.models.model import Site, draw_by_shape

if TYPE_CHECKING:
    from mnemoscope.models.config import ModelConfig


class Layer(Kind):
    """One layer between two states of the residual stream."""

    family: ClassVar[str] = "layer"

    @abstractmethod
    def parameter_shapes(self, config: "ModelConfig", n_ctx: int) -> dict[str, tuple[int, ...]]:
        """Its parameters' names and shapes, in the order of the computation.

        Args:
            config: the model that it stands in.
            n_ctx: positions of a sequence.
        """

    def sites(self, config: "ModelConfig") -> dict[str, str]:
        """Its sites' names and axes, in the order of the computation; none, unless it says so.

        The stream before and after it are sites of the model.

        Args:
            config: the model that it stands in.
        """
        return {}

    def draw_parameters(self, config: "ModelConfig", n_ctx: int, *, key: PRNGKeyArray) -> Params:
        """Draw its parameters: by their names and shapes, unless it says more.

        Args:
            config: the model that it stands in.
            n_ctx: positions of a sequence.
            key: what the draws are made from.
        """
        return draw_by_shape(self.parameter_shapes(config, n_ctx), key=key)

    @abstractmethod
    def forward(
        self, config: "ModelConfig", params: Params, x: Float[Array, "pos d_model"], site: Site
    ) -> Float[Array, "pos d_model"]:
        """The stream after the layer, the connection around it included.

        Args:
            config: the model that it stands in.
            params: its own parameters, by its own names.
            x: the stream before it.
            site: what every named value goes through.
        """


AnyLayer = Annotated[Layer, *any_kind(Layer)]


class SiteOfBlock:
    """What the values of a layer go through: a model's `site`, for names in one block."""

    def __init__(self, site: Site, block: str):
        """The sites of one block.

        Args:
            site: of the whole pass.
            block: what the names begin with: `blocks.0`.
        """
        self._site = site
        self._block = block
        start = f"{block}."
        self.edited = frozenset(
            name.removeprefix(start) for name in site.edited if name.startswith(start)
        )
        """The sites of the block that are edited."""

    def __call__(self, name: str, x: Array) -> Array:
        """Record a value, and give what stands there after edits.

        Args:
            name: of the site, without the block.
            x: what was computed there.
        """
        return self._site(f"{self._block}.{name}", x)
