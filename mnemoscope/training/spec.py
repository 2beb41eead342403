"""A Spec is everything that decides a training run but the seed: task, model, optimiser, length, snapshots."""

from fnmatch import fnmatchcase
from typing import Annotated, Literal

import numpy as np
import optax
from pydantic import Field, model_validator

from mnemoscope.core.config import Strict
from mnemoscope.core.errors import unknown
from mnemoscope.models import ModelConfig, parameter_shapes
from mnemoscope.tasks import Bigrams, Cycle, Facts, Hops, Permutation

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]  # steps are counted in 32 bits


class Adam(Strict):
    """Adam, with decoupled weight decay if asked for; the rate is constant or falls to zero along a cosine.

    Over the first `warmup` steps the rate rises from 0. `clip` shortens gradients that are longer.
    """

    later = frozenset({"warmup", "clip"})

    kind: Literal["adam"] = "adam"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    b1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    b2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    eps: Annotated[float, Field(gt=0)] = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    schedule: Literal["constant", "cosine"] = "constant"
    warmup: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    clip: Annotated[float, Field(gt=0)] | None = None

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation for a run of this many steps."""
        rate = optax.cosine_decay_schedule(self.lr, steps) if self.schedule == "cosine" else self.lr
        if self.warmup:
            after = rate if callable(rate) else optax.constant_schedule(rate)
            rise = optax.linear_schedule(0.0, 1.0, self.warmup)
            rate = lambda step: rise(step) * after(step)  # noqa: E731
        adam = optax.adamw(rate, b1=self.b1, b2=self.b2, eps=self.eps, weight_decay=self.weight_decay)
        if self.clip is not None:
            adam = optax.chain(optax.clip_by_global_norm(self.clip), adam)
        return adam


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
    `watch` names probes (`mnemoscope.training.metrics`) that read the model while it trains, at `looks` evenly spaced steps and at
    the start, or at the snapshots if that is 0; probes that change what they read get a new name. `imported` is the fingerprint of
    weights that came from elsewhere: such a Spec describes a model that was read and cannot be trained.
    """

    later = frozenset({"release", "watch", "looks", "imported"})

    format: Literal[1] = 1
    task: Annotated[Permutation | Cycle | Bigrams | Facts | Hops, Field(discriminator="kind")]
    model: ModelConfig = ModelConfig()
    optimiser: Annotated[Adam | SGD, Field(discriminator="kind")] = Adam()
    steps: Positive = 2000
    batch: Positive = 128
    snapshots: Annotated[int, Field(ge=1, le=100_000)] = 2
    release: tuple[tuple[str, Positive], ...] = ()
    watch: Literal["bigrams", "facts", "noise", "hops"] | None = None
    looks: Annotated[int, Field(ge=0, le=100_000)] = 0
    imported: str | None = None

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        if type(self) is not Spec:
            name = type(self).__name__
            raise ValueError(f"{name} extends Spec, and its runs could not be told from a Spec's; allowed: Spec")
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

    def look_steps(self) -> tuple[int, ...]:
        """Steps after which the model is observed."""
        if not self.looks:
            return self.snapshot_steps()
        return tuple(sorted({round(self.steps * i / self.looks) for i in range(self.looks + 1)}))

    def program(self) -> "Spec":
        """The part of a Spec that a compiled step depends on: trainings that differ in the rest share their program."""
        steps = self.steps if isinstance(self.optimiser, Adam) and self.optimiser.schedule != "constant" else 1
        held = (("*", 1),) if self.release else ()
        return self.model_copy(update={"release": held, "steps": steps, "snapshots": 1, "watch": None, "looks": 0})
