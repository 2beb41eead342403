"""The rules that turn gradients into changes of the parameters, as fields of a Spec."""

from typing import Annotated, ClassVar, Literal

import optax  # pyright: ignore[reportMissingTypeStubs] (it has types, and does not say so)
from pydantic import Field

from mnemoscope.core.strict import Strict


class Adam(Strict):
    """Adam, with decoupled weight decay if asked for.

    The rate is constant or falls to zero along a cosine; over the first steps it may rise from 0.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"warmup", "clip"})

    kind: Literal["adam"] = "adam"
    """The name of this optimizer in files."""

    lr: Annotated[float, Field(gt=0)] = 1e-3
    """The learning rate, at its highest."""

    b1: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """How much of the mean gradient is kept from step to step."""

    b2: Annotated[float, Field(ge=0, lt=1)] = 0.999
    """How much of the mean squared gradient is kept from step to step."""

    eps: Annotated[float, Field(gt=0)] = 1e-8
    """Added to the root of the mean square, so that nothing is divided by zero."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The share of each parameter that a step of rate 1 takes away."""

    schedule: Literal["constant", "cosine"] = "constant"
    """Whether the rate is constant, or falls to zero at the last step along a cosine."""

    warmup: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Steps over which the rate rises from 0."""

    clip: Annotated[float, Field(gt=0)] | None = None
    """Gradients that are longer are shortened to this length."""

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation for a run of this many steps."""
        adam = optax.adamw(
            self._rate(steps),
            b1=self.b1,
            b2=self.b2,
            eps=self.eps,
            weight_decay=self.weight_decay,
        )
        if self.clip is not None:
            adam = optax.chain(optax.clip_by_global_norm(self.clip), adam)
        return adam

    def _rate(self, steps: int) -> optax.ScalarOrSchedule:
        """The learning rate: a number, or a function of the step."""
        rate = self.lr
        if self.schedule == "cosine":
            rate = optax.cosine_decay_schedule(self.lr, steps)
        if not self.warmup:
            return rate
        after = rate if callable(rate) else optax.constant_schedule(rate)
        rise = optax.linear_schedule(0.0, 1.0, self.warmup)
        return lambda step: rise(step) * after(step)


class SGD(Strict):
    """Stochastic gradient descent: v <- momentum v + gradient + weight_decay p,  p <- p - lr v."""

    kind: Literal["sgd"] = "sgd"
    """The name of this optimizer in files."""

    lr: Annotated[float, Field(gt=0)] = 0.03
    """The learning rate, constant."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """How much of v is kept from step to step."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The share of each parameter that is added to its gradient."""

    def transformation(self, steps: int) -> optax.GradientTransformation:
        """The Optax transformation; the rate is constant."""
        decay = optax.add_decayed_weights(self.weight_decay)
        return optax.chain(decay, optax.sgd(self.lr, self.momentum or None))
