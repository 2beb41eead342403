"""A model to hold in the hand: its shape and its weights.

`run_with_cache` does what TransformerLens users expect.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core import notebook
from mnemoscope.core.axes import Array, Logits, Params, Tokens
from mnemoscope.core.errors import UserError
from mnemoscope.models.config import Init, ModelConfig
from mnemoscope.models.edits import Edit
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.shapes import parameter_shapes
from mnemoscope.models.sites import HasSites, full_site_name

# numbers from which on a pass is compiled as a whole. A smaller one takes less time operation by
# operation than the compiler does for every other prompt length and set of edited sites
LARGE = 1_000_000


class Cache(Mapping[str, Array]):
    """A trace that answers to full names and to TransformerLens's short ones.

    `cache["pattern", 0]` is `cache["blocks.0.attn.hook_pattern"]`.
    """

    def __init__(self, config: HasSites, trace: Mapping[str, Array]):
        self.config = config
        self.trace = dict(trace)

    def __repr__(self) -> str:
        return f"<Cache of {len(self.trace)} sites: {', '.join(self.trace)}>"

    def __getitem__(self, name: str | tuple[str, int]) -> Array:
        return self.trace[full_site_name(self.config, name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.trace)

    def __len__(self) -> int:
        return len(self.trace)

    def _repr_html_(self) -> str:
        return notebook.trace(self.trace, self.config.sites())


def row_of(tokens: object) -> np.ndarray:
    """What was given as a prompt, as an array; what is none has no elements."""
    try:
        return np.asarray(tokens)
    except ValueError:  # rows of different lengths, or nested too deeply
        return np.zeros((0, 0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True, repr=False)
class Transformer:
    """One model of one seed. Being a pytree, it goes through `jit` and `vmap` like an array."""

    config: ModelConfig = field(metadata={"static": True})
    """Its shape."""
    params: Params
    """Its weights by name."""

    def __repr__(self) -> str:
        config = self.config
        return (
            f"<Transformer: {config.n_layers} layers, {config.n_heads} heads, d_model "
            f"{config.d_model}, d_mlp {config.d_mlp}, norm {config.norm}>"
        )

    def __call__(self, tokens: Tokens, edits: Iterable[Edit] = ()) -> Logits:
        """Logits after every token of one sequence."""
        return forward(self.config, self.params, tokens, edits)[0]

    def run_with_trace(
        self, tokens: Tokens, edits: Iterable[Edit] = ()
    ) -> tuple[Logits, dict[str, Array]]:
        """Logits and the plain trace, unchecked: for use inside `jit` and `vmap`."""
        return forward(self.config, self.params, tokens, edits)

    def run_with_cache(
        self, tokens: Tokens | Sequence[int], edits: Iterable[Edit] = ()
    ) -> tuple[Logits, Cache]:
        """Logits and every site's value for one prompt, which is checked first."""
        is_large = sum(int(np.size(x)) for x in self.params.values()) >= LARGE
        run = _compiled_forward if is_large else forward
        logits, trace = run(self.config, self.params, self.check(tokens), tuple(edits))
        return logits, Cache(self.config, trace)

    @property
    def d_vocab(self) -> int:
        """How many tokens there are."""
        return self.params["embed.W_E"].shape[0]

    @property
    def n_ctx(self) -> int | None:
        """The longest prompt; None: any length will do."""
        positions = self.params.get("pos_embed.W_pos")
        return self.config.n_ctx if positions is None else positions.shape[0]

    def after(self, layer: int) -> "Transformer":
        """The layers from this one on as a model of their own.

        Put a stream in at `hook_embed`, and it goes on from there.
        """
        config = self.config

        def still(layers: tuple[int, ...] | None) -> tuple[int, ...] | None:
            return None if layers is None else tuple(i - layer for i in layers if i >= layer)

        tail = config.model_copy(
            update={
                "n_layers": config.n_layers - layer,
                "attn_layers": still(config.attn_layers),
                "mlp_layers": still(config.mlp_layers),
                # a stream has its positions already
                "positions": "rotary" if config.positions == "rotary" else "none",
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

    def check(self, tokens: Tokens | Sequence[int]) -> Tokens:
        """The prompt as an array, or an error that says what a prompt may be."""
        array = row_of(tokens)
        d_vocab = self.d_vocab
        n_ctx = self.n_ctx
        is_row = array.ndim == 1 and 1 <= array.size <= (n_ctx or array.size)
        if not is_row or array.dtype.kind not in "iu":
            most = "or more" if n_ctx is None else f"to {n_ctx}"
            raise UserError(
                f"a prompt is one row of 1 {most} whole numbers, got {array.dtype} {array.shape}"
            )
        if array.min() < 0 or array.max() >= d_vocab:
            raise UserError(f"tokens are 0 to {d_vocab - 1}, got {array.tolist()}")
        return jnp.asarray(array)

    def _repr_html_(self) -> str:
        frozen = self.config.frozen_names()
        rows = [
            (name, notebook.numbers(x), "frozen" if name in frozen else "")
            for name, x in self.params.items()
        ]
        shape = ("n_layers", "n_heads", "d_model", "d_mlp", "norm")
        title = ", ".join(f"{name} {getattr(self.config, name)}" for name in shape)
        total = sum(int(np.size(x)) for x in self.params.values())
        caption = f"Transformer: {title}; {total:,} numbers"
        return notebook.table(caption, ("parameter", "values", ""), rows)


_compiled_forward = partial(jax.jit, static_argnums=0)(forward)
