"""The forward pass over several sequences and several models at once.

    no axis in front      one prompt, one model
    batch                 a batch of prompts
    seed                  a stack of models
    seed batch            both

What is said of the axes in front holds for the logits and for every site.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Params
from mnemoscope.models.edits import Edit, Intervention
from mnemoscope.models.forward_pass import forward
from mnemoscope.models.hooks import Hook
from mnemoscope.models.model import Model

# numbers from which on a pass is compiled as a whole. A smaller one takes less time operation by
# operation than the compiler does for every other prompt length and set of edited sites
LARGE = 1_000_000
# an edit's mask and value; nothing for a hook
Data = tuple[Array, ...]


def run_pass(
    config: Model,
    params: Params,
    tokens: Array,
    interventions: Sequence[Intervention],
    has_seeds: bool,
    names: tuple[str, ...] | None = None,
) -> tuple[Array, dict[str, Array]]:
    """Logits and trace, with the axes in front that prompts and parameters have.

    Args:
        config: The model.
        params: Its parameters by name, with a leading seed axis where there are several models.
        tokens: One prompt, or a batch of them.
        interventions: Edits and hooks. Masks and values of edits have the axes of the site, or
            besides them all the axes in front.
        has_seeds: Whether there are several models.
        names: The sites that the trace is to hold; None: all of them.
    """
    hooks = [each for each in interventions if isinstance(each, Hook)]
    is_large = sum(int(np.size(x)) for x in params.values()) >= LARGE
    # hooks are called outside of what is compiled
    run = _compiled if is_large and not hooks else _run
    # the code of a model from outside is part of the key under which jit keeps a program
    code = config.code()
    logits, trace = run(config, code, params, tokens, tuple(interventions), has_seeds, names)
    for hook in hooks:
        if hook.failed:
            raise hook.failed[0]
    # JAX sorts by name
    return logits, {name: trace[name] for name in config.sites() if name in trace}


def _run(
    config: Model,
    code: str,
    params: Params,
    tokens: Array,
    interventions: tuple[Any, ...],
    has_seeds: bool,
    names: tuple[str, ...] | None,
) -> tuple[Array, dict[str, Array]]:
    n_seeds = next(iter(params.values())).shape[:1] if has_seeds else ()
    in_front = (*n_seeds, *tokens.shape[:-1])

    def one_row(
        params: Params, tokens: Array, data: list[Data], leading: Array
    ) -> tuple[Array, dict[str, Array]]:
        here = [_with_data(*pair, leading) for pair in zip(interventions, data, strict=True)]
        logits, trace = forward(config, params, tokens, here)
        return logits, trace if names is None else {name: trace[name] for name in names}

    spread = [_spread(config, each, in_front) for each in interventions]
    data = [tuple(x for x, _ in pairs) for pairs in spread]
    axes = [tuple(axis for _, axis in pairs) for pairs in spread]
    run = one_row
    if tokens.ndim == 2:
        run = jax.vmap(run, in_axes=(None, 0, axes, 0))
    if has_seeds:
        run = jax.vmap(run, in_axes=(0, None, axes, 0))
    return run(params, tokens, data, jnp.zeros(in_front))


_compiled = partial(jax.jit, static_argnames=("config", "code", "has_seeds", "names"))(_run)


# ---- masks and values of edits, which may differ from row to row and from seed to seed


def _spread(config: Model, each: Any, in_front: tuple[int, ...]) -> list[tuple[Array, int | None]]:
    """An edit's mask and value, each with the axis that `vmap` runs over: the first if it has axes
    in front, else none. What fits nowhere stays as it is, for the edit to refuse."""
    if not isinstance(each, Edit):
        return []
    rank = len(config.sites().get(each.site, "").split())
    found = []
    for x in (jnp.asarray(each.mask), jnp.asarray(each.value)):
        own = x.shape[: max(x.ndim - rank, 0)]
        fits = len(own) == len(in_front) and all(
            n in (1, m) for n, m in zip(own, in_front, strict=True)
        )
        if own and fits:
            found.append((jnp.broadcast_to(x, (*in_front, *x.shape[len(own) :])), 0))
        else:
            found.append((x, None))
    return found


def _with_data(each: Any, data: Data, leading: Array) -> Any:
    """An intervention as a pass of one sequence has it."""
    if isinstance(each, Hook):
        return replace(each, leading=leading)
    return replace(each, mask=data[0], value=data[1])
