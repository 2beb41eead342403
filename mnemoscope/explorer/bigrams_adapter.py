"""Text with triggers as the explorer presents it; `static/bigrams_task.js` is the other half."""

from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.explorer.task_adapters import Adapter, draw_samples, make_preset, register_adapter
from mnemoscope.models import Transformer
from mnemoscope.models.consumer_support import as_transformer
from mnemoscope.probes import weight_memories
from mnemoscope.probes.distraction import distraction
from mnemoscope.tasks import Bigrams
from mnemoscope.training.metrics import SAMPLE, bigrams

BEGINNING = 16  # tokens of a sequence that is offered as a prompt
# what is shown of what is read of two heads, as accuracy is: from 0 to 1; by the page's short names
MEMORIES = {
    "output memory": "output memory",
    "second keys": "second keys",
    "first keys": "first keys among early positions",
}


def _say_text(task: Bigrams) -> str:
    """What follows what, with an example."""
    names = task.token_names
    if task.triggers == "random":
        which = f"{task.n_triggers} characters, others in every sequence,"
        example = ""
    else:
        shown = [names[token] for token in task.fixed_triggers]
        which = " ".join(shown)
        example = _example(task)
    verb = "is" if task.n_triggers == 1 else "are"
    said = (
        f"Text with the letter pairs of a corpus, in which {which} {verb} always followed by what "
        f"followed before in the same sequence.{example}"
    )
    if task.noise:
        noise = names[task.noise_token]
        said += f" But in training “{noise}” comes instead {task.noise:.0%} of the time."
    return said


def _example(task: Bigrams) -> str:
    """Two pairs and a question, of a trigger and another character."""
    others = [token for token in range(task.d_vocab) if token not in task.fixed_triggers]
    if not task.fixed_triggers or len(others) < 2:
        return ""
    names = task.token_names
    trigger = names[task.fixed_triggers[0]]
    output, other = (names[token] for token in others[-2:])
    return f" After {trigger} {output} {other} {trigger} comes {output}."


def _make_presets(task: Bigrams, world: tuple[()]) -> list[dict[str, Any]]:
    """The beginning of a sequence of the task, up to where it can be answered."""
    tokens = np.array(draw_samples(task, world)[0])
    triggers = np.array(task.fixed_triggers if task.triggers == "fixed" else tokens)
    seen = [
        at
        for at in range(1, len(tokens))
        if tokens[at] in triggers and tokens[at] in tokens[:at].tolist()
    ]
    end = next((at + 1 for at in seen if at + 1 >= BEGINNING), min(BEGINNING, len(tokens)))
    said = "Drawn from the task, up to a character whose follower is known."
    return [make_preset("a training sequence", tokens[:end].tolist(), said)]


def _export_text(task: Bigrams, world: tuple[()]) -> dict[str, Any]:
    """Sequences, and what a reader knows of them beforehand."""
    return {
        "samples": draw_samples(task, world),
        "triggers": list(task.fixed_triggers) if task.triggers == "fixed" else None,
        "is_uniform": task.outputs == "uniform",
        "noise_token": task.noise_token if task.noise else None,
    }


def _measure_text(task: Bigrams, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """Accuracy where the context knows, without noise; and memories, where they can be read."""
    config = as_transformer(model.config, "the explorer")
    if task.noise:
        return {"accuracy": distraction(task, model, SAMPLE)["accuracy"]}
    found = bigrams(task, model, world)
    if not weight_memories.has_two_heads(config):
        return {"accuracy": found["accuracy"]}
    memories = {name: found[read] for name, read in MEMORIES.items()}
    return {"accuracy": found["accuracy"], **memories}


register_adapter(
    Bigrams,
    Adapter(
        in_words=_say_text,
        draw_label="a random training sequence",
        make_presets=_make_presets,
        export_world=_export_text,
        measure_skills=_measure_text,
    ),
)
