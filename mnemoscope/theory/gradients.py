r"""What population gradients write into an induction head that starts from nothing: three steps,
one matrix each.

The theorem's world: tokens, positions, what layer 0 makes of them and read-out directions are
orthonormal, so that no two meanings share a direction of the stream. In blocks of its dimensions,

    x = ( e: vocab | p: pos | e of earlier tokens: vocab | p of earlier tokens: pos | u: vocab )

W_V W_O of layer 0 carries the first two blocks into the next two, W_V of layer 1 is the identity,
W_U reads the last block, and the three trained matrices are zero. Then attention is even and every
answer has probability 1/N, so that the gradient in W_O of layer 1 is linear in how often tokens
occur in a context that ends with a question, with xbar_t = mean_{s<=t} x_s:

    dL/dW_O = -E[ sum_t w_t xbar_t^T (onehot(y_t) - 1/N) ] / E[ sum_t w_t ]

`output_gradient` computes these expectations exactly: for each trigger and output a sequence is a
Markov chain over (token, whether the trigger has been seen), and expected counts of every token
before a question follow it step by step. After that step answers are no longer linear in the
context; `sampled_gradient` averages over drawn sequences and says how far it can be off.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params, PRNGKeyArray
from mnemoscope.core.errors import UserError
from mnemoscope.models import ModelConfig, init
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.models.rewrites import score_tables
from mnemoscope.tasks import Bigrams
from mnemoscope.tasks.corpus import Corpus
from mnemoscope.theory.induction import TRAINED, simplified_model
from mnemoscope.training.loss import cross_entropy

FIRST_KEYS, SECOND_KEYS, OUTPUT = TRAINED
# they are taken through the score tables
GRADIENTS = replace(score_tables.SUPPORT, consumer="the sampled gradient")
# scores of pairs are products of matrices with nothing between them
STEPS = Support("the theorem", {"bias": (False,), "unembed_bias": ANY})


def uniform_text(n_tokens: int) -> Corpus:
    """A text in which every character follows every other equally often."""
    names = "".join(chr(ord("A") + i) for i in range(n_tokens))
    once_each = tuple((a, b, 1) for a in range(n_tokens) for b in range(n_tokens))
    return Corpus(name="uniform", characters=names, counts=once_each)


def theorem_task(n_tokens: int, length: int) -> Bigrams:
    """Uniform text with one trigger, drawn for each sequence."""
    return Bigrams(corpus=uniform_text(n_tokens), n_triggers=1, triggers="random", length=length)


def theorem_model(task: Bigrams) -> tuple[ModelConfig, Params]:
    """The orthonormal model of the module's docstring, with its three trained matrices at zero."""
    n = task.d_vocab
    length = task.length
    d = 3 * n + 2 * length
    config = simplified_model(d)
    eye = np.eye(d)
    carry = np.zeros((d, d))
    carry[np.arange(n + length), n + length + np.arange(n + length)] = 1
    params = init(config, n, length, key=jax.random.key(0))
    written = {
        "embed.W_E": eye[:n],
        "pos_embed.W_pos": eye[n : n + length],
        "unembed.W_U": eye[:, d - n :],
        "blocks.0.attn.W_V": carry[None],
        "blocks.0.attn.W_O": eye[None],
        "blocks.1.attn.W_V": eye[None],
    }
    written |= {name: np.zeros((1, d, d)) for name in TRAINED}
    return config, params | {name: jnp.asarray(value, float) for name, value in written.items()}


def output_gradient(task: Bigrams) -> Float[np.ndarray, "d_model d_model"]:
    """The exact gradient in W_O of layer 1 at the start of the theorem's model, for one random
    trigger; float64."""
    if task.n_triggers != 1 or task.triggers != "random" or task.loss != "predictable":
        raise UserError(
            "exact gradients are known for one random trigger and the loss on predictable positions"
        )
    n = task.d_vocab
    length = task.length
    text = task.text
    prior = np.full((n, n), 1 / n) if task.outputs == "uniform" else text.bigrams
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, length + 1))])
    gradient = np.zeros((2 * (n + length), n))
    mass = 0.0
    for q in range(n):
        for o in np.flatnonzero(prior[q]):
            context, weight = _contexts(text, q, int(o), length, harmonic)
            share = text.unigrams[q] * prior[q, o]
            gradient += share * context[:, None] * (np.eye(n)[o] - 1 / n)[None]
            mass += share * weight
    whole = np.zeros((3 * n + 2 * length,) * 2)
    whole[: 2 * (n + length), -n:] = -gradient / mass
    return whole


def _contexts(
    text: Corpus, q: int, o: int, length: int, harmonic: np.ndarray
) -> tuple[Float[np.ndarray, "part"], float]:
    """E[sum_t w_t xbar_t] by block, and E[sum_t w_t], for one trigger and output.

    `alive[seen, z]` is p(seen, z_t = z). `plain[v, seen, z]` is
    sum_{s<=t} p(z_s = v, seen, z_t = z), and `late` the same with each s counted harmonic(s - 1)
    times: a token at s is in the means of all positions from s on, sum_{r=s}^t 1/r = H_t - H_{s-1}.
    """
    n = len(text.unigrams)
    move = text.bigrams.copy()
    move[q] = np.eye(n)[o]
    alive = np.zeros((2, n))
    alive[0] = text.unigrams
    plain = np.zeros((n, 2, n))
    late = np.zeros((n, 2, n))
    every = np.arange(n)
    context = np.zeros(2 * (n + length))
    earlier_tokens = n + length  # where the third and the fourth block begin
    earlier_places = 2 * n + length
    total = 0.0
    for t in range(1, length + 1):
        plain[every, :, every] += alive.T
        late[every, :, every] += harmonic[t - 1] * alive.T
        asked = alive[1, q]  # the trigger, seen before: a question
        context[:n] += plain[:, 1, q] / t
        context[n : n + t] += asked / t
        context[earlier_tokens:earlier_places] += (harmonic[t] * plain[:, 1, q] - late[:, 1, q]) / t
        context[earlier_places : earlier_places + t] += asked * (harmonic[t] - harmonic[:t]) / t
        total += asked
        alive = _moved(alive, move, q)
        plain = _moved(plain, move, q)
        late = _moved(late, move, q)
    return context, total


def _moved(x: Float[np.ndarray, "... seen token"], move: np.ndarray, q: int) -> np.ndarray:
    """One step of the chain: whoever stands on the trigger has seen it from now on."""
    x = x.copy()
    x[..., 1, q] += x[..., 0, q]
    x[..., 0, q] = 0
    return x @ move


class Sampled(NamedTuple):
    """A gradient averaged over drawn sequences."""

    mean: Float[Array, "d_model d_model"]
    # the standard error of the mean, entry by entry
    error: Float[Array, "d_model d_model"]


@partial(jax.jit, static_argnames=("task", "config", "name", "batches", "batch"))
def sampled_gradient(
    task: Bigrams,
    config: ModelConfig,
    params: Params,
    name: str,
    batches: int = 64,
    batch: int = 128,
    *,
    key: PRNGKeyArray,
) -> Sampled:
    """E[d sum_t w_t loss_t] / E[sum_t w_t] in one matrix, as a ratio of two averages.

    Args:
        task: from which sequences are drawn.
        config: the model.
        params: where the gradient is taken.
        name: the matrix in which it is taken; one head.
        batches: how many batches are drawn; the error is told from their spread.
        batch: sequences in each.
        key: draws the sequences.
    """
    if config.n_heads != 1:
        raise UserError(f"sampled gradients are of one head a layer, got n_heads={config.n_heads}")
    GRADIENTS.require(config)

    def one(sums: tuple[Array, ...], key: PRNGKeyArray) -> tuple[tuple[Array, ...], None]:
        examples = jax.vmap(lambda key: task.sample((), key=key))(jax.random.split(key, batch))
        rows = jnp.broadcast_to(jnp.arange(task.length)[None], examples.tokens.shape)

        def summed(value: Array) -> Array:
            changed = params | {name: value[None]}
            logits = score_tables.read_logits(config, changed, examples.tokens, rows)
            return (cross_entropy(logits, examples.targets) * examples.weights).sum() / batch

        g = jax.grad(summed)(params[name][0])
        w = examples.weights.sum() / batch
        return jax.tree.map(jnp.add, sums, (g, w, g * g, g * w, w * w)), None

    zero = jnp.zeros_like(params[name][0])
    none = jnp.zeros(())
    sums, _ = jax.lax.scan(one, (zero, none, zero, zero, none), jax.random.split(key, batches))
    g, w, gg, gw, ww = (x / batches for x in sums)
    ratio = g / w
    spread = jnp.maximum(gg - 2 * ratio * gw + ratio * ratio * ww, 0.0)
    return Sampled(ratio, jnp.sqrt(spread / (batches - 1)) / w)


class Steps(NamedTuple):
    """What three gradient steps leave."""

    # the model after them
    params: Params
    # of each gradient the largest standard error over the largest entry
    errors: dict[str, Float[Array, ""]]


def three_steps(
    task: Bigrams,
    config: ModelConfig,
    params: Params,
    batches: int = 64,
    batch: int = 128,
    strengths: tuple[float, float, float] = (1.0, 10.0, 100.0),
    *,
    key: PRNGKeyArray,
) -> Steps:
    """One gradient step on the output, then on layer 1's keys, then on layer 0's, each as long as
    its rule says.

    The length of a step is the one at which the right pairs of its memory score `strength` on
    average, counted after the division by sqrt(d) where attention divides. The theorem leaves step
    sizes free. The first must be short: with outputs at 10, answers saturate and what follows
    writes first-layer keys no better than chance (FINDINGS.md).

    Args:
        task: from which sequences are drawn.
        config: the model.
        params: where the first step begins.
        batches: how many batches a gradient is averaged over.
        batch: sequences in each.
        strengths: what the right pairs score after each step.
        key: draws the sequences.
    """
    if (config.n_layers, config.n_heads) != (2, 1):
        raise UserError(
            "the theorem is about two layers of one head, "
            f"got {config.n_layers} of {config.n_heads}"
        )
    STEPS.require(config)
    root = config.d_head**0.5
    p: dict[str, Array] = {name: jnp.asarray(value) for name, value in params.items()}
    tokens = p["embed.W_E"]
    places = p["pos_embed.W_pos"]
    read = p["unembed.W_U"].T
    before = tokens @ p["blocks.0.attn.W_V"][0] @ p["blocks.0.attn.W_O"][0]
    values = tokens @ p["blocks.1.attn.W_V"][0]
    scores: dict[str, Callable[[Array], Array]] = {
        OUTPUT: lambda w: _pairs(values, w, read),
        SECOND_KEYS: lambda w: _pairs(before, w, tokens) / root,
        FIRST_KEYS: lambda w: _pairs(places[:-1], w, places[1:]) / root,
    }
    errors = {}
    keys = jax.random.split(key, 3)
    for name, strength, each in zip(scores, strengths, keys, strict=True):
        found = sampled_gradient(task, config, p, name, batches, batch, key=each)
        step = -found.mean
        length = strength / scores[name](step)
        p = p | {name: (p[name][0] + length * step)[None]}
        errors[name] = found.error.max() / jnp.abs(found.mean).max()
    return Steps({**p}, errors)


def _pairs(
    inputs: Float[Array, "pair d_in"],
    w: Float[Array, "d_in d_out"],
    outputs: Float[Array, "pair d_out"],
) -> Array:
    """The mean score of the right pairs."""
    return jnp.einsum("id,de,ie->i", inputs, w, outputs).mean()
