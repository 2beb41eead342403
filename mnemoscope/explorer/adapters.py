"""What the explorer has to know of a task on the Python side: its world as plain lists, its skills, and good prompts.

The JavaScript half is `tasks.js`. A task without an adapter is shown all the same, with no oracle and no skills.
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
from mnemoscope.tasks import Cycle, Permutation, Split, Task

MOST_MAPPINGS = 1000  # of a world; beyond, the oracle of the training mappings is left out


@dataclass(frozen=True)
class Adapter:
    """The Python half of a task's adapter."""

    draws: str  # the label of the button that draws a prompt
    presets: Callable[[Any, Any], list[dict[str, Any]]]
    world: Callable[[Any], Any]
    skills: Callable[[Any, Transformer, Any], dict[str, Array]] | None


def _preset(name: str, tokens: list[int], why: str) -> dict[str, Any]:
    return {"name": name, "tokens": tokens, "why": why}


def _permutation_presets(task: Permutation, world: Split) -> list[dict[str, Any]]:
    v, mapping = task.n_symbols, np.asarray(world.held_out)[0]
    pairs = [[x + 1, int(mapping[x]) + 1] for x in range(v)]
    flat = [token for pair in pairs for token in pair]
    whole, trap = flat[: task.n_ctx], [*flat[:-2], flat[0]]
    found = [_preset("a held-out mapping", whole, "A mapping that this seed never trained on, in order."),
             _preset("the trap", trap, "The first x again: recall its answer, or eliminate?")]  # fmt: skip
    if v == 5:
        found = [
            _preset("the source's trap", [2, 4, 5, 3, 4, 5, 3, 2, 2],
                    "The source's probe: the small model answers the unused 1, the larger one recalls 4."),
            _preset("the source's example", [2, 3, 1, 5, 4, 4, 3, 2, 5], "The source's example of elimination, step by step."),
            *found,
        ]  # fmt: skip
    return found


def _permutation_world(world: Split) -> dict[str, Any]:
    return {name: np.asarray(part)[:MOST_MAPPINGS].tolist() if len(part) <= MOST_MAPPINGS or name == "held_out" else []
            for name, part in world._asdict().items()}  # fmt: skip


def _cycle_presets(task: Cycle, world: tuple[()]) -> list[dict[str, Any]]:
    rows = [[int(t) for t in row[:-1]] for row in task.sequences()]
    names = task.token_names
    return [_preset("".join(names[t] for t in row), row, "A stretch of the cycle.") for row in rows[:3]] + [
        _preset(names[0] * task.length, [0] * task.length, "A prompt that no training shows.")
    ]


def _cycle_skills(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    sequences = jnp.asarray(task.sequences())
    logits = jax.vmap(model)(sequences[:, :-1])
    return {"right": (logits.argmax(axis=-1) == sequences[:, 1:]).mean()}


def _any_presets(task: Task, world: Any) -> list[dict[str, Any]]:
    tokens = np.asarray(task.sample(world, key=jax.random.key(0)).tokens).tolist()
    return [
        _preset("a training sequence", tokens, "Drawn from the task."),
        _preset("its start", tokens[:1], "One token."),
    ]


ADAPTERS: dict[type[Task], Adapter] = {
    Permutation: Adapter("a random held-out sequence", _permutation_presets, _permutation_world, both_skills),
    Cycle: Adapter("a random stretch", _cycle_presets, lambda world: None, _cycle_skills),
}
PLAIN = Adapter("random tokens", _any_presets, lambda world: None, None)


def adapter(task: Task) -> Adapter:
    """The adapter of a task."""
    return ADAPTERS.get(type(task), PLAIN)
