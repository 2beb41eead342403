"""What L2 measures: a feed-forward layer as a memory.

Each hidden unit has a key, what excites it, and a value, what it adds to the stream.
"""

from importlib import resources
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models import Transformer
from mnemoscope.models.forward_pass import read_out
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.places import late
from mnemoscope.studies.library.language.subject import Subject, padded
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Plots

PROMOTED = 50  # tokens that a value is said to promote
SHUFFLES = 20
BATCH = 10  # sentences at once on a core
UNITS = 128  # values read out at once on a core


class Hits(NamedTuple):
    """Which values promote what follows the prefix of a key."""

    own: Float[np.ndarray, "layer unit"]
    """1 where the key is the value's own and it promotes the token, else 0."""
    shuffled: Float[np.ndarray, "layer unit"]
    """The share of shuffles in which the value promotes another key's token."""
    by_shuffle: Float[np.ndarray, "layer shuffle"]
    """The share of a layer's units in one shuffle."""


def sentences() -> list[str]:
    """The study's text: a hundred plain sentences."""
    folder = resources.files("mnemoscope.studies.library.language")
    return folder.joinpath("sentences.txt").read_text(encoding="utf-8").splitlines()


def _excited(model: Transformer, batch: tuple[Array, Array]) -> tuple[Array, Array]:
    """For every unit, its largest activation in a sentence, with its sign, and where it was.

    Both are (sentence, layer, unit). The first position is left out, where there is no prefix to
    speak of, and so is the last, which nothing follows.
    """

    def one(tokens: Array, last: Array) -> tuple[Array, Array]:
        trace = model.run_with_trace(tokens)[1]
        post = jnp.stack([trace[f"blocks.{i}.mlp.hook_post"] for i in range(model.config.n_layers)])
        places = jnp.arange(tokens.shape[0])
        counted = (places > 0) & (places < last)
        size = jnp.where(counted[None, :, None], jnp.abs(post), -1.0)
        where = size.argmax(axis=1)
        return jnp.take_along_axis(post, where[:, None], axis=1)[:, 0], where

    return jax.vmap(one)(*batch)


def _ranks(model: Transformer, batch: tuple[Array, Array]) -> Array:
    """How many tokens each value promotes more than the ones asked about (unit, token)."""
    values, asked = batch
    scores = read_out(model.config, model.params, values)
    theirs = jnp.take_along_axis(scores, asked, axis=1)
    # counting is quicker than sorting the vocabulary
    return jax.lax.map(lambda column: (scores > column[:, None]).sum(axis=1), theirs.T).T


def agreement(
    subject: Subject, layer: int, sign: Float[np.ndarray, "unit"], follows: Int[np.ndarray, "unit"]
) -> Bool[np.ndarray, "unit shuffle"]:
    """Whether each value promotes what follows a prefix.

    The first column has the prefix of the value's own key, the rest those of other keys.

    Args:
        subject: The model.
        layer: Whose feed-forward layer is asked.
        sign: Of each unit's largest activation; the value takes it.
        follows: The token that follows where each unit's key is excited most.
    """
    values = np.asarray(subject.model.params[f"blocks.{layer}.mlp.W_out"])
    draw = np.random.default_rng(layer)
    asked = np.stack([follows, *(draw.permutation(follows) for _ in range(SHUFFLES))], axis=1)
    return subject.map_rows(_ranks, (sign[:, None] * values, asked), UNITS) < PROMOTED


def _hits(subject: Subject, texts: list[str]) -> Hits:
    """Every layer's agreement, with own and with shuffled keys."""
    tokens, last = padded([subject.tokenizer.encode(text) for text in texts])
    activation, where = subject.map_rows(_excited, (tokens, last), BATCH)
    best = np.abs(activation).argmax(axis=0)[None]  # the sentence that excites a unit most
    sign = np.sign(np.take_along_axis(activation, best, axis=0)[0])
    follows = tokens[best[0], np.take_along_axis(where, best, axis=0)[0] + 1]
    layers = range(subject.model.config.n_layers)
    hits = np.stack([agreement(subject, i, sign[i], follows[i]) for i in layers])
    own = hits[..., 0].astype(float)
    shuffled = hits[..., 1:].mean(axis=-1)
    return Hits(own, shuffled, hits[..., 1:].mean(axis=1))


def measure_agreement(subject: Subject, evidence: Evidence) -> Measurement:
    """L2: how often a unit's value promotes the token that follows where its key is excited,
    against shuffled keys, for the units of the last third of the layers.

    Args:
        subject: the model that is asked.
        evidence: nothing: no model is trained.
    """
    hits = _hits(subject, sentences())
    n_layers = subject.model.config.n_layers
    chosen = list(late(n_layers))
    own = hits.own[chosen].ravel()
    shuffled = hits.shuffled[chosen].ravel()
    early = slice(0, n_layers // 3)
    parts = {
        "more than shuffled": own - shuffled,
        "twice as often": own - 2 * shuffled,
        "own keys": own.mean(),
        "shuffled keys": shuffled.mean(),
        "own keys, first third": hits.own[early].mean(),
        "shuffled keys, first third": hits.shuffled[early].mean(),
    }
    layers = np.arange(n_layers, dtype=float)
    own_by_layer = hits.own.mean(axis=1)
    curves = {
        "own key": Curve.over_seeds(layers, own_by_layer[None]),
        "shuffled keys": Curve.over_seeds(layers, hits.by_shuffle.T),
    }
    by_layer = {
        "own key, each layer": own_by_layer,
        "shuffled keys, each layer": hits.shuffled.mean(axis=1),
    }
    return Measurement(parts, by_layer, Plots(curves=curves), subject.note)
