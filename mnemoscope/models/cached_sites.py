"""What a run saw, by the names of sites, TransformerLens's short forms included."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemoscope.core import notebook
from mnemoscope.core.attention_maps import AttentionMaps
from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.models.shapes import heads_of_qkv
from mnemoscope.models.sites import SPLIT_INPUTS, SiteName, full_site_name
from mnemoscope.models.transformer_lens_names import CACHE, refuse
from mnemoscope.models.weights import Weights

# one position (which takes the axis away), a row of them, a slice, or (start, stop)
PosSlice = Any


class CachedSites(Mapping[str, Array]):
    """A trace that answers to full names and to TransformerLens's short ones.

    `cache["pattern", 0]` is `cache["blocks.0.attn.hook_pattern"]`, `cache["scale", 0, "ln1"]` is
    `cache["blocks.0.ln1.hook_scale"]`. In front of a site's own axes stand a seed axis if a stack
    of models ran, and a batch axis if a batch of prompts did.
    """

    def __init__(
        self,
        model: Weights,
        trace: Mapping[str, Array],
        has_batch_dim: bool = False,
        tokens: Array | np.ndarray | None = None,
    ):
        """The sites of one run.

        Args:
            model: What ran.
            trace: What it saw, by site.
            has_batch_dim: Whether it ran over a batch.
            tokens: What it read, to be written on axes; None where nobody said.
        """
        self.model = model
        self.trace = dict(trace)
        self.has_batch_dim = has_batch_dim
        self.tokens = tokens

    def __getitem__(self, name: SiteName) -> Array:
        full = full_site_name(self.model.config, name)
        if full in self.trace:
            return self.trace[full]
        block, _, last = full.rpartition(".")
        if last in SPLIT_INPUTS and f"{block}.hook_resid_pre" in self.trace:
            return self._copies_of_stream(block, last)
        raise UserError(f"{full!r} was not cached; allowed: {', '.join(self.trace)}")

    def __getattr__(self, name: str) -> Any:
        return refuse(CACHE, type(self).__name__, name)

    def __contains__(self, name: object) -> bool:
        try:
            self[name]  # pyright: ignore[reportArgumentType] (what is no name is not in it)
        except UserError:
            return False
        return True

    def get(self, name: SiteName, default: Any = None) -> Any:
        """A site's value, or the default where there is no such site."""
        return self[name] if name in self else default  # noqa: SIM401 (this is `get`)

    def __iter__(self) -> Iterator[str]:
        return iter(self.trace)

    def __len__(self) -> int:
        return len(self.trace)

    @property
    def cache_dict(self) -> dict[str, Array]:
        """The sites by full name."""
        return dict(self.trace)

    @property
    def has_embed(self) -> bool:
        """Whether the embeddings of tokens are here."""
        return "hook_embed" in self.trace

    @property
    def has_pos_embed(self) -> bool:
        """Whether those of positions are."""
        return "hook_pos_embed" in self.trace

    def __repr__(self) -> str:
        names = list(self.trace)
        shown = names if len(names) < 8 else [*names[:3], "...", *names[-2:]]
        axes = "" if not self._axes_in_front() else f" ({self._axes_in_front()} in front)"
        return f"<Cache of {len(names)} sites{axes}: {', '.join(shown)}>"

    def _repr_html_(self) -> str:
        in_front = self._axes_in_front()
        sites = self.model.config.sites()
        return notebook.format_trace(
            self.trace, {name: f"{in_front} {sites[name]}" for name in sites}
        )

    def attention(
        self, labels: Sequence[str] | None = None, layer: int | None = None
    ) -> AttentionMaps:
        """The attention of every head on one prompt, drawn: a notebook shows it, `str` is an SVG.

        Args:
            labels: What stands on the axes for each position, such as
                `[task.token_names[t] for t in prompt]`; None: the numbers of the tokens.
            layer: The layer that is drawn; None: all of them.
        """
        in_front = self._axes_in_front()
        if in_front and not (in_front == "batch" and len(next(iter(self.trace.values()))) == 1):
            raise UserError(
                f"attention is drawn of one model on one prompt; this cache has {in_front} in "
                "front; allowed: run.model(seed).run_with_cache(prompt)"
            )
        config = as_transformer(self.model.config, "cache.attention")
        with_attn = [i for i in range(config.n_layers) if config.has_attn(i)]
        if layer is not None and layer not in with_attn:
            raise UserError(unknown("layer with attention", layer, with_attn))
        chosen = with_attn if layer is None else [layer]
        patterns: dict[int, np.ndarray] = {}
        for i in chosen:
            pattern = np.asarray(self["pattern", i])
            patterns[i] = pattern[0] if in_front else pattern
        if not patterns:
            raise UserError("this model has no layer with attention; there is nothing to draw")
        length = next(iter(patterns.values())).shape[-1]
        if labels is None:
            read = range(length) if self.tokens is None else np.ravel(self.tokens).tolist()
            labels = [str(token) for token in read]
        if len(labels) != length:
            raise UserError(f"{len(labels)} labels for {length} positions; allowed: one for each")
        return AttentionMaps(patterns, labels)

    def _axes_in_front(self) -> str:
        """The names of the axes before a site's own."""
        return " ".join(["seed"] * self.model.n_leading + ["batch"] * self.has_batch_dim)

    def _copies_of_stream(self, block: str, last: str) -> Array:
        """What each head's queries, keys or values are made from, where no edit told them apart."""
        letter = last[len("hook_")].upper()
        heads = heads_of_qkv(self.model.config)[letter]
        stream = self.trace[f"{block}.hook_resid_pre"]
        return jnp.repeat(stream[..., None, :], heads, axis=-2)

    def stack_activation(
        self, activation_name: str, layer: int | None = -1, sublayer_type: str | None = None
    ) -> Array:
        """One activation of all layers before a layer, stacked.

        Args:
            activation_name: Its short name, such as `pattern`.
            layer: The first layer that is left out; -1 or None: none is.
            sublayer_type: The part of the layer that it is in, where the name does not say.
        """
        values = [
            self[activation_name, i, sublayer_type] for i in range(self.model.layers_before(layer))
        ]
        if not values:
            raise UserError(f"layer={layer} has no layers before it; allowed: 1 and more")
        return jnp.stack(values, axis=self.model.n_leading)


def take(x: Array, which: PosSlice, axis: int) -> Array:
    """Parts along an axis, as TransformerLens's slices take them.

    Args:
        x: What is cut.
        which: One number (which takes the axis away), a row of them, a slice, (start, stop) or
            None for all.
        axis: The axis.
    """
    if which is None:
        return x
    n = x.shape[axis]
    where = slice(*which) if isinstance(which, tuple) else which
    if not isinstance(where, slice):
        where = np.asarray(where)
    try:
        chosen = np.arange(n)[where]
    except (IndexError, TypeError) as error:
        raise UserError(
            f"{short(which)} of {n} along an axis ({error}); allowed: a number below {n}, a row "
            "of them, a slice, (start, stop) or None"
        ) from None
    return jnp.take(x, chosen, axis=axis)
