"""What a user would write in JAX: `vmap` over seeds, `scan` over steps, Optax.

The model is written as one writes it: heads by einsum, softmax over masked scores, cross-entropy by
Optax. `bfloat16` has activations and products in bfloat16, parameters, norms and loss in float32.
"""

import jax
import jax.numpy as jnp
import optax
from peer_cases import Advance, Stock

from mnemoscope import ModelConfig, Spec

ACTIVATIONS = {"relu": jax.nn.relu, "gelu": lambda x: jax.nn.gelu(x, approximate=False)}


def norm(model: ModelConfig, p: dict, name: str, x: jax.Array) -> jax.Array:
    """A layer or RMS norm, in float32."""
    wide = x.astype(jnp.float32)
    if model.norm_type == "layer":
        wide = wide - wide.mean(-1, keepdims=True)
    standard = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + model.norm_eps)
    scaled = standard * p[f"{name}.w"]
    return (scaled + p.get(f"{name}.b", 0.0)).astype(x.dtype)


def linear(p: dict, at: str, name: str, x: jax.Array) -> jax.Array:
    """x W + b."""
    y = x @ p[f"{at}.W_{name}"].astype(x.dtype)
    return y + p[f"{at}.b_{name}"].astype(x.dtype) if f"{at}.b_{name}" in p else y


def rotate(x: jax.Array) -> jax.Array:
    """Rotary positions of (batch, pos, head, d_head), by halves."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10_000.0 ** (-jnp.arange(half) / half)
    cos, sin = (f(angles)[:, None].astype(x.dtype) for f in (jnp.cos, jnp.sin))
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def attention(model: ModelConfig, p: dict, at: str, x: jax.Array) -> jax.Array:
    """Causal softmax attention of all heads."""
    heads = (*x.shape[:2], model.n_heads, model.d_head)
    q, k, v = (linear(p, at, name, x).reshape(heads) for name in "QKV")
    if model.positions == "rotary":
        q, k = rotate(q), rotate(k)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * model.d_head**-0.5
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    scores = jnp.where(mask, scores.astype(jnp.float32), -jnp.inf)
    pattern = jax.nn.softmax(scores).astype(x.dtype)
    z = jnp.einsum("bhqk,bkhd->bqhd", pattern, v).reshape(x.shape[0], x.shape[1], -1)
    return linear(p, at, "O", z)


def logits(model: ModelConfig, p: dict, tokens: jax.Array, dtype) -> jax.Array:
    """(batch, pos, vocab)."""
    x = p["embed.W_E"].astype(dtype)[tokens]
    if model.positions == "learned":
        x = x + p["pos_embed.W_pos"].astype(dtype)
    for layer in range(model.n_layers):
        at = f"blocks.{layer}"
        seen = norm(model, p, f"{at}.ln1", x) if model.norm == "pre" else x
        x = x + attention(model, p, f"{at}.attn", seen)
        x = norm(model, p, f"{at}.ln1", x) if model.norm == "post" else x
        if model.d_mlp:
            seen = norm(model, p, f"{at}.ln2", x) if model.norm == "pre" else x
            hidden = ACTIVATIONS[model.act](linear(p, f"{at}.mlp", "in", seen))
            x = x + linear(p, f"{at}.mlp", "out", hidden)
            x = norm(model, p, f"{at}.ln2", x) if model.norm == "post" else x
    x = norm(model, p, "ln_final", x) if model.norm == "pre" else x
    return linear(p, "unembed", "U", x).astype(jnp.float32)


def prepare(spec: Spec, stock: Stock, params: dict, precision: str) -> Advance:
    """A training that is ready to go on.

    Args:
        spec: what is trained.
        stock: sequences to draw from.
        params: by name, stacked by seed.
        precision: `default` or `bfloat16`.
    """
    model, batch = spec.model, spec.batch
    dtype = jnp.bfloat16 if precision == "bfloat16" else jnp.float32
    read = jnp.array(spec.task.loss_positions)
    every_position = len(read) == spec.task.n_ctx
    sequences = jax.tree.map(jnp.asarray, stock)
    number = spec.optimizer
    if number.kind == "adam":
        rule = optax.adam(number.lr)
    else:
        decay = optax.add_decayed_weights(number.weight_decay)
        rule = optax.chain(decay, optax.sgd(number.lr, number.momentum))
    still = model.frozen_names()
    frozen = {name: jnp.asarray(x) for name, x in params.items() if name in still}
    trained = {name: jnp.asarray(x) for name, x in params.items() if name not in still}

    def loss(trained: dict, frozen: dict, drawn: Stock) -> jax.Array:
        found = logits(model, trained | frozen, drawn.tokens, dtype)
        found = found if every_position else found[:, read]
        each = optax.softmax_cross_entropy_with_integer_labels(found, drawn.targets)
        return (each * drawn.weights).sum() / drawn.weights.sum()

    def train(state: tuple, frozen: dict, key: jax.Array, begin: jax.Array, steps: int) -> tuple:
        def step(state: tuple, i: jax.Array) -> tuple:
            trained, remembered = state
            rows = jax.random.randint(
                jax.random.fold_in(key, i), (batch,), 0, len(sequences.tokens)
            )
            drawn = jax.tree.map(lambda x: x[rows], sequences)
            value, gradient = jax.value_and_grad(loss)(trained, frozen, drawn)
            updates, remembered = rule.update(gradient, remembered, trained)
            return (optax.apply_updates(trained, updates), remembered), value

        return jax.lax.scan(step, state, begin + jnp.arange(steps))

    over_seeds = jax.vmap(train, in_axes=(0, 0, 0, None, None))
    run = jax.jit(over_seeds, static_argnums=4, donate_argnums=0)
    seeds = len(next(iter(params.values())))
    keys = jax.random.split(jax.random.key(0), seeds)
    state = (trained, jax.vmap(rule.init)(trained))
    done = 0

    def advance(steps: int) -> float:
        nonlocal state, done
        state, losses = run(state, frozen, keys, jnp.array(done), steps)
        done += steps
        return float(losses.mean())

    return advance
