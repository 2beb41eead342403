"""What Mnemoscope and its peers train: the same models, batches and optimizers, by name.

A case is a Spec. Ours trains it as it stands and draws every sequence anew; a peer gets what a user
would have in its place: initial parameters, stacked by seed, and a stock of sequences of the same
task that lies on the device, of which it draws rows. That is the cheaper way to have data.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from mnemoscope import Adam, ModelConfig, Permutation, Spec
from mnemoscope.models import init
from mnemoscope.tasks import Bigrams
from mnemoscope.theory.induction import simplified_model
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.worlds import seed_keys

STOCK = 8192  # sequences that a peer draws from
# trains so many steps and says the mean loss over them and all seeds; returns when that is done
Advance = Callable[[int], float]


@dataclass(frozen=True)
class Case:
    """A training that is timed, alone and with many seeds."""

    words: str
    """What it is, for the table."""
    spec: Spec
    """What is trained."""
    many_on_gpu: int
    """Seeds that a GPU trains together."""
    many_on_cpu: int
    """Seeds that a CPU core trains."""
    loss_steps: int
    """The loss is compared after so many steps, as the mean of the last tenth."""


class Stock(NamedTuple):
    """Sequences to draw from."""

    tokens: np.ndarray
    """(sequence, pos)"""
    targets: np.ndarray
    """(sequence, read): the right answers where the loss is read."""
    weights: np.ndarray
    """(sequence, read): how much each counts."""


def _text(length: int, **other: object) -> ModelConfig:
    """Two layers of a width that goes with a length, as everybody has them."""
    d = {64: 64, 256: 128}[length]
    fields = {"d_model": d, "n_heads": 4, "n_layers": 2, "d_mlp": 4 * d, "norm": "pre"}
    return ModelConfig.model_validate(fields | other)


def _case(words: str, task, model: ModelConfig, batch: int, seeds, steps: int, **other) -> Case:
    spec = Spec(task=task, model=model, batch=batch, steps=10**6, snapshots=1, **other)
    return Case(words, spec, *seeds, steps)


def _on_text(words: str, length: int, seeds, steps: int, **other: object) -> Case:
    """Bigram text of 65 characters, read at every position."""
    task = Bigrams(length=length, n_triggers=0, loss="all")
    adam = Adam(lr=1e-3)
    return _case(words, task, _text(length, **other), 64, seeds, steps, optimizer=adam)


def _remember(norm: str) -> Case:
    model = ModelConfig(d_model=32, n_heads=2, d_mlp=64, norm=norm)
    words = f"`remember`, norm {norm}"
    adam = Adam(lr=1e-3)
    return _case(words, Permutation(repeat=0.3), model, 128, (1024, 8), 2000, optimizer=adam)


BIRTH_SGD = SGD(lr=0.03, momentum=0.9, weight_decay=1e-4)
CASES: dict[str, Case] = {
    "remember": _remember("none"),
    "remember-norm": _remember("post"),
    "t64": _on_text("two layers, d=64, T=64", 64, (64, 4), 200),
    "t256": _on_text("two layers, d=128, T=256", 256, (16, 2), 40),
    "gelu": _on_text("d=128, T=256, GELU", 256, (16, 2), 40, act="gelu"),
    "rotary": _on_text("d=128, T=256, rotary", 256, (16, 2), 40, positions="rotary"),
    "rms": _on_text("d=128, T=256, RMS", 256, (16, 2), 40, norm_type="rms"),
    "birth": _case(
        "`birth`, simplified, d=256, T=256",
        Bigrams(length=256),
        simplified_model(256),
        512,
        (16, 1),
        4,
        optimizer=BIRTH_SGD,
    ),
}


def stock(spec: Spec, n: int = STOCK) -> Stock:
    """Sequences of the task, in the world of seed 0.

    Args:
        spec: says the task.
        n: how many sequences.
    """
    for_world, _, for_data = seed_keys(0)
    world = spec.task.world(key=for_world)
    keys = jax.random.split(for_data, n)
    drawn = jax.jit(jax.vmap(lambda key: spec.task.sample(world, key=key)))(keys)
    read = list(spec.task.loss_positions)
    tokens, targets, weights = (np.asarray(x) for x in drawn[:3])
    return Stock(tokens.astype(np.int32), targets[:, read].astype(np.int32), weights[:, read])


def initial(spec: Spec, seeds: int) -> dict[str, np.ndarray]:
    """The parameters that ours starts from, stacked by seed, each linear map as one matrix.

    Args:
        spec: says the model.
        seeds: how many.
    """
    task = spec.task

    def one(seed: jax.Array) -> dict[str, jax.Array]:
        weights_key = seed_keys(seed)[1]
        return init(spec.model, task.d_vocab, task.n_ctx, task.d_vocab_out, key=weights_key)

    drawn = jax.jit(jax.vmap(one))(np.arange(seeds))
    return {name: _as_matrix(name, np.asarray(x)) for name, x in drawn.items()}


def _as_matrix(name: str, x: np.ndarray) -> np.ndarray:
    """(seed, rows, columns): heads side by side."""
    last = name.split(".")[-1]
    if last in ("W_Q", "W_K", "W_V"):
        return x.transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)
    if last == "W_O":
        return x.reshape(len(x), -1, x.shape[-1])
    return x.reshape(len(x), -1) if last in ("b_Q", "b_K", "b_V") else x
