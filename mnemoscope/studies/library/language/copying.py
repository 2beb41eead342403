"""L1: random words, and the same again. Which heads look where, and what is lost when they are silenced."""

import re
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models import Edit, replace
from mnemoscope.models.language import LanguageModel
from mnemoscope.probes.copying import prefix_score, previous_score, token_losses
from mnemoscope.studies.claims import Curve, Grid, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, rows
from mnemoscope.studies.statistics import mean_interval

PERIOD = 48  # tokens, then the same again
CHOOSING, MEASURED = 16, 32  # sequences on which heads are chosen, and on which they are measured
SILENCED = 8  # heads
BATCH = 2  # sequences at once on a core
HIGH = 0.5  # a score from which on a head is called after it
GAIN = 1.0  # nats that the second copy must be cheaper


def repeated(subject: Subject) -> Int[np.ndarray, "sequence pos"]:
    """Words of the vocabulary (a space and letters), drawn evenly, each sequence twice in a row."""
    words = [i for i, token in enumerate(subject.tokenizer.vocabulary) if re.fullmatch(r"Ġ[A-Za-z]+", token)]
    drawn = np.random.default_rng(0).choice(words, (CHOOSING + MEASURED, PERIOD))
    return np.concatenate([drawn, drawn], axis=1)


def silence(model: LanguageModel, heads: Bool[Array, "layer head"]) -> list[Edit]:
    """These heads' outputs at zero."""
    zero = jnp.zeros((1, 1, 1))
    return [replace(f"blocks.{i}.attn.hook_z", zero, heads[i][None, :, None]) for i in range(model.config.n_layers)]


def _read(model: LanguageModel, batch: tuple[Array, Array]) -> dict[str, Array]:
    def sequence(row: Array, silenced: Array) -> dict[str, Array]:
        logits, trace = model.run_with_trace(row, silence(model, silenced))
        patterns = [trace[f"blocks.{i}.attn.hook_pattern"] for i in range(model.config.n_layers)]
        scores = {"previous": previous_score, "prefix": prefix_score}
        found = {name: jnp.stack([score(p) for p in patterns]) for name, score in scores.items()}
        return found | {"loss": token_losses(logits, row)}

    return jax.vmap(sequence)(*batch)


def look(
    subject: Subject, tokens: Int[np.ndarray, "sequence pos"], heads: Bool[np.ndarray, "sequence layer head"]
) -> dict[str, np.ndarray]:
    """Each sequence's losses (pos - 1) and scores (layer, head) with its heads silenced."""
    program, found = subject.program(_read, CHOOSING // BATCH), []
    for start in range(0, len(tokens), CHOOSING):  # always as many at once: one compiled program
        part = slice(start, start + CHOOSING)
        found.append(rows(program(batches((tokens[part], heads[part]), BATCH)), CHOOSING))
    return {name: np.concatenate([each[name] for each in found]) for name in found[0]}


def top(scores: Float[np.ndarray, "layer head"], n: int) -> Bool[np.ndarray, "layer head"]:
    """The n heads with the highest scores."""
    return scores >= np.sort(scores, axis=None)[-n]


@cache
def chosen(subject: Subject) -> dict[str, np.ndarray]:
    """Scores of every head on the choosing sequences."""
    config = subject.model.config
    nothing = np.zeros((CHOOSING, config.n_layers, config.n_heads), bool)
    found = look(subject, repeated(subject)[:CHOOSING], nothing)
    return {name: found[name].mean(axis=0) for name in ("previous", "prefix")}


def induction_heads(subject: Subject) -> Bool[np.ndarray, "layer head"]:
    """The heads that are silenced together: those with the highest prefix-matching scores on the choosing sequences."""
    return top(chosen(subject)["prefix"], SILENCED)


def copies(
    loss: Float[np.ndarray, "sequence pos"],
) -> tuple[Float[np.ndarray, "sequence"], Float[np.ndarray, "sequence"]]:
    """Mean loss of each sequence's first and second copy, over the same tokens: the first of each copy cannot be copied."""
    return loss[:, : PERIOD - 1].mean(axis=1), loss[:, PERIOD:].mean(axis=1)


def verdict(scores_high: bool, gain: tuple[float, float], taken: float, by_random: float) -> Verdict:
    """`gain` is the interval of what the second copy is cheaper; `taken` and `by_random` are shares of the mean gain."""
    holds = [scores_high, gain[0] > GAIN, taken >= 0.5 and taken > 2 * by_random]
    return "reproduced" if all(holds) else "partly" if any(holds) else "refuted"


def copying(subject: Subject, evidence: Evidence) -> Outcome:
    """L1."""
    tokens, scores, heads = repeated(subject)[CHOOSING:], chosen(subject), induction_heads(subject)
    draw, others = np.random.default_rng(1), np.flatnonzero(~heads)
    by_chance = np.zeros((MEASURED, heads.size), bool)
    for row in by_chance:
        row[draw.choice(others, SILENCED, replace=False)] = True
    cases = {
        "whole": np.zeros((MEASURED, *heads.shape), bool),
        "induction out": np.repeat(heads[None], MEASURED, axis=0),
        "random out": by_chance.reshape(MEASURED, *heads.shape),
        "previous-token out": np.repeat(top(scores["previous"], SILENCED)[None], MEASURED, axis=0),
    }
    found = {name: look(subject, tokens, silenced) for name, silenced in cases.items()}
    plain, by_seed = found["whole"], {}
    best = {kind: np.unravel_index(scores[kind].argmax(), heads.shape) for kind in ("previous", "prefix")}
    for kind, words in (("previous", "previous-token"), ("prefix", "prefix-matching")):
        layer, head = best[kind]
        by_seed[f"{words} score, L{layer}H{head}"] = plain[kind][:, layer, head]
    high = all(mean_interval(x)[1][0] > HIGH for x in by_seed.values())
    two = {name: copies(each["loss"]) for name, each in found.items()}
    for name, (first, second) in two.items():
        by_seed |= {f"1st copy, {name}": first, f"2nd copy, {name}": second}
    gain, interval = mean_interval(two["whole"][0] - two["whole"][1])
    rise = {name: each[1] - two["whole"][1] for name, each in two.items() if name != "whole"}
    taken, between = mean_interval((rise["induction out"] - rise["random out"]) / gain)
    share = {name: float(each.mean()) / gain for name, each in rise.items()}
    said = verdict(high, interval, share["induction out"], share["random out"])
    (layer, head), (before, at) = best["prefix"], best["previous"]
    sentence = (
        f"{subject.name}: the second copy of {PERIOD} random words costs {gain:.2f} nats less than the first. Best scores: "
        f"{scores['prefix'].max():.2f} prefix-matching (L{layer}H{head}), {scores['previous'].max():.2f} previous-token "
        f"(L{before}H{at}). Silencing {SILENCED} induction heads of {heads.size} takes away "
        f"{share['induction out']:.0%} of the gain, {SILENCED} random others "
        f"{share['random out']:.0%}, {SILENCED} previous-token heads "
        f"{share['previous-token out']:.0%}; value: the first minus the second."
    )
    steps = np.arange(1, 2 * PERIOD)
    curves = {name: Curve.over_seeds(steps, each["loss"]) for name, each in found.items()}
    grids = {
        words: Grid.of(range(heads.shape[0]), range(heads.shape[1]), scores[kind])
        for kind, words in (("prefix", "prefix-matching"), ("previous", "previous-token"))
    }
    return Outcome(said, taken, between, sentence, by_seed, Pictures(curves=curves, grids=grids))
