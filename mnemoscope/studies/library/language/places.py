"""What N4 measures: "Madrid is located in", with less and less of one late feed-forward layer."""

import csv
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Params
from mnemoscope.models import Transformer, replace_site, unembed
from mnemoscope.probes.truncation import keep_rank
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.measurement import InconclusiveError, Measurement, among
from mnemoscope.studies.plot_data import Grid, Plots

PARTS = (0.0, 0.01, 0.1, 0.5)  # of the full rank that is kept
BATCH = 16  # prompts at once on a core
ENOUGH = 20  # prompts that must begin with the common word above the place
WORDS = ("place", "the")  # what is asked after each prompt, in this order
Case = tuple[int, float]  # a layer, and the part of its rank that is kept


class Answer(NamedTuple):
    """What the model says of the place and of the common word, in the order of WORDS."""

    log_p: Float[np.ndarray, "prompt word"]
    """Log-probability of each word after each prompt."""
    rank: Float[np.ndarray, "prompt word"]
    """How many tokens are more probable: 0 is the most probable one."""

    @property
    def odds(self) -> Float[np.ndarray, "prompt"]:
        """log P(place) - log P(the)."""
        return self.log_p[:, 0] - self.log_p[:, 1]


class Answers(NamedTuple):
    """The answers of every case that is measured."""

    before: Answer
    """The model as it is."""
    cut: dict[Case, Answer]
    """One W_out at one rank."""
    ablated: Answer
    """All late feed-forward layers at zero."""

    def rise(self, case: Case) -> Float[np.ndarray, "prompt"]:
        """How much a cut moves the odds towards the place."""
        return self.cut[case].odds - self.before.odds


def places() -> list[tuple[str, str]]:
    """Cities and the countries they are in."""
    folder = resources.files("mnemoscope.studies.library.language")
    text = folder.joinpath("places.csv").read_text(encoding="utf-8")
    return [(city, country) for city, country in csv.reader(text.splitlines())]


def late(n_layers: int) -> range:
    """The last third of the layers."""
    return range(n_layers - n_layers // 3, n_layers)


def _streams(model: Transformer, tokens: Array) -> Array:
    """What reaches the first late layer."""
    at = f"blocks.{late(model.config.n_layers)[0]}.hook_resid_pre"
    return jax.vmap(lambda row: model.run_with_trace(row)[1][at])(tokens)


def _answers(model: Transformer, batch: dict[str, Array]) -> Array:
    """From there on: log P and rank of the place and of the common word, (prompt, word, 2)."""
    tail = model.after(late(model.config.n_layers)[0])

    def last(stream: Array, at: Array, silent: Array) -> Array:
        edits = [replace_site("hook_embed", stream)]
        edits += [
            replace_site(f"blocks.{i}.hook_mlp_out", jnp.zeros((1, 1)), silent[None, None])
            for i in range(tail.config.n_layers)
        ]
        tokens = jnp.zeros(stream.shape[0], int)  # not looked at: the stream takes their place
        trace = tail.run_with_trace(tokens, edits)[1]
        return trace[f"blocks.{tail.config.n_layers - 1}.hook_resid_post"][at]

    seen = jax.vmap(last)(batch["stream"], batch["last"], batch["silent"])
    log_p = jax.nn.log_softmax(unembed(model.config, model.params, seen))
    asked = jnp.take_along_axis(log_p, batch["asked"], axis=1)
    ranks = (log_p[:, None] > asked[:, :, None]).sum(axis=2)
    return jnp.stack([asked, ranks.astype(float)], axis=2)


def _measured(subject: Subject, pairs: list[tuple[str, str]]) -> Answers:
    """What is answered as it is, at every rank of every late W_out, and with all of them silent."""
    model = subject.model
    encode = subject.tokenizer.encode
    n = len(pairs)
    tokens, last = padded([encode(f"{city} is located in") for city, _ in pairs])
    asked = np.array([[encode(f" {country}")[0], encode(" the")[0]] for _, country in pairs])
    # the layers before the first late one are the same in all cases: they run once
    stream = subject.map_rows(_streams, tokens, BATCH)
    program = subject.program(_answers, -(-n // BATCH))

    def answer(changed: Params | None = None, silent: bool = False) -> Answer:
        silents = np.full(n, silent)
        parts = {"stream": stream, "last": last, "silent": silents, "asked": asked}
        found = rows(program(batches(parts, BATCH), changed), n)
        return Answer(found[..., 0], found[..., 1])

    cuts: dict[Case, Answer] = {}
    cut = jax.jit(jax.vmap(keep_rank, (None, 0)))  # one decomposition for all ranks
    for layer in late(model.config.n_layers):
        name = f"blocks.{layer}.mlp.W_out"
        matrix = np.asarray(model.params[name])
        ranks = np.array([round(part * min(matrix.shape)) for part in PARTS])
        for part, kept in zip(PARTS, np.asarray(cut(matrix, ranks)), strict=True):
            cuts[layer, part] = answer({name: kept})
    return Answers(answer(), cuts, answer(silent=True))


def _by_prompt(
    cases: dict[str, Answer], held: Bool[np.ndarray, "prompt"]
) -> dict[str, Float[np.ndarray, "held"]]:
    """Probabilities, ranks and odds of the prompts that were held out, for the figures."""
    found: dict[str, np.ndarray] = {}
    for i, word in enumerate(WORDS):
        for name, answer in cases.items():
            found[f"P({word}), {name}"] = np.exp(answer.log_p[held, i])
    for i, word in enumerate(WORDS):
        for name, answer in cases.items():
            found[f"rank of {word}, {name}"] = 1 + answer.rank[held, i]
    for name in ("before", "after"):
        found[f"log-odds {name}"] = cases[name].odds[held]
    return found


def _grids(answers: Answers, layers: range, held: Bool[np.ndarray, "prompt"]) -> dict[str, Grid]:
    """The mean rise of the odds and the mean P(place), by layer and by part of the rank."""
    rise = [[answers.rise((layer, part))[held].mean() for part in PARTS] for layer in layers]
    p_place = [
        [np.exp(answers.cut[layer, part].log_p[held, 0]).mean() for part in PARTS]
        for layer in layers
    ]
    columns = [f"{part:.0%}" for part in PARTS]
    return {
        "rise": Grid.of(layers, columns, np.array(rise)),
        "P(place)": Grid.of(layers, columns, np.array(p_place)),
    }


def _beside(
    answers: Answers, best: Case, held: Bool[np.ndarray, "prompt"], madrid: int
) -> dict[str, Any]:
    """What has no weight in the verdict."""
    before = answers.before
    after = answers.cut[best]
    every = np.mean([answers.rise(case)[held] for case in answers.cut], axis=0)
    parts: dict[str, Any] = {
        "layer": best[0],
        "rank": best[1],
        "odds rise, mean of all cuts": every,
        "odds rise, all late layers ablated": (answers.ablated.odds - before.odds)[held],
    }
    for i, word in enumerate(("the place", "the common word")):
        for when, answer in (("before", before), ("after", after)):
            p = np.exp(answer.log_p[:, i])
            parts[f"P of {word} {when}"] = p[held]
            parts[f"Madrid: P of {word} {when}"] = p[madrid]
    return parts


def measure_places(subject: Subject, evidence: Evidence) -> Measurement:
    """N4: what cutting one late W_out does to P(place) and to its odds against "the".

    Layer and rank are chosen on every second prompt and measured on the others.

    Args:
        subject: the model that is asked.
        evidence: nothing: no model is trained.
    """
    pairs = places()
    answers = _measured(subject, pairs)
    before = answers.before
    held = np.arange(len(pairs)) % 2 == 1
    choosing = ~held
    best = max(answers.cut, key=lambda case: float(answers.rise(case)[choosing].mean()))
    after = answers.cut[best]
    common = held & (before.odds < 0)
    if common.sum() < ENOUGH:
        raise InconclusiveError(
            f'{subject.name}: "the" is above the place in only {common.sum()} '
            f"of {held.sum()} prompts."
        )
    place = np.exp(after.log_p[:, 0]) - np.exp(before.log_p[:, 0])
    madrid = [city for city, _ in pairs].index("Madrid")
    parts = {
        "P(place) rises": place[held],
        "odds rise": answers.rise(best)[held],
        "place ahead": among(common[held], after.odds[held] > 0),
    }
    parts |= _beside(answers, best, held, madrid)
    cases = {"before": before, "after": after, "all late ablated": answers.ablated}
    plots = Plots(grids=_grids(answers, late(subject.model.config.n_layers), held))
    return Measurement(parts, _by_prompt(cases, held), plots, subject.note)
