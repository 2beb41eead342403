"""What the explorer carries of a run: weights, curves, and golden answers to check itself.

Some seeds are *carried* with every snapshot, so that their training can be scrubbed through; every
other seed that finished can be *opened* at its end, unless there are so many that the page would
swell. Skills are measured for every seed at the end of training (the strip) and for the carried
seeds at every snapshot (the curves). A golden answer is the Python model's, with and without an
ablated part; the page shows how far its own are off.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Params
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TRAINING, describe_origins, source_fingerprint
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.explorer.ablated_answers import answer_ablated
from mnemoscope.explorer.explorer_run import ExplorerRun, resolve_config
from mnemoscope.explorer.paper_prompts import list_prompts
from mnemoscope.explorer.task_adapters import get_adapter
from mnemoscope.explorer.tours import pack_tour
from mnemoscope.explorer.train_here import pack_recipes, pack_training
from mnemoscope.explorer.weight_bytes import Blocks, encode_weights
from mnemoscope.explorer.weight_rounding import choose_bits
from mnemoscope.models import Model, bind
from mnemoscope.models.consumer_support import ANY, Support
from mnemoscope.probes.ablation import list_cases
from mnemoscope.probes.skills import over_seeds
from mnemoscope.store import Store
from mnemoscope.tasks import Task
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

N_ASKED = 2  # prompts that the page answers to compare itself with Python
DIGITS = 6  # of Python's answers: the page says that they are met to four
MAX_TOKENS = 128  # the page draws one button and one bar for each token
MAX_FINAL_WEIGHTS = 1_000_000  # numbers in the weights of seeds that are there at their end alone
MAX_WEIGHTS = 2**24  # numbers in the weights of carried seeds: a page of 90 MB

# a metric's value by seed, or by seed and snapshot
Metrics = dict[str, list]


def pack_run(explorer_run: ExplorerRun, store: Store | None = None) -> dict[str, Any]:
    """Pack a run as the page reads it.

    Args:
        explorer_run: The run, and which of its seeds are carried.
        store: Where skills that were measured before are remembered; None measures them.

    Raises:
        UserError: The page cannot show such a run, or a carried seed is missing or diverged.
    """
    measured = measure_run(explorer_run, store)
    return present_run(
        measured,
        explorer_run.run.spec,
        id_=explorer_run.id,
        name=explorer_run.name,
        about=explorer_run.about,
    )


@fixed_numerics()
def measure_run(explorer_run: ExplorerRun, store: Store | None = None) -> dict[str, Any]:
    """All of a packed run that takes a model to make: weights, worlds, skills, Python's answers.

    Args:
        explorer_run: The run, and which of its seeds are carried.
        store: Where skills that were measured before are remembered; None measures them.

    Raises:
        UserError: The page cannot show such a run, or a carried seed is missing or diverged.
    """
    require_shown(explorer_run)
    run = explorer_run.run
    task = run.spec.task
    adapter = get_adapter(task)
    carried_rows = _rows_of(run, explorer_run.carried)
    final_rows = _choose_final_rows(explorer_run)
    opened = [*explorer_run.carried, *(run.seeds[row] for row in final_rows)]
    blocks = _list_blocks(run, carried_rows, final_rows)
    outcomes, curves = _measure_skills(explorer_run, store)
    presets = adapter.make_presets(task, run.world(explorer_run.carried[0]))
    offered = [*list_prompts(task), *presets]
    check_presets(task, offered)
    prompts = [preset["tokens"] for preset in offered[:N_ASKED]]
    return {
        "spec": run.spec.model_dump(mode="json"),
        "seeds": list(run.seeds),
        "carried": list(explorer_run.carried),
        "opened": opened,
        "presets": presets,
        "worlds": [adapter.export_world(task, run.world(seed)) for seed in opened],
        "outcomes": outcomes | _final_losses(run),
        "loss_steps": run.loss_steps.tolist(),
        "losses": [_round(row) for row in run.losses[[*carried_rows, *final_rows]]],
        "curves": curves,
        "weights": encode_weights(blocks, choose_bits(run.spec.model, blocks, prompts)),
        "golden": _golden_answers(explorer_run, opened, prompts),
    }


def present_run(
    measured: dict[str, Any], spec: Spec, *, id_: str, name: str, about: str
) -> dict[str, Any]:
    """A measured run with all that is said of it; takes no model.

    Args:
        measured: What `measure_run` found.
        spec: What was trained.
        id_: What addresses of the page call it.
        name: What the page calls it.
        about: One sentence below the name.
    """
    task = spec.task
    adapter = get_adapter(task)
    presets = [*list_prompts(task), *measured["presets"]]
    check_presets(task, presets)
    skills = [name for name in measured["outcomes"] if name != "loss"]
    shapes = spec.model.parameter_shapes(task.d_vocab, task.n_ctx)
    return {
        **measured,
        "id": id_,
        "name": name,
        "words": adapter.in_words(task),
        "about": about,
        "config": resolve_config(spec.model),
        "token_names": list(task.token_names),
        "n_ctx": task.n_ctx,
        "trained_positions": list(task.loss_positions),
        "draw_label": adapter.draw_label,
        "steps": list(spec.snapshot_steps()),
        "presets": presets,
        "tour": pack_tour(task, adapter.tour, skills),
        "parameters": [[name, list(shape)] for name, shape in shapes.items()],
        "recipes": pack_recipes(task),
        **pack_training(spec, measured["carried"][0]),
    }


# what static/forward.js computes; a test compares it with static/layer_tables.js
SUPPORT = Support(
    "the explorer",
    {
        "norm": ("none", "pre", "post"),
        "norm_type": ("layer", "rms"),
        "norm_eps": ANY,
        "bias": ANY,
        "unembed_bias": ANY,
        "tied": ANY,
        "act": ("relu", "linear", "gelu", "gelu_new", "silu"),
        "gated_mlp": ANY,
        "parallel_attn_mlp": ANY,
        "attn_layers": ANY,
        "mlp_layers": ANY,
        "d_head": ANY,
        "n_key_value_heads": ANY,
        "attention": ("softmax", "linear", "relu"),
        "attn_residual": ANY,
        "causal": ANY,
        "positions": ("learned", "none", "rotary", "sinusoidal"),
        "rotary_dim": ANY,
        "rotary_base": ANY,
        "rotary_adjacent_pairs": ANY,
    },
)


def require_shown(explorer_run: ExplorerRun) -> None:
    """Raise for what the page cannot show.

    Args:
        explorer_run: The run, and which of its seeds are carried.
    """
    name = explorer_run.id
    run = explorer_run.run
    task = run.spec.task
    if task.d_vocab > MAX_TOKENS:
        size = f"{task.d_vocab} tokens; the explorer shows at most {MAX_TOKENS}"
        raise UserError(f"run {name} has {size}")
    n_weights = len(explorer_run.carried) * _count_weights(run) * len(run.spec.snapshot_steps())
    if n_weights > MAX_WEIGHTS:
        raise UserError(
            f"run {name} has {n_weights:,} numbers in its weights at all snapshots of the seeds "
            f"that go along; the explorer carries at most {MAX_WEIGHTS:,}"
        )
    why_not = SUPPORT.why_not(run.spec.model)
    if why_not is not None:
        raise UserError(f"the explorer cannot show run {name}, whose model has {why_not}")
    if task.d_vocab_out != task.d_vocab:
        raise UserError(
            f"the explorer shows models whose answers are tokens; "
            f"run {name} has {task.d_vocab_out} answers of its own"
        )
    missing = set(explorer_run.carried) - set(run.seeds)
    if missing:
        allowed = ", ".join(map(str, run.seeds))
        raise UserError(f"no seed {min(missing)} in run {name}; allowed: {allowed}")
    diverged = [seed for seed in explorer_run.carried if run.outcome(seed) == "diverged"]
    if diverged:
        advice = "there are no numbers to show; choose others with --seeds"
        raise UserError(f"seed {diverged[0]} of run {name} diverged: {advice}")


def check_presets(task: Task, presets: Sequence[dict[str, Any]]) -> None:
    """Refuse prompts that the model cannot read: a study or a task from elsewhere brings some.

    Args:
        task: What the model was trained on.
        presets: The prompts.
    """
    for preset in presets:
        if preset.keys() != {"name", "tokens", "why"}:
            came = ", ".join(preset) or "nothing"
            raise UserError(
                f"a preset of {task.kind_name()!r} has name, tokens and why, got {came}"
            )
        tokens = preset["tokens"]
        is_read = 0 < len(tokens) <= task.n_ctx and all(0 <= x < task.d_vocab for x in tokens)
        if not is_read:
            allowed = f"1 to {task.n_ctx} tokens from 0 to {task.d_vocab - 1}"
            raise UserError(f"preset {preset['name']!r} has {list(tokens)}; allowed: {allowed}")
    if not presets:
        raise UserError(
            f"task {task.kind_name()!r} has no presets; the page opens on the first one"
        )


def _rows_of(run: Run, seeds: Sequence[int]) -> list[int]:
    """Where these seeds stand in the arrays of a run."""
    return [run.seeds.index(seed) for seed in seeds]


def _choose_final_rows(explorer_run: ExplorerRun) -> list[int]:
    """Rows of the seeds that go along at their end alone; none where they are too many."""
    run = explorer_run.run
    others = set(run.seeds) - set(explorer_run.carried)
    rows = [row for row, seed in enumerate(run.seeds) if seed in others and run.finished[row]]
    return rows if len(rows) * _count_weights(run) <= MAX_FINAL_WEIGHTS else []


def _count_weights(run: Run) -> int:
    """How many numbers one model has."""
    return sum(int(np.prod(value.shape[2:])) for value in run.snapshots.values())


def _list_blocks(run: Run, carried_rows: Sequence[int], final_rows: Sequence[int]) -> list[Blocks]:
    """The weights of every opened seed by parameter, with a row for each of its snapshots."""
    shapes = run.spec.model.parameter_shapes(run.spec.task.d_vocab, run.spec.task.n_ctx)
    first = [(row, slice(None)) for row in carried_rows]
    rest = [(row, slice(-1, None)) for row in final_rows]
    return [
        {name: run.snapshots[name][row][snapshots] for name in shapes}
        for row, snapshots in (*first, *rest)
    ]


def _round(values: np.ndarray) -> list[float | None]:
    """Six digits are enough for eyes; None is what a diverged seed has."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.asarray(values, float)]


def _final_losses(run: Run) -> Metrics:
    """Every seed's loss at the end; a model from elsewhere may have none."""
    return {"loss": _round(run.losses[:, -1])} if len(run.loss_steps) else {}


def _measure_skills(explorer_run: ExplorerRun, store: Store | None) -> tuple[Metrics, Metrics]:
    """Measure skills of every seed at the end, and of the carried seeds at every snapshot.

    Args:
        explorer_run: The run, and which of its seeds are carried.
        store: Where they are looked up first, and kept.

    Returns:
        What every seed came to, and the curves of the carried ones.
    """
    if get_adapter(explorer_run.run.spec.task).measure_skills is None:
        return {}, {}
    key = _skills_key(explorer_run)
    found = store.finding(key) if store else None
    if found and {"ends", "curves"} <= set(found):
        return found["ends"], found["curves"]
    ends, curves = sweep_skills(explorer_run)
    if store:
        store.keep_finding(key, {"ends": ends, "curves": curves})
    return ends, curves


def _skills_key(explorer_run: ExplorerRun) -> str:
    """What the skills of a run are stored under: the code that measures them, and what it reads."""
    run = explorer_run.run
    code = source_fingerprint(*TRAINING, "probes", "explorer/task_adapters.py")
    origins = describe_origins(run.origins)
    text = f"{code} {run.spec.digest()} {run.seeds} {explorer_run.carried} {origins}"
    return f"explorer {hashlib.sha256(text.encode()).hexdigest()}"


def sweep_skills(explorer_run: ExplorerRun) -> tuple[Metrics, Metrics]:
    """Measure every seed at its end, and carried ones at every snapshot, in one compiled sweep.

    Args:
        explorer_run: The run, and which of its seeds are carried.

    Returns:
        What every seed came to, and the curves of the carried ones; nothing, if the task has no
        skills.
    """
    run = explorer_run.run
    task = run.spec.task
    measure = get_adapter(task).measure_skills
    if measure is None:
        return {}, {}
    n_seeds = len(run.seeds)
    n_snapshots = len(run.spec.snapshot_steps())
    carried_rows = _rows_of(run, explorer_run.carried)
    n_carried = len(carried_rows)
    # every seed at its last snapshot, then each carried seed at every snapshot
    rows = np.array([*range(n_seeds), *np.repeat(carried_rows, n_snapshots)])
    last = np.full(n_seeds, n_snapshots - 1)
    snapshots = np.array([*last, *np.tile(np.arange(n_snapshots), n_carried)])
    params: Params = {}
    for name, value in run.snapshots.items():
        params[name] = jnp.asarray(value[rows, snapshots])
    models = bind(run.spec.model, params)
    worlds = jax.tree.map(lambda x: np.asarray(x)[rows], run.worlds())
    skills = over_seeds(lambda model, world: measure(task, model, world), models, worlds)
    ends = {name: _round(values[:n_seeds]) for name, values in skills.items()}
    curves = {}
    for name, values in skills.items():
        by_seed = values[n_seeds:].reshape(n_carried, n_snapshots)
        curves[name] = [_round(row) for row in by_seed]
    return ends, curves


def _golden_answers(
    explorer_run: ExplorerRun,
    opened: Sequence[int],
    prompts: Sequence[list[int]],
) -> list[dict[str, Any]]:
    """Answers of the Python model, whole and with each part ablated.

    Args:
        explorer_run: The run, and which of its seeds are carried.
        opened: All seeds in the page. Asked are the first, the last, and a carried one half-way.
        prompts: What is asked.
    """
    config = explorer_run.run.spec.model
    last = len(explorer_run.run.spec.snapshot_steps()) - 1

    answer = jax.jit(partial(answer_ablated, config))
    golden = []
    asked = {(opened[0], last), (explorer_run.carried[-1], last // 2), (opened[-1], last)}
    for seed, snapshot in sorted(asked):
        model = explorer_run.run.model(seed, snapshot)
        for tokens in prompts:
            answers = np.asarray(answer(model.params, jnp.array(tokens)), float)
            for case, probabilities in zip(list_cases(config), answers, strict=True):
                golden.append(
                    {
                        "seed": seed,
                        "at": snapshot,
                        "tokens": tokens,
                        "off": _ablated_parts(config, case),
                        "probabilities": np.round(probabilities, DIGITS).tolist(),
                    }
                )
    return golden


def _ablated_parts(config: Model, case: str) -> dict[str, str]:
    """What a case of `cases` ablates, as the page's addresses name it."""
    if case == "none":
        return {}
    named = re.fullmatch(r"L(\d+) ?(.*)", case)
    assert named is not None
    layer, part = named.groups()
    if part == "mlp":
        return {f"mlp{layer}": "zero"}
    heads = range(config.n_heads) if part == "attention" else [int(part.removeprefix("H"))]
    return {f"{layer}.{head}": "zero" for head in heads}
