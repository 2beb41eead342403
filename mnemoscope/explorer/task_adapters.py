"""What the explorer has to know of a task in Python: its world, its skills, and good prompts.

The JavaScript half is `static/tasks.js`. A task without an adapter is shown all the same, with no
oracle and no skills.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import both_skills
from mnemoscope.tasks import Cycle, Permutation, Split, Task, Vocabulary

# mappings of a world; beyond, the oracle of the training mappings is left out
MAX_MAPPINGS = 1000
# tokens of a prompt for a model of which no sequences are known
FIRST_TOKENS = 8


@dataclass(frozen=True)
class Adapter:
    """The Python half of a task's adapter.

    Attributes:
        draw_label: The label of the button that draws a random prompt.
        make_presets: From a task and a seed's world, prompts worth trying.
        export_world: From a seed's world, what the page needs of it, as JSON.
        measure_skills: From a task, a model and its world, accuracies by name; None: it has none.
    """

    draw_label: str
    make_presets: Callable[[Any, Any], list[dict[str, Any]]]
    export_world: Callable[[Any], Any]
    measure_skills: Callable[[Any, Transformer, Any], dict[str, Array]] | None


def get_adapter(task: Task) -> Adapter:
    """Find the adapter of a task; a task without one gets that of any task.

    Args:
        task: What a run was trained on.
    """
    return ADAPTERS.get(type(task), PLAIN)


def _make_preset(name: str, tokens: list[int], why: str) -> dict[str, Any]:
    """Name a prompt, and say what is to be seen with it."""
    return {"name": name, "tokens": tokens, "why": why}


def _export_nothing(world: Any) -> None:
    """The page needs nothing of such a world."""


# ---- permutations


def _make_permutation_presets(task: Permutation, world: Split) -> list[dict[str, Any]]:
    """A held-out mapping, whole and as a trap."""
    mapping = np.asarray(world.held_out)[0]
    tokens = [token for x, y in enumerate(mapping) for token in (x + 1, int(y) + 1)]
    return [
        _make_preset(
            "a held-out mapping",
            tokens[: task.n_ctx],
            "A mapping that this seed never trained on, in order.",
        ),
        _make_preset(
            "the trap",
            [*tokens[:-2], tokens[0]],
            "The first x again: recall its answer, or eliminate?",
        ),
    ]


def _export_split(world: Split) -> dict[str, Any]:
    """Export the mappings: some of the held-out ones, and those of training where they are few."""
    exported = {}
    for name, mappings in world._asdict().items():
        is_shown = len(mappings) <= MAX_MAPPINGS or name == "held_out"
        exported[name] = np.asarray(mappings)[:MAX_MAPPINGS].tolist() if is_shown else []
    return exported


# ---- cycles


def _make_cycle_presets(task: Cycle, world: tuple[()]) -> list[dict[str, Any]]:
    """Three parts of the cycle, and one token over and over."""
    names = task.token_names
    presets = []
    for sequence in task.sequences()[:3]:
        tokens = [int(token) for token in sequence[:-1]]
        name = "".join(names[token] for token in tokens)
        presets.append(_make_preset(name, tokens, "A part of the cycle."))
    same = [0] * task.length
    presets.append(_make_preset(names[0] * task.length, same, "A prompt that no training shows."))
    return presets


def _measure_accuracy(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """Measure the accuracy over all sequences."""
    sequences = jnp.asarray(task.sequences())
    logits = jax.vmap(model)(sequences[:, :-1])
    return {"accuracy": (logits.argmax(axis=-1) == sequences[:, 1:]).mean()}


# ---- models from elsewhere


def _make_token_presets(task: Vocabulary, world: tuple[()]) -> list[dict[str, Any]]:
    """Tokens in the order of their numbers, and the first alone: nobody knows better ones."""
    n = min(task.n_ctx, task.d_vocab, FIRST_TOKENS)
    return [
        _make_preset(f"the first {n} tokens", list(range(n)), "In the order of their numbers."),
        _make_preset("the first token", [0], "One token."),
    ]


# ---- any other task


def _make_plain_presets(task: Task, world: Any) -> list[dict[str, Any]]:
    """A sequence of the task, and its start."""
    tokens = np.asarray(task.sample(world, key=jax.random.key(0)).tokens).tolist()
    return [
        _make_preset("a training sequence", tokens, "Drawn from the task."),
        _make_preset("its start", tokens[:1], "One token."),
    ]


ADAPTERS: dict[type[Task], Adapter] = {
    Permutation: Adapter(
        draw_label="a random held-out sequence",
        make_presets=_make_permutation_presets,
        export_world=_export_split,
        measure_skills=both_skills,
    ),
    Cycle: Adapter(
        draw_label="a random part of the cycle",
        make_presets=_make_cycle_presets,
        export_world=_export_nothing,
        measure_skills=_measure_accuracy,
    ),
    Vocabulary: Adapter(
        draw_label="random tokens",
        make_presets=_make_token_presets,
        export_world=_export_nothing,
        measure_skills=None,
    ),
}
PLAIN = Adapter(
    draw_label="random tokens",
    make_presets=_make_plain_presets,
    export_world=_export_nothing,
    measure_skills=None,
)
