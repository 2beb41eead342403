r"""How many facts a trained model stores.

Many seeds, sizes and numbers of hidden units share one compiled training.

The paper's model: frozen embeddings N(0, 1/d), H heads of size d_h without a residual connection
around them, then x + W_out relu(W_in x + b); logits over the answers. Weights start as in the
authors' program: N(0, 1/d_h) for W_Q, W_K and W_V, N(0, 1/d) for W_O and W_in, N(0, 1/m) for W_out,
no bias. Adam without weight decay on fresh batches; S^2 facts (S = R) are stored when 99% of them
are answered right at some evaluation of a training at any of the rates.

S and the number of hidden units are arguments and not shapes: arrays have room for more, tokens
beyond S are never drawn, answers beyond are never offered, and hidden units beyond are silent. So
one compilation serves a whole bisection, and a row of the trade-off grid.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from pydantic import Field

from mnemoscope.core.axes import Array, Bool, Float, Int, Params, PRNGKeyArray
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.core.strict import Strict
from mnemoscope.models import Init, ModelConfig, init
from mnemoscope.models.rewrites import token_counts
from mnemoscope.studies.bisection import largest
from mnemoscope.tasks import Example, Facts
from mnemoscope.training.loss import cross_entropy

Size = Annotated[int, Field(ge=1)]
LEVEL = 0.99  # of the facts are answered right
SILENT = ("*.attn.b_?", "*.mlp.b_out")  # the paper's model has a bias at the hidden units alone


class Shape(Strict):
    """What is trained, and for how long."""

    d: Size = 32  # width
    n_heads: Size = 8
    d_head: Size = 4
    d_mlp: Size = 32  # the room for hidden units
    per_relation: Size = 8  # answers
    # learning rates, tried side by side; the best counts
    rates: tuple[Annotated[float, Field(gt=0)], ...] = (1e-3, 3e-3, 1e-2)
    batch: Size = 1024
    steps: Size = 16384  # at most: a training stops when the facts are stored
    eval_every: Size = 128  # steps

    def model(self) -> ModelConfig:
        """The paper's model as a configuration of the one transformer."""
        return ModelConfig(
            d_model=self.d,
            n_heads=self.n_heads,
            d_head=self.d_head,
            d_mlp=self.d_mlp,
            positions="none",
            attn_residual=False,
            unembed_bias=False,
            init=Init(embeddings="unit", constant=tuple((name, 0.0) for name in SILENT)),
            frozen=("embed.W_E", "unembed.W_U", *SILENT),
        )

    def parameters(self, d_mlp: int | None = None) -> int:
        """As the paper counts them; with all hidden units if it is not said how many."""
        hidden = self.d_mlp if d_mlp is None else d_mlp
        return (4 * self.n_heads * self.d_head + 2 * hidden) * self.d


def start(shape: Shape, task: Facts, d_mlp: Array, key: PRNGKeyArray) -> Params:
    """The paper's start: what is trained is normal, of the variances in the module's docstring.

    Args:
        shape: the model.
        task: with the room for facts.
        d_mlp: how many hidden units speak, whatever the room: they decide W_out's variance.
        key: for embeddings and weights.
    """
    variances = {
        "attn.W_Q": 1 / shape.d_head,
        "attn.W_K": 1 / shape.d_head,
        "attn.W_V": 1 / shape.d_head,
        "attn.W_O": 1 / shape.d,
        "mlp.W_in": 1 / shape.d,
        "mlp.W_out": 1 / d_mlp,
        "mlp.b_in": 0.0,
    }
    for_embeddings, *keys = jax.random.split(key, 1 + len(variances))
    drawn = init(shape.model(), task.d_vocab, task.n_ctx, task.d_vocab_out, key=for_embeddings)
    for each, (name, variance) in zip(keys, variances.items(), strict=True):
        full = f"blocks.0.{name}"
        drawn[full] = variance**0.5 * jax.random.normal(each, drawn[full].shape)
    return drawn


class Training(NamedTuple):
    """Where a training stands."""

    step: Int[Array, ""]  # steps done
    best: Float[Array, ""]  # the largest share of facts answered right at an evaluation
    params: Params  # those that are trained
    optimizer: optax.OptState


def _masked_logits(
    shape: Shape, task: Facts, size: Array, d_mlp: Array
) -> Callable[[Params, Array], Array]:
    """logits(params, tokens) of a model that uses a part of its room.

    Answers beyond those of `size` relations are not offered, hidden units beyond `d_mlp` silent.
    """
    config = shape.model()
    offered = (jnp.arange(task.d_vocab_out) < shape.per_relation * size)[None]
    speaks = (jnp.arange(shape.d_mlp) < d_mlp)[:, None]

    def logits(params: Params, tokens: Array) -> Array:
        spoken = jnp.where(speaks, params["blocks.0.mlp.W_out"], 0.0)
        masked = {**params, "blocks.0.mlp.W_out": spoken}
        said = token_counts.last_logits(config, masked, tokens, task.query_token)
        return jnp.where(offered, said, -jnp.inf)

    return logits


def _share_right(logits: Array, answer: Array, room: int, size: Array) -> Array:
    """The share of the S^2 facts in use, out of all that there is room for, answered right."""
    in_use = jnp.arange(room) < size
    asked = in_use[:, None] & in_use[None]
    return (asked.reshape(-1) & (logits.argmax(axis=1) == answer)).sum() / size**2


def best_accuracy(
    shape: Shape, room: int, seed: Array, size: Array, d_mlp: Array, rate: Array
) -> Float[Array, ""]:
    """The largest share of S^2 facts that one seed's model answers right at any evaluation.

    It stops at 99%.

    Args:
        shape: what is trained, and for how long.
        room: the most subjects, and as many relations, that arrays have room for.
        seed: of facts, weights and batches.
        size: S, the subjects in use, and as many relations.
        d_mlp: the hidden units in use.
        rate: the learning rate.
    """
    task = Facts(subjects=room, relations=room, per_relation=shape.per_relation)
    for_world, for_weights, for_data, for_test = jax.random.split(jax.random.key(seed), 4)
    world = task.in_use(task.world(key=for_world).answer, size, size)
    logits = _masked_logits(shape, task, size, d_mlp)
    drawn = start(shape, task, d_mlp, for_weights)
    still = shape.model().frozen_names()
    frozen = {name: value for name, value in drawn.items() if name in still}
    trained = {name: value for name, value in drawn.items() if name not in still}
    optimizer = optax.adam(rate)

    def loss(params: Params, batch: Example) -> Array:
        said = logits({**frozen, **params}, batch.tokens)
        return cross_entropy(said, batch.targets[:, -1]).mean()

    def step(i: Array, state: tuple[Params, optax.OptState]) -> tuple[Params, optax.OptState]:
        params, moments = state
        keys = jax.random.split(jax.random.fold_in(for_data, i), shape.batch)
        batch = jax.vmap(lambda key: task.sample(world, key=key))(keys)
        gradient = jax.grad(loss)(params, batch)
        updates, moments = optimizer.update(gradient, moments, params)
        return cast(Params, optax.apply_updates(params, updates)), moments

    def until_eval(state: Training) -> Training:
        next_eval = state.step + shape.eval_every
        begin = (state.params, state.optimizer)
        params, moments = jax.lax.fori_loop(state.step, next_eval, step, begin)
        tokens, answer = task.every_fact(world, key=jax.random.fold_in(for_test, state.step))
        right = _share_right(logits({**frozen, **params}, tokens), answer, room, size)
        return Training(next_eval, jnp.maximum(state.best, right), params, moments)

    def goes_on(state: Training) -> Array:
        return (state.step < shape.steps) & (state.best < LEVEL)

    begin = Training(jnp.zeros((), int), jnp.zeros(()), trained, optimizer.init(trained))
    return jax.lax.while_loop(goes_on, until_eval, begin).best


def trainer(shape: Shape, room: int, lanes: int) -> Callable[..., Float[np.ndarray, "lane"]]:
    """g(seed, size, d_mlp), each with an entry a lane: its best accuracy at any rate.

    Compiled once.

    Args:
        shape: what is trained, and for how long.
        room: the most subjects, and as many relations.
        lanes: how many models are trained at once, at each rate.
    """
    rates = np.array(shape.rates, np.float32)
    train = map_over_seeds(lambda each: best_accuracy(shape, room, *each), lanes * len(rates))

    def best(*each: Int[np.ndarray, "lane"]) -> Float[np.ndarray, "lane"]:
        at_every_rate = (np.repeat(x, len(rates)) for x in each)
        tried = train((*at_every_rate, np.tile(rates, lanes)))
        return tried.reshape(lanes, -1).max(axis=1)

    return best


def capacity(
    shape: Shape, hidden: tuple[int, ...], seeds: range, guess: tuple[int, ...], room: int
) -> Int[np.ndarray, "hidden seed"]:
    """The largest S that each seed stores with so many hidden units, found for all at once.

    Args:
        shape: what is trained, and for how long.
        hidden: numbers of hidden units.
        seeds: of facts, weights and batches.
        guess: where the search begins, for each number of hidden units.
        room: the largest S that may be found.
    """
    lanes = len(hidden) * len(seeds)
    each_seed = np.tile(np.array(seeds), len(hidden))
    each_hidden = np.repeat(hidden, len(seeds))
    train = trainer(shape, room, lanes)

    def stores(size: Int[np.ndarray, "lane"]) -> Bool[np.ndarray, "lane"]:
        return train(each_seed, size, each_hidden) >= LEVEL

    found = largest(stores, lanes, np.repeat(guess, len(seeds)), room, reach=1.3)
    return found.reshape(len(hidden), len(seeds))
