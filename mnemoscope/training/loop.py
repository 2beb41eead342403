r"""Training: one compiled loop in which every step draws fresh data and takes one gradient.

Seeds run along a leading axis, shared out over the devices; inside a device `lanes` of them advance
together. The loop's end is an argument, so one compilation serves every stretch between two stops:
there Python looks in to keep a snapshot, call the probes that the caller handed in and move the
progress bar. Nothing of Python is in a step.

Random numbers: a seed's key is split into world, weights and data; the batch of step i comes from
fold_in(data, i). So a seed's run does not depend on its neighbors, on the stops, or on the number
of devices.

    Spec, seeds -> programs -> start or resume -> stretch, stop, stretch, stop, ... -> Run
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from mnemoscope.core.axes import Array, Int
from mnemoscope.core.devices import notice_if_one_core_works
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import trained_by
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, different_seeds, shard
from mnemoscope.training.compilation import (
    Programs,
    ReadMetrics,
    metrics_program,
    numbers_by_seed,
    programs,
    reader_of,
)
from mnemoscope.training.metric import Observe
from mnemoscope.training.run import Run
from mnemoscope.training.shared_arrays import place_arrays
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec
from mnemoscope.training.step import State, TrainingNumbers, all_params
from mnemoscope.training.worlds import world_hashes

# how often, at least, a training stops: a point of the loss curve and a move of the progress bar
STOPS = 64

Progress = Callable[[int, int], None]  # steps done, steps in all
_Watch = Callable[[State], Mapping[str, Array]]  # `Observe`, compiled for all seeds


@dataclass(frozen=True)
class PartialProgress:
    """The progress of one training among several, told as that of all of them together."""

    whole: Progress  # hears how far all of them are
    behind: int  # steps that were done before this one began
    seeds: int  # as how many steps one of this training counts
    total: int  # steps of all of them

    def __call__(self, done: int, _: int) -> None:
        """So many steps of this training are done."""
        self.whole(self.behind + done * self.seeds, self.total)


@runtime_checkable
class Checkpointer(Protocol):
    """Where a training that is under way is kept, so that one that was cut off goes on where it
    was."""

    def restore(self) -> dict[str, np.ndarray] | None:
        """What was kept last, if anything was."""
        ...

    def is_due(self) -> bool:
        """Whether it is time to keep it again."""
        ...

    def save(self, arrays: dict[str, np.ndarray]) -> None:
        """Keep this in place of what was kept before."""
        ...


@fixed_numerics()
def fit(
    spec: Spec,
    seeds: int | Sequence[int],
    observe: Observe | None = None,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    sink: Sink | None = None,
) -> Run:
    """Train one model for each seed, side by side on all CPU cores, or on all accelerators.

    Args:
        spec: what is trained, and how.
        seeds: how many, 16 for 0 to 15; or which ones, different whole numbers from 0 up.
        observe: `observe(model, world)` is called for every seed at every evaluation of the Spec,
            beside the metrics that the Spec names. The caller pays for it: it is compiled once and
            runs at each evaluation.
        progress: hears at every stop how many steps are done, and how many there are in all.
        checkpointer: with one, a training that was cut off goes on from the stop at which it was
            saved, to the same bits.
        sink: gets numbers at every stop.
    """
    wanted = different_seeds(seeds)
    found = fit_side_by_side(
        [(spec, wanted)],
        observe=observe,
        progress=progress,
        checkpointer=checkpointer,
        sink=sink,
    )
    return found[0]


@fixed_numerics()
def fit_many(
    specs: Sequence[Spec],
    seeds: int | Sequence[int],
    observe: Observe | None = None,
    progress: Progress | None = None,
) -> list[Run]:
    """Train every Spec with every seed, and side by side those that differ in numbers alone.

    Twelve learning rates are compiled once and fill a device as twelve times the seeds do. Each
    training is what `fit` makes of it alone, to the bit on a CPU.

    Args:
        specs: what is trained; one Run comes back for each, in this order.
        seeds: how many, 16 for 0 to 15; or which ones, different whole numbers from 0 up.
        observe: `observe(model, world)` is called for every seed at every evaluation of its Spec.
        progress: hears at every stop how many steps are done, and how many there are in all.
    """
    wanted = different_seeds(seeds)
    groups: dict[object, list[int]] = {}
    for place, spec in enumerate(specs):
        groups.setdefault(side_by_side_key(spec), []).append(place)
    total = sum(specs[places[0]].steps for places in groups.values())
    runs: dict[int, Run] = {}
    behind = 0
    for places in groups.values():
        together = [(specs[place], wanted) for place in places]
        part = progress and PartialProgress(progress, behind, 1, total)
        found = fit_side_by_side(together, observe=observe, progress=part)
        runs |= zip(places, found, strict=True)
        behind += specs[places[0]].steps
    return [runs[place] for place in range(len(specs))]


def side_by_side_key(spec: Spec) -> object:
    """What Specs must agree in to be trained side by side: all but the numbers of a program."""
    stops = (spec.steps, spec.snapshot_steps(), spec.eval_steps(), spec.metrics)
    return spec.compile_key(), stops


@fixed_numerics()
def fit_side_by_side(
    trainings: Sequence[tuple[Spec, Sequence[int]]],
    *,
    n_rows: int = 0,
    observe: Observe | None = None,
    progress: Progress | None = None,
    checkpointer: Checkpointer | None = None,
    sink: Sink | None = None,
) -> list[Run]:
    """Train Specs that differ in numbers alone, each with seeds of its own, through one program.

    All seeds of all of them are rows of one seed axis.

    Args:
        trainings: Specs that agree in `side_by_side_key`, each with its seeds; one Run comes back
            for each.
        n_rows: of the program; the last seed fills it up, and what becomes of that is thrown away.
            0: as many as there are seeds.
        observe: as in `fit`.
        progress: as in `fit`.
        checkpointer: as in `fit`; it keeps all of them together.
        sink: as in `fit`.
    """
    spec = trainings[0][0]  # what all of them have alike is read from the first
    for each, _ in trainings:
        if each.imported:
            raise UserError(
                f"the model {each.imported} was imported, not trained; "
                "'mnemoscope import' stores it again"
            )
    rows = [(each, seed) for each, seeds in trainings for seed in seeds]
    n_seeds = len(rows)
    rows += [rows[-1]] * (n_rows - n_seeds)
    if len(rows) > 1:
        notice_if_one_core_works()
    origin = trained_by()  # as it is when the training begins
    program = programs(spec, len(rows))
    mesh = device_mesh(len(rows))
    ids = shard(mesh, np.array([seed for _, seed in rows], np.int32))
    numbers = shard(mesh, numbers_by_seed([each for each, _ in rows]))
    states = program.start(ids)
    arrays = place_arrays(spec.task, mesh)
    read_metrics = _metrics_reader(spec, observe, mesh, ids, arrays, len(rows))
    stop = _Stop(
        spec=spec,
        schedule=stop_steps(spec, with_metrics=read_metrics is not None),
        history=_History(n_seeds),
        metrics=read_metrics,
        progress=progress,
        checkpointer=checkpointer,
        sink=sink,
    )
    states = stop.begin_or_resume(states, mesh)
    states = _train(partial(_advance, program, ids, numbers, arrays), states, stop)
    snapshots = stop.history.stacked("snapshots")
    metrics = stop.history.stacked("metrics")
    losses = stop.history.stacked("losses")[""]
    finite_steps = _finite_steps(spec, states, snapshots, n_seeds)
    hashes = _hash_each_world_once(spec, [seed for _, seed in rows[:n_seeds]])
    runs: list[Run] = []
    begin = 0
    for each, seeds in trainings:
        part = slice(begin, begin + len(seeds))
        run = Run(
            spec=each,
            seeds=tuple(seeds),
            snapshots={name: x[part] for name, x in snapshots.items()},
            loss_steps=np.array(stop.schedule.stops),
            losses=losses[part],
            finite_steps=finite_steps[part],
            metrics={name: x[part] for name, x in metrics.items()},
            world_hashes=hashes[part],
            origins=(origin,),
        )
        runs.append(run)
        begin = part.stop
    return runs


def _hash_each_world_once(spec: Spec, seeds: Sequence[int]) -> np.ndarray:
    """The hash of each row's world; rows of one seed share theirs."""
    different, rows = np.unique(seeds, return_inverse=True)
    return world_hashes(spec.task, different.tolist())[rows]


def _metrics_reader(
    spec: Spec,
    observe: Observe | None,
    mesh: Mesh,
    ids: Int[Array, "seed"],
    arrays: Any,
    n_rows: int,
) -> _Watch | None:
    """What reads the Spec's metrics and `observe` off the states; None where there is neither."""
    read = metrics_program(spec, n_rows)
    if observe is not None:
        # jax does not say of what it compiles what it returns
        read = cast(ReadMetrics, jax.jit(reader_of(spec, observe, mesh, n_rows)))  # pyright: ignore[reportUnknownMemberType]
    if read is None:
        return None
    return lambda states: read(ids, states.trained, states.frozen, arrays)


def _advance(
    program: Programs,
    ids: Int[Array, "seed"],
    numbers: TrainingNumbers,
    arrays: Any,
    states: State,
    begin: int,
    end: int,
) -> State:
    """Go on from one step to another."""
    each = (ids, states, numbers)
    return program.advance(each, jnp.array(begin), jnp.array(end), arrays)


def _train(advance: Callable[[State, int, int], State], states: State, stop: "_Stop") -> State:
    """Go on to the last step, and stop on the way wherever the schedule says."""
    unread: tuple[int, int, State] | None = None
    for begin, end in stop.stretches_ahead():
        states = advance(states, begin, end)
        # the next stretch is under way before the last one is read, so no device waits for Python
        # or for another device
        if unread:
            stop.read(*unread)
        unread = (begin, end, states)
    if unread:
        stop.read(*unread)
    return states


def _finite_steps(
    spec: Spec, states: State, snapshots: Mapping[str, np.ndarray], n_seeds: int
) -> Int[np.ndarray, "seed"]:
    """How many steps of each seed had a finite loss; all of them only if the last weights are
    finite."""
    finite_steps = np.array(states.finite_steps)[:n_seeds]
    # no loss is asked after the last step: weights that it made infinite would not be noticed by
    # their loss
    finite_by_name = [
        np.isfinite(x[:, -1]).reshape(n_seeds, -1).all(axis=1) for x in snapshots.values()
    ]
    finite_weights = np.all(finite_by_name, axis=0)
    return np.where(finite_weights, finite_steps, np.minimum(finite_steps, spec.steps - 1))


# ---- stops


@dataclass(frozen=True)
class StopSteps:
    """After which steps something is done."""

    snapshots: tuple[int, ...]  # weights are kept
    evals: tuple[int, ...]  # the metrics are read
    stops: tuple[int, ...]  # the loss is read, and all of the above but for the start


def stop_steps(spec: Spec, with_metrics: bool) -> StopSteps:
    """The stops of a training: its snapshots and evals, and evenly spaced ones between them.

    Args:
        spec: what is trained.
        with_metrics: whether anything is read at its evaluations.
    """
    snapshots = spec.snapshot_steps()
    evals = spec.eval_steps() if with_metrics else ()
    even = [round(spec.steps * i / STOPS) for i in range(1, STOPS + 1)]
    stops = {*snapshots, *evals, *even} - {0}
    return StopSteps(snapshots, evals, tuple(sorted(stops)))


@dataclass(frozen=True)
class _Stop:
    """What Python does between two stretches: read the states, and tell whoever wants to know."""

    spec: Spec
    schedule: StopSteps
    history: "_History"
    metrics: _Watch | None
    progress: Progress | None
    checkpointer: Checkpointer | None
    sink: Sink | None

    def begin_or_resume(self, states: State, mesh: Mesh) -> State:
        """The states to go on from: those that were kept, or these, of which the start is read."""
        kept = self.checkpointer.restore() if self.checkpointer else None
        if not kept:
            self._read_states(0, states)
            return states
        states = self.history.unpack(kept, states, mesh)
        if self.progress:
            self.progress(self.schedule.stops[self.history.stops - 1], self.spec.steps)
        return states

    def stretches_ahead(self) -> list[tuple[int, int]]:
        """First and last step of every stretch that is not done yet."""
        stops = self.schedule.stops
        stretches = list(zip((0, *stops[:-1]), stops, strict=True))
        return stretches[self.history.stops :]

    def read(self, begin: int, end: int, states: State) -> None:
        """Read off what a stretch left behind; waits until it is done."""
        self.history.add("losses", {"": jax.device_get(states.loss_sum) / (end - begin)})
        self._read_states(end, states)
        if self.sink:
            evaluated = end in self.schedule.evals
            self.sink.log(end, self.history.numbers(end, states, evaluated=evaluated))
        if self.checkpointer and end < self.spec.steps and self.checkpointer.is_due():
            self.checkpointer.save(self.history.packed(states))
        if self.progress:
            self.progress(end, self.spec.steps)

    def _read_states(self, step: int, states: State) -> None:
        """Keep a snapshot and observe, if this step is one for it."""
        if step in self.schedule.snapshots:
            trained, frozen = jax.device_get((states.trained, states.frozen))
            self.history.add("snapshots", all_params(self.spec, trained, frozen))
        if self.metrics and step in self.schedule.evals:
            self.history.add("metrics", self.metrics(states))


# ---- what a training left behind so far


class _History:
    """What a training has left behind by now, seed by seed: snapshots, metrics, and
    losses."""

    def __init__(self, n_seeds: int):
        self.n_seeds = n_seeds
        # by part, one entry a time at which it was read: arrays by name, seeds in front
        self.parts: dict[str, list[dict[str, np.ndarray]]] = {
            "snapshots": [],
            "metrics": [],
            "losses": [],
        }

    @property
    def stops(self) -> int:
        """How many stops are behind."""
        return len(self.parts["losses"])

    def add(self, part: str, arrays: Mapping[str, Any]) -> None:
        """What was read just now, without the seeds that only fill up the last device."""
        read = jax.device_get(dict(arrays))
        self.parts[part].append({name: x[: self.n_seeds] for name, x in read.items()})

    def stacked(self, part: str) -> dict[str, np.ndarray]:
        """All that was read of a part, with a second axis over the times."""
        times = self.parts[part]
        if not times:
            return {}
        return {name: np.stack([one[name] for one in times], axis=1) for name in times[0]}

    def numbers(self, step: int, states: State, evaluated: bool) -> dict[str, float]:
        """What a sink gets at a stop; of the metrics, those that are one number for
        each seed."""
        losses = self.parts["losses"][-1][""]
        numbers = {
            "loss/mean": float(losses.mean()),
            "loss/lowest": float(losses.min()),
            "loss/highest": float(losses.max()),
        }
        if evaluated:
            for name, x in self.parts["metrics"][-1].items():
                if x.ndim == 1:
                    numbers[f"metrics/{name}"] = float(x.mean())
        finite_steps = np.asarray(states.finite_steps)[: self.n_seeds]
        numbers["seeds/diverged"] = float((finite_steps < step).sum())
        return numbers

    def packed(self, states: State) -> dict[str, np.ndarray]:
        """Everything that is needed to go on, as arrays with names."""
        arrays: dict[str, np.ndarray] = {}
        for part in self.parts:
            for name, x in self.stacked(part).items():
                arrays[f"{part}/{name}"] = x
        for i, x in enumerate(jax.device_get(jax.tree.leaves(states))):
            arrays[f"state/{i}"] = x[: self.n_seeds]
        return arrays

    def unpack(self, arrays: dict[str, np.ndarray], states: State, mesh: Mesh) -> State:
        """Take over what `packed` gave; the states are those that it was given."""
        for part in self.parts:
            self.parts[part] = _unstacked(arrays, part)
        leaves, structure = jax.tree.flatten(states)
        kept = [arrays.get(f"state/{i}", np.zeros(0)) for i in range(len(leaves))]
        for mine, theirs in zip(kept, leaves, strict=True):
            expected_shape = (self.n_seeds, *theirs.shape[1:])
            if mine.shape != expected_shape or mine.dtype != theirs.dtype:
                raise UserError(
                    "what was saved of a block under way does not fit its Spec; "
                    "delete its .part file from the store"
                )
        filled = [
            np.concatenate([x, np.repeat(x[-1:], len(theirs) - len(x), axis=0)])
            for x, theirs in zip(kept, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, [shard(mesh, x) for x in filled])


def _unstacked(arrays: dict[str, np.ndarray], part: str) -> list[dict[str, np.ndarray]]:
    """The entries of a part, of which `packed` made one array for each name."""
    prefix = f"{part}/"
    mine = {name.removeprefix(prefix): x for name, x in arrays.items() if name.startswith(prefix)}
    if not mine:
        return []
    times = next(iter(mine.values())).shape[1]
    return [{name: x[:, i] for name, x in mine.items()} for i in range(times)]
