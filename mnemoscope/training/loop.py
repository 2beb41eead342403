r"""Training: one compiled loop in which every step draws fresh data and takes one gradient.

Seeds run along a leading axis, shared out over the devices; inside a device `lanes` of them advance together. The
loop's end is an argument, so one compilation serves every stretch between two stops: there Python looks in to keep
a snapshot, call the probes that the caller handed in and move the progress bar. Nothing of Python is in a step.

Random numbers: a seed's key is split into world, weights and data; the batch of step i comes from fold_in(data, i).
So a seed's run does not depend on its neighbours, on the stops, or on the number of devices.
"""

import hashlib
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from mnemoscope.core import notebook
from mnemoscope.core.axes import Array, Float, Int, Key, Params, PRNGKeyArray, Shaped, UInt
from mnemoscope.core.errors import UserError
from mnemoscope.core.fingerprint import TrainedBy, described, note_imported, replaced, trained_by
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import device_mesh, different_seeds, for_each_seed, lanes_for, spread
from mnemoscope.core.xla import after, compiler_options, kept
from mnemoscope.models import Transformer, init, parameter_shapes
from mnemoscope.tasks import Example, Task, World
from mnemoscope.training.loss import loss_and_gradient
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec

WORLDS_AT_ONCE = 256
STOPS = 64  # how often, at least, a run comes up for air: a point of the loss curve and a move of the progress bar

Observe = Callable[[Transformer, World], Mapping[str, Array]]
Progress = Callable[[int, int], None]  # steps done, steps in all


@runtime_checkable
class Keeper(Protocol):
    """Where a training that is under way is kept, so that one that was cut off goes on where it was."""

    def found(self) -> dict[str, np.ndarray] | None:
        """What was kept last, if anything was."""
        ...

    def due(self) -> bool:
        """Whether it is time to keep it again."""
        ...

    def keep(self, arrays: dict[str, np.ndarray]) -> None:
        """Keep this in place of what was kept before."""
        ...


class State(NamedTuple):
    """Where one seed's training is. The parameters that move are one vector, so a step ends with one update, not a dozen."""

    trained: Float[Array, "trained"]  # in the order of `trained_shapes`
    frozen: Params
    optimiser: optax.OptState
    loss_sum: Float[Array, ""]  # since the last stop
    good_steps: Int[Array, ""]  # steps with a finite loss


@dataclass(frozen=True)
class Run:
    """The outcome of `fit`: weights at the snapshots, the loss curve, what was observed, and how each seed ended."""

    spec: Spec
    seeds: tuple[int, ...]
    snapshots: dict[str, Float[np.ndarray, "seed snap ..."]]
    loss_steps: Int[np.ndarray, "stop"]
    losses: Float[np.ndarray, "seed stop"]  # mean training loss over the stretch that ends at each stop
    good_steps: Int[np.ndarray, "seed"]
    observed: dict[str, Shaped[np.ndarray, "seed look ..."]] = field(default_factory=dict)
    # of the world that each seed was trained in; None where it was not kept (0.1)
    world_hashes: UInt[np.ndarray, "seed 32"] | None = None
    # every program and kind of device that trained some of the seeds; None is one that left no fingerprint (0.1)
    origins: tuple[TrainedBy | None, ...] = ()

    def outcome(self, seed: int) -> Literal["finished", "diverged"]:
        """`diverged` when the loss of any step was not a finite number."""
        return "finished" if self.good_steps[self._row(seed)] == self.spec.steps else "diverged"

    @property
    def finished(self) -> np.ndarray:
        """Which seeds finished, as a mask along the seed axis."""
        return self.good_steps == self.spec.steps

    def diverged(self) -> str:
        """The seeds that diverged, each with the steps whose loss was a finite number, in words; empty if there is none."""
        steps, good = self.spec.steps, dict(zip(self.seeds, self.good_steps.tolist(), strict=True))
        lost = [f"seed {seed} (after {good[seed]:,} of {steps:,} steps)" for seed in self.seeds if good[seed] < steps]
        return ", ".join(lost[:16]) + (f" and {len(lost) - 16} more" if len(lost) > 16 else "")

    def model(self, seed: int, snapshot: int = -1) -> Transformer:
        """One seed's model, at the end of training or at an earlier snapshot."""
        row = self._row(seed)
        return Transformer(self.spec.model, {k: jnp.asarray(v[row, snapshot]) for k, v in self.snapshots.items()})

    def models(self, snapshot: int = -1) -> Transformer:
        """All seeds' models at once, with a leading seed axis, for `vmap`."""
        return Transformer(self.spec.model, {k: v[:, snapshot] for k, v in self.snapshots.items()})

    @fixed_numerics()
    def worlds(self) -> World:
        """Each seed's world, drawn again from the seed, with a leading seed axis; it must be the one it was trained in."""
        worlds = _worlds(self.spec.task, jnp.array(self.seeds))
        self._check_worlds(worlds, range(len(self.seeds)))
        return worlds

    @fixed_numerics()
    def world(self, seed: int) -> World:
        """One seed's world, drawn again from the seed; it must be the one it was trained in."""
        worlds = _worlds(self.spec.task, jnp.array([seed]))
        self._check_worlds(worlds, [self._row(seed)])
        return jax.tree.map(lambda x: x[0], worlds)

    def _check_worlds(self, worlds: World, rows: Sequence[int]) -> None:
        if self.world_hashes is None:
            return
        same = (_hash_worlds(worlds, len(rows)) == self.world_hashes[list(rows)]).all(axis=1)
        if not same.all():
            seed = self.seeds[rows[int(same.argmin())]]
            raise UserError(
                f"the world that {self.spec.task.kind!r} draws for seed {seed} now is not the one it was trained in "
                f"(Spec {self.spec.digest()}, {', '.join(described(self.origins))}); 'mnemoscope runs --delete' and train again"
            )

    def _repr_html_(self) -> str:
        title = f"Run of {len(self.seeds)} seeds, {self.spec.steps:,} steps of {self.spec.batch}; {self.finished.sum()} finished"
        shown = notebook.table(title, ("task", "model"), [(self.spec.task, self.spec.model)])
        return shown + notebook.losses(self.loss_steps.tolist(), self.losses)

    def _row(self, seed: int) -> int:
        if seed not in self.seeds:
            raise UserError(f"no seed {seed} in this run; allowed: {', '.join(map(str, self.seeds))}")
        return self.seeds.index(seed)


def seed_keys(seed: int | Int[Array, ""]) -> Key[Array, "3"]:
    """The three keys of a seed: world, weights, data."""
    return jax.random.split(jax.random.key(seed), 3)


def _worlds(task: Task, seeds: Int[Array, "seed"]) -> World:
    return _draw_worlds(task, seeds, replaced())


@partial(jax.jit, static_argnames=("task", "replaced"))
def _draw_worlds(task: Task, seeds: Int[Array, "seed"], replaced: tuple[tuple[str, str], ...]) -> World:
    return jax.vmap(lambda seed: task.world(key=seed_keys(seed)[0]))(seeds)


def _hash_worlds(worlds: World, n_seeds: int) -> UInt[np.ndarray, "seed 32"]:
    """The SHA-256 of each seed's world: whole numbers exactly, floats by shape (their last bits differ between CPUs)."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(worlds)]
    hashes = np.zeros((n_seeds, 32), np.uint8)
    for row in range(n_seeds):
        digest = hashlib.sha256()
        for leaf in leaves:
            digest.update(f"{leaf.dtype.kind}{leaf.shape[1:]}".encode())
            if leaf.dtype.kind in "biu":
                digest.update(leaf[row].astype("<i8").tobytes())
        hashes[row] = np.frombuffer(digest.digest(), np.uint8)
    return hashes


@fixed_numerics()
def world_hashes(task: Task, seeds: Sequence[int]) -> UInt[np.ndarray, "seed 32"]:
    """The hash of each seed's world."""
    # some at a time: the worlds of permutations of 9 symbols have three megabytes each
    parts = [seeds[i : i + WORLDS_AT_ONCE] for i in range(0, len(seeds), WORLDS_AT_ONCE)]
    return np.concatenate([_hash_worlds(_worlds(task, jnp.array(part)), len(part)) for part in parts])


def draw(spec: Spec, world: World, data_key: PRNGKeyArray, step: Int[Array, ""]) -> Example:
    """The batch of a step, with a leading batch axis."""

    def folded(key: PRNGKeyArray, step: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(key, step))

    # as one operation: its own are many, and all ready at a step's start
    data = kept(step >= 0, folded, data_key, step)
    keys = jax.random.split(jax.random.wrap_key_data(data, impl=jax.random.key_impl(data_key)), spec.batch)
    world = spec.task.at_step(world, step)
    return jax.vmap(lambda key: spec.task.sample(world, key=key))(keys)


def trained_shapes(spec: Spec) -> dict[str, tuple[int, ...]]:
    """The parameters that training changes, in the order of the computation."""
    task, still = spec.task, spec.model.frozen_names()
    shapes = parameter_shapes(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out)
    return {name: shape for name, shape in shapes.items() if name not in still}


def joined(spec: Spec, tree: Params) -> Float[Array, "trained"]:
    """The trained parameters, or their gradient, as one vector."""
    # the empty piece: a Spec may freeze everything
    return jnp.concatenate([jnp.zeros(0), *(tree[name].ravel() for name in trained_shapes(spec))])


def parted(spec: Spec, vector: Float[Array | np.ndarray, "*seed trained"]) -> Params:
    """The parameters that such a vector holds; a seed axis before it stays."""
    shapes = trained_shapes(spec)
    sizes = [math.prod(shape) for shape in shapes.values()]
    return {
        name: vector[..., end - size : end].reshape(*vector.shape[:-1], *shapes[name])
        for name, size, end in zip(shapes, sizes, np.cumsum(sizes), strict=True)
    }


def all_params(spec: Spec, trained: Float[Array | np.ndarray, "*seed trained"], frozen: Params) -> Params:
    """All parameters, in the order of the computation."""
    task, found = spec.task, {**parted(spec, trained), **frozen}
    return {name: found[name] for name in parameter_shapes(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out)}


def train_step(
    spec: Spec,
    world: World,
    data_key: PRNGKeyArray,
    step: Int[Array, ""],
    state: State,
    releases: Int[Array, "parameter"],
) -> State:
    """Draw a batch, take the gradient of its loss in the parameters that are not frozen, and follow it.

    `releases` is read if the Spec holds anything back: from which step each trained parameter moves.
    """
    batch = draw(spec, world, data_key, step)
    trained, optimiser = after(batch.tokens, (state.trained, state.optimiser))
    loss, tree = loss_and_gradient(spec.task, spec.model, parted(spec, trained), state.frozen, batch)
    gradient, sizes = joined(spec, tree), trained
    if spec.release:
        # a parameter that is held back has no gradient and, for its decay, no size: nothing of it moves, not even a bit
        each = [math.prod(shape) for shape in trained_shapes(spec).values()]
        waits = (step < releases)[np.repeat(np.arange(len(each)), each)]
        gradient, sizes = jnp.where(waits, 0.0, gradient), jnp.where(waits, 0.0, sizes)
    updates, optimiser = spec.optimiser.transformation(spec.steps).update(gradient, optimiser, sizes)
    trained = cast(Array, optax.apply_updates(trained, updates))
    return State(trained, state.frozen, optimiser, state.loss_sum + loss, state.good_steps + jnp.isfinite(loss))


def release_steps(spec: Spec) -> Int[Array, "parameter"]:
    """From which step each trained parameter moves."""
    released = spec.released()
    return jnp.array([released.get(name, 0) for name in trained_shapes(spec)], int)


def start(spec: Spec, seed: int | Int[Array, ""]) -> State:
    """The state before the first step."""
    task = spec.task
    params = init(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out, key=seed_keys(seed)[1])
    trained, still = joined(spec, params), spec.model.frozen_names()
    frozen = {name: value for name, value in params.items() if name in still}
    optimiser = spec.optimiser.transformation(spec.steps).init(trained)
    return State(trained, frozen, optimiser, jnp.zeros(()), jnp.zeros((), int))


class Programs(NamedTuple):
    """The two compiled programs of a training: draw the start, and go on to a later step."""

    start: Callable[[Int[Array, "seed"]], State]
    advance: Callable[..., State]  # (seeds, states), first step, last step


_programs: dict[tuple[Any, ...], Future[Programs]] = {}  # insertion order; the oldest goes first
_programs_lock = threading.Lock()
MAX_PROGRAMS = 32


@fixed_numerics()
def programs(spec: Spec, n_seeds: int) -> Programs:
    """Compile a training for so many seeds, once. Another thread may do so ahead of time; the second to ask waits."""
    what = (spec.program(), device_mesh(n_seeds), n_seeds)
    key = (*what, replaced())  # a function that was put in the place of ours is another program
    with _programs_lock:
        future = _programs.get(key)
        if mine := future is None:
            future = _programs[key] = Future()
            while len(_programs) > MAX_PROGRAMS:
                del _programs[next(iter(_programs))]
    if mine:
        try:
            future.set_result(_compile(*what))
        except BaseException as error:
            _programs.pop(key, None)
            future.set_exception(error)
    found, releases = future.result(), release_steps(spec)
    return Programs(found.start, lambda each, begin, end: found.advance(each, begin, end, releases))


def _compile(spec: Spec, mesh: Mesh, n_seeds: int) -> Programs:
    def one_seed(each: tuple[Array, State], begin: Array, end: Array, releases: Array) -> State:
        seed, state = each
        for_world, _, for_data = seed_keys(seed)
        world = spec.task.world(key=for_world)
        state = state._replace(loss_sum=jnp.zeros(()))
        return jax.lax.fori_loop(begin, end, lambda i, s: train_step(spec, world, for_data, i, s, releases), state)

    lanes = lanes_for(mesh, n_seeds)
    ids = spread(mesh, jnp.zeros(n_seeds, int))
    begin = jax.jit(for_each_seed(partial(start, spec), mesh, lanes)).lower(ids).compile()
    states = jax.tree.map(
        lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), begin.out_info, begin.output_shardings
    )
    advance = jax.jit(for_each_seed(one_seed, mesh, lanes))
    step = jnp.zeros((), int)
    lowered = advance.lower((ids, states), step, step, release_steps(spec))
    return Programs(begin, lowered.compile(compiler_options(mesh)))


@fixed_numerics()
def fit(
    spec: Spec,
    seeds: Sequence[int],
    observe: Observe | None = None,
    progress: Progress | None = None,
    keeper: Keeper | None = None,
    sink: Sink | None = None,
) -> Run:
    """Train one model for each seed. `observe(model, world)` is called for every seed at every look of the Spec.

    The caller pays for what it hands in: `observe` is compiled once and runs at each look. With a `keeper` a training that
    was cut off goes on from the stop at which it was kept, to the same bits. A `sink` gets numbers at every stop.
    """
    wanted = different_seeds(seeds)
    if spec.imported:
        raise UserError(f"the model {spec.imported} was imported, not trained; 'mnemoscope import' stores it again")
    origin = trained_by()
    program = programs(spec, len(wanted))
    mesh = device_mesh(len(wanted))
    ids = spread(mesh, jnp.array(wanted))
    states = program.start(ids)
    watch = None
    if observe:

        def on_one(each: tuple[Array, Params, World]) -> Mapping[str, Array]:
            trained, frozen, world = each
            return observe(Transformer(spec.model, all_params(spec, trained, frozen)), world)

        watch = jax.jit(for_each_seed(on_one, mesh, lanes_for(mesh, len(wanted))))
    worlds = _worlds(spec.task, ids) if watch else None

    keep = spec.snapshot_steps()
    looks = spec.look_steps() if watch else ()
    stops = sorted({*keep, *looks, *(round(spec.steps * i / STOPS) for i in range(1, STOPS + 1))} - {0})
    so_far = _SoFar(len(wanted))

    def look(step: int, states: State) -> None:
        if step in keep:
            so_far.add("snapshots", all_params(spec, *jax.device_get((states.trained, states.frozen))))
        if watch and step in looks:
            so_far.add("observed", watch((states.trained, states.frozen, worlds)))

    def settle(begin: int, end: int, states: State) -> None:
        """Read off what a stretch left behind; waits until it is done."""
        so_far.add("losses", {"": jax.device_get(states.loss_sum) / (end - begin)})
        look(end, states)
        if sink:
            sink.log(end, so_far.numbers(end, states, looked=bool(watch) and end in looks))
        if keeper and end < spec.steps and keeper.due():
            keeper.keep(so_far.packed(states))
        if progress:
            progress(end, spec.steps)

    if keeper and (held := keeper.found()):
        states = so_far.unpack(held, states, mesh)
        if progress:
            progress(stops[so_far.stops - 1], spec.steps)
    else:
        look(0, states)
    behind: tuple[int, int, State] | None = None
    for begin, end in list(zip([0, *stops], stops, strict=False))[so_far.stops :]:
        states = program.advance((ids, states), jnp.array(begin), jnp.array(end))
        # the next stretch is under way before the last one is read, so no device waits for Python or for another device
        if behind:
            settle(*behind)
        behind = begin, end, states
    if behind:
        settle(*behind)
    snapshots, good_steps = so_far.stacked("snapshots"), np.array(states.good_steps)[: len(wanted)]
    # no loss is asked after the last step: weights that it made infinite would not be noticed by their loss
    sound = np.all([np.isfinite(x[:, -1]).reshape(len(wanted), -1).all(axis=1) for x in snapshots.values()], axis=0)
    good_steps = np.where(sound, good_steps, np.minimum(good_steps, spec.steps - 1))
    return Run(
        spec, wanted, snapshots, np.array(stops), so_far.stacked("losses")[""], good_steps, so_far.stacked("observed"),
        world_hashes(spec.task, wanted), (origin,),
    )  # fmt: skip


class _SoFar:
    """What a training has left behind by now, seed by seed: snapshots, what was observed, and losses."""

    def __init__(self, n_seeds: int):
        self.n_seeds = n_seeds
        self.parts: dict[str, list[dict[str, np.ndarray]]] = {"snapshots": [], "observed": [], "losses": []}

    @property
    def stops(self) -> int:
        """How many stops are behind."""
        return len(self.parts["losses"])

    def add(self, part: str, arrays: Mapping[str, Any]) -> None:
        self.parts[part].append({name: x[: self.n_seeds] for name, x in jax.device_get(dict(arrays)).items()})

    def stacked(self, part: str) -> dict[str, np.ndarray]:
        each = self.parts[part]
        return {name: np.stack([one[name] for one in each], axis=1) for name in each[0]} if each else {}

    def numbers(self, step: int, states: State, looked: bool) -> dict[str, float]:
        """What a sink is told at a stop; of what is watched, that which is one number for each seed."""
        losses, good = self.parts["losses"][-1][""], np.asarray(states.good_steps)[: self.n_seeds]
        told = {"loss/mean": losses.mean(), "loss/lowest": losses.min(), "loss/highest": losses.max()}
        if looked:
            told |= {f"watched/{name}": x.mean() for name, x in self.parts["observed"][-1].items() if x.ndim == 1}
        return {name: float(x) for name, x in told.items()} | {"seeds/diverged": float((good < step).sum())}

    def packed(self, states: State) -> dict[str, np.ndarray]:
        """Everything that is needed to go on, as arrays with names."""
        leaves = jax.device_get(jax.tree.leaves(states))
        arrays = {f"{part}/{name}": x for part in self.parts for name, x in self.stacked(part).items()}
        return arrays | {f"state/{i}": x[: self.n_seeds] for i, x in enumerate(leaves)}

    def unpack(self, arrays: dict[str, np.ndarray], states: State, mesh: Mesh) -> State:
        """Take over what `packed` gave; the states are those that it was given."""
        for part in self.parts:
            mine = {name.removeprefix(f"{part}/"): x for name, x in arrays.items() if name.startswith(f"{part}/")}
            times = next(iter(mine.values())).shape[1] if mine else 0
            self.parts[part] = [{name: x[:, i] for name, x in mine.items()} for i in range(times)]
        kept = [arrays.get(f"state/{i}", np.zeros(0)) for i in range(len(jax.tree.leaves(states)))]
        for mine, theirs in zip(kept, jax.tree.leaves(states), strict=True):
            if (mine.shape, mine.dtype) != ((self.n_seeds, *theirs.shape[1:]), theirs.dtype):
                raise UserError(
                    "what was kept of a block under way does not fit its Spec; delete its .part file from the store"
                )
        leaves = [spread(mesh, x) for x in kept]
        return jax.tree.unflatten(jax.tree.structure(states), leaves)


note_imported()  # everything that trains is loaded now, and nobody has put anything in its place yet
