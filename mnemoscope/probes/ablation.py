"""What each part is for: silence it, and measure both skills again.

All cases (each head, all heads of a layer, each feed-forward layer) go through one `vmap` over masks. A part is silenced
to zero or to its mean at each position over held-out sequences; the mean keeps the rest of the model on familiar ground.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from mnemoscope.core.axes import Array, Float
from mnemoscope.models import Edit, ModelConfig, Transformer
from mnemoscope.probes.skills import both_skills
from mnemoscope.tasks import Permutation, Split


def cases(config: ModelConfig) -> list[str]:
    """The knock-outs in order: nothing, then for each layer its heads, all its heads together, its feed-forward layer."""
    names = ["none"]
    for layer in range(config.n_layers):
        names += [f"L{layer}H{head}" for head in range(config.n_heads)] + [f"L{layer} attention"]
        names += [f"L{layer} mlp"] if config.has_mlp(layer) else []
    return names


def edits(config: ModelConfig, means: dict[str, Array] | None = None) -> tuple[Edit, ...]:
    """One Edit a site with a leading axis over `cases`; `means` maps a site to what silence is there (else zero)."""
    names = cases(config)
    stacked = []
    for layer in range(config.n_layers):
        out = [[name in (f"L{layer}H{h}", f"L{layer} attention") for h in range(config.n_heads)] for name in names]
        parts = [(f"blocks.{layer}.attn.hook_z", jnp.array(out)[:, None, :, None], 3)]
        if config.has_mlp(layer):
            silent = jnp.array([name == f"L{layer} mlp" for name in names])[:, None, None]
            parts.append((f"blocks.{layer}.hook_mlp_out", silent, 2))
        for site, mask, rank in parts:
            value = jnp.zeros((1,) * rank) if means is None else means[site]
            stacked.append(Edit(site, mask, jnp.broadcast_to(value[None], (len(names), *value.shape))))
    return tuple(stacked)


def site_means(
    task: Permutation, model: Transformer, split: Split, sources: Sequence[int], sites: Sequence[str]
) -> dict[str, Array]:
    """The mean value of sites over every held-out sequence with these sources."""
    tokens = task.list_tokens(split.held_out, tuple(sources))[:, : task.n_ctx]

    def picked(row: Array) -> dict[str, Array]:
        trace = model.run_with_trace(row)[1]
        return {site: trace[site] for site in sites}

    return jax.tree.map(lambda x: x.mean(axis=0), jax.vmap(picked)(tokens))


def knock_outs(task: Permutation, model: Transformer, split: Split) -> dict[str, dict[str, Float[Array, "case"]]]:
    """Both skills with each part silenced, to zero and to its mean; rows as `cases` lists them."""
    zero = edits(model.config)
    means = site_means(task, model, split, (0, task.n_symbols - 1), [edit.site for edit in zero])
    return {
        kind: jax.lax.map(lambda edit: both_skills(task, model, split, edit), chosen)
        for kind, chosen in (("zero", zero), ("mean", edits(model.config, means)))
    }


def forced_patterns(
    task: Permutation, model: Transformer, split: Split, layer: int = 0
) -> dict[str, dict[str, Float[Array, "head"]]]:
    """Both skills when one head must attend: evenly to all it may see, or locally (y to itself, x to the y before)."""
    n, n_heads = task.n_ctx, model.config.n_heads
    visible = jnp.tril(jnp.ones((n, n)))
    even = visible / visible.sum(axis=-1, keepdims=True)
    position = jnp.arange(n)
    local = jax.nn.one_hot(jnp.where((position % 2 == 1) | (position == 0), position, position - 1), n)

    def forced(head_and_pattern: tuple[Array, Array]) -> dict[str, Array]:
        head, pattern = head_and_pattern
        mask = (jnp.arange(n_heads) == head)[:, None, None]
        return both_skills(task, model, split, (Edit(f"blocks.{layer}.attn.hook_pattern", mask, pattern[None]),))

    heads = jnp.repeat(jnp.arange(n_heads), 2)
    skills = jax.lax.map(forced, (heads, jnp.tile(jnp.stack([even, local]), (n_heads, 1, 1))))
    return {name: {k: v[i::2] for k, v in skills.items()} for i, name in enumerate(("even", "local"))}
