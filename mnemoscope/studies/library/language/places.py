"""N4: "Madrid is located in", with less and less of one late feed-forward layer."""

import csv
from importlib import resources

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Float, Params
from mnemoscope.models import replace
from mnemoscope.models.language import LanguageModel
from mnemoscope.models.language.forward import read_out
from mnemoscope.probes.truncation import keep_rank
from mnemoscope.studies.claims import Grid, NotSettledError, Outcome, Pictures, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.statistics import Interval, mean_interval

PARTS = (0.0, 0.01, 0.1, 0.5)  # of the full rank that is kept
BATCH = 16  # prompts at once on a core
ENOUGH = 20  # prompts that must begin with the common word above the place


def places() -> list[tuple[str, str]]:
    """Cities and the countries they are in."""
    text = resources.files("mnemoscope.studies.library.language").joinpath("places.csv").read_text(encoding="utf-8")
    return [(city, country) for city, country in csv.reader(text.splitlines())]


def late(n_layers: int) -> range:
    """The last third of the layers."""
    return range(n_layers - n_layers // 3, n_layers)


def _streams(model: LanguageModel, tokens: Array) -> Array:
    """What reaches the first late layer."""
    at = f"blocks.{late(model.config.n_layers)[0]}.hook_resid_pre"
    return jax.vmap(lambda row: model.run_with_trace(row)[1][at])(tokens)


def _answers(model: LanguageModel, batch: dict[str, Array]) -> Array:
    """From there on: log P and rank (0 is the most probable) of the place and of the common word, (prompt, 2, 2)."""
    tail = model.after(late(model.config.n_layers)[0])

    def last(stream: Array, at: Array, silent: Array) -> Array:
        edits = [replace("hook_embed", stream)]
        edits += [
            replace(f"blocks.{i}.hook_mlp_out", jnp.zeros((1, 1)), silent[None, None])
            for i in range(tail.config.n_layers)
        ]
        tokens = jnp.zeros(stream.shape[0], int)  # not looked at: the stream takes their place
        return tail.run_with_trace(tokens, edits)[1]["ln_final.hook_normalized"][at]

    seen = jax.vmap(last)(batch["stream"], batch["last"], batch["silent"])
    told = jax.nn.log_softmax(read_out(model.config, model.params, seen))
    asked = jnp.take_along_axis(told, batch["asked"], axis=1)
    ranks = (told[:, None] > asked[:, :, None]).sum(axis=2)
    return jnp.stack([asked, ranks.astype(float)], axis=2)


def verdict(rises: Interval, odds: Interval, flipped: float) -> Verdict:
    """`rises` and `odds` are intervals of the rise of P(place) and of log P(place) - log P(the)."""
    if rises[0] > 0 and flipped >= 0.5:
        return "reproduced"
    return "partly" if odds[0] > 0 else "refuted"


def located(subject: Subject, evidence: Evidence) -> Outcome:
    """N4."""
    model, encode, pairs = subject.model, subject.tokenizer.encode, places()
    tokens, last = padded([encode(f"{city} is located in") for city, _ in pairs])
    asked = np.array([[encode(f" {country}")[0], encode(" the")[0]] for _, country in pairs])
    n, layers = len(pairs), late(model.config.n_layers)
    streams = subject.program(_streams, -(-n // BATCH))(batches(tokens, BATCH))
    program = subject.program(_answers, -(-n // BATCH))

    def answers(changed: Params | None = None, silent: bool = False) -> Float[np.ndarray, "prompt word what"]:
        parts = {"stream": rows(streams, n), "last": last, "silent": np.full(n, silent), "asked": asked}
        return rows(program(batches(parts, BATCH), changed), n)

    def odds(found: np.ndarray) -> np.ndarray:
        return found[:, 0, 0] - found[:, 1, 0]

    before, after = answers(), {}
    cut = jax.jit(jax.vmap(keep_rank, (None, 0)))  # one decomposition for all ranks
    for layer in layers:
        name = f"blocks.{layer}.mlp.W_out"
        ranks = np.array([round(part * min(model.params[name].shape)) for part in PARTS])
        kept = zip(PARTS, np.asarray(cut(np.asarray(model.params[name]), ranks)), strict=True)
        after |= {(layer, part): answers({name: matrix}) for part, matrix in kept}
    choosing, held = np.arange(n) % 2 == 0, np.arange(n) % 2 == 1
    rise = {case: odds(found) - odds(before) for case, found in after.items()}
    layer, part = max(rise, key=lambda case: float(rise[case][choosing].mean()))
    best, silent = after[layer, part], answers(silent=True)
    common = held & (odds(before) < 0)
    if common.sum() < ENOUGH:
        raise NotSettledError(
            f'{subject.name}: "the" is above the place in only {common.sum()} of {held.sum()} prompts.'
        )
    flipped = float((odds(best)[common] > 0).mean())
    value, interval = mean_interval(rise[layer, part][held])
    p = {
        name: np.exp(found[held][..., 0])
        for name, found in (("before", before), ("after", best), ("all late silenced", silent))
    }
    more = mean_interval(p["after"][:, 0] - p["before"][:, 0])
    by_seed = {f"P({word}), {name}": each[:, i] for i, word in enumerate(("place", "the")) for name, each in p.items()}
    cases = (("before", before), ("after", best), ("all late silenced", silent))
    by_seed |= {
        f"rank of {word}, {name}": 1 + f[held, i, 1] for i, word in enumerate(("place", "the")) for name, f in cases
    }
    by_seed |= {"log-odds before": odds(before)[held], "log-odds after": odds(best)[held]}
    madrid = [city for city, _ in pairs].index("Madrid")
    went = " to ".join(f"{np.exp(x[madrid, 0, 0]):.3f} against {np.exp(x[madrid, 1, 0]):.3f}" for x in (before, best))
    every = np.mean([each[held] for each in rise.values()], axis=0)
    all_silent = (odds(silent) - odds(before))[held].mean()
    (place, the), (place_after, the_after) = p["before"].mean(axis=0), p["after"].mean(axis=0)
    sentence = (
        f"{subject.name}: W_out of layer {layer} at {part:.0%} of its rank moves log P(place) - log P(the) by {value:+.2f} in "
        f"{held.sum()} other prompts (mean over all late layers and ranks {every.mean():+.2f}; all late layers silenced "
        f"{all_silent:+.2f}); P(place) {place:.3f} to {place_after:.3f}, P(the) {the:.3f} to {the_after:.3f}; of "
        f"{common.sum()} with 'the' ahead {flipped:.0%} have the place ahead afterwards. Madrid, Spain against the: {went}."
    )
    grid = np.array([[rise[i, k][held].mean() for k in PARTS] for i in layers])
    places_ahead = np.array([[np.exp(after[i, k][held, 0, 0]).mean() for k in PARTS] for i in layers])
    columns = [f"{k:.0%}" for k in PARTS]
    grids = {"rise": Grid.of(layers, columns, grid), "P(place)": Grid.of(layers, columns, places_ahead)}
    return Outcome(verdict(more[1], interval, flipped), value, interval, sentence, by_seed, Pictures(grids=grids))
