r"""Training: one compiled loop in which every step draws fresh data and takes one gradient.

    loss = sum_t weight_t * -log softmax(logits_t)[target_t] / sum_t weight_t         mean over the batch

Seeds run along a leading axis, shared out over the devices; inside a device `lanes` of them advance together. The
loop's end is an argument, so one compilation serves every stretch between two stops: there Python looks in to keep
a snapshot, call the probes that the caller handed in and move the progress bar. Nothing of Python is in a step.

Random numbers: a seed's key is split into world, weights and data; the batch of step i comes from fold_in(data, i).
So a seed's run does not depend on its neighbours, on the stops, or on the number of devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mnemoscope.arrays import Array, Float, Int, Params, PRNGKeyArray
from mnemoscope.config import UserError
from mnemoscope.model import ModelConfig, Transformer, fast, forward, init
from mnemoscope.spec import Spec
from mnemoscope.tasks import Example, World

STOPS = 64  # how often, at least, a run comes up for air: a point of the loss curve and a move of the progress bar

Observe = Callable[[Transformer, World], Mapping[str, Array]]
Progress = Callable[[int, int], None]  # steps done, steps in all


class State(NamedTuple):
    """What a step changes, for one seed."""

    params: Params
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
    observed: dict[str, Float[np.ndarray, "seed snap ..."]] = field(default_factory=dict)

    def outcome(self, seed: int) -> Literal["finished", "diverged"]:
        """`diverged` when the loss of any step was not a finite number."""
        return "finished" if self.good_steps[self._row(seed)] == self.spec.steps else "diverged"

    @property
    def finished(self) -> np.ndarray:
        """Which seeds finished, as a mask along the seed axis."""
        return self.good_steps == self.spec.steps

    def model(self, seed: int, snapshot: int = -1) -> Transformer:
        """One seed's model, at the end of training or at an earlier snapshot."""
        row = self._row(seed)
        return Transformer(self.spec.model, {k: jnp.asarray(v[row, snapshot]) for k, v in self.snapshots.items()})

    def models(self, snapshot: int = -1) -> Transformer:
        """All seeds' models at once, with a leading seed axis, for `vmap`."""
        return Transformer(self.spec.model, {k: jnp.asarray(v[:, snapshot]) for k, v in self.snapshots.items()})

    def worlds(self) -> World:
        """Each seed's world, drawn again from the seed, with a leading seed axis."""
        return _worlds(self.spec, jnp.array(self.seeds))

    def world(self, seed: int) -> World:
        """One seed's world, drawn again from the seed."""
        return jax.tree.map(lambda x: x[0], _worlds(self.spec, jnp.array([seed])))

    def _row(self, seed: int) -> int:
        if seed not in self.seeds:
            raise UserError(f"no seed {seed} in this run; allowed: {', '.join(map(str, self.seeds))}")
        return self.seeds.index(seed)


def seed_keys(seed: int | Int[Array, ""]) -> PRNGKeyArray:
    """The three keys of a seed: world, weights, data."""
    return jax.random.split(jax.random.key(seed), 3)


@partial(jax.jit, static_argnames="spec")
def _worlds(spec: Spec, seeds: Int[Array, "seed"]) -> World:
    return jax.vmap(lambda seed: spec.task.world(key=seed_keys(seed)[0]))(seeds)


def batch_loss(
    config: ModelConfig, params: Params, batch: Example, read: tuple[int, ...], plain: bool = False
) -> Float[Array, ""]:
    """The weighted cross-entropy of a batch, as the module's docstring writes it, over the positions `read`.

    Shapes that the fast rewrite covers take it; `plain` insists on the plain forward pass.
    """
    rows = np.array(read)
    if fast.applies(config, params["embed.W_E"].shape[0], batch.tokens.shape[1]) and not plain:
        logits = fast.read_logits(config, params, batch.tokens, read)  # vocab, read, batch
        is_target = batch.targets.T[None, rows] == jnp.arange(logits.shape[0])[:, None, None]
        each = (jax.nn.logsumexp(logits, axis=0) - jnp.where(is_target, logits, 0).sum(axis=0)).T
    else:
        logits = jax.vmap(lambda tokens: forward(config, params, tokens)[0])(batch.tokens)[:, rows]
        each = optax.losses.softmax_cross_entropy_with_integer_labels(logits, batch.targets[:, rows])
    weights = batch.weights[:, rows]
    return (each * weights).sum() / weights.sum()


def train_step(spec: Spec, world: World, data_key: PRNGKeyArray, step: Int[Array, ""], state: State) -> State:
    """Draw a batch, take the gradient of its loss in the parameters that are not frozen, and follow it."""
    keys = jax.random.split(jax.random.fold_in(data_key, step), spec.batch)
    batch = jax.vmap(lambda key: spec.task.sample(world, key=key))(keys)
    still, read = spec.model.frozen_names(), spec.task.read_positions
    frozen = {name: value for name, value in state.params.items() if name in still}
    trained = {name: value for name, value in state.params.items() if name not in still}
    loss, gradient = jax.value_and_grad(lambda p: batch_loss(spec.model, {**frozen, **p}, batch, read))(trained)
    updates, optimiser = spec.optimiser.transformation(spec.steps).update(gradient, state.optimiser, trained)
    trained = cast(Params, optax.apply_updates(trained, updates))
    params = {name: frozen[name] if name in still else trained[name] for name in state.params}
    return State(params, optimiser, state.loss_sum + loss, state.good_steps + jnp.isfinite(loss))


def start(spec: Spec, seed: int | Int[Array, ""]) -> State:
    """The state before the first step."""
    params = init(spec.model, spec.task.d_vocab, spec.task.n_ctx, key=seed_keys(seed)[1])
    trained = {name: value for name, value in params.items() if name not in spec.model.frozen_names()}
    return State(params, spec.optimiser.transformation(spec.steps).init(trained), jnp.zeros(()), jnp.zeros((), int))


@partial(jax.jit, static_argnames=("spec", "lanes", "mesh"), donate_argnames="states")
def _advance(
    spec: Spec, lanes: int | None, mesh: Mesh, seeds: Int[Array, "seed"], states: State, begin: Int[Array, ""],
    end: Int[Array, ""],
) -> State:  # fmt: skip
    """Take every seed from step `begin` to step `end`."""

    def one_seed(seed: Array, state: State, begin: Array, end: Array) -> State:
        for_world, _, for_data = seed_keys(seed)
        world = spec.task.world(key=for_world)
        state = state._replace(loss_sum=jnp.zeros(()))
        return jax.lax.fori_loop(begin, end, lambda i, s: train_step(spec, world, for_data, i, s), state)

    def one_device(seeds: Array, states: State, begin: Array, end: Array) -> State:
        return jax.lax.map(lambda args: one_seed(args[0], args[1], begin, end), (seeds, states), batch_size=lanes)

    by_seed, same = PartitionSpec("seed"), PartitionSpec()
    return jax.shard_map(
        one_device, mesh=mesh, in_specs=(by_seed, by_seed, same, same), out_specs=by_seed, check_vma=False
    )(seeds, states, begin, end)


@partial(jax.jit, static_argnames="spec")
def _start(spec: Spec, seeds: Int[Array, "seed"]) -> State:
    return jax.vmap(partial(start, spec))(seeds)


def fit(
    spec: Spec,
    seeds: Sequence[int],
    observe: Observe | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train one model for each seed. `observe(model, world)` is called for every seed at every snapshot.

    The caller pays for what it hands in: `observe` is compiled once and runs at each snapshot.
    """
    wanted = tuple(int(seed) for seed in seeds)
    if not wanted or len(set(wanted)) != len(wanted) or min(wanted) < 0:
        raise UserError(f"seeds must be different whole numbers from 0 up, at least one, got {list(wanted)}")
    devices = jax.devices()[: len(wanted)]
    mesh = Mesh(np.array(devices), ("seed",))
    # every device gets the same number of seeds; the last seed stands in for what is missing and is dropped at the end
    padded = wanted + wanted[-1:] * (-len(wanted) % len(devices))
    # one after another on a core (its cache holds one seed); all at once where there are thousands of lanes
    lanes = None if devices[0].platform == "cpu" else len(padded) // len(devices)
    by_seed = NamedSharding(mesh, PartitionSpec("seed"))
    ids = jax.device_put(jnp.array(padded), by_seed)
    states = jax.device_put(_start(spec, ids), by_seed)
    watch = None if observe is None else jax.jit(jax.vmap(observe))
    worlds = _worlds(spec, ids) if watch else None

    keep = spec.snapshot_steps()
    stops = sorted({*keep, *(round(spec.steps * i / STOPS) for i in range(1, STOPS + 1))} - {0})
    snapshots: list[Params] = []
    observed: list[dict[str, Any]] = []
    losses: list[np.ndarray] = []

    def look(step: int) -> None:
        if step in keep:
            snapshots.append(jax.device_get(states.params))
            if watch:
                observed.append(jax.device_get(watch(Transformer(spec.model, states.params), worlds)))

    look(0)
    done = 0
    for stop in stops:
        states = _advance(spec, lanes, mesh, ids, states, jnp.array(done), jnp.array(stop))
        losses.append(jax.device_get(states.loss_sum) / (stop - done))
        done = stop
        look(done)
        if progress:
            progress(done, spec.steps)

    def stacked(parts: list[Any]) -> Any:
        return jax.tree.map(lambda *x: np.stack(x, axis=1)[: len(wanted)], *parts) if parts else {}

    return Run(
        spec, wanted, stacked(snapshots), np.array(stops), np.stack(losses, axis=1)[: len(wanted)],
        np.asarray(states.good_steps)[: len(wanted)], stacked(observed),
    )  # fmt: skip
