"""Which model is walked, and which prompt.

The ABC model, trained when it is not there yet, or any stored run.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.execution.local import load_or_train
from mnemoscope.execution.machine import compile_cache_dir, use_all_devices
from mnemoscope.probes.walk import Walk, walk
from mnemoscope.store import Store
from mnemoscope.studies.library.walk.conditions import ABC, build_conditions
from mnemoscope.tasks import Cycle
from mnemoscope.training.run import Run


@dataclass(frozen=True)
class Chosen:
    """One seed of one run, at one snapshot."""

    name: str
    """The model in words."""
    run: Run
    seed: int
    """One of the run's own."""
    snapshot: int
    """Its number; -1 is the end of training."""


def chosen(
    store: Store,
    run_id: str,
    seed: int | None,
    snapshot: int,
    progress: Callable[[int, int], None] | None = None,
) -> Chosen:
    """The model asked for.

    Args:
        store: Where runs are.
        run_id: The beginning of a stored run's id; empty means the ABC model of the walk study.
        seed: None means the run's first.
        snapshot: Its number; -1 is the end of training.
        progress: Hears of a training that the ABC model needs.
    """
    if run_id:
        row = store.find(run_id)
        run = store.load(row)
        name = f"run {row.id}"
    else:
        use_all_devices(compile_cache_dir())
        condition = build_conditions("quick")[ABC]
        run = load_or_train(store, condition.spec, range(condition.seeds), progress)
        name = "the ABC model"
    picked = run.seeds[0] if seed is None else seed
    run.model(picked)  # says which seeds there are
    kept = len(run.spec.snapshot_steps())
    if not -kept <= snapshot < kept:
        raise UserError(
            f"no snapshot {snapshot} in this run; allowed: 0 to {kept - 1}, or -1 for the end"
        )
    return Chosen(name, run, picked, snapshot)


def tokens_of(names: tuple[str, ...], n_ctx: int, prompt: str) -> list[int]:
    """A prompt as token numbers.

    Args:
        names: Of the tokens, in order.
        n_ctx: Tokens that a prompt may have.
        prompt: Tokens with spaces between; without, where every name is one character.
    """
    words = prompt.split()
    if max(map(len, names)) == 1:
        words = list("".join(words))
    allowed = f"allowed: 1 to {n_ctx} of {' '.join(names)}"
    if not words:
        raise UserError(f"the prompt is empty; {allowed}")
    for word in words:
        if word not in names:
            raise UserError(f"unknown token {word!r} in the prompt {prompt!r}; {allowed}")
    if len(words) > n_ctx:
        raise UserError(f"the prompt {prompt!r} has {len(words)} tokens; {allowed}")
    return [names.index(word) for word in words]


@fixed_numerics()
def walked(model: Chosen, prompt: str | None) -> Walk:
    """The walk of a prompt; none given means the task's own example."""
    task = model.run.spec.task
    if prompt is not None:
        tokens = tokens_of(task.token_names, task.n_ctx, prompt)
    elif isinstance(task, Cycle):
        tokens = list(range(task.n_symbols))[: task.n_ctx]
    else:
        example = task.sample(model.run.world(model.seed), key=jax.random.key(0))
        tokens = np.asarray(example.tokens).tolist()
    return walk(model.run.model(model.seed, model.snapshot), tokens, task.token_names)


def title(model: Chosen, found: Walk) -> str:
    """What is walked, in one line."""
    spec = model.run.spec
    when = "imported"
    if not spec.imported:
        when = f"after {spec.snapshot_steps()[model.snapshot]:,} steps"
    prompt = " ".join(found.prompt)
    return f"The walk of {prompt} through {model.name}, seed {model.seed}, {when}"
