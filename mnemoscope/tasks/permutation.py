r"""Permutations shown pair by pair: every next answer can be eliminated, or recalled.

A hidden mapping m is a permutation of V symbols. A sequence shows it in a random order,

    x_1 y_1 x_2 y_2 ... x_V y_V      with y_i = m(x_i),

and the model is asked for y_i at each x_i. Nothing but the symbols used so far helps: with k - 1
distinct pairs seen, a new x_k has the posterior 1 / (V - k + 1) on each unused value
(*elimination*). With some probability the last pair repeats an earlier one, and then the answer has
been shown (*recall*).

Tokens are 1..V; 0 is in the vocabulary and never used, as in the paper. `source` r of the last
pair says which pair it is: V - 1 for a new one, else the earlier pair (counted from 0) that it
repeats.

What of this makes a model learn can be asked by changing one thing: the x's in order, a fixed set
of sequences, or the loss everywhere. None of it changes a posterior.

Small worlds are enumerated: `sequences` lists every sequence with its probability, and `posterior`
counts mappings.
"""

import itertools
import math
from enum import IntEnum
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, Tokens
from mnemoscope.core.errors import UserError, in_one_line
from mnemoscope.tasks.base import Example, Task

MAX_SEQUENCES = 4_000_000  # what `sequences` is willing to list


class Split(NamedTuple):
    """The world of a permutation run."""

    train: Int[Array, "mapping symbol"]
    """Mappings that are trained on."""

    held_out: Int[Array, "unseen symbol"]
    """Mappings that are never shown."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Sequences(NamedTuple):
    """Every sequence of some mappings. Rows run over mapping, then order, then source."""

    tokens: Int[np.ndarray, "batch length"]
    """The sequences x_1 y_1 ... x_V y_V."""

    probability: Float[np.ndarray, "batch"]
    """The probability of each sequence; they sum to 1."""

    source: Int[np.ndarray, "batch"]
    """Which pair the last one is: V - 1 for a new one, else the earlier pair that it repeats."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Role(IntEnum):
    """What a position is for."""

    OUTPUT = 0  # an answer being shown: nothing is asked here
    ELIMINATE = 1  # a new x: the answer is one of the unused values
    RECALL = 2  # an x seen before: the answer has been shown


@lru_cache
def permutations(n: int) -> Int[np.ndarray, "mapping symbol"]:
    """All n! permutations of 0..n-1, in lexicographic order, read-only."""
    table = np.array(list(itertools.permutations(range(n))), dtype=np.int8)
    table.setflags(write=False)
    return table


class Permutation(Task):
    """A hidden permutation shown pair by pair: answers can be eliminated, or recalled."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"x_order", "fixed_set", "loss"})

    kind: Literal["permutation"] = "permutation"
    """The name of this task in files."""

    n_symbols: Annotated[int, Field(ge=2, le=9)] = 5
    """V, the symbols that are permuted; 9! = 362,880 mappings is the largest table kept."""

    repeat: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How often the last pair repeats an earlier one."""

    repeat_of: Literal["first", "any"] = "first"
    """Which pair the last one repeats: always the first, or any."""

    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of all mappings that is never trained on."""

    split_seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    """What decides which mappings are held out: None is each run's own seed, a number fixes one
    split for all of them."""

    x_order: Literal["shuffled", "fixed"] = "shuffled"
    """In which order a sequence shows the x's: a random one, or always 1 to V."""

    fixed_set: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """How many sequences are drawn once for a run, to be trained on again and again; 0: every
    sequence is drawn anew."""

    loss: Literal["answers", "all"] = "answers"
    """Where the loss is: at every x, or at every position, so that the next x is guessed too."""

    @property
    def d_vocab(self) -> int:
        return self.n_symbols + 1

    @property
    def n_ctx(self) -> int:
        return 2 * self.n_symbols - 1

    @property
    def n_held_out(self) -> int:
        """Held-out mappings, the nearest whole number, and at least one on either side."""
        total = math.factorial(self.n_symbols)
        return min(max(round(self.held_out * total), 1), total - 1)

    @property
    def asked_positions(self) -> tuple[int, ...]:
        """Where the model is asked for an answer: at every x."""
        return tuple(range(0, self.n_ctx, 2))

    @property
    def loss_positions(self) -> tuple[int, ...]:
        return tuple(range(self.n_ctx)) if self.loss == "all" else self.asked_positions

    @property
    def orders(self) -> Int[np.ndarray, "order symbol"]:
        """Every order in which a sequence may show the x's, all equally likely."""
        every = permutations(self.n_symbols)
        return every if self.x_order == "shuffled" else every[:1]  # the first one is 1 to V

    @property
    def source_probability(self) -> tuple[float, ...]:
        """p(r): which pair the last one is; entry V - 1 means a new pair."""
        earlier = self.n_symbols - 1
        new = 1 - self.repeat
        if self.repeat_of == "any":
            return (*[self.repeat / earlier] * earlier, new)
        return (self.repeat, *[0.0] * (earlier - 1), new)

    def world(self, *, key: PRNGKeyArray) -> Split:
        """Split all V! mappings at random into trained and held-out ones."""
        if self.split_seed is not None:
            key = jax.random.key(self.split_seed)
        shuffled = jax.random.permutation(key, jnp.asarray(permutations(self.n_symbols)))
        return Split(shuffled[self.n_held_out :], shuffled[: self.n_held_out])

    def sample(self, world: Split, *, key: PRNGKeyArray) -> Example:
        """A trained mapping, an order and a source, each drawn independently."""
        orders = self.orders
        if self.fixed_set:
            key = self._key_in_set(world, key)
        # three words of 32 random bits; the remainder's bias is below n / 2^32, and one draw
        # compiles fastest
        for_mapping, for_order, for_source = jax.random.bits(key, (3,))
        mapping = world.train[for_mapping % world.train.shape[0]]
        order = jnp.asarray(orders)[for_order % orders.shape[0]]
        below = np.cumsum(self.source_probability)[:-1] * 2.0**32
        source = jnp.sum(for_source.astype(float) >= below)  # inverse of the distribution function
        x = order.at[-1].set(order[source])
        tokens = jnp.stack([x, mapping[x]], axis=1).reshape(-1).astype(jnp.int32) + 1
        weights = jnp.zeros(self.n_ctx).at[jnp.array(self.loss_positions)].set(1.0)
        return Example(tokens[:-1], tokens[1:], weights)

    def _key_in_set(self, world: Split, key: PRNGKeyArray) -> PRNGKeyArray:
        """The key of one of the sequences that a run has, each as likely as the others.

        A run's set is its own: its first two mappings, read as a number, say which one.
        """
        first_two = world.train[:2].reshape(-1).astype(jnp.uint32)
        digits = self.n_symbols ** np.arange(2 * self.n_symbols, dtype=np.uint64)
        number = jnp.sum(first_two * jnp.asarray(digits.astype(np.uint32))[: first_two.shape[0]])
        which = jax.random.bits(key) % np.uint32(self.fixed_set)
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(0), number), which)

    def list_tokens(
        self, mappings: Int[Array, "mapping symbol"], sources: tuple[int, ...]
    ) -> Int[Array, "batch length"]:
        """Every sequence of these mappings with these sources, rows over mapping, order, source;
        works inside jit."""
        if not sources or not set(sources) <= set(range(self.n_symbols)):
            raise UserError(
                f"sources must be pair numbers from 0 to {self.n_symbols - 1}, got {list(sources)}"
            )
        orders = self.orders
        count = mappings.shape[0] * len(orders) * len(sources)
        if count > MAX_SEQUENCES:
            raise UserError(
                f"{count:,} sequences are too many to list; "
                f"at most {MAX_SEQUENCES:,} (use fewer mappings)"
            )
        x = np.repeat(orders[:, None], len(sources), axis=1)
        x[:, :, -1] = orders[:, list(sources)]
        y = mappings[:, x]  # mapping, order, source, pair
        pairs = jnp.stack([jnp.broadcast_to(x[None], y.shape).astype(y.dtype), y], axis=-1)
        return pairs.reshape(count, 2 * self.n_symbols).astype(jnp.int32) + 1

    def sequences(
        self,
        mappings: Int[np.ndarray | Array, "mapping symbol"],
        sources: tuple[int, ...] | None = None,
    ) -> Sequences:
        """Every sequence of these mappings with its probability; `sources` restricts which pair may
        come last.

        Restricted to some sources, the probabilities are conditional on them; sources that the task
        never draws (a probe's trap) weigh the same.
        """
        chance = np.array(self.source_probability)
        if sources is None:
            sources = tuple(int(r) for r in np.flatnonzero(chance))
        tokens = np.asarray(self.list_tokens(jnp.asarray(mappings), sources))
        weight = chance[list(sources)]
        if not weight.all():
            weight = np.ones(len(sources))
        rows = len(tokens) // len(sources)
        return Sequences(
            tokens=tokens,
            probability=np.tile(weight / weight.sum() / rows, rows),
            source=np.tile(np.array(sources), rows),
        )

    @property
    def is_drawn_anew(self) -> bool:
        """Whether each sequence is drawn anew and answers alone are asked for, as the posterior
        has it."""
        return self.fixed_set == 0 and self.loss == "answers"

    def list_examples(self, world: Split) -> tuple[Example, Float[Array, "batch"]] | None:
        """Every sequence of the trained mappings; None for too many, or for a fixed set of them."""
        n_sources = sum(chance > 0 for chance in self.source_probability)
        count = world.train.shape[0] * len(self.orders) * n_sources
        if self.fixed_set or count > MAX_SEQUENCES:
            return None
        tokens, chances, _ = self.sequences(world.train)
        weights = np.zeros((len(tokens), self.n_ctx))
        weights[:, self.loss_positions] = 1.0
        examples = Example(
            jnp.asarray(tokens[:, :-1]), jnp.asarray(tokens[:, 1:]), jnp.asarray(weights, float)
        )
        return examples, jnp.asarray(chances, float)

    @overload
    def posterior(
        self,
        tokens: Tokens,
        world: None = None,
        *,
        mappings: Int[np.ndarray | Array, "mapping symbol"] | None = None,
    ) -> Float[Array, "step vocab"]: ...

    @overload
    def posterior(self, tokens: Tokens, world: Split) -> Float[Array, "step vocab"] | None: ...

    def posterior(
        self,
        tokens: Tokens,
        world: Split | None = None,
        *,
        mappings: Int[np.ndarray | Array, "mapping symbol"] | None = None,
    ) -> Float[Array, "step vocab"] | None:
        """p(y_k | x_1 y_1 ... x_k) at each x of a prompt, for a uniform prior over `mappings`, or
        the trained ones of a world (None: all V!).

        For all mappings this is a closed form: the shown answer if x_k was shown, else
        1 / (unused values) on each unused value. For a given set it counts the mappings that fit; a
        row that no mapping fits is NaN (0/0).

        Args:
            tokens: a prompt.
            world: whose trained mappings are the prior; where they are not all that is trained on
                (`fixed_set`), or more is asked than they say (`loss`), None is the answer.
            mappings: the prior, where it is that of no world.
        """
        if world is not None:
            if not self.is_drawn_anew:
                return None
            mappings = world.train
        x = tokens[0::2] - 1
        y = tokens[1::2] - 1
        steps = x.shape[0]
        y = y[: steps - 1]
        by_symbol = self._fitting_answers(x, y, mappings)
        by_token = jnp.concatenate([jnp.zeros((steps, 1)), by_symbol], axis=1)  # 0 is never used
        return by_token / by_token.sum(axis=1, keepdims=True)

    def _fitting_answers(
        self,
        x: Int[Array, "step"],
        y: Int[Array, "earlier"],
        mappings: Int[np.ndarray | Array, "mapping symbol"] | None,
    ) -> Float[Array, "step symbol"]:
        """How much speaks for each answer at each step, up to a factor."""
        if mappings is None:
            return self._possible_answers(x, y)
        return self._fitting_mappings(x, y, jnp.asarray(mappings))

    def _possible_answers(
        self, x: Int[Array, "step"], y: Int[Array, "earlier"]
    ) -> Float[Array, "step symbol"]:
        """Which answers are possible at each step, as 0 or 1, if any mapping may be the one."""
        steps = x.shape[0]
        symbols = jnp.arange(self.n_symbols)
        earlier = jnp.tril(jnp.ones((steps, steps), bool), -1)[:, : steps - 1]
        same = earlier & (x[:, None] == x[None, : steps - 1])  # step, earlier step
        is_y = y[:, None] == symbols[None, :]  # earlier step, symbol
        used = (earlier.astype(int) @ is_y.astype(int)) > 0
        shown = (same.astype(int) @ is_y.astype(int)) > 0
        return jnp.where(same.any(axis=1)[:, None], shown, ~used).astype(float)

    def _fitting_mappings(
        self,
        x: Int[Array, "step"],
        y: Int[Array, "earlier"],
        mappings: Int[Array, "mapping symbol"],
    ) -> Float[Array, "step symbol"]:
        """How many mappings that fit the pairs before a step give each answer there."""
        answers = mappings[:, x]  # mapping, step
        fits = answers[:, : x.shape[0] - 1] == y[None, :]
        fits = jnp.concatenate([jnp.ones((mappings.shape[0], 1), bool), fits], axis=1)
        fits = jnp.cumprod(fits, axis=1).astype(float)
        said = jax.nn.one_hot(answers, self.n_symbols)
        # one of jax's overloads has no types
        return jnp.einsum("ms,msv->sv", fits, said)  # pyright: ignore[reportUnknownMemberType]

    def loss_floor(self, world: Split) -> float | None:
        """The least mean loss of any predictor that knows which mappings are trained on; None for
        a fixed set of sequences."""
        return None if self.fixed_set else self.floor_of(world.train.shape[0])

    def floor_of(self, n_mappings: int) -> float:
        r"""The least mean loss of any predictor when the mapping is uniform over `n_mappings`
        distinct ones.

        By the chain rule the conditional entropies of the answers sum to the entropy of the
        mapping, ln M, since the x's say nothing about it and V - 1 pairs determine it. Repeating
        the last pair removes nothing: that step costs 0 either way. So the floor is ln(M) / V; for
        M = V! it equals sum_k ln(k) / V.

        If the x's to come are guessed too, they add their entropy: ln(V - k + 1) for x_k, one of
        those not shown yet, unless their order is fixed; and that of its source for the last one.
        """
        total = math.log(n_mappings)
        if self.loss == "all":
            if self.x_order == "shuffled":
                total += sum(math.log(left) for left in range(2, self.n_symbols))
            total -= sum(p * math.log(p) for p in self.source_probability if p > 0)
        return total / len(self.loss_positions)

    def roles(self, tokens: Tokens) -> Int[Array, "pos"]:
        """The `Role` of each position of a prompt."""
        position = jnp.arange(tokens.shape[0])
        is_x = position % 2 == 0
        same = tokens[:, None] == tokens[None, :]
        earlier = position[None, :] < position[:, None]
        seen = same & is_x[None, :] & earlier
        role_of_x = jnp.where(seen.any(axis=1), Role.RECALL, Role.ELIMINATE)
        return jnp.where(is_x, role_of_x, Role.OUTPUT)
