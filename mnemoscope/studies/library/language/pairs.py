"""What L3 measures: the permutation probe in words.

Five colors, four animals with one each, and one of the animals again.
"""

import jax
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int
from mnemoscope.models import Transformer, unembed
from mnemoscope.studies.evidence import Evidence
from mnemoscope.studies.library.language.copying_heads import ablate, induction_heads
from mnemoscope.studies.library.language.subject import Subject, padded
from mnemoscope.studies.measurement import Measurement, among
from mnemoscope.studies.scales import FRESH_SEED, Scale

COLORS = (
    "red",
    "blue",
    "green",
    "white",
    "black",
    "yellow",
    "brown",
    "pink",
    "orange",
    "purple",
)
ANIMALS = (
    "cat",
    "dog",
    "cow",
    "pig",
    "horse",
    "sheep",
    "goat",
    "duck",
    "fox",
    "bear",
    "lion",
    "wolf",
)
# how many prompts, and by which seed they are drawn
PROMPTS: dict[Scale, tuple[int, int]] = {"quick": (100, 0), "full": (1000, FRESH_SEED)}
NAMED = 5  # colors
SHOWN = 4  # animals with their colors
BATCH = 10


def prompts(scale: Scale) -> list[tuple[str, str, tuple[str, ...]]]:
    """A shown animal asked again, a new one asked, and the colors.

    Of the colors the right one comes first, then the unused one, then the others.

    Args:
        scale: Says how many prompts are drawn, and which.
    """
    n_prompts, seed = PROMPTS[scale]
    draw = np.random.default_rng(seed)
    found = []
    for number in range(n_prompts):
        named = draw.choice(COLORS, NAMED, replace=False)
        animals = draw.choice(ANIMALS, SHOWN + 1, replace=False)
        given = draw.permutation(named)
        asked = number % SHOWN
        shown = zip(animals[:SHOWN], given[:SHOWN], strict=True)
        lines = "".join(f"{animal}: {color}\n" for animal, color in shown)
        intro = f"The colors are {', '.join(named[:-1])} and {named[-1]}. Each animal has one."
        head = f"{intro}\n{lines}"
        others = [str(c) for i, c in enumerate(given) if i not in (asked, SHOWN)]
        colors = (str(given[asked]), str(given[SHOWN]), *others)
        found.append((f"{head}{animals[asked]}:", f"{head}{animals[SHOWN]}:", colors))
    return found


def _last(model: Transformer, batch: tuple[Array, Array, Array, Array]) -> Array:
    """Log-probabilities of the colors after each prompt."""

    def one(tokens: Array, at: Array, ablated: Array) -> Array:
        _, trace = model.run_with_trace(tokens, ablate(model, ablated))
        return trace[f"blocks.{model.config.n_layers - 1}.hook_resid_post"][at]

    tokens, last, colors, ablated = batch
    stream = jax.vmap(one)(tokens, last, ablated)
    log_p = jax.nn.log_softmax(unembed(model.config, model.params, stream))
    return jax.numpy.take_along_axis(log_p, colors, axis=1)


def answers(
    subject: Subject,
    texts: list[str],
    colors: Int[np.ndarray, "prompt color"],
    ablated: Bool[np.ndarray, "layer head"],
) -> Float[np.ndarray, "prompt color"]:
    """Probabilities of the colors after each text, as shares of all of them together.

    Args:
        subject: The model.
        texts: One prompt each.
        colors: The first token of every color, prompt by prompt.
        ablated: Heads whose outputs are zero.
    """
    tokens, last = padded([subject.tokenizer.encode(text) for text in texts])
    in_all = np.repeat(ablated[None], len(texts), axis=0)
    p = np.exp(subject.map_rows(_last, (tokens, last, colors, in_all), BATCH))
    return p / p.sum(axis=1, keepdims=True)


def measure_recall(subject: Subject, evidence: Evidence) -> Measurement:
    """L3: in which prompts the shown color is answered, and in which the unused one.

    Args:
        subject: the model that is asked.
        evidence: says the scale; no model is trained.
    """
    again, new, words = (list(x) for x in zip(*prompts(evidence.scale), strict=True))
    encode = subject.tokenizer.encode
    colors = np.array([[encode(f" {word}")[0] for word in row] for row in words])
    heads = induction_heads(subject, evidence.scale)
    nothing = np.zeros_like(heads)
    asked = {
        "asked again": answers(subject, again, colors, nothing),
        "fifth animal": answers(subject, new, colors, nothing),
        "induction out": answers(subject, again, colors, heads),
    }
    picks = {name: p.argmax(axis=1) for name, p in asked.items()}  # 0: shown, 1: unused
    shown = picks["asked again"] == 0
    unused = picks["asked again"] == 1
    parts = {
        "recalls": shown,
        "rather than the unused one": shown.astype(float) - unused,
        "unused": unused,
        "unused for a fifth animal": picks["fifth animal"] == 1,
        "recalls without induction heads": picks["induction out"] == 0,
    }
    pair = np.arange(len(shown)) % SHOWN
    for i in range(SHOWN):
        parts[f"recalls pair {i + 1}"] = among(pair == i, shown)
    by_seed = {f"shown, {name}": p[:, 0] for name, p in asked.items() if name != "fifth animal"}
    by_seed |= {f"unused, {name}": p[:, 1] for name, p in asked.items()}
    return Measurement(parts, by_seed, note=subject.note)
