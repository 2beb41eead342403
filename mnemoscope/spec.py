"""A Spec is everything that decides a training run but the seed: task, model, optimiser, length, snapshots."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import numpy as np
import optax
from pydantic import Field, model_validator

from mnemoscope.config import Strict, unknown
from mnemoscope.model import ModelConfig, parameter_shapes
from mnemoscope.tasks import Bigrams, Cycle, Permutation

Positive = Annotated[int, Field(ge=1)]


class Adam(Strict):
    """Adam, with decoupled weight decay if asked for; the rate is constant or falls to zero along a cosine."""

    kind: Literal["adam"] = "adam"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    b1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    b2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "cosine"] = "constant"

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation for a run of this many steps."""
        rate = optax.cosine_decay_schedule(self.lr, steps) if self.schedule == "cosine" else self.lr
        adam = optax.adamw(rate, b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=self.weight_decay)
        # one long vector instead of a dozen small arrays: on CPU cores that share a thread pool, a dozen updates that are
        # ready at once are handed from core to core. Nine runs each: 312,000 samples/s against 294,000 on one core,
        # 565,000 against 522,000 on two (jax 0.10.2); on an H200 no difference
        return optax.flatten(adam)


class SGD(Strict):
    """Stochastic gradient descent: v <- momentum v + gradient + weight_decay p,  p <- p - lr v."""

    kind: Literal["sgd"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 0.03
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: Annotated[float, Field(ge=0)] = 0.0

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation; the rate is constant."""
        return optax.chain(optax.add_decayed_weights(self.weight_decay), optax.sgd(self.lr, self.momentum or None))


class Spec(Strict):
    """One training, frozen. `format` rises when the same Spec would train differently than before.

    `release` holds parameters back for a while: (name or pattern, step) leaves them as they were drawn before that step.
    """

    later = frozenset({"release"})

    format: Literal[1] = 1
    task: Annotated[Permutation | Cycle | Bigrams, Field(discriminator="kind")]
    model: ModelConfig = ModelConfig()
    optimiser: Annotated[Adam | SGD, Field(discriminator="kind")] = Adam()
    steps: Positive = 2000
    batch: Positive = 128
    snapshots: Positive = 2
    release: tuple[tuple[str, Positive], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        self.released()
        return self

    def released(self) -> dict[str, int]:
        """From which step each held-back parameter is trained; a pattern that matches nothing trained raises."""
        names = [n for n in parameter_shapes(self.model, 1, 1) if n not in self.model.frozen_names()]
        found: dict[str, int] = {}
        for pattern, step in self.release:
            matching = [name for name in names if fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(unknown("trained parameter in release", pattern, names))
            found |= dict.fromkeys(matching, step)
        return found

    def snapshot_steps(self) -> tuple[int, ...]:
        """Steps after which weights are kept: the last one, the start, and log-spaced ones between."""
        if self.snapshots == 1:
            return (self.steps,)
        spaced = np.geomspace(1, self.steps, self.snapshots - 1) if self.snapshots > 2 else np.array([self.steps])
        return tuple(sorted({0, self.steps, *(int(step) for step in np.rint(spaced))}))
