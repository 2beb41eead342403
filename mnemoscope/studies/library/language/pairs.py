"""L3: the permutation probe in words. Five colours, four animals with one each, and one of the animals again."""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models.language import LanguageModel
from mnemoscope.models.language.forward import read_out
from mnemoscope.studies.claims import Outcome, Verdict
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.subject import Subject, batches, padded, rows
from mnemoscope.studies.library.language.copying import induction_heads, silence
from mnemoscope.studies.statistics import MOST, share_interval

COLOURS = ("red", "blue", "green", "white", "black", "yellow", "brown", "pink", "orange", "purple")
ANIMALS = ("cat", "dog", "cow", "pig", "horse", "sheep", "goat", "duck", "fox", "bear", "lion", "wolf")
PROMPTS, NAMED, SHOWN = 100, 5, 4
BATCH = 10


def prompts() -> list[tuple[str, str, tuple[str, ...]]]:
    """A shown animal asked again, a new one asked, and the colours: the right one first, then the unused one, then the others."""
    draw, found = np.random.default_rng(0), []
    for number in range(PROMPTS):
        named, animals = draw.choice(COLOURS, NAMED, replace=False), draw.choice(ANIMALS, SHOWN + 1, replace=False)
        given, asked = draw.permutation(named), number % SHOWN
        lines = "".join(f"{animal}: {colour}\n" for animal, colour in zip(animals[:SHOWN], given[:SHOWN], strict=True))
        head = f"The colors are {', '.join(named[:-1])} and {named[-1]}. Each animal has one.\n{lines}"
        others = [str(c) for i, c in enumerate(given) if i not in (asked, SHOWN)]
        colours = (str(given[asked]), str(given[SHOWN]), *others)
        found.append((f"{head}{animals[asked]}:", f"{head}{animals[SHOWN]}:", colours))
    return found


def _last(model: LanguageModel, batch: tuple[Array, Array, Array, Array]) -> Array:
    """Log-probabilities of the colours after each prompt."""

    def one(tokens: Array, at: Array, silenced: Array) -> Array:
        return model.run_with_trace(tokens, silence(model, silenced))[1]["ln_final.hook_normalized"][at]

    tokens, last, colours, silenced = batch
    told = jax.nn.log_softmax(read_out(model.config, model.params, jax.vmap(one)(tokens, last, silenced)))
    return jax.numpy.take_along_axis(told, colours, axis=1)


def answers(
    subject: Subject,
    texts: list[str],
    colours: Int[np.ndarray, "prompt colour"],
    silenced: Bool[np.ndarray, "layer head"],
) -> Float[np.ndarray, "prompt colour"]:
    """Probabilities of the colours after each text, as shares of all of them together."""
    tokens, last = padded([subject.tokenizer.encode(text) for text in texts])
    each = (tokens, last, colours, np.repeat(silenced[None], len(texts), axis=0))
    told = rows(subject.program(_last, -(-len(texts) // BATCH))(batches(each, BATCH)), len(texts))
    p = np.exp(told)
    return p / p.sum(axis=1, keepdims=True)


def verdict(shown: float, unused: float) -> Verdict:
    """From the shares of prompts in which each is answered."""
    return "reproduced" if shown >= MOST else "refuted" if unused >= shown else "partly"


def recalled(subject: Subject, evidence: Evidence) -> Outcome:
    """L3."""
    again, new, words = (list(x) for x in zip(*prompts(), strict=True))
    colours = np.array([[subject.tokenizer.encode(f" {word}")[0] for word in row] for row in words])
    heads = induction_heads(subject)
    nothing = np.zeros_like(heads)
    asked = {
        "asked again": answers(subject, again, colours, nothing), "fifth animal": answers(subject, new, colours, nothing),
        "induction out": answers(subject, again, colours, heads),
    }  # fmt: skip
    picks = {name: (p.argmax(axis=1) == 0, p.argmax(axis=1) == 1) for name, p in asked.items()}
    share, interval = share_interval(picks["asked again"][0])
    unused = {name: float(each[1].mean()) for name, each in picks.items()}
    without = float(picks["induction out"][0].mean())
    by_place = ", ".join(f"{picks['asked again'][0][i::SHOWN].mean():.0%}" for i in range(SHOWN))
    sentence = (
        f"{subject.name}: asked for an animal again, it answers the shown colour in {share:.0%} of {PROMPTS} prompts (first to "
        f"fourth pair: {by_place}) and the unused one in {unused['asked again']:.0%}; for a fifth animal it answers the unused "
        f"one in {unused['fifth animal']:.0%} (chance {1 / NAMED:.0%}). With L1's induction heads silenced it "
        f"recalls in {without:.0%}."
    )
    by_seed = {f"shown, {n}": p[:, 0] for n, p in asked.items() if n != "fifth animal"}
    by_seed |= {f"unused, {n}": p[:, 1] for n, p in asked.items()}
    return Outcome(verdict(share, unused["asked again"]), share, interval, sentence, by_seed)
