"""What the explorer carries of a run: weights, curves, and golden answers to check itself.

Some seeds are *carried* with every snapshot, so that their training can be scrubbed through; every other seed that
finished can be opened at its end, so that the odd ones can be looked at (unless there are so many that the page would swell).
Skills are measured for every seed at the end of training (the strip) and for the carried seeds at every snapshot (the
curves). A golden answer is the Python model's, with and without a silenced part; the page shows how far its own are off.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import described, source_fingerprint
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.explorer.adapters import adapter
from mnemoscope.models import Transformer, parameter_shapes
from mnemoscope.probes.ablation import cases, edits
from mnemoscope.probes.skills import over_seeds
from mnemoscope.store import Store
from mnemoscope.studies.runner import SHARED
from mnemoscope.training.run import Run

MOST_TOKENS = 128  # the page draws one button and one bar for each token
MOST_ENDS = 1_000_000  # numbers in the weights of seeds that are there at their end alone


@dataclass(frozen=True)
class Piece:
    """A run to carry, what to call it, and which of its seeds go along."""

    id: str
    name: str
    about: str
    run: Run
    carried: tuple[int, ...]


@fixed_numerics()
def packed(piece: Piece, store: Store | None = None) -> dict[str, Any]:
    """A run as the page reads it; `store` remembers skills that were measured before."""
    run, task = piece.run, piece.run.spec.task
    if task.d_vocab > MOST_TOKENS:
        raise UserError(f"run {piece.id} has {task.d_vocab} tokens; the explorer shows at most {MOST_TOKENS}")
    if (unusual := run.spec.model.unusual) or task.d_vocab_out != task.d_vocab:
        why = ", ".join(unusual) or f"{task.d_vocab_out} answers that are no tokens"
        raise UserError(f"the explorer shows plain transformers that answer in tokens; run {piece.id} has {why}")
    if missing := set(piece.carried) - set(run.seeds):
        raise UserError(f"no seed {min(missing)} in run {piece.id}; allowed: {', '.join(map(str, run.seeds))}")
    if diverged := [seed for seed in piece.carried if run.outcome(seed) == "diverged"]:
        raise UserError(
            f"seed {diverged[0]} of run {piece.id} diverged: there are no numbers to show; choose others with --seeds"
        )
    known, at = adapter(task), [run.seeds.index(seed) for seed in piece.carried]
    steps = run.spec.snapshot_steps()
    shapes = parameter_shapes(run.spec.model, task.d_vocab, task.n_ctx)
    weights = _flat(run, at, range(len(steps)))
    others = [i for i, seed in enumerate(run.seeds) if seed not in piece.carried and run.finished[i]]
    others = others if len(others) * weights.shape[2] <= MOST_ENDS else []
    ends_of = _flat(run, others, [len(steps) - 1])
    opened = [*piece.carried, *(run.seeds[i] for i in others)]
    ends, curves = _skills(piece, store)
    worlds = [known.world(run.world(seed)) for seed in opened]
    presets = known.presets(task, run.world(piece.carried[0]))
    return {
        "id": piece.id, "name": piece.name, "about": piece.about, "spec": run.spec.model_dump(mode="json"),
        "token_names": list(task.token_names), "n_ctx": task.n_ctx, "draws": known.draws, "steps": list(steps),
        "seeds": list(run.seeds), "carried": list(piece.carried), "opened": opened, "presets": presets, "worlds": worlds,
        "outcomes": ends | {"loss": _short(run.losses[:, -1])},
        "loss_steps": run.loss_steps.tolist(), "losses": [_short(row) for row in run.losses[[*at, *others]]],
        "curves": curves,
        "parameters": [[name, list(shape)] for name, shape in shapes.items()],
        "weights": base64.b64encode(weights.astype("<f4").tobytes() + ends_of.astype("<f4").tobytes()).decode(),
        "golden": _golden(piece, opened, [preset["tokens"] for preset in presets]),
    }  # fmt: skip


def _flat(run: Run, rows: Sequence[int], snaps: Sequence[int]) -> np.ndarray:
    """All parameters of some seeds at some snapshots in one row: (seed, snapshot, number)."""
    sizes = {name: int(np.prod(value.shape[2:])) for name, value in run.snapshots.items()}
    shapes = parameter_shapes(run.spec.model, run.spec.task.d_vocab, run.spec.task.n_ctx)
    parts = [
        run.snapshots[name][list(rows)][:, list(snaps)].reshape(len(rows), len(snaps), sizes[name]) for name in shapes
    ]
    return np.concatenate(parts, axis=2)


def _short(values: np.ndarray) -> list[float | None]:
    """Six digits are enough for eyes; None is what a diverged seed has."""
    return [float(f"{x:.6g}") if np.isfinite(x) else None for x in np.asarray(values, float)]


def _skills(piece: Piece, store: Store | None) -> tuple[dict[str, list], dict[str, list]]:
    """Skills of every seed at the end, and of the carried seeds at every snapshot, in one compiled sweep."""
    run, probe = piece.run, adapter(piece.run.spec.task).skills
    if probe is None:
        return {}, {}
    code = source_fingerprint(*SHARED, "explorer/adapters.py")
    text = f"{code} {run.spec.digest()} {run.seeds} {piece.carried} {described(run.origins)}"
    key = f"explorer {hashlib.sha256(text.encode()).hexdigest()}"
    if store and (body := store.finding(key)) and {"ends", "curves"} <= set(body):
        return body["ends"], body["curves"]
    at = [run.seeds.index(seed) for seed in piece.carried]
    n_snap = len(run.spec.snapshot_steps())
    rows = np.array([*range(len(run.seeds)), *np.repeat(at, n_snap)])
    snaps = np.array([*[n_snap - 1] * len(run.seeds), *np.tile(np.arange(n_snap), len(at))])
    models = Transformer(
        run.spec.model, {name: jnp.asarray(value[rows, snaps]) for name, value in run.snapshots.items()}
    )
    worlds = jax.tree.map(lambda x: np.asarray(x)[rows], run.worlds())
    task = run.spec.task
    found = over_seeds(lambda model, world: probe(task, model, world), models, worlds)
    ends = {name: _short(values[: len(run.seeds)]) for name, values in found.items()}
    curves = {
        name: [_short(row) for row in values[len(run.seeds) :].reshape(len(at), n_snap)]
        for name, values in found.items()
    }
    if store:
        store.keep_finding(key, {"ends": ends, "curves": curves})
    return ends, curves


def _golden(piece: Piece, opened: Sequence[int], prompts: Sequence[list[int]]) -> list[dict[str, Any]]:
    """Answers of the Python model: two presets, the first and the last seed and a carried one in mid-training, whole and
    silenced."""
    config, last = piece.run.spec.model, len(piece.run.spec.snapshot_steps()) - 1

    @jax.jit
    def asked(model: Transformer, tokens: Array) -> Array:
        return jax.vmap(lambda edits: jax.nn.softmax(model(tokens, edits), axis=-1))(edits(config))

    def silenced(case: str) -> dict[str, str]:
        if case == "none":
            return {}
        layer, part = re.fullmatch(r"L(\d+) ?(.*)", case).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if part == "mlp":
            return {f"mlp{layer}": "zero"}
        heads = range(config.n_heads) if part == "attention" else [int(part.removeprefix("H"))]
        return {f"{layer}.{head}": "zero" for head in heads}

    found = []
    for seed, at in sorted({(opened[0], last), (piece.carried[-1], last // 2), (opened[-1], last)}):
        for tokens in prompts[:2]:
            answers = np.asarray(asked(piece.run.model(seed, at), jnp.array(tokens)), float)
            for case, p in zip(cases(config), answers, strict=True):
                found.append({"seed": seed, "at": at, "tokens": tokens, "off": silenced(case),
                              "probabilities": np.round(p, 8).tolist()})  # fmt: skip
    return found
