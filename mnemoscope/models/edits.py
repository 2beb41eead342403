"""Edits as data: what the forward pass should find at a site instead of what it computed.

    Edit(site, mask, value):               x  <-  where(mask, value, x)
    Edit(site, mask, value, adds=True):    x  <-  where(mask, x + value, x)

Mask and value have the rank of the site; an axis of size 1 stands for all of that axis. Because an
edit is an array and not a callback, knocking out every head in turn is one `vmap` over masks and
one compilation. An edit whose site the model does not have raises: it never passes in silence.

How one reaches the forward pass: `forward_pass.forward(config, params, tokens, edits)` hands a
`SiteRecorder` to the model's own `forward`, which gives every named value to it: `site(name, x)`
applies the edits of that name. What follows in the pass uses what `site` returns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.models.model import Model

Numbers = Array | np.ndarray


@runtime_checkable
class Intervention(Protocol):
    """What can be done to a forward pass: an `Edit`, or a hook (`mnemoscope.models.hooks`)."""

    @property
    def site(self) -> str:
        """The full name of the site."""
        ...

    def apply(self, x: Array) -> Array:
        """What the site holds afterwards, if it held x."""
        ...


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Edit:
    """Put `value` at `site` wherever `mask` is true, or add it there."""

    site: str = field(metadata={"static": True})
    """The full name of the site."""
    mask: Bool[Array, "..."]
    """Where the value is put."""
    value: Float[Array, "..."]
    """What is put there, or added."""
    adds: bool = field(default=False, metadata={"static": True})
    """Whether the value is added to what is there."""

    def apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """What the site holds after the edit, if it held x."""
        self._check_shape("mask", self.mask.shape, x.shape)
        self._check_shape("value", self.value.shape, x.shape)
        return jnp.where(self.mask, x + self.value if self.adds else self.value, x)

    def _check_shape(self, name: str, own: tuple[int, ...], site: tuple[int, ...]) -> None:
        if len(own) == len(site) and all(n in (1, m) for n, m in zip(own, site, strict=True)):
            return
        raise UserError(
            f"the {name} of an edit at {self.site!r} has shape {own}; allowed: {site} "
            "with any axis 1"
        )


class SiteRecorder:
    """`site(name, x)`, which every named value of a forward pass goes through, and its record.

    It applies the edits of that name and records the result; the record fills while the pass runs.
    An edit at a site that the model does not have raises, and so does one at a site that the pass
    never came to.
    """

    def __init__(self, model: Model, edits: tuple[Intervention, ...]):
        """The recorder of one pass.

        Args:
            model: whose pass it is.
            edits: what the pass should find at some sites instead of what it computed.
        """
        self.model = model
        self.edits = edits
        self.edited = frozenset(edit.site for edit in edits)
        """The sites that are edited."""
        self.trace: dict[str, Array] = {}
        """Every site's value by name, after edits."""
        self._axes = model.sites()
        for edit in edits:
            if edit.site not in self._axes:
                raise UserError(unknown("site", edit.site, self._axes))

    def __call__(self, name: str, x: Array) -> Array:
        """Record a value, and give what stands there after edits.

        Args:
            name: of the site.
            x: what was computed there.
        """
        self._check(name, x)
        for edit in self.edits:
            if edit.site == name:
                x = edit.apply(x)
        self.trace[name] = x
        return x

    def require_all_edited(self) -> None:
        """Raise unless the pass came to every site that is edited."""
        missed = sorted(self.edited - self.trace.keys())
        if missed:
            raise UserError(
                f"the pass of {self.model.kind_name()!r} never came to its site {missed[0]!r}, so "
                f"an edit there changes nothing; it came to: {', '.join(self.trace)}"
            )

    def _check(self, name: str, x: Array) -> None:
        """Raise for a value that is none of the model's sites, or has other axes."""
        if name not in self._axes:
            what = f"site in the pass of {self.model.kind_name()!r}"
            raise UserError(unknown(what, name, self._axes))
        axes = self._axes[name]
        if jnp.ndim(x) != len(axes.split()):
            raise UserError(
                f"the site {name!r} of {self.model.kind_name()!r} got shape {jnp.shape(x)}; "
                f"allowed: the axes ({axes})"
            )


def replace_site(site: str, value: Numbers, mask: Numbers | None = None) -> Edit:
    """Put a value at a site.

    Args:
        site: The full name of the site.
        value: What is put there.
        mask: Where; None: everywhere.
    """
    return _edit(site, value, mask, adds=False)


def add_to_site(site: str, value: Numbers, mask: Numbers | None = None) -> Edit:
    """Add a value to what is at a site: steering.

    Args:
        site: The full name of the site.
        value: What is added.
        mask: Where; None: everywhere.
    """
    return _edit(site, value, mask, adds=True)


def patch_site(site: str, trace: Mapping[str, Array], mask: Numbers | None = None) -> Edit:
    """Put what another run had at the site: activation patching.

    Args:
        site: The full name of the site.
        trace: What the other run saw, by site.
        mask: Where; None: everywhere.
    """
    if site not in trace:
        raise UserError(unknown("site in the trace to patch from", site, trace))
    return replace_site(site, trace[site], mask)


def patch_sites(names: Callable[[str], bool], trace: Mapping[str, Array]) -> tuple[Edit, ...]:
    """Put what another run had at every site whose name a function says yes to.

    Args:
        names: Whether a site of this name is patched.
        trace: What the other run saw, by site.
    """
    chosen = tuple(patch_site(name, trace) for name in trace if names(name))
    if not chosen:
        raise UserError(f"no site was chosen to be patched; allowed: {', '.join(trace)}")
    return chosen


def _edit(site: Any, value: Any, mask: Numbers | None, adds: bool) -> Edit:
    try:
        numbers = jnp.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise UserError(
            f"what is put at the site {short(site)} must be numbers, got {short(value)}"
        ) from None
    everywhere = (1,) * numbers.ndim
    where = jnp.ones(everywhere, bool) if mask is None else jnp.asarray(mask, bool)
    return Edit(site, where, numbers, adds)


def head_mask(config: Model, heads: tuple[int, ...]) -> Bool[Array, "1 head 1"]:
    """Which heads, as a mask for a site with axes (pos, head, ...)."""
    _require_heads(config)
    for head in heads:
        if not 0 <= head < config.n_heads:
            raise UserError(f"unknown head {head}; allowed: 0 to {config.n_heads - 1}")
    is_chosen = jnp.array([head in heads for head in range(config.n_heads)])
    return is_chosen[None, :, None]


def _require_heads(config: Model) -> None:
    """Raise for a model without heads."""
    if not hasattr(config, "n_heads"):
        raise UserError(
            f"the model {config.kind_name()!r} has no attention heads; allowed: replace_site at "
            f"one of its sites: {', '.join(config.sites())}"
        )


def knock_out_head(config: Model, layer: int, head: int, mean: Array | None = None) -> Edit:
    """Silence one head's output z.

    Args:
        config: The model.
        layer: The head's layer.
        head: Its number in the layer.
        mean: What it says instead (pos head d_head); None: zero.
    """
    value = jnp.zeros((1, 1, 1)) if mean is None else mean
    return replace_site(f"blocks.{layer}.attn.hook_z", value, head_mask(config, (head,)))


def knock_out_mlp(layer: int, mean: Array | None = None) -> Edit:
    """Silence a feed-forward layer's output: to zero, or to a given mean (pos d_model)."""
    value = jnp.zeros((1, 1)) if mean is None else mean
    return replace_site(f"blocks.{layer}.hook_mlp_out", value)


def force_pattern(
    config: Model,
    layer: int,
    head: int,
    pattern: Float[Array, "pos key_pos"],
    rows: Bool[Array, "pos"] | None = None,
) -> Edit:
    """Make one head attend as a pattern says.

    Args:
        config: The model.
        layer: The head's layer.
        head: Its number in the layer.
        pattern: Where it attends.
        rows: The query positions at which it does; None: all of them.
    """
    mask = jnp.moveaxis(head_mask(config, (head,)), 1, 0)
    if rows is not None:
        mask = mask & rows[None, :, None]
    return replace_site(f"blocks.{layer}.attn.hook_pattern", pattern[None], mask)
