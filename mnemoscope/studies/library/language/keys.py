"""L2: a feed-forward layer as a memory. Each hidden unit has a key, what excites it, and a value, what it adds to the stream."""

from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models.language import LanguageModel
from mnemoscope.models.language.forward import read_out
from mnemoscope.studies.claims import Curve, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.library.language.places import late
from mnemoscope.studies.statistics import Interval, mean_interval

PROMOTED = 50  # tokens that a value is said to promote
SHUFFLES = 20
BATCH = 10  # sentences at once on a core
UNITS = 128  # values read out at once on a core


def sentences() -> list[str]:
    """The study's text: a hundred plain sentences."""
    text = resources.files("mnemoscope.studies.library.language").joinpath("sentences.txt").read_text(encoding="utf-8")
    return text.splitlines()


def _excited(model: LanguageModel, batch: tuple[Array, Array]) -> tuple[Array, Array]:
    """For every unit, its largest activation in a sentence, with its sign, and where it was (sentence, layer, unit).

    The first position is left out, where there is no prefix to speak of, and so is the last, which nothing follows.
    """

    def one(tokens: Array, last: Array) -> tuple[Array, Array]:
        trace = model.run_with_trace(tokens)[1]
        post = jnp.stack([trace[f"blocks.{i}.mlp.hook_post"] for i in range(model.config.n_layers)])
        places = jnp.arange(tokens.shape[0])
        size = jnp.where(((places > 0) & (places < last))[None, :, None], jnp.abs(post), -1.0)
        where = size.argmax(axis=1)
        return jnp.take_along_axis(post, where[:, None], axis=1)[:, 0], where

    return jax.vmap(one)(*batch)


def _ranks(model: LanguageModel, batch: tuple[Array, Array]) -> Array:
    """How many tokens each value promotes more than the ones asked about (unit, token)."""
    values, asked = batch
    scores = read_out(model.config, model.params, values)
    theirs = jnp.take_along_axis(scores, asked, axis=1)
    # counting is quicker than sorting the vocabulary
    return jax.lax.map(lambda column: (scores > column[:, None]).sum(axis=1), theirs.T).T


def agreement(
    subject: Subject, layer: int, sign: Float[np.ndarray, "unit"], follows: Int[np.ndarray, "unit"]
) -> Bool[np.ndarray, "unit shuffle"]:
    """Whether each value promotes what follows its own key's prefix (first column) and other keys' prefixes (the rest)."""
    values, draw = np.asarray(subject.model.params[f"blocks.{layer}.mlp.W_out"]), np.random.default_rng(layer)
    asked = np.stack([follows, *(draw.permutation(follows) for _ in range(SHUFFLES))], axis=1)
    cut = batches((sign[:, None] * values, asked), UNITS)
    return rows(subject.program(_ranks, len(cut[0]))(cut), len(values)) < PROMOTED


def verdict(own: float, shuffled: float, difference: Interval) -> Verdict:
    """From both shares and the interval of their difference."""
    if difference[0] <= 0:
        return "refuted"
    return "reproduced" if own >= 2 * shuffled else "partly"


def memory(subject: Subject, evidence: Evidence) -> Outcome:
    """L2."""
    texts = sentences()
    tokens, last = padded([subject.tokenizer.encode(text) for text in texts])
    found, where = rows(subject.program(_excited, -(-len(texts) // BATCH))(batches((tokens, last), BATCH)), len(texts))
    best = np.abs(found).argmax(axis=0)[None]
    sign = np.sign(np.take_along_axis(found, best, axis=0)[0])
    follows = tokens[best[0], np.take_along_axis(where, best, axis=0)[0] + 1]
    n_layers = subject.model.config.n_layers
    hits = np.stack([agreement(subject, layer, sign[layer], follows[layer]) for layer in range(n_layers)])
    own, shuffled = hits[..., 0].astype(float), hits[..., 1:].mean(axis=-1)
    some = list(late(n_layers))
    value, interval = mean_interval((own - shuffled)[some].ravel())
    ours, chance = float(own[some].mean()), float(shuffled[some].mean())
    early = slice(0, n_layers // 3)
    sentence = (
        f"{subject.name}: in the last {len(some)} layers {ours:.1%} of {own[some].size:,} values promote (among the first "
        f"{PROMOTED} of {subject.model.config.d_vocab:,} tokens) what follows the prefix that excites their key most, "
        f"{chance:.1%} with shuffled keys; in the first {n_layers // 3} layers {own[early].mean():.1%} and "
        f"{shuffled[early].mean():.1%}. "
        f"Text: {len(texts)} sentences."
    )
    layers = np.arange(n_layers, dtype=float)
    curves = {
        "own key": Curve.over_seeds(layers, own.mean(axis=1)[None]),
        "shuffled keys": Curve.over_seeds(layers, hits[..., 1:].mean(axis=1).T),
    }
    by_layer = {"own key, each layer": own.mean(axis=1), "shuffled keys, each layer": shuffled.mean(axis=1)}
    return Outcome(verdict(ours, chance, interval), value, interval, sentence, by_layer, Pictures(curves=curves))
