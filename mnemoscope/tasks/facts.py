r"""Facts told by a subject and a relation among noise: what is the capital of France?

There are S subjects, R relations and, for each relation, a block of D answers of its own. The fact
a(s, r) lies in the block of r. A sequence of T tokens holds s and r at two random places, noise
everywhere else and EOS at the end, where the answer is asked:

    n n s n n r n ... n EOS  ->  a(s, r)       s and r uniform, noise uniform over the noise tokens

Whoever reads both is certain. Whoever reads the relation alone can do no better than p(a | r), and
its loss is H(a | r); reading the subject alone leaves H(a | s), reading nothing H(a). `losses` has
these floors, exactly, for the facts of a world.

Tokens are the subjects, the relations, the noise and EOS, in this order. Answers are no tokens:
they are numbered 0 .. D R - 1.
"""

from typing import Annotated, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, Tokens
from mnemoscope.core.errors import UserError, in_one_line
from mnemoscope.tasks.base import Example, Task

Size = Annotated[int, Field(ge=1, le=2**20)]
Shown = Literal["both", "relation", "subject"]
SHOWN: tuple[Shown, ...] = ("both", "relation", "subject")


class FactWorld(NamedTuple):
    """The facts of one seed. Fewer than all subjects, relations and noise tokens may be in use: the
    first of each."""

    answer: Int[Array, "subject relation"]
    """The facts a(s, r)."""

    subjects: Int[Array, ""]
    """How many subjects are in use."""

    relations: Int[Array, ""]
    """How many relations are in use."""

    noise: Int[Array, ""]
    """How many noise tokens are in use."""

    def __repr__(self) -> str:
        return in_one_line(type(self).__name__, self._asdict())


class Facts(Task):
    """Facts told by a subject and a relation among noise; the answer is asked at the end."""

    kind: Literal["facts"] = "facts"
    """The name of this task in files."""

    subjects: Size = 16
    """S, how many subjects there are."""

    relations: Size = 4
    """R, how many relations there are."""

    per_relation: Size = 8
    """D, the answers of each relation."""

    noise: Size | None = None
    """How many noise tokens; None has as many as subjects and relations together."""

    length: Annotated[int, Field(ge=3, le=256)] = 32
    """T, the tokens of a sequence, with EOS."""

    answers: Literal["random", "even"] = "random"
    """Where facts come from: "random" draws each for each seed; "even" is the paper's table
    floor(s D / S) + r D."""

    @property
    def n_noise(self) -> int:
        """How many noise tokens there are."""
        return self.subjects + self.relations if self.noise is None else self.noise

    @property
    def d_vocab(self) -> int:
        return self.subjects + self.relations + self.n_noise + 1

    @property
    def d_vocab_out(self) -> int:
        return self.per_relation * self.relations

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def loss_positions(self) -> tuple[int, ...]:
        """The answer is asked at EOS alone."""
        return (self.length - 1,)

    @property
    def query_token(self) -> int:
        """EOS, the last token of all."""
        return self.d_vocab - 1

    @property
    def token_names(self) -> tuple[str, ...]:
        subjects = [f"s{i}" for i in range(self.subjects)]
        relations = [f"r{i}" for i in range(self.relations)]
        noise = [f"n{i}" for i in range(self.n_noise)]
        return (*subjects, *relations, *noise, "EOS")

    @property
    def answer_names(self) -> tuple[str, ...]:
        """Each answer as a person writes it: its relation and its number there."""
        return tuple(f"r{r}:{i}" for r in range(self.relations) for i in range(self.per_relation))

    def world(self, *, key: PRNGKeyArray) -> FactWorld:
        """The facts of a seed, all in use."""
        shape = (self.subjects, self.relations)
        if self.answers == "even":
            by_subject = jnp.arange(self.subjects) * self.per_relation // self.subjects
            within = jnp.broadcast_to(by_subject[:, None], shape)
        else:
            within = jax.random.randint(key, shape, 0, self.per_relation)
        block = self.per_relation * jnp.arange(self.relations)[None]  # where each one begins
        return self.in_use(within + block, self.subjects, self.relations)

    def in_use(
        self, answer: Int[Array, "subject relation"], subjects: int | Array, relations: int | Array
    ) -> FactWorld:
        """A world in which only the first subjects and relations are asked for, with noise tokens
        in proportion.

        Args:
            answer: all facts.
            subjects: how many of the subjects are in use.
            relations: how many of the relations are in use.
        """
        noise = self.noise
        if noise is None:
            noise = jnp.asarray(subjects) + jnp.asarray(relations)
        return FactWorld(
            answer=answer,
            subjects=jnp.asarray(subjects, jnp.uint32),
            relations=jnp.asarray(relations, jnp.uint32),
            noise=jnp.asarray(noise, jnp.uint32),
        )

    def sample(self, world: FactWorld, *, key: PRNGKeyArray) -> Example:
        """Subject, relation, two different places and noise, each drawn independently."""
        # one draw of random words, cut up: it compiles fastest. A remainder's bias is below
        # n / 2^32
        bits = jax.random.bits(key, (self.length + 3,))
        for_subject, for_relation, first, second, rest = jnp.split(bits, [1, 2, 3, 4])
        s = (for_subject[0] % world.subjects).astype(int)
        r = (for_relation[0] % world.relations).astype(int)
        tokens = self._row(world, s, r, rest, first[0], second[0], "both")
        targets = jnp.zeros(self.length, int).at[-1].set(world.answer[s, r])
        weights = jnp.zeros(self.length).at[-1].set(1.0)
        return Example(tokens, targets, weights)

    def every_fact(
        self, world: FactWorld, shown: Shown = "both", draws: int = 1, *, key: PRNGKeyArray
    ) -> tuple[Int[Array, "row pos"], Int[Array, "row"]]:
        """Each fact in noise, and its answer.

        Args:
            world: the facts.
            shown: subject and relation, or one of them; what is not shown is one noise token more.
            draws: how often each fact is listed, every time in noise drawn anew.
            key: draws the noise.
        """
        if shown not in SHOWN:
            raise UserError(f"unknown shown {shown!r}; allowed: {', '.join(SHOWN)}")
        subjects = jnp.arange(self.subjects)
        relations = jnp.arange(self.relations)
        s, r = jnp.meshgrid(subjects, relations, indexing="ij")
        s = s.reshape(-1)
        r = r.reshape(-1)
        s = jnp.repeat(s, draws)
        r = jnp.repeat(r, draws)
        bits = jax.random.bits(key, (s.shape[0], self.length + 1))

        def row(s: Array, r: Array, bits: Array) -> Array:
            return self._row(world, s, r, bits[2:], bits[0], bits[1], shown)

        return jax.vmap(row)(s, r, bits), world.answer[s, r]

    def _row(
        self,
        world: FactWorld,
        s: Array,
        r: Array,
        bits: Array,
        first: Array,
        second: Array,
        shown: Shown,
    ) -> Array:
        """Noise with the subject at one place and the relation at another, then EOS."""
        tokens = (bits % world.noise).astype(int) + self.subjects + self.relations
        # the second place is counted from the first one on, so that they differ
        here = (first % (self.length - 1)).astype(int)
        there = (here + 1 + (second % max(self.length - 2, 1)).astype(int)) % (self.length - 1)
        if shown != "relation":
            tokens = tokens.at[here].set(s)
        if shown != "subject":
            tokens = tokens.at[there].set(r + self.subjects)
        return jnp.concatenate([tokens[: self.length - 1], jnp.array([self.query_token])])

    def posterior(self, tokens: Tokens, world: FactWorld) -> Float[Array, "1 answer"]:
        """p(answer | tokens) at the end: certainty on the fact that the sequence asks for."""
        is_subject = tokens < self.subjects
        is_relation = ~is_subject & (tokens < self.subjects + self.relations)
        # each stands there once
        s = jnp.where(is_subject, tokens, 0).sum()
        r = jnp.where(is_relation, tokens - self.subjects, 0).sum()
        return jax.nn.one_hot(world.answer[s, r], self.d_vocab_out)[None]

    def loss_floor(self, world: FactWorld) -> float:
        """The least mean loss of any predictor: who reads subject and relation is certain."""
        return self.losses(world)["both"]

    def answer_shares(
        self, world: FactWorld, shown: Shown | Literal["nothing"] = "both"
    ) -> Float[Array, "subject relation answer"]:
        """p(a | what is shown) for each fact, when every subject and every relation is in use."""
        each = jax.nn.one_hot(world.answer, self.d_vocab_out)
        over = {"both": (), "relation": (0,), "subject": (1,), "nothing": (0, 1)}
        if shown not in over:
            raise UserError(f"unknown shown {shown!r}; allowed: {', '.join(over)}")
        return jnp.broadcast_to(each.mean(axis=over[shown], keepdims=True), each.shape)

    def losses(self, world: FactWorld) -> dict[str, float]:
        """The least loss of any reader of both, of the relation, of the subject, and of nothing:
        conditional entropies."""
        found: dict[str, float] = {}
        for shown in (*SHOWN, "nothing"):
            p = np.asarray(self.answer_shares(world, shown), float)
            p_log_p = p * np.log(np.where(p > 0, p, 1.0))
            found[shown] = float(-p_log_p.sum(axis=-1).mean())
        return found
