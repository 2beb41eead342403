"""Edits as data: what the forward pass should find at a site instead of what it computed.

    Edit(site, mask, value):   x  <-  where(mask, value, x)

Mask and value have the rank of the site; an axis of size 1 stands for all of that axis. Because an edit is an array
and not a callback, knocking out every head in turn is one `vmap` over masks and one compilation. An edit whose site
the model does not have raises: it never passes in silence.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Bool, Float
from mnemoscope.core.errors import UserError, unknown
from mnemoscope.models.config import Sited


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Edit:
    """Put `value` at `site` wherever `mask` is true."""

    site: str = field(metadata={"static": True})
    mask: Bool[Array, "..."]
    value: Float[Array, "..."]

    def apply(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        for name, part in (("mask", self.mask), ("value", self.value)):
            fits = part.ndim == x.ndim and all(p in (1, n) for p, n in zip(part.shape, x.shape, strict=True))
            if not fits:
                raise UserError(f"the {name} of an edit at {self.site!r} has shape {part.shape}; allowed: {x.shape} "
                                "with any axis 1")  # fmt: skip
        return jnp.where(self.mask, self.value, x)


def recorder(config: Sited, edits: tuple[Edit, ...]) -> tuple[Callable[[str, Array], Array], dict[str, Array]]:
    """`site(name, x)`, which every named value of a forward pass goes through: it applies the edits there and records the result.

    The second is the record, which fills while the pass runs. An edit at a site that this model does not have raises.
    """
    sites, trace = config.sites(), {}
    for edit in edits:
        if edit.site not in sites:
            raise UserError(unknown("site", edit.site, sites))

    def site(name: str, x: Array) -> Array:
        for edit in edits:
            if edit.site == name:
                x = edit.apply(x)
        trace[name] = x
        return x

    return site, trace


def replace(site: str, value: Array, mask: Array | None = None) -> Edit:
    """Put `value` at the site, everywhere or where `mask` says."""
    value = jnp.asarray(value, dtype=float)
    return Edit(site, jnp.ones((1,) * value.ndim, bool) if mask is None else jnp.asarray(mask, bool), value)


def patch(site: str, trace: Mapping[str, Array], mask: Array | None = None) -> Edit:
    """Put what another run had at the site: activation patching."""
    if site not in trace:
        raise UserError(unknown("site in the trace to patch from", site, trace))
    return replace(site, trace[site], mask)


def head_mask(config: Sited, heads: tuple[int, ...]) -> Bool[Array, "1 head 1"]:
    """Which heads, as a mask for a site with axes (pos, head, ...)."""
    for head in heads:
        if not 0 <= head < config.n_heads:
            raise UserError(f"unknown head {head}; allowed: 0 to {config.n_heads - 1}")
    return jnp.array([h in heads for h in range(config.n_heads)])[None, :, None]


def knock_out_head(config: Sited, layer: int, head: int, mean: Array | None = None) -> Edit:
    """Silence one head's output z: to zero, or to a given mean (pos head d_head)."""
    value = jnp.zeros((1, 1, 1)) if mean is None else mean
    return replace(f"blocks.{layer}.attn.hook_z", value, head_mask(config, (head,)))


def knock_out_mlp(layer: int, mean: Array | None = None) -> Edit:
    """Silence a feed-forward layer's output: to zero, or to a given mean (pos d_model)."""
    return replace(f"blocks.{layer}.hook_mlp_out", jnp.zeros((1, 1)) if mean is None else mean)


def force_pattern(
    config: Sited,
    layer: int,
    head: int,
    pattern: Float[Array, "pos key_pos"],
    rows: Bool[Array, "pos"] | None = None,
) -> Edit:
    """Make one head attend as `pattern` says, on all query rows or on the chosen ones."""
    mask = jnp.moveaxis(head_mask(config, (head,)), 1, 0)
    if rows is not None:
        mask = mask & rows[None, :, None]
    return replace(f"blocks.{layer}.attn.hook_pattern", pattern[None], mask)
