"""What the checks of a task look at: worlds and sequences of it, drawn once and kept."""

from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Bool, Float, Int, Key
from mnemoscope.models import ModelConfig, early_logits
from mnemoscope.tasks import Example, Task, World
from mnemoscope.testing.check_result import NotApplicable, require
from mnemoscope.training.loop import fit
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec
from mnemoscope.training.worlds import seed_keys

TOKENS = 2**17  # of all sequences together
MOST_SEQUENCES = 4096
ON_THE_HOST = 256  # sequences of which a posterior that is no JAX is asked
N_WORLDS = 4
SHARE = 4  # of the sequences of the first world, one in so many is drawn in each other
MODEL = ModelConfig(d_model=8, n_heads=1, d_mlp=0)
STEPS = 64
BATCH = 16


class Read(NamedTuple):
    """What the posterior says of sequences, at the positions where something may be asked."""

    p: Float[np.ndarray, "sequence read answer"]
    """The posterior; rows at which nothing is asked say nothing."""

    targets: Int[np.ndarray, "sequence read"]
    """What was drawn."""

    weights: Float[np.ndarray, "sequence read"]
    """How much each counts; 0 where nothing is asked."""

    tokens: Int[np.ndarray, "sequence pos"]
    """What the model reads."""

    @property
    def asked(self) -> Bool[np.ndarray, "sequence read"]:
        """Where something is asked."""
        return self.weights > 0


def draw_again(task: Task, keys: Key[Array, "seed"]) -> World:
    """The worlds of some keys, by a program that is traced anew each time."""
    return jax.jit(jax.vmap(lambda key: task.world(key=key)))(keys)


def draw_examples(task: Task, n: int, seed: int = 0) -> Example:
    """So many sequences of the world of a seed, along a batch axis, for tests of what they are.

    Args:
        task: what is drawn from.
        n: how many.
        seed: whose world.
    """
    draws = TaskDraws(task)
    keys = jax.random.split(jax.random.key(1), n)
    return jax.device_get(draws.draw(draws.world(seed), keys))


class TaskDraws:
    """Worlds, sequences, posteriors and a short training of one task, each made when it is first
    asked for.
    """

    def __init__(self, task: Task, train: bool = True):
        self.task = task
        self.train = train

    @cached_property
    def world_keys(self) -> Key[Array, "seed"]:
        """Those of the first seeds."""
        return jax.vmap(lambda seed: seed_keys(seed)[0])(jnp.arange(N_WORLDS))

    @cached_property
    def worlds(self) -> World:
        """The worlds of the first seeds, along a leading axis."""
        return draw_again(self.task, self.world_keys)

    def world(self, seed: int = 0) -> World:
        """One of them."""
        return jax.tree.map(lambda x: x[seed], self.worlds)

    @property
    def n_sequences(self) -> int:
        """How many sequences are drawn."""
        return min(max(TOKENS // self.task.n_ctx, 64), MOST_SEQUENCES)

    @cached_property
    def keys(self) -> Key[Array, "sequence"]:
        """One for each sequence."""
        return jax.random.split(jax.random.key(1), self.n_sequences)

    @cached_property
    def draw(self) -> Any:
        """Compiled: the sequences of a world and of keys."""

        def one(world: World, key: Array) -> Example:
            at_step = self.task.at_step(world, jnp.zeros((), int))
            return self.task.sample(at_step, key=key)

        return jax.jit(jax.vmap(one, in_axes=(None, 0)))

    @cached_property
    def batch(self) -> Example:
        """Sequences of the first world."""
        return jax.device_get(self.draw(self.world(), self.keys))

    @cached_property
    def in_worlds(self) -> "tuple[WorldDraws, ...]":
        """What is drawn in each world of the first seeds, where they differ."""
        found: dict[bytes, WorldDraws] = {}
        for seed in range(N_WORLDS):
            each = WorldDraws(self, seed)
            bits = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(each.world)]
            found.setdefault(b"|".join(bits), each)
        return tuple(found.values())

    @property
    def said_of_worlds(self) -> str:
        """In how many worlds something was looked at."""
        n = len(self.in_worlds)
        return "in one world" if n == 1 else f"in {n} worlds"

    @cached_property
    def probabilities(self) -> Any:
        """Compiled: what the posterior says of sequences of one world."""
        task = self.task
        return jax.jit(jax.vmap(task.posterior, in_axes=(0, None)))

    @property
    def drawn(self) -> Read:
        """The posterior of what was drawn in the first world."""
        return self.in_worlds[0].drawn

    def as_read(self, p: Float[np.ndarray, "sequence read answer"], batch: Example) -> Read:
        """What somebody says of the first of these sequences, beside what was drawn."""
        read = list(self.task.loss_positions)
        n = len(p)
        return Read(
            p,
            np.asarray(batch.targets, np.int64)[:n, read],
            np.asarray(batch.weights)[:n, read],
            np.asarray(batch.tokens)[:n],
        )

    # ---- a short training

    @cached_property
    def run(self) -> Run:
        """A training of a few steps."""
        if not self.train:
            raise NotApplicable("no training was asked for")
        return fit(Spec(task=self.task, model=MODEL, steps=STEPS, batch=BATCH), [0])

    @cached_property
    def trained_probabilities(self) -> Float[np.ndarray, "sequence read answer"]:
        """What the trained model says of the sequences, where training reads it."""
        model = self.run.model(self.run.seeds[0])
        read = np.array(self.task.loss_positions)

        def of_sequence(tokens: Array, layer: Array) -> Array:
            if self.task.reads_early:
                last = MODEL.n_layers - 1
                logits = early_logits(MODEL, model.params, tokens)[jnp.minimum(layer, last)]
            else:
                logits = model(tokens)
            return jax.nn.softmax(logits[read], axis=-1)

        batch = self.batch
        layers = np.zeros(len(batch.tokens), int) if batch.layer is None else batch.layer
        return np.asarray(jax.jit(jax.vmap(of_sequence))(batch.tokens, layers))


class WorldDraws:
    """Sequences, posteriors and the list of examples of one world, each made when it is first
    asked for; in all worlds but the first of a quarter as many sequences.

    Args:
        draws: those of the task.
        seed: whose world it is.
    """

    def __init__(self, draws: TaskDraws, seed: int):
        self.draws = draws
        self.task = draws.task
        self.seed = seed
        self.world = draws.world(seed)

    @property
    def said(self) -> str:
        """Which world it is, after what was found there; nothing of the first."""
        return f" (in the world of seed {self.seed})" if self.seed else ""

    @cached_property
    def batch(self) -> Example:
        """Sequences of this world."""
        draws = self.draws
        if self.seed == 0:
            return draws.batch
        keys = jax.vmap(lambda key: jax.random.fold_in(key, self.seed))(draws.keys)
        drawn = jax.device_get(draws.draw(self.world, keys))
        fewer = max(draws.n_sequences // SHARE, 2)
        return jax.tree.map(lambda x: x[:fewer], drawn)

    def posterior(self, tokens: Int[np.ndarray, "sequence pos"]) -> np.ndarray:
        """What the posterior says of some sequences: fewer where it is computed on the host."""
        task = self.task
        first = task.posterior(jnp.asarray(tokens[0]), self.world)
        if first is None:
            raise NotApplicable("it has no posterior for these fields")
        shape = (len(task.loss_positions), task.d_vocab_out)
        require(
            np.shape(first) == shape,
            f"it has a row for each of loss_positions and a column for each answer, {shape}; got "
            f"{np.shape(first)}",
        )
        try:
            return np.asarray(self.draws.probabilities(tokens, self.world))
        except jax.errors.JAXTypeError:  # NumPy, for the host
            most = ON_THE_HOST // SHARE if self.seed else ON_THE_HOST
            return np.stack([np.asarray(task.posterior(row, self.world)) for row in tokens[:most]])

    def read(self, batch: Example) -> Read:
        """The posterior of these sequences."""
        return self.draws.as_read(self.posterior(np.asarray(batch.tokens)), batch)

    @cached_property
    def drawn(self) -> Read:
        """The posterior of what was drawn."""
        if type(self.task).posterior is Task.posterior:
            raise NotApplicable("it has no posterior")
        return self.read(self.batch)

    @cached_property
    def listed(self) -> tuple[Example, Float[np.ndarray, "sequence"]]:
        """All sequences that there are, and the probability of each."""
        found = self.task.list_examples(self.world)
        if found is None:
            raise NotApplicable("it does not list its examples")
        examples, probability = found
        if len(probability) > MOST_SEQUENCES:
            raise NotApplicable(f"its {len(probability):,} examples are too many to compare")
        return jax.device_get(examples), np.asarray(probability, float)
