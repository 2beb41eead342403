"""What L1 measures: random words, and the same again.

Which heads look where, and what is lost when they are ablated.
"""

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models import Edit, Transformer, replace_site
from mnemoscope.probes.copying import prefix_score, previous_score, token_losses
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, rows
from mnemoscope.studies.measurement import Measurement
from mnemoscope.studies.plot_data import Curve, Grid, Plots
from mnemoscope.studies.scales import FRESH_SEED, Scale

PERIOD = 48  # tokens, then the same again
CHOOSING = 16  # sequences on which heads are chosen
MEASURED = 32  # sequences on which they are measured
ABLATED = 8  # heads
BATCH = 2  # sequences at once on a core
GAIN = 1.0  # nats that the second copy must be cheaper for a share of it to say anything
DRAWN_BY: dict[Scale, int] = {"quick": 0, "full": FRESH_SEED}  # seeds of the sequences
SCORES = {"previous": previous_score, "prefix": prefix_score}
WORDS = {"previous": "previous-token", "prefix": "prefix-matching"}  # how a score is called


def repeated(subject: Subject, scale: Scale) -> Int[np.ndarray, "sequence pos"]:
    """Words of the vocabulary (a space and letters), drawn evenly, each sequence twice in a row.

    Args:
        subject: The model whose vocabulary it is.
        scale: Says which sequences are drawn.
    """
    vocabulary = subject.tokenizer.vocabulary
    words = [i for i, token in enumerate(vocabulary) if re.fullmatch(r"Ġ[A-Za-z]+", token)]
    drawn = np.random.default_rng(DRAWN_BY[scale]).choice(words, (CHOOSING + MEASURED, PERIOD))
    return np.concatenate([drawn, drawn], axis=1)


def ablate(model: Transformer, heads: Bool[Array, "layer head"]) -> list[Edit]:
    """These heads' outputs at zero."""
    zero = jnp.zeros((1, 1, 1))
    return [
        replace_site(f"blocks.{i}.attn.hook_z", zero, heads[i][None, :, None])
        for i in range(model.config.n_layers)
    ]


def _read(model: Transformer, batch: tuple[Array, Array]) -> dict[str, Array]:
    """Scores and losses of a batch of sequences, each with its own heads ablated."""

    def sequence(row: Array, ablated: Array) -> dict[str, Array]:
        logits, trace = model.run_with_trace(row, ablate(model, ablated))
        patterns = [trace[f"blocks.{i}.attn.hook_pattern"] for i in range(model.config.n_layers)]
        found = {name: jnp.stack([score(p) for p in patterns]) for name, score in SCORES.items()}
        return found | {"loss": token_losses(logits, row)}

    return jax.vmap(sequence)(*batch)


def evaluate(
    subject: Subject,
    tokens: Int[np.ndarray, "sequence pos"],
    heads: Bool[np.ndarray, "sequence layer head"],
) -> dict[str, np.ndarray]:
    """Each sequence's losses (pos - 1) and scores (layer, head) with its heads ablated.

    Args:
        subject: The model.
        tokens: The sequences.
        heads: True where a head is ablated in a sequence.
    """
    program = subject.program(_read, CHOOSING // BATCH)
    found = []
    for start in range(0, len(tokens), CHOOSING):  # always as many at once: one compiled program
        part = slice(start, start + CHOOSING)
        batched = batches((tokens[part], heads[part]), BATCH)
        found.append(rows(program(batched), CHOOSING))
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def top(scores: Float[np.ndarray, "layer head"], n: int) -> Bool[np.ndarray, "layer head"]:
    """The n heads with the highest scores."""
    return scores >= np.sort(scores, axis=None)[-n]


@cache
def chosen(subject: Subject, scale: Scale) -> dict[str, np.ndarray]:
    """Scores of every head on the choosing sequences.

    Args:
        subject: The model.
        scale: Says which sequences are drawn.
    """
    config = subject.model.config
    nothing = np.zeros((CHOOSING, config.n_layers, config.n_heads), bool)
    found = evaluate(subject, repeated(subject, scale)[:CHOOSING], nothing)
    return {name: found[name].mean(axis=0) for name in SCORES}


def induction_heads(subject: Subject, scale: Scale) -> Bool[np.ndarray, "layer head"]:
    """The heads that are ablated together.

    They have the highest prefix-matching scores on the choosing sequences.

    Args:
        subject: The model.
        scale: Says which sequences are drawn.
    """
    return top(chosen(subject, scale)["prefix"], ABLATED)


def copies(
    loss: Float[np.ndarray, "sequence pos"],
) -> tuple[Float[np.ndarray, "sequence"], Float[np.ndarray, "sequence"]]:
    """Mean loss of each sequence's first and second copy.

    Over the same tokens: the first of each copy cannot be copied.
    """
    return loss[:, : PERIOD - 1].mean(axis=1), loss[:, PERIOD:].mean(axis=1)


def _ablated_cases(
    scores: dict[str, np.ndarray], heads: Bool[np.ndarray, "layer head"]
) -> dict[str, Bool[np.ndarray, "sequence layer head"]]:
    """Which heads are ablated in every measured sequence, for each case that is compared."""
    draw = np.random.default_rng(1)
    others = np.flatnonzero(~heads)
    by_chance = np.zeros((MEASURED, heads.size), bool)
    for row in by_chance:
        row[draw.choice(others, ABLATED, replace=False)] = True
    previous = top(scores["previous"], ABLATED)
    return {
        "whole": np.zeros((MEASURED, *heads.shape), bool),
        "induction out": np.repeat(heads[None], MEASURED, axis=0),
        "random out": by_chance.reshape(MEASURED, *heads.shape),
        "previous-token out": np.repeat(previous[None], MEASURED, axis=0),
    }


def _pictures(found: dict[str, dict[str, np.ndarray]], scores: dict[str, np.ndarray]) -> Plots:
    """The loss token by token in every case, and the score of every head."""
    steps = np.arange(1, 2 * PERIOD)
    curves = {name: Curve.over_seeds(steps, each["loss"]) for name, each in found.items()}
    grids = {}
    for kind in ("prefix", "previous"):
        n_layers, n_heads = scores[kind].shape
        grids[WORDS[kind]] = Grid.of(range(n_layers), range(n_heads), scores[kind])
    return Plots(curves=curves, grids=grids)


def _best(scores: Float[np.ndarray, "layer head"]) -> tuple[int, int]:
    """Layer and head with the highest score."""
    layer, head = np.unravel_index(scores.argmax(), scores.shape)
    return int(layer), int(head)


def _name(scores: Float[np.ndarray, "layer head"]) -> str:
    """The head with the highest score, as it is called: L5H2."""
    layer, head = _best(scores)
    return f"L{layer}H{head}"


def measure_copying(subject: Subject, evidence: Evidence) -> Measurement:
    """L1: scores of the best heads, the gain of the second copy, and what ablating takes of it.

    What is taken is compared in nats, sequence by sequence: nothing is divided by a gain that may
    be about 0.

    Args:
        subject: the model that is asked.
        evidence: says the scale; no model is trained.
    """
    scale = evidence.scale
    scores = chosen(subject, scale)
    heads = induction_heads(subject, scale)
    cases = _ablated_cases(scores, heads)
    tokens = repeated(subject, scale)[CHOOSING:]
    found = {name: evaluate(subject, tokens, ablated) for name, ablated in cases.items()}
    parts: dict[str, Any] = {}
    by_seed: dict[str, np.ndarray] = {}
    for kind, each in scores.items():
        layer, head = _best(each)
        best = found["whole"][kind][:, layer, head]
        parts[f"{WORDS[kind]} score"] = best
        by_seed[f"{WORDS[kind]} score, {_name(each)}"] = best
    losses = {name: copies(each["loss"]) for name, each in found.items()}
    for name, (first, second) in losses.items():
        by_seed |= {f"1st copy, {name}": first, f"2nd copy, {name}": second}
    first, whole = losses.pop("whole")
    gain = first - whole
    # what the second copy costs more without these heads
    rise = {name: second - whole for name, (_, second) in losses.items()}
    parts |= {
        "gain": gain,
        "gain is positive": gain,
        "more than half of the gain": rise["induction out"] - gain / 2,
        "more than twice that of random heads": rise["induction out"] - 2 * rise["random out"],
    }
    if gain.mean() > GAIN:
        for name, each in rise.items():
            parts[f"share of the gain, {name}"] = each / gain.mean()
    return Measurement(parts, by_seed, _pictures(found, scores), subject.note)
