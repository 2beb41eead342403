r"""How many facts a trained model stores: many seeds, sizes and numbers of hidden units in one compiled training.

The source's model: frozen embeddings N(0, 1/d), H heads of size d_h without a way around them, then x + W_out relu(W_in x + b);
logits over the answers. Weights start as in the authors' program: N(0, 1/d_h) for W_Q, W_K and W_V, N(0, 1/d) for W_O and W_in,
N(0, 1/m) for W_out, no bias. Adam without weight decay on fresh batches; S^2 facts (S = R) are stored when 99% of them are
answered right at some look of a training at any of the rates.

S and the number of hidden units are arguments and not shapes: arrays have room for more, tokens beyond S are never drawn, answers
beyond are never offered, and hidden units beyond are silent. So one compilation serves a whole bisection, and a row of the
trade-off grid.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int, Params, PRNGKeyArray
from mnemoscope.core.config import Strict
from mnemoscope.core.seeds import on_devices
from mnemoscope.models import ModelConfig, init
from mnemoscope.models.rewrites import token_counts
from mnemoscope.studies.search import largest
from mnemoscope.tasks import Facts
from mnemoscope.training.loss import cross_entropy

Size = Annotated[int, Field(ge=1)]
LEVEL = 0.99
SILENT = ("*.attn.b_?", "*.mlp.b_out")  # the source's model has a bias at the hidden units alone


class Shape(Strict):
    """What is trained, and for how long; `d_mlp` is the room for hidden units."""

    d: Size = 32
    n_heads: Size = 8
    d_head: Size = 4
    d_mlp: Size = 32
    per_relation: Size = 8
    rates: tuple[Annotated[float, Field(gt=0)], ...] = (1e-3, 3e-3, 1e-2)  # tried side by side; the best counts
    batch: Size = 1024
    steps: Size = 16384
    look: Size = 128  # steps between two looks

    def model(self) -> ModelConfig:
        """The source's model as a configuration of the one transformer."""
        return ModelConfig(
            d_model=self.d, n_heads=self.n_heads, head_dim=self.d_head, d_mlp=self.d_mlp, positions=False, attn_residual=False,
            unit_embeddings=True, unembed_bias=False, constant=tuple((name, 0.0) for name in SILENT),
            frozen=("embed.W_E", "unembed.W_U", *SILENT),
        )  # fmt: skip

    def parameters(self, d_mlp: int | None = None) -> int:
        """As the source counts them."""
        return (4 * self.n_heads * self.d_head + 2 * (self.d_mlp if d_mlp is None else d_mlp)) * self.d


def start(shape: Shape, task: Facts, d_mlp: Array, key: PRNGKeyArray) -> Params:
    """The source's start: what is trained is normal, of these variances (of `d_mlp` hidden units, whatever the room)."""
    variances = {
        "attn.W_Q": 1 / shape.d_head, "attn.W_K": 1 / shape.d_head, "attn.W_V": 1 / shape.d_head, "attn.W_O": 1 / shape.d,
        "mlp.W_in": 1 / shape.d, "mlp.W_out": 1 / d_mlp, "mlp.b_in": 0.0,
    }  # fmt: skip
    for_embeddings, *keys = jax.random.split(key, 1 + len(variances))
    drawn = init(shape.model(), task.d_vocab, task.n_ctx, task.d_vocab_out, key=for_embeddings)
    for each, (name, variance) in zip(keys, variances.items(), strict=True):
        full = f"blocks.0.{name}"
        drawn[full] = variance**0.5 * jax.random.normal(each, drawn[full].shape)
    return drawn


class Training(NamedTuple):
    """Where a training stands."""

    step: Int[Array, ""]
    best: Float[Array, ""]
    params: Params
    optimiser: optax.OptState


def best_accuracy(shape: Shape, room: int, seed: Array, size: Array, d_mlp: Array, rate: Array) -> Float[Array, ""]:
    """The largest share of S^2 facts that one seed's model answers right at any look; it stops at 99%."""
    config, task = shape.model(), Facts(subjects=room, relations=room, per_relation=shape.per_relation)
    for_world, for_weights, for_data, for_test = jax.random.split(jax.random.key(seed), 4)
    world = task.in_use(task.world(key=for_world).answer, size, size)
    offered = (jnp.arange(task.d_vocab_out) < shape.per_relation * size)[None]
    speaks = (jnp.arange(shape.d_mlp) < d_mlp)[:, None]
    drawn = start(shape, task, d_mlp, for_weights)
    still = config.frozen_names()
    frozen = {name: value for name, value in drawn.items() if name in still}
    trained = {name: value for name, value in drawn.items() if name not in still}
    optimiser = optax.adam(rate)

    def logits(p: Params, tokens: Array) -> Array:
        masked = {**frozen, **p, "blocks.0.mlp.W_out": jnp.where(speaks, p["blocks.0.mlp.W_out"], 0.0)}
        return jnp.where(offered, token_counts.last_logits(config, masked, tokens, task.asks_from), -jnp.inf)

    def step(i: Array, state: tuple[Params, optax.OptState]) -> tuple[Params, optax.OptState]:
        p, inner = state
        keys = jax.random.split(jax.random.fold_in(for_data, i), shape.batch)
        batch = jax.vmap(lambda key: task.sample(world, key=key))(keys)
        gradient = jax.grad(lambda p: cross_entropy(logits(p, batch.tokens), batch.targets[:, -1]).mean())(p)
        updates, inner = optimiser.update(gradient, inner, p)
        return cast(Params, optax.apply_updates(p, updates)), inner

    def turn(state: Training) -> Training:
        p, inner = jax.lax.fori_loop(state.step, state.step + shape.look, step, (state.params, state.optimiser))
        tokens, answer = task.every_fact(world, key=jax.random.fold_in(for_test, state.step))
        asked = (jnp.arange(room) < size)[:, None] & (jnp.arange(room) < size)[None]
        right = (asked.reshape(-1) & (logits(p, tokens).argmax(axis=1) == answer)).sum() / size**2
        return Training(state.step + shape.look, jnp.maximum(state.best, right), p, inner)

    begin = Training(jnp.zeros((), int), jnp.zeros(()), trained, optimiser.init(trained))
    return jax.lax.while_loop(lambda s: (s.step < shape.steps) & (s.best < LEVEL), turn, begin).best


def trainer(shape: Shape, room: int, lanes: int) -> Callable[..., Float[np.ndarray, "lane"]]:
    """g(seed, size, d_mlp), each with an entry a lane: its best accuracy at any rate. Compiled once."""
    rates = np.array(shape.rates, np.float32)
    train = on_devices(lambda each: best_accuracy(shape, room, *each), lanes * len(rates))

    def best(*each: Int[np.ndarray, "lane"]) -> Float[np.ndarray, "lane"]:
        tried = train((*(np.repeat(x, len(rates)) for x in each), np.tile(rates, lanes)))
        return tried.reshape(lanes, -1).max(axis=1)

    return best


def capacity(
    shape: Shape, hidden: tuple[int, ...], seeds: int, guess: tuple[int, ...], room: int
) -> Int[np.ndarray, "hidden seed"]:
    """The largest S that each seed stores with so many hidden units, found for all of them at once."""
    lanes = len(hidden) * seeds
    who, units = np.tile(np.arange(seeds), len(hidden)), np.repeat(hidden, seeds)
    train = trainer(shape, room, lanes)
    found = largest(lambda n: train(who, n, units) >= LEVEL, lanes, np.repeat(guess, seeds), room, reach=1.3)
    return found.reshape(len(hidden), seeds)
