"""Hooks as TransformerLens has them: functions that see a site's value and may change it.

    def ablate(value, hook):
        value[:, :, 3] = 0.0        # or return a new one; None leaves what is there
        return value

A hook is called outside of JAX's transformations, once for all rows and seeds, with an array of its
own. Where a pass is compiled, batched or differentiated, interventions are data instead:
`mnemoscope.models.edits`.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.models.model import Model
from mnemoscope.models.sites import SiteName, full_site_name
from mnemoscope.models.transformer_lens_names import HOOK_POINT, refuse

NameOrFilter = SiteName | Callable[[str], bool]
HookFunction = Callable[..., Any]


@dataclass(frozen=True)
class HookPoint:
    """The site that a hook is called at."""

    name: str
    """Its full name."""

    def layer(self) -> int:
        """The layer that the site is in."""
        first, *rest = self.name.split(".")
        if first != "blocks":
            raise UserError(f"the site {self.name!r} is in no layer; allowed: those of blocks")
        return int(rest[0])

    def __getattr__(self, name: str) -> Any:
        return refuse(HOOK_POINT, type(self).__name__, name)


class HookValue(np.ndarray):
    """A site's value: it can be changed in place, as in PyTorch, or by `.at`, as in JAX."""

    @property
    def at(self) -> Any:
        """`value.at[where].set(x)` is a changed copy."""
        return jnp.asarray(self).at


@dataclass(frozen=True)
class Hook:
    """A function at a site. Like an edit, it turns what the site held into what it then holds."""

    site: str
    """The full name of the site."""
    call: HookFunction
    """What is called, with the value and `hook=HookPoint`."""
    leading: Array | None = None
    """An array with the axes of rows and seeds, which JAX hides from a pass of one sequence."""
    failed: list[Exception] = field(default_factory=list)
    """What hooks of this run raised: nothing is called any more once there is something."""

    def apply(self, x: Array) -> Array:
        """What the site holds after the hook, if it held x."""
        assert self.leading is not None
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(self._call, shape, x, self.leading, vmap_method="broadcast_all")

    def _call(self, x: Array, leading: Array) -> np.ndarray:
        """Call the function with its own copy of all rows and seeds."""
        value = np.array(x).view(HookValue)
        if self.failed:
            return value
        try:
            found = _called(self.call, value, HookPoint(self.site))
            return value if found is None else _as_before(found, value, self.site)
        except Exception as error:
            self.failed.append(error)
            return value


def hooks_at(config: Model, fwd_hooks: Iterable[Any]) -> tuple[Hook, ...]:
    """One hook for each function and each site that it is called at.

    Args:
        config: The model.
        fwd_hooks: Pairs of a name, or a function that says yes to names, and what is called.
    """
    failed: list[Exception] = []
    hooks = []
    for pair in fwd_hooks:
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not callable(pair[1]):
            raise UserError(
                f"{short(pair)} is no hook; allowed: pairs of a site's name, or a function of "
                "names, and a function of (value, hook)"
            )
        for name in sites_named(config, pair[0]):
            hooks.append(Hook(name, pair[1], failed=failed))
    return tuple(hooks)


def sites_named(config: Model, names: Any) -> tuple[str, ...]:
    """The full names of the sites that are meant; what means none raises.

    Args:
        config: The model.
        names: A name in any form, a list of names, or a function that says yes to names.
    """
    sites = config.sites()
    if callable(names):
        chosen = tuple(name for name in sites if names(name))
        if not chosen:
            raise UserError(unknown("sites chosen by", names, sites))
        return chosen
    if isinstance(names, list | set | frozenset):
        meant = [full_site_name(config, name) for name in names]
        return tuple(name for name in sites if name in meant)
    return (full_site_name(config, names),)


def _called(call: HookFunction, value: HookValue, point: HookPoint) -> Any:
    """Call with `hook` by name, as TransformerLens does, or where there is no such name, second."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):  # a built-in that does not say
        return call(value, point)
    takes_name = any(p.name == "hook" or p.kind is p.VAR_KEYWORD for p in parameters)
    return call(value, hook=point) if takes_name else call(value, point)


def _as_before(found: Any, value: HookValue, site: str) -> np.ndarray:
    """What a hook returned, if it can stand where the value stood."""
    array = np.asarray(found)
    if array.shape != value.shape or array.dtype.kind not in "fiub":
        raise UserError(
            f"a hook at {site!r} returned {array.dtype} {array.shape}; allowed: numbers "
            f"{value.shape}, or None"
        )
    return array.astype(value.dtype)
