r"""Text in which some characters are followed by what the context says, and the rest by what the language says.

Each sequence has K triggers q_k and an output o_k for each. After a trigger comes its output, after any other token a draw
from the bigrams:

    z_1 ~ pi_u        z_{t+1} = o_k  if z_t = q_k,   else  z_{t+1} ~ pi_b(. | z_t)

Triggers are the same in all sequences (the most frequent characters, after skipping some), or drawn from pi_u for each
sequence without replacement; outputs are uniform over all tokens, or drawn from pi_b(. | q_k). From the second time that
a trigger is seen its output is known: those positions are *predictable*, and only the context can predict them. With `noise` a
trigger (a fixed one) is followed by the noise token instead with that probability, every time anew.

`posterior` is the exact reader: it knows the bigrams and how triggers and outputs are drawn, and infers the rest from
the sequence. With random triggers it weighs every set of K triggers. Drawn without replacement, the set is that of the
first K of independent arrivals with rates pi_u, so its probability is an integral over the time t of the K-th,

    p(S) = int sum_{v in S} f_v prod_{w in S, w != v} F_w prod_{w not in S} (1 - F_w) dt,     F_v = 1 - exp(-pi_u(v) t),

and the likelihood is a product over tokens: the sum over all sets is one polynomial, built token by token.
"""

from functools import lru_cache
from typing import Annotated, Literal

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.axes import Array, Float, Int, PRNGKeyArray, UInt
from mnemoscope.tasks.base import Example, Task
from mnemoscope.tasks.corpus import Corpus, tiny_shakespeare

# tokens drawn in one turn of the loop: 512 sequences of 256 tokens take 1.7 ms with 1, 0.62 with 4 and 0.9 with 8 on an H200;
# 5.5, 7.2 and 7.4 on one CPU core
UNROLL = 4
QUADRATURE = 400  # points of the integral over the time of the K-th arrival


class Bigrams(Task):
    """The task. `corpus=None` takes the counts of tiny Shakespeare; `skip` passes over the most frequent characters."""

    later = frozenset({"noise", "noise_token"})

    kind: Literal["bigrams"] = "bigrams"
    corpus: Corpus | None = None
    n_triggers: Annotated[int, Field(ge=0)] = 5
    triggers: Literal["fixed", "random"] = "fixed"
    skip: Annotated[int, Field(ge=0)] = 0
    outputs: Literal["uniform", "bigram"] = "uniform"
    length: Annotated[int, Field(ge=2, le=4096)] = 256
    loss: Literal["predictable", "all"] = "predictable"
    noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    noise_token: Annotated[int, Field(ge=0)] = 2  # '!' in tiny Shakespeare

    @model_validator(mode="after")
    def _check(self) -> "Bigrams":
        most = self.d_vocab - (self.skip if self.triggers == "fixed" else 0)
        if self.n_triggers > most:
            raise ValueError(
                f"n_triggers={self.n_triggers} is more than the {most} characters there are to choose from"
            )
        if self.loss == "predictable" and self.n_triggers == 0:
            raise ValueError("without triggers no position is predictable; take loss='all'")
        if self.noise and self.triggers != "fixed":
            raise ValueError("noise goes with triggers='fixed': the exact reader knows which tokens it may follow")
        if self.noise and self.noise_token >= self.d_vocab:
            raise ValueError(f"noise_token={self.noise_token} is no character; allowed: 0 to {self.d_vocab - 1}")
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
    def reads_few(self) -> bool:
        return self.loss == "predictable"

    @property
    def token_names(self) -> tuple[str, ...]:
        """Characters; white space is drawn as a sign."""
        signs = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
        return tuple(signs.get(c, c) for c in self.text.characters)

    @property
    def fixed_triggers(self) -> tuple[int, ...]:
        """The most frequent characters after the skipped ones; equally frequent ones in the order of their numbers."""
        order = np.argsort(-self.text.unigrams, kind="stable")
        return tuple(int(i) for i in order[self.skip : self.skip + self.n_triggers])

    def world(self, *, key: PRNGKeyArray) -> tuple[()]:
        """Nothing is hidden for a whole run: triggers and outputs belong to a sequence."""
        return ()

    def draw(self, *, key: PRNGKeyArray) -> tuple[Int[Array, "drawn"], Int[Array, "trigger"], Int[Array, "trigger"]]:
        """One sequence of length + 1 tokens, its triggers and their outputs."""
        unigrams, k, n = self.text.unigrams, self.n_triggers, self.d_vocab
        # one draw of bits, cut into pieces: each further draw would take half a second to compile
        bits = jax.random.bits(key, (2 * (self.length + k) + 1 + n,))
        text, first, noise = jnp.split(bits, np.cumsum([2 * (self.length + k), 1]))
        columns, chances = text.reshape(2, -1)
        columns = (columns % n).astype(jnp.int32)  # biased by less than d_vocab / 2^32
        if self.triggers == "fixed":
            q = jnp.array(self.fixed_triggers, jnp.int32)
        else:  # the K largest of log pi_u + Gumbel noise are a draw without replacement
            with np.errstate(divide="ignore"):
                weights = jnp.asarray(np.log(unigrams), float) - jnp.log(-jnp.log(_uniform(noise)))
            q = jax.lax.top_k(weights, k)[1].astype(jnp.int32)
        shares, others = (jnp.asarray(table) for table in self.text.alias)

        def follow(z: Array, column: Array, chance: Array) -> Array:
            return jnp.where(chance < shares[z, column], column, others[z, column])

        o = columns[self.length :]
        if self.outputs == "bigram":
            o = jax.vmap(follow)(q, o, chances[self.length :])
        up_to = jnp.asarray(np.cumsum(unigrams)[:-1], float)
        first = (_uniform(first) > up_to).sum().astype(jnp.int32)

        def step(z: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            is_q = q == z
            told = jnp.where(is_q, o, 0).sum().astype(jnp.int32)
            if self.noise:  # the chance that would have chosen a bigram is free at a trigger
                told = jnp.where(_uniform(now[1]) < self.noise, self.noise_token, told)
            z = jnp.where(is_q.any(), told, follow(z, *now))
            return z, z

        rest = jax.lax.scan(step, first, (columns[: self.length], chances[: self.length]), unroll=UNROLL)[1]
        return jnp.concatenate([first[None], rest]), q, o

    def roles(self, tokens: Int[Array, "pos"], q: Int[Array, "trigger"]) -> Int[Array, "pos"]:
        """0 at a token that is no trigger, else how many times it has been seen; from 2 on its output is known."""
        is_q = (tokens[None, :] == q[:, None]).astype(jnp.int32)
        return (is_q * jnp.cumsum(is_q, axis=1)).sum(axis=0)

    def sample(self, world: tuple[()], *, key: PRNGKeyArray) -> Example:
        """A sequence; the loss is on predictable positions, or on all."""
        tokens, q, _ = self.draw(key=key)
        inputs = tokens[:-1]
        weights = jnp.ones(self.length) if self.loss == "all" else (self.roles(inputs, q) >= 2).astype(float)
        return Example(inputs, tokens[1:], weights)

    def posterior(self, tokens: Int[np.ndarray, "pos"]) -> Float[np.ndarray, "pos vocab"]:
        """p(next | tokens so far) after each token, for a reader that infers triggers and outputs; float64, on the host."""
        bigrams, n = self.text.bigrams, self.d_vocab
        prior = np.full((n, n), 1 / n) if self.outputs == "uniform" else bigrams
        if self.noise:
            return self._with_noise(tokens, prior)
        # what was seen after each token, as its likelihood if it is a trigger (a) and if it is not (b)
        a, b, shown = np.ones(n), np.ones(n), np.full(n, -1)
        rows = []
        for i, z in enumerate(np.asarray(tokens).tolist()):
            if i:
                last = int(tokens[i - 1])
                a[last] *= prior[last, z] if shown[last] < 0 else float(shown[last] == z)
                b[last] *= bigrams[last, z]
                shown[last] = z if shown[last] < 0 else shown[last]
                scale = max(a[last], b[last])  # 0 where nothing explains the sequence: then all that follows is NaN
                with np.errstate(invalid="ignore"):
                    a[last], b[last] = np.array([a[last], b[last]]) / scale if scale else (np.nan, np.nan)
            told = prior[z] if shown[z] < 0 else np.eye(n)[shown[z]]
            share = self._trigger_share(z, a, b)
            rows.append(share * told + (1 - share) * bigrams[z])
        return np.stack(rows)

    def _with_noise(
        self, tokens: Int[np.ndarray, "pos"], prior: Float[np.ndarray, "vocab output"]
    ) -> Float[np.ndarray, "pos vocab"]:
        """The reader's belief about each trigger's output, by Bayes: a follower is the output, or noise."""
        n, belief, rows = self.d_vocab, prior.copy(), []
        noise = np.eye(n)[self.noise_token]
        for i, z in enumerate(np.asarray(tokens).tolist()):
            if i and (last := int(tokens[i - 1])) in self.fixed_triggers:
                fits = self.noise * noise[z] + (1 - self.noise) * np.eye(n)[z]
                with np.errstate(invalid="ignore"):
                    belief[last] = belief[last] * fits / (belief[last] * fits).sum()
            told = self.noise * noise + (1 - self.noise) * belief[z]
            rows.append(told if z in self.fixed_triggers else self.text.bigrams[z])
        return np.stack(rows)

    def _trigger_share(self, z: int, a: np.ndarray, b: np.ndarray) -> float:
        """p(z is a trigger | what was seen)."""
        if self.triggers == "fixed":
            return float(z in self.fixed_triggers)
        without = a.copy()
        without[z] = 0.0
        whole = _sets(self.text, self.n_triggers, a, b)
        return 1 - _sets(self.text, self.n_triggers, without, b) / whole


def _uniform(bits: UInt[Array, "..."]) -> Float[Array, "..."]:
    """Numbers strictly between 0 and 1, in steps of 2^-23."""
    return ((bits >> 9).astype(float) + 0.5) * 2.0**-23


def _sets(corpus: Corpus, k: int, a: np.ndarray, b: np.ndarray) -> float:
    """sum over sets S of k tokens of p(S) prod_{v in S} a_v prod_{v not in S} b_v, up to a factor that a and b share.

    `lone` and `done` hold the polynomial's coefficients without and with the K-th arrival chosen, over quadrature points.
    """
    if k == 0:
        return float(np.prod(b))
    x, w = _points()
    time = x / (1 - x)
    rates = corpus.unigrams
    lone, done = np.zeros((k + 1, len(x))), np.zeros((k + 1, len(x)))
    lone[0] = 1.0
    for v in range(len(rates)):
        late = np.exp(-rates[v] * time)
        early, now = 1 - late, rates[v] * late
        before_lone, before_done = lone.copy(), done.copy()
        lone, done = before_lone * b[v] * late, before_done * b[v] * late
        lone[1:] += before_lone[:-1] * a[v] * early
        done[1:] += before_done[:-1] * a[v] * early + before_lone[:-1] * a[v] * now
    return float((w / (1 - x) ** 2 * done[k]).sum())


@lru_cache
def _points() -> tuple[np.ndarray, np.ndarray]:
    """Gauss and Legendre's points and weights on (0, 1), which x / (1 - x) stretches over all times."""
    x, w = np.polynomial.legendre.leggauss(QUADRATURE)
    return (x + 1) / 2, w / 2
