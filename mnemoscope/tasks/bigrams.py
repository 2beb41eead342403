r"""Text in which some characters are followed by what the context says, and the rest by what the
language says.

Each sequence has K triggers q_k and an output o_k for each. After a trigger comes its output, after
any other token a draw from the bigrams:

    z_1 ~ pi_u        z_{t+1} = o_k  if z_t = q_k,   else  z_{t+1} ~ pi_b(. | z_t)

Triggers are the same in all sequences (the most frequent characters, after skipping some), or drawn
from pi_u for each sequence without replacement; outputs are uniform over all tokens, or drawn from
pi_b(. | q_k). From the second time that a trigger is seen its output is known: those positions are
*predictable*, and only the context can predict them. With `noise` a trigger (a fixed one) is
followed by the noise token instead with that probability, every time anew.

`posterior` is the exact reader: it knows the bigrams and how triggers and outputs are drawn, and
infers the rest from the sequence. With random triggers it weighs every set of K triggers. Drawn
without replacement, the set is that of the first K of independent arrivals with rates pi_u, so its
probability is an integral over the time t of the K-th, with F_v = 1 - exp(-pi_u(v) t),

    p(S) = int sum_{v in S} f_v prod_{w in S, w != v} F_w prod_{w not in S} (1 - F_w) dt

and the likelihood is a product over tokens: the sum over all sets is one polynomial, built token by
token.
"""

from functools import lru_cache
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, UInt
from mnemoscope.tasks.base import Example, Task
from mnemoscope.tasks.corpus import Corpus, tiny_shakespeare

# tokens drawn in one turn of the loop: 512 sequences of 256 tokens take 1.7 ms with 1, 0.62 with 4
# and 0.9 with 8 on an H200; 5.5, 7.2 and 7.4 on one CPU core
UNROLL = 4
QUADRATURE = 400  # points of the integral over the time of the K-th arrival


class Bigrams(Task):
    """Text in which a context says what follows some characters, and bigrams the rest."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"noise", "noise_token"})

    kind: Literal["bigrams"] = "bigrams"
    """The name of this task in files."""

    corpus: Corpus | None = None
    """Whose bigrams the sequences have; None takes the counts of tiny Shakespeare."""

    n_triggers: Annotated[int, Field(ge=0)] = 5
    """K, the triggers of each sequence."""

    triggers: Literal["fixed", "random"] = "fixed"
    """Whether all sequences have the same triggers, or each draws its own."""

    skip: Annotated[int, Field(ge=0)] = 0
    """How many of the most frequent characters fixed triggers pass over."""

    outputs: Literal["uniform", "bigram"] = "uniform"
    """How the output of a trigger is drawn."""

    length: Annotated[int, Field(ge=2, le=4096)] = 256
    """How many tokens the model reads."""

    loss: Literal["predictable", "all"] = "predictable"
    """Where the loss is: on predictable positions, or on all."""

    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How often a trigger is followed by the noise token instead of its output."""

    noise_token: Annotated[int, Field(ge=0)] = 2
    """The number of the noise token; 2 is '!' in tiny Shakespeare."""

    @model_validator(mode="after")
    def _check(self) -> "Bigrams":
        most = self.d_vocab - (self.skip if self.triggers == "fixed" else 0)
        if self.n_triggers > most:
            raise ValueError(
                f"n_triggers={self.n_triggers} is more than the {most} characters "
                "there are to choose from"
            )
        if self.loss == "predictable" and self.n_triggers == 0:
            raise ValueError("without triggers no position is predictable; take loss='all'")
        if self.noise and self.triggers != "fixed":
            raise ValueError(
                "noise goes with triggers='fixed': "
                "the exact posterior knows which tokens it may follow"
            )
        if self.noise and self.noise_token >= self.d_vocab:
            raise ValueError(
                f"noise_token={self.noise_token} is no character; allowed: 0 to {self.d_vocab - 1}"
            )
        return self

    @property
    def text(self) -> Corpus:
        """The corpus whose bigrams the sequences have."""
        return self.corpus or tiny_shakespeare()

    @property
    def d_vocab(self) -> int:
        return len(self.text.characters)

    @property
    def n_ctx(self) -> int:
        return self.length

    @property
    def sparse_loss(self) -> bool:
        return self.loss == "predictable"

    @property
    def token_names(self) -> tuple[str, ...]:
        """Characters; white space is drawn as a sign."""
        signs = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
        return tuple(signs.get(c, c) for c in self.text.characters)

    @property
    def fixed_triggers(self) -> tuple[int, ...]:
        """The most frequent characters after the skipped ones; equally frequent ones in the order
        of their numbers."""
        order = np.argsort(-self.text.unigrams, kind="stable")
        return tuple(int(i) for i in order[self.skip : self.skip + self.n_triggers])

    def world(self, *, key: PRNGKeyArray) -> tuple[()]:
        """Nothing is hidden for a whole run: triggers and outputs belong to a sequence."""
        return ()

    def draw(
        self, *, key: PRNGKeyArray
    ) -> tuple[Int[Array, "drawn"], Int[Array, "trigger"], Int[Array, "trigger"]]:
        """One sequence of length + 1 tokens, its triggers and their outputs."""
        n_draws = self.length + self.n_triggers  # from the bigrams: one a token, one an output
        # one draw of bits, cut into pieces: each further draw would take half a second to compile
        bits = jax.random.bits(key, (2 * n_draws + 1 + self.d_vocab,))
        text, first, noise = jnp.split(bits, np.cumsum([2 * n_draws, 1]))
        columns, chances = text.reshape(2, -1)
        columns = (columns % self.d_vocab).astype(jnp.int32)  # biased by less than d_vocab / 2^32
        q = self._triggers(noise)
        shares, others = (jnp.asarray(table) for table in self.text.alias)

        def follow(z: Array, column: Array, chance: Array) -> Array:
            """A draw from pi_b(. | z), by Walker's tables."""
            return jnp.where(chance < shares[z, column], column, others[z, column])

        o = columns[self.length :]
        if self.outputs == "bigram":
            o = jax.vmap(follow)(q, o, chances[self.length :])
        up_to = jnp.asarray(np.cumsum(self.text.unigrams)[:-1], float)
        first = (_uniform(first) > up_to).sum().astype(jnp.int32)

        def step(z: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            column, chance = now
            is_q = q == z
            after_trigger = jnp.where(is_q, o, 0).sum().astype(jnp.int32)
            if self.noise:  # the chance that would have chosen a bigram is free at a trigger
                is_noise = _uniform(chance) < self.noise
                after_trigger = jnp.where(is_noise, self.noise_token, after_trigger)
            z = jnp.where(is_q.any(), after_trigger, follow(z, column, chance))
            return z, z

        draws = (columns[: self.length], chances[: self.length])
        _, rest = jax.lax.scan(step, first, draws, unroll=UNROLL)
        return jnp.concatenate([first[None], rest]), q, o

    def _triggers(self, noise: UInt[Array, "vocab"]) -> Int[Array, "trigger"]:
        """The triggers of a sequence, from a random word for each token."""
        if self.triggers == "fixed":
            return jnp.array(self.fixed_triggers, jnp.int32)
        # the K largest of log pi_u + Gumbel noise are a draw without replacement
        with np.errstate(divide="ignore"):
            log_unigrams = jnp.asarray(np.log(self.text.unigrams), float)
        weights = log_unigrams - jnp.log(-jnp.log(_uniform(noise)))
        return jax.lax.top_k(weights, self.n_triggers)[1].astype(jnp.int32)

    def roles(self, tokens: Int[Array, "pos"], q: Int[Array, "trigger"]) -> Int[Array, "pos"]:
        """0 at a token that is no trigger, else how many times it has been seen; from 2 on its
        output is known."""
        is_q = (tokens[None, :] == q[:, None]).astype(jnp.int32)
        return (is_q * jnp.cumsum(is_q, axis=1)).sum(axis=0)

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> Example:
        """A sequence; the loss is on predictable positions, or on all."""
        tokens, q, _ = self.draw(key=key)
        inputs = tokens[:-1]
        if self.loss == "all":
            every_position = jnp.ones(self.length)
            return Example(inputs, tokens[1:], every_position)
        predictable = (self.roles(inputs, q) >= 2).astype(float)
        return Example(inputs, tokens[1:], predictable)

    def posterior(
        self, tokens: Int[np.ndarray | Array, "pos"], world: tuple[()] = ()
    ) -> Float[np.ndarray, "pos vocab"]:
        """p(next | tokens so far) after each token, for a reader that infers triggers and outputs;
        float64, on the host."""
        n = self.d_vocab
        bigrams = self.text.bigrams
        prior = np.full((n, n), 1 / n) if self.outputs == "uniform" else bigrams
        tokens = np.asarray(tokens)
        if self.noise:
            return self._with_noise(tokens, prior)
        # what was seen after each token, as its likelihood if it is a trigger (a) and if not (b)
        a = np.ones(n)
        b = np.ones(n)
        output = np.full(n, -1)  # what followed a token first, or -1
        rows: list[np.ndarray] = []
        last = -1
        for z in tokens.tolist():
            if last >= 0:
                a[last] *= prior[last, z] if output[last] < 0 else float(output[last] == z)
                b[last] *= bigrams[last, z]
                if output[last] < 0:
                    output[last] = z
                a[last], b[last] = _scaled(a[last], b[last])
            after_trigger = prior[z] if output[z] < 0 else np.eye(n)[output[z]]
            share = self._trigger_share(z, a, b)
            rows.append(share * after_trigger + (1 - share) * bigrams[z])
            last = z
        return np.stack(rows)

    def _with_noise(
        self, tokens: Int[np.ndarray, "pos"], prior: Float[np.ndarray, "vocab output"]
    ) -> Float[np.ndarray, "pos vocab"]:
        """The reader's belief about each trigger's output, by Bayes: a follower is the output, or
        noise."""
        one_hot = np.eye(self.d_vocab)
        noise = one_hot[self.noise_token]
        belief = prior.copy()
        rows: list[np.ndarray] = []
        last = -1
        for z in tokens.tolist():
            if last in self.fixed_triggers:
                fits = self.noise * noise[z] + (1 - self.noise) * one_hot[z]
                with np.errstate(invalid="ignore"):
                    belief[last] = belief[last] * fits / (belief[last] * fits).sum()
            after_trigger = self.noise * noise + (1 - self.noise) * belief[z]
            rows.append(after_trigger if z in self.fixed_triggers else self.text.bigrams[z])
            last = z
        return np.stack(rows)

    def _trigger_share(self, z: int, a: np.ndarray, b: np.ndarray) -> float:
        """p(z is a trigger | what was seen)."""
        if self.triggers == "fixed":
            return float(z in self.fixed_triggers)
        without = a.copy()
        without[z] = 0.0
        whole = _sets(self.text, self.n_triggers, a, b)
        return 1 - _sets(self.text, self.n_triggers, without, b) / whole


def _scaled(a: float, b: float) -> tuple[float, float]:
    """Both over the larger one; not a number if both are 0, where nothing explains the sequence."""
    scale = max(a, b)
    if not scale:
        return np.nan, np.nan
    return a / scale, b / scale


def _uniform(bits: UInt[Array, "..."]) -> Float[Array, "..."]:
    """Numbers strictly between 0 and 1, in steps of 2^-23."""
    return ((bits >> 9).astype(float) + 0.5) * 2.0**-23


def _sets(corpus: Corpus, k: int, a: np.ndarray, b: np.ndarray) -> float:
    """sum over sets S of k tokens of p(S) prod_{v in S} a_v prod_{v not in S} b_v, up to a factor
    that a and b share.

    `lone` and `done` hold the polynomial's coefficients without and with the K-th arrival chosen,
    over quadrature points.
    """
    if k == 0:
        return float(np.prod(b))
    x, w = _points()
    time = x / (1 - x)
    rates = corpus.unigrams
    lone = np.zeros((k + 1, len(x)))
    done = np.zeros((k + 1, len(x)))
    lone[0] = 1.0
    for v in range(len(rates)):
        late = np.exp(-rates[v] * time)
        early = 1 - late
        now = rates[v] * late
        before_lone = lone
        before_done = done
        lone = before_lone * b[v] * late
        done = before_done * b[v] * late
        lone[1:] += before_lone[:-1] * a[v] * early
        done[1:] += before_done[:-1] * a[v] * early + before_lone[:-1] * a[v] * now
    return float((w / (1 - x) ** 2 * done[k]).sum())


@lru_cache
def _points() -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Legendre's points and weights on (0, 1), which x / (1 - x) stretches over all
    times."""
    x, w = np.polynomial.legendre.leggauss(QUADRATURE)
    return (x + 1) / 2, w / 2
