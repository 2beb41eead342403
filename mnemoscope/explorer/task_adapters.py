"""What the explorer says and asks of a task: its words, prompts, world and skills.

The JavaScript half is `static/tasks.js`. A task without an adapter is shown all the same: in the
first line of its docstring, with sequences drawn from it, no oracle and no skills. A task from
elsewhere brings its own as ours do,

    register_adapter(CopyBack, Adapter(in_words=lambda task: "Say what stood 3 places ago."))

beside the class and not in it: what a class holds is its identity, and no word that is changed
should make anybody train again.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError
from mnemoscope.explorer.tours import Tour
from mnemoscope.models import Transformer
from mnemoscope.probes.skills import both_skills
from mnemoscope.tasks import Cycle, Permutation, Split, Task, Vocabulary

# mappings of a world; beyond, the oracle of the training mappings is left out
MAX_MAPPINGS = 1000
# tokens of a prompt for a model of which no sequences are known
FIRST_TOKENS = 8
# of a task of which the page knows no more: what random prompts and means are taken from
N_SAMPLES = 24


# ---- any task


def describe_task(task: Task) -> str:
    """What a task says of itself: the first line of its docstring, or its kind.

    Args:
        task: What a run was trained on.
    """
    text = inspect.cleandoc(type(task).__doc__ or "").split("\n\n")[0]
    return " ".join(text.split()) or f"The task {task.kind_name()!r}."


def make_preset(name: str, tokens: list[int], why: str) -> dict[str, Any]:
    """Name a prompt, and say what is to be seen with it."""
    return {"name": name, "tokens": tokens, "why": why}


def _make_sampled_presets(task: Task, world: Any) -> list[dict[str, Any]]:
    """A sequence of the task, and its start."""
    tokens = draw_samples(task, world)[0]
    return [
        make_preset("a training sequence", tokens, "Drawn from the task."),
        make_preset("its start", tokens[:1], "One token."),
    ]


def _export_samples(task: Task, world: Any) -> dict[str, Any]:
    """Export some sequences: the page cannot draw any of a task that it does not know."""
    return {"samples": draw_samples(task, world)}


def draw_samples(task: Task, world: Any) -> list[list[int]]:
    """Sequences as a model is trained on them, always the same ones."""
    keys = jax.random.split(jax.random.key(0), N_SAMPLES)
    drawn = jax.jit(jax.vmap(lambda key: task.sample(world, key=key).tokens))(keys)
    return np.asarray(drawn).tolist()


@dataclass(frozen=True)
class Adapter:
    """The Python half of a task's adapter; each of them may be left out."""

    in_words: Callable[[Any], str] = describe_task
    """From a task, what it asks of the model, with an example: one sentence or two."""
    draw_label: str = "a random training sequence"
    """The label of the button that draws a random prompt."""
    make_presets: Callable[[Any, Any], list[dict[str, Any]]] = _make_sampled_presets
    """From a task and a seed's world, prompts worth trying, each with name, tokens and why."""
    export_world: Callable[[Any, Any], Any] = _export_samples
    """From a task and a seed's world, what the page needs of it, as JSON."""
    measure_skills: Callable[[Any, Transformer, Any], dict[str, Array]] | None = None
    """From a task, a model and its world, accuracies by name; None: it has none."""
    tour: Tour | None = None
    """A guided tour; None: the one that a study has for the task."""


_adapters: dict[type[Task], Adapter] = {}


def register_adapter(task_type: Any, adapter: Adapter) -> None:
    """Say how the explorer presents a task; said again, it replaces what was said before.

    Args:
        task_type: The class of the task.
        adapter: Its words, prompts, world and skills.

    Raises:
        UserError: The first is not a class of tasks, but one of its objects perhaps.
    """
    if not (inspect.isclass(task_type) and issubclass(task_type, Task)):
        raise UserError(f"register_adapter takes a class of tasks, got {task_type!r}")
    _adapters[task_type] = adapter


def get_adapter(task: Task) -> Adapter:
    """Find the adapter of a task; a task without one gets that of any task.

    Args:
        task: What a run was trained on.
    """
    return _adapters.get(type(task), Adapter())


# ---- permutations


def _say_permutation(task: Permutation) -> str:
    """Pairs with an arrow, the last one open, and what may be answered."""
    order = [2, 5, 4, 3, 1] if task.n_symbols == 5 else [*range(1, task.n_symbols + 1)]
    values = [4, 3, 5, 2, 1] if task.n_symbols == 5 else [*order[1:], 1]
    unused = values[-1]
    shown = [f"{x}→{y}" for x, y in zip(order[:-1], values[:-1], strict=True)]
    pairs = "Pairs of a hidden permutation, and the last value is asked for: "
    if task.repeat:
        asked = f"{' '.join(shown)} {order[0]}→?"
        return f"{pairs}{asked}. It may recall {values[0]}, or eliminate and say {unused}."
    asked = f"{' '.join(shown)} {order[-1]}→?"
    return f"{pairs}{asked}. Only {unused} is left: it can be found by elimination."


def _make_permutation_presets(task: Permutation, world: Split) -> list[dict[str, Any]]:
    """A held-out mapping, whole and as a trap."""
    mapping = np.asarray(world.held_out)[0]
    tokens = [token for x, y in enumerate(mapping) for token in (x + 1, int(y) + 1)]
    return [
        make_preset(
            "a held-out mapping",
            tokens[: task.n_ctx],
            "A mapping that this seed never trained on, in order.",
        ),
        make_preset(
            "the trap",
            [*tokens[:-2], tokens[0]],
            "The first x again: recall its answer, or eliminate?",
        ),
    ]


def _export_split(task: Permutation, world: Split) -> dict[str, Any]:
    """Export the mappings: some of the held-out ones, and those of training where they are few."""
    exported = {}
    for name, mappings in world._asdict().items():
        is_shown = len(mappings) <= MAX_MAPPINGS or name == "held_out"
        exported[name] = np.asarray(mappings)[:MAX_MAPPINGS].tolist() if is_shown else []
    return exported


# ---- cycles


def _say_cycle(task: Cycle) -> str:
    """The cycle, and what follows."""
    names = task.token_names
    start = [names[i % task.n_symbols] for i in range(task.length)]
    answer = names[task.length % task.n_symbols]
    return (
        f"A pattern that repeats, and the next token is asked for: {' '.join(start)} ?. "
        f"It is {answer}, whatever came before the last token."
    )


def _make_cycle_presets(task: Cycle, world: tuple[()]) -> list[dict[str, Any]]:
    """Three parts of the cycle, and one token over and over."""
    names = task.token_names
    presets = []
    for sequence in task.sequences()[:3]:
        tokens = [int(token) for token in sequence[:-1]]
        name = "".join(names[token] for token in tokens)
        presets.append(make_preset(name, tokens, "A part of the cycle."))
    same = [0] * task.length
    presets.append(make_preset(names[0] * task.length, same, "A prompt that no training shows."))
    return presets


def _measure_accuracy(task: Cycle, model: Transformer, world: tuple[()]) -> dict[str, Array]:
    """Measure the accuracy over all sequences."""
    sequences = jnp.asarray(task.sequences())
    logits = jax.vmap(model)(sequences[:, :-1])
    return {"accuracy": (logits.argmax(axis=-1) == sequences[:, 1:]).mean()}


def _export_nothing(task: Task, world: tuple[()]) -> None:
    """The page needs nothing of such a world."""


# ---- models from elsewhere


def _say_vocabulary(task: Vocabulary) -> str:
    """All that is known of what such a model does."""
    return f"A model from elsewhere: it reads up to {task.n_ctx} of {task.d_vocab} tokens."


def _make_token_presets(task: Vocabulary, world: tuple[()]) -> list[dict[str, Any]]:
    """Tokens in the order of their numbers, and the first alone: nobody knows better ones."""
    n = min(task.n_ctx, task.d_vocab, FIRST_TOKENS)
    return [
        make_preset(f"the first {n} tokens", list(range(n)), "In the order of their numbers."),
        make_preset("the first token", [0], "One token."),
    ]


register_adapter(
    Permutation,
    Adapter(
        in_words=_say_permutation,
        draw_label="a random held-out sequence",
        make_presets=_make_permutation_presets,
        export_world=_export_split,
        measure_skills=both_skills,
    ),
)
register_adapter(
    Cycle,
    Adapter(
        in_words=_say_cycle,
        draw_label="a random part of the cycle",
        make_presets=_make_cycle_presets,
        export_world=_export_nothing,
        measure_skills=_measure_accuracy,
    ),
)
register_adapter(
    Vocabulary,
    Adapter(
        in_words=_say_vocabulary,
        draw_label="random tokens",
        make_presets=_make_token_presets,
        export_world=_export_nothing,
    ),
)
