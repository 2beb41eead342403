"""What the page needs to train a run's model again, and to show that it does so as JAX does.

A seed means in the page what it means here: its JavaScript draws the same world, start and batches
from it. So all that goes along is the Spec. The page repeats the first steps of a stored training
and shows how far its losses are from those that are stored.

Beside its own Spec a run brings *recipes*, other small trainings, from the file `train_here.toml`
of a study that has some for the run's task:

[task]              fields that a task must have, so that they are offered with it
[[recipes]]         each with its name, a sentence on it, and the Spec
"""

import math
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp

from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.strict import Strict
from mnemoscope.explorer.explorer_run import resolve_config
from mnemoscope.explorer.paper_prompts import fits, list_prompts, study_files
from mnemoscope.explorer.task_adapters import get_adapter
from mnemoscope.models import Init, ModelConfig
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.tasks import Cycle, Permutation, Task
from mnemoscope.training.loss import CrossEntropy
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.schedules import NAMED, find_schedule
from mnemoscope.training.spec import Spec
from mnemoscope.training.worlds import draw_worlds, seed_keys

FILE = "train_here.toml"
MAX_SYMBOLS = 6  # of a permutation: the page lists its orders
SEED = 0  # whose world the presets of a recipe are from

# what static/network.js computes and differentiates
SUPPORT = Support(
    "training in the page",
    {
        "norm": ("none", "pre", "post"),
        "norm_type": ("layer", "rms"),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ("relu", "linear"),
        "attn_layers": ANY,
        "mlp_layers": ANY,
        "d_head": ANY,
        "attn_residual": ANY,
        "positions": ("learned", "none"),
    },
)


class Recipe(Strict):
    """A training that the page offers without weights of it."""

    name: str
    """What the page calls it."""
    about: str
    """One sentence below the name."""
    spec: Spec
    """What is trained."""


class Recipes(Strict):
    """The recipes of one study for one task."""

    task: dict[str, Any]
    """Fields of a task, with the values that they have where these are offered."""
    recipes: tuple[Recipe, ...]
    """In this order."""


def why_not_here(spec: Spec) -> str | None:
    """None if the page can train this; else what it cannot, and what it can.

    Args:
        spec: what would be trained.
    """
    if spec.imported:
        return "a model that was imported, with no training to repeat"
    of_model = SUPPORT.why_not(spec.model)
    if of_model is not None:
        return of_model
    return _why_not_task(spec.task) or _why_not_training(spec)


def _why_not_task(task: Task) -> str | None:
    """What of a task's draws the page does not know."""
    if type(task) is Cycle:
        return None
    if type(task) is not Permutation:
        return f"task {task.kind_name()!r} (allowed: 'cycle', 'permutation')"
    if task.n_symbols > MAX_SYMBOLS:
        return f"n_symbols={task.n_symbols} (allowed: up to {MAX_SYMBOLS})"
    return f"fixed_set={task.fixed_set} (allowed: 0)" if task.fixed_set else None


def _why_not_training(spec: Spec) -> str | None:
    """What of a training, beside task and model, the page does not do."""
    optimizer = spec.optimizer
    if type(optimizer) is not Adam:
        return f"optimizer {optimizer.kind_name()!r} (allowed: 'adam')"
    schedule = find_schedule(optimizer.schedule)
    if type(schedule) not in NAMED.values():
        return f"schedule {schedule.kind_name()!r} (allowed: {', '.join(map(repr, NAMED))})"
    if type(spec.loss) is not CrossEntropy:
        return f"loss {spec.loss.kind_name()!r} (allowed: 'cross-entropy')"
    if spec.precision == "bfloat16":
        return "precision 'bfloat16' (allowed: 'default', 'highest')"
    if spec.model.frozen_names() or spec.unfreeze_at:
        return "parameters that are frozen (allowed: none)"
    if type(spec.model) is not ModelConfig:  # it may draw its parameters in a way of its own
        return f"model {spec.model.kind_name()!r} (allowed: {ModelConfig.kind_name()!r})"
    if spec.model.init != Init():
        return "an init of its own (allowed: as parameters are drawn)"
    return None


@fixed_numerics()
def pack_training(spec: Spec, seed: int = SEED) -> dict[str, Any]:
    """What the page's loss axes and its own training need of a Spec.

    Args:
        spec: what is trained.
        seed: in whose world the least loss is looked up that anybody can have.
    """
    return {
        # every answer alike, and the best that anybody can do who knows the world
        "chance": math.log(spec.task.d_vocab_out),
        "floor": _find_floor(spec.task, seed),
        "training": {"why_not": why_not_here(spec)},
    }


def _find_floor(task: Task, seed: int) -> float | None:
    """The least loss in a seed's world; None where it is not known, and then no world is drawn."""
    if type(task).loss_floor is Task.loss_floor:
        return None
    worlds = draw_worlds(task, jnp.array([seed]))
    floor = task.loss_floor(jax.tree.map(itemgetter(0), worlds))
    return None if floor is None else float(floor)


def pack_recipes(task: Task) -> list[dict[str, Any]]:
    """The other trainings that studies have for a task, each as a run without weights.

    Args:
        task: what the run that is open was trained on.
    """
    found: list[dict[str, Any]] = []
    for fields in study_files(FILE):
        offered = Recipes.model_validate(fields)
        if fits(offered.task, task):
            found += [_pack_recipe(recipe) for recipe in offered.recipes]
    return found


@fixed_numerics()
def _pack_recipe(recipe: Recipe) -> dict[str, Any]:
    """A recipe as the page reads it: what a run is besides its seeds."""
    spec = recipe.spec
    task = spec.task
    adapter = get_adapter(task)
    world = task.world(key=seed_keys(SEED)[0])
    shapes = spec.model.parameter_shapes(task.d_vocab, task.n_ctx)
    return {
        "id": spec.digest(),
        "name": recipe.name,
        "words": adapter.in_words(task),
        "about": recipe.about,
        "spec": spec.model_dump(mode="json"),
        "config": resolve_config(spec.model),
        "token_names": list(task.token_names),
        "n_ctx": task.n_ctx,
        "trained_positions": list(task.loss_positions),
        "draw_label": adapter.draw_label,
        "presets": [*list_prompts(task), *adapter.make_presets(task, world)],
        "tour": None,
        "parameters": [[name, list(shape)] for name, shape in shapes.items()],
        **pack_training(spec),
    }
