"""Which model of a run is walked, with which prompt, and how that is called."""

from dataclasses import dataclass

import jax
import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.probes.walk import Walk, walk
from mnemoscope.tasks import Cycle
from mnemoscope.training.run import Run

MAX_NUMBERS = 1_000_000  # in a model's weights: a walk writes them all
MOST_NAMED = 128  # tokens that a message names before it counts the rest


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


def choose_model(run: Run, name: str, seed: int | None = None, snapshot: int = -1) -> Chosen:
    """The model asked for.

    Args:
        run: Whose model it is.
        name: The model in words.
        seed: None means the run's first.
        snapshot: Its number; -1 is the end of training.
    """
    picked = run.seeds[0] if seed is None else seed
    run.outcome(picked)  # says which seeds there are
    kept = len(run.spec.snapshot_steps())
    if not -kept <= snapshot < kept:
        raise UserError(
            f"no snapshot {snapshot} in this run; allowed: 0 to {kept - 1}, or -1 for the end"
        )
    return Chosen(name, run, picked, snapshot)


def parse_prompt(names: tuple[str, ...], n_ctx: int, prompt: str) -> list[int]:
    """A prompt as token numbers.

    Args:
        names: Of the tokens, in order.
        n_ctx: Tokens that a prompt may have.
        prompt: Tokens with spaces between; without, where every name is one character.
    """
    words = prompt.split()
    if max(map(len, names)) == 1:
        words = list("".join(words))
    allowed = f"allowed: 1 to {n_ctx} of {' '.join(names[:MOST_NAMED])}"
    if len(names) > MOST_NAMED:
        allowed += f" and {len(names) - MOST_NAMED:,} more"
    if not words:
        raise UserError(f"the prompt is empty; {allowed}")
    for word in words:
        if word not in names:
            raise UserError(f"unknown token {word!r} in the prompt {prompt!r}; {allowed}")
    if len(words) > n_ctx:
        raise UserError(f"the prompt {prompt!r} has {len(words)} tokens; {allowed}")
    return [names.index(word) for word in words]


@fixed_numerics()
def walk_prompt(model: Chosen, prompt: str | None) -> Walk:
    """The walk of a prompt; none given means the task's own example."""
    task = model.run.spec.task
    n_numbers = sum(int(np.prod(value.shape[2:])) for value in model.run.snapshots.values())
    if n_numbers > MAX_NUMBERS:
        raise UserError(
            f"a walk writes every number, and {model.name} has {n_numbers:,}; allowed: models of "
            f"at most {MAX_NUMBERS:,}"
        )
    if prompt is not None:
        tokens = parse_prompt(task.token_names, task.n_ctx, prompt)
    elif isinstance(task, Cycle):
        tokens = list(range(task.n_symbols))[: task.n_ctx]
    else:
        example = task.sample(model.run.world(model.seed), key=jax.random.key(0))
        tokens = np.asarray(example.tokens).tolist()
    return walk(model.run.model(model.seed, model.snapshot), tokens, task.token_names)


def describe_walk(model: Chosen, found: Walk) -> str:
    """What is walked, in one line."""
    spec = model.run.spec
    when = "imported"
    if not spec.imported:
        when = f"after {spec.snapshot_steps()[model.snapshot]:,} steps"
    prompt = " ".join(found.prompt)
    return f"The walk of {prompt} through {model.name}, seed {model.seed}, {when}"
