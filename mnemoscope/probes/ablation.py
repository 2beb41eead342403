"""What each part is for: ablate it, and measure both skills again.

All cases (each head, all heads of a layer, each feed-forward layer) go through one `vmap` over
masks. A part is ablated to zero or to its mean at each position over held-out sequences; the mean
keeps the rest of the model on familiar ground.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import Edit, HookedModel, Model
from mnemoscope.probes.skills import both_skills
from mnemoscope.tasks import Permutation, Split


def list_cases(config: Model) -> list[str]:
    """The knock-outs in order: nothing, then for each layer its heads, all its heads together, its
    feed-forward layer."""
    names = ["none"]
    for layer in range(config.n_layers):
        if config.has_attn(layer):
            names += [f"L{layer}H{head}" for head in range(config.n_heads)]
            names.append(f"L{layer} attention")
        if config.has_mlp(layer):
            names.append(f"L{layer} mlp")
    return names


def build_edits(config: Model, means: dict[str, Array] | None = None) -> tuple[Edit, ...]:
    """One Edit a site with a leading axis over `list_cases`; `means` maps a site to what
    stands in its place (else zero)."""
    names = list_cases(config)

    def edit(site: str, mask: Array) -> Edit:
        value = jnp.zeros((1,) * (mask.ndim - 1)) if means is None else means[site]
        return Edit(site, mask, jnp.broadcast_to(value[None], (len(names), *value.shape)))

    stacked = []
    for layer in range(config.n_layers):
        if config.has_attn(layer):
            ablated_heads = jnp.array([_ablated_heads(config, layer, name) for name in names])
            site = f"blocks.{layer}.attn.hook_z"
            stacked.append(edit(site, ablated_heads[:, None, :, None]))
        if config.has_mlp(layer):
            ablated_mlp = jnp.array([name == f"L{layer} mlp" for name in names])
            stacked.append(edit(f"blocks.{layer}.hook_mlp_out", ablated_mlp[:, None, None]))
    return tuple(stacked)


def _ablated_heads(config: Model, layer: int, case: str) -> list[bool]:
    """Which heads of a layer are ablated in a case."""
    every_head = case == f"L{layer} attention"
    return [every_head or case == f"L{layer}H{head}" for head in range(config.n_heads)]


def site_means(
    task: Permutation,
    model: HookedModel,
    split: Split,
    sources: Sequence[int],
    sites: Sequence[str],
) -> dict[str, Array]:
    """The mean value of sites over every held-out sequence with these sources.

    Args:
        task: lists the sequences.
        model: what is read.
        split: whose held-out mappings are shown.
        sources: which pairs may come last.
        sites: the names of what is read.
    """
    tokens = task.list_tokens(split.held_out, tuple(sources))[:, : task.n_ctx]

    def picked(row: Array) -> dict[str, Array]:
        trace = model.run_with_trace(row)[1]
        return {site: trace[site] for site in sites}

    return jax.tree.map(lambda x: x.mean(axis=0), jax.vmap(picked)(tokens))


def knock_outs(
    task: Permutation, model: HookedModel, split: Split
) -> dict[str, dict[str, Float[Array, "case"]]]:
    """Both skills with each part ablated, to zero and to its mean; rows as `list_cases` lists them.

    Args:
        task: lists the sequences.
        model: what is read.
        split: whose held-out mappings are shown.
    """
    to_zero = build_edits(model.config)
    sites = [edit.site for edit in to_zero]
    first_or_new = (0, task.n_symbols - 1)
    means = site_means(task, model, split, first_or_new, sites)
    to_mean = build_edits(model.config, means)

    def skills(one_case: tuple[Edit, ...]) -> dict[str, Array]:
        return both_skills(task, model, split, one_case)

    return {"zero": jax.lax.map(skills, to_zero), "mean": jax.lax.map(skills, to_mean)}


def forced_patterns(
    task: Permutation, model: HookedModel, split: Split, layer: int = 0
) -> dict[str, dict[str, Float[Array, "head"]]]:
    """Both skills when one head must attend: evenly to all it may see, or locally (y to itself, x
    to the y before).

    Args:
        task: lists the sequences.
        model: what is read.
        split: whose held-out mappings are shown.
        layer: whose heads are forced, one after another.
    """
    n = task.n_ctx
    n_heads = model.config.n_heads
    visible = jnp.tril(jnp.ones((n, n)))
    even = visible / visible.sum(axis=-1, keepdims=True)
    position = jnp.arange(n)
    to_itself = (position % 2 == 1) | (position == 0)
    local = jax.nn.one_hot(jnp.where(to_itself, position, position - 1), n)

    def forced(head_and_pattern: tuple[Array, Array]) -> dict[str, Array]:
        head, pattern = head_and_pattern
        mask = (jnp.arange(n_heads) == head)[:, None, None]
        edit = Edit(f"blocks.{layer}.attn.hook_pattern", mask, pattern[None])
        return both_skills(task, model, split, (edit,))

    heads = jnp.repeat(jnp.arange(n_heads), 2)
    patterns = jnp.tile(jnp.stack([even, local]), (n_heads, 1, 1))
    skills = jax.lax.map(forced, (heads, patterns))
    return {
        "even": {name: x[0::2] for name, x in skills.items()},
        "local": {name: x[1::2] for name, x in skills.items()},
    }
