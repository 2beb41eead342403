"""Train the models that a study's explorer shows, and write them beside its claims.

    python -m mnemoscope.explorer.train_shown STUDY...

trains what `explorer.py` of each study names, and replaces its folder `explorer_models`. A model is
trained once, kept at many candidate steps, and thinned out to the snapshots that are worth seeing
(`choose_snapshots`). Of its seeds the one that ends best and the one that ends worst go along with
their whole training, or the best alone where `explorer.py` says CARRIED = 1, and every other with
its end.
"""

import argparse
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.core.plugins import one_line
from mnemoscope.core.working import show_progress
from mnemoscope.explorer import ExplorerRun
from mnemoscope.explorer.choose_snapshots import choose_steps, list_candidates
from mnemoscope.explorer.explorer_run import describe_spec
from mnemoscope.explorer.pack import Metrics, measure_run, sweep_skills
from mnemoscope.explorer.shipped import ShippedModel, folder_of, write_models
from mnemoscope.store.checksums import sha256
from mnemoscope.studies.discover import find_study
from mnemoscope.studies.folder import load_part
from mnemoscope.studies.study import Condition, Study
from mnemoscope.training.loop import Progress, fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

COMMAND = "python -m mnemoscope.explorer.train_shown"
CARRIED = 2  # seeds whose whole training goes along, unless a study says otherwise
N_LOSSES = 64  # evenly spaced points of a loss curve


def find_models(study: Study) -> tuple[dict[str, Condition], int]:
    """The conditions that are trained for the explorer, by name, and how many seeds are carried.

    Args:
        study: Whose they are.
    """
    part = load_part(study.package, "explorer")
    if part is None:
        return {}, CARRIED
    with one_line(f"explorer.py of {study.name}"):
        return part.models(), getattr(part, "CARRIED", CARRIED)


def train_model(
    condition: Condition, n_carried: int = CARRIED, progress: Progress | None = None
) -> ExplorerRun:
    """One model, kept at the snapshots that are worth seeing.

    Args:
        condition: What is trained, over which seeds.
        n_carried: How many seeds go along with their whole training.
        progress: Hears how far it is.

    Raises:
        UserError: No seed finished.
    """
    spec = condition.spec
    dense = _keep_at(spec, list_candidates(spec.steps))
    run = fit(dense, condition.seed_range, progress=progress)
    if not run.finished.any():
        raise UserError(f"no seed finished: {run.diverged()}")
    carried = _choose_carried(run, n_carried)
    return _thin_out(run, carried)


def _keep_at(spec: Spec, steps: Sequence[int]) -> Spec:
    """The same training, kept at other steps."""
    kept = spec.model_copy(update={"snapshots": 2, "snapshot_at": tuple(steps)})
    return Spec.model_validate(kept.model_dump())


def _choose_carried(run: Run, n_carried: int) -> tuple[int, ...]:
    """The best seed at the end, by skill or else by loss, then the worst, then other good ones.

    Of equal ones it is the first.
    """
    ends = sweep_skills(_as_explored(run, ()))[0]
    ranks = np.mean([ends[name] for name in ends], axis=0) if ends else -run.losses[:, -1]
    finished = [row for row in range(len(run.seeds)) if run.finished[row]]
    by_rank = sorted(finished, key=lambda row: -ranks[row])
    worst = next(row for row in by_rank if ranks[row] == ranks[by_rank[-1]])
    chosen = list(dict.fromkeys([by_rank[0], worst]))
    chosen += [row for row in by_rank if row not in chosen]
    return tuple(run.seeds[row] for row in chosen[:n_carried])


def _as_explored(run: Run, carried: tuple[int, ...]) -> ExplorerRun:
    """A run for the explorer, still without a name."""
    return ExplorerRun(run.spec.digest(), "", describe_spec(run.spec), run, carried)


def _thin_out(run: Run, carried: tuple[int, ...]) -> ExplorerRun:
    """The run at the steps that the curves of its carried seeds choose."""
    steps = run.spec.snapshot_steps()
    curves = sweep_skills(_as_explored(run, carried))[1]
    chosen = choose_steps(steps, [*_losses_at(run, carried), *_by_seed(curves)])
    kept = [steps.index(step) for step in chosen]
    stops, losses = _thin_losses(run, chosen)
    thinned = replace(
        run,
        spec=_keep_at(run.spec, chosen[1:-1]),
        snapshots={name: x[:, kept] for name, x in run.snapshots.items()},
        loss_steps=stops,
        losses=losses,
    )
    return _as_explored(thinned, carried)


def _thin_losses(run: Run, steps: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Fewer stops of the loss curve, these steps and evenly spaced ones, and means between them."""
    all_stops = run.loss_steps
    even = all_stops[np.searchsorted(all_stops, np.linspace(0, all_stops[-1], N_LOSSES + 1)[1:])]
    stops = np.array(sorted({*even.tolist(), *steps} - {0}))
    # a loss is the mean of a stretch: sums over the steps so far are thinned, and not means
    sums = np.cumsum(run.losses * np.diff(all_stops, prepend=0), axis=1, dtype=float)
    at = np.searchsorted(all_stops, stops)
    means = np.diff(sums[:, at], prepend=0.0, axis=1) / np.diff(stops, prepend=0)
    return stops, means.astype(np.float32)


def _losses_at(run: Run, seeds: Sequence[int]) -> list[np.ndarray]:
    """The loss of each seed up to each snapshot; at the start that of the first stretch."""
    stops = run.loss_steps.tolist()
    at = [0, *(stops.index(step) for step in run.spec.snapshot_steps()[1:])]
    return [run.losses[run.seeds.index(seed)][at] for seed in seeds]


def _by_seed(curves: Metrics) -> list[np.ndarray]:
    """Every skill of every seed, as one curve each."""
    return [np.array(values, float) for rows in curves.values() for values in rows]


# ---- files


def ship(study: Study, progress: Progress | bool | None = None) -> list[ShippedModel]:
    """Train all models that a study names, and write them into its folder.

    Args:
        study: Whose they are.
        progress: Hears how far each is.

    Raises:
        UserError: The study names none.
    """
    conditions, n_carried = find_models(study)
    folder = folder_of(study)
    if folder is None or not conditions:
        raise UserError(
            f"the study {study.name!r} names no models for the explorer; "
            "needed: explorer.py in its folder, with a function `models`"
        )
    written = []
    for name, condition in conditions.items():
        with show_progress(f"{study.name}: {name}", progress) as tell:
            explored = train_model(condition, n_carried, tell)
        data = _compress(measure_run(explored))
        written.append((_describe(study, name, explored, data), data))
    write_models(folder, written)
    return [model for model, _ in written]


def _compress(measured: dict[str, Any]) -> bytes:
    """Numbers as a file: the same numbers, the same bytes."""
    text = json.dumps(measured, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def _describe(study: Study, name: str, explored: ExplorerRun, data: bytes) -> ShippedModel:
    """What the list says of a file."""
    return ShippedModel(
        name=name,
        file=f"{re.sub(r'[^a-z0-9]+', '-', name.lower())}.json.gz",
        sha256=sha256(data),
        spec=explored.run.spec,
        seeds=explored.run.seeds,
        carried=explored.carried,
        trained_by=trained_by(),
        made=date.today().isoformat(),
        command=f"{COMMAND} {study.name}",
    )


def main() -> None:
    """Read the command, and ship."""
    from mnemoscope.execution.machine import compile_cache_dir, use_all_devices

    parser = argparse.ArgumentParser(prog=COMMAND, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("studies", nargs="+", metavar="STUDY", help="whose models are trained")
    asked = parser.parse_args().studies
    use_all_devices(cache=compile_cache_dir())
    for name in asked:
        study = find_study(name)
        for model in ship(study):
            folder = folder_of(study)
            assert folder is not None
            size = (folder / model.file).stat().st_size / 1e6
            n_snapshots = len(model.spec.snapshot_steps())
            carried = ", ".join(map(str, model.carried))
            print(
                f"{name}: {model.name}: {size:.2f} MB, {n_snapshots} snapshots of seeds {carried}, "
                f"{len(model.seeds)} seeds"
            )


if __name__ == "__main__":
    main()
