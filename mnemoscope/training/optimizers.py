r"""The rules that turn gradients into changes of the parameters, as fields of a Spec.

    p <- p - rate(t) direction(gradient, p),     rate(t) = lr share(t) min(t / warmup, 1)

An optimizer says what a direction is; the rate's schedule and the shortening of long gradients are
the same for all of them. Its numbers are arguments of the compiled step (`numbered`). A direction
that treats every entry alike works on all parameters as one vector, which is what a CPU core does
fastest; one that needs to know matrices and names sets `wants_tree`.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax  # pyright: ignore[reportMissingTypeStubs] (it has types, and does not say so)
from pydantic import Field

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import UserError, short
from mnemoscope.core.kinds import any_kind
from mnemoscope.core.users_code import calling, require_arguments
from mnemoscope.training.numbered import Number, Numbered, as_float
from mnemoscope.training.schedules import AnySchedule, Constant, find_schedule

Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Steps = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Optimizer(Numbered):
    """What every optimizer has: a rate that may change over the steps, and a direction.

    One of one's own is a class with a `kind` and a direction, which is an Optax transformation; its
    fields are arguments of the compiled program:

        class Lion(ms.Optimizer):
            "The sign of a mean of gradients."

            kind: Literal["lion"] = "lion"
            lr: float = 1e-4
            b1: float = 0.9
            b2: float = 0.99

            def direction(self):
                return optax.scale_by_lion(self.b1, self.b2)

        ms.Spec(task=ms.Cycle(), optimizer=Lion(lr=3e-4, warmup=100))

    With `wants_tree = True` the direction gets parameters by name, each in its shape (for one that
    works on matrices); otherwise all of them as one vector.
    """

    family: ClassVar[str] = "optimizer"

    omit_if_default = frozenset({"schedule", "warmup", "clip"})

    wants_tree: ClassVar[bool] = False
    """Whether the transformation gets parameters by name, each in its shape, instead of one vector
    of all."""

    lr: Positive
    """The learning rate, at its highest."""

    schedule: AnySchedule = "constant"
    """How the rate goes on: constant, or down to a share of it at the last step."""

    warmup: Steps = 0
    """Steps over which the rate rises from 0."""

    clip: Positive | None = None
    """Gradients that are longer are shortened to this length."""

    @abstractmethod
    def direction(self) -> optax.GradientTransformation:
        """What a step of rate 1 takes away from the parameters, as an Optax transformation."""

    def transformation(self, steps: Number) -> optax.GradientTransformation:
        """The Optax transformation for a run of this many steps."""
        parts = [self._direction(), optax.scale_by_learning_rate(self._rate(steps))]
        if self.clip is not None:
            parts.insert(0, optax.clip_by_global_norm(self.clip))
        return optax.chain(*parts)

    def _direction(self) -> optax.GradientTransformation:
        """The direction; what is none is refused."""
        whose = f"the optimizer {self.kind_name()!r}"
        require_arguments(whose, self.direction)
        with calling(f"{whose}: direction"):
            found: Any = self.direction()
        if not isinstance(found, optax.GradientTransformation):
            raise UserError(
                f"{whose}: direction must return an optax.GradientTransformation, such as "
                f"optax.scale_by_adam(), got {short(found)}; optax.stateless makes one of a "
                "function of updates and parameters"
            )
        return found

    def _rate(self, steps: Number) -> Any:
        """The learning rate: a number, or a function of the step."""
        schedule = find_schedule(self.schedule)
        if isinstance(schedule, Constant) and not self.uses("warmup"):
            return self.lr

        whose = f"the schedule {schedule.kind_name()!r}"
        require_arguments(whose, schedule.share, "step", "steps")

        def rate(step: Int[Array, ""]) -> Float[Array, ""]:
            with calling(f"{whose}: share"):
                share = self.lr * schedule.share(step, steps)
            if self.uses("warmup"):
                share = jnp.minimum(as_float(step) / as_float(self.warmup), 1.0) * share
            return share

        return rate


class Adam(Optimizer):
    """Adam, with decoupled weight decay if asked for."""

    omit_if_default = frozenset({"warmup", "clip"})

    kind: Literal["adam"] = "adam"
    """The name of this optimizer in files."""

    lr: Positive = 1e-3
    """The learning rate, at its highest."""

    b1: Share = 0.9
    """How much of the mean gradient is kept from step to step."""

    b2: Share = 0.999
    """How much of the mean squared gradient is kept from step to step."""

    eps: Positive = 1e-8
    """Added to the root of the mean square, so that nothing is divided by zero."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The share of each parameter that a step of rate 1 takes away."""

    def direction(self) -> optax.GradientTransformation:
        means = scale_by_means(
            (self.b1, self.one_minus("b1")), (self.b2, self.one_minus("b2")), self.eps
        )
        if not self.uses("weight_decay"):
            return means
        return optax.chain(means, optax.add_decayed_weights(self.weight_decay))


class SGD(Optimizer):
    """Stochastic gradient descent: v <- momentum v + gradient + weight_decay p,  p <- p - lr v."""

    kind: Literal["sgd"] = "sgd"
    """The name of this optimizer in files."""

    lr: Positive = 0.03
    """The learning rate, at its highest."""

    momentum: Share = 0.0
    """How much of v is kept from step to step."""

    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """The share of each parameter that is added to its gradient."""

    def direction(self) -> optax.GradientTransformation:
        parts = [optax.identity()]
        if self.uses("weight_decay"):
            parts.append(optax.add_decayed_weights(self.weight_decay))
        if self.uses("momentum"):
            parts.append(optax.trace(self.momentum))
        return optax.chain(*parts)


AnyOptimizer = Annotated[Optimizer, *any_kind(Optimizer)]


def scale_by_means(
    first: tuple[Number, Number], second: tuple[Number, Number], eps: Number
) -> optax.GradientTransformation:
    r"""Adam's direction: the mean gradient over the root of the mean square.

        m <- b1 m + (1 - b1) g,   v <- b2 v + (1 - b2) g^2
        direction = m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)

    Optax's own takes 1 - b2 of a float: with b2 an argument, that is off in the fifth digit.

    Args:
        first: b1 and 1 - b1.
        second: b2 and 1 - b2.
        eps: Added to the root.
    """

    def init(params: optax.Params) -> optax.ScaleByAdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return optax.ScaleByAdamState(count=jnp.zeros((), int), mu=zeros, nu=zeros)

    def update(
        updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.ScaleByAdamState]:
        assert isinstance(state, optax.ScaleByAdamState)
        count = state.count + 1
        missing_first = 1 - first[0] ** count
        missing_second = 1 - second[0] ** count

        def mean(g: Array, m: Array) -> Number:
            return first[1] * g + first[0] * m

        def square(g: Array, v: Array) -> Number:
            return second[1] * g**2 + second[0] * v

        def direction(m: Array, v: Array) -> Array:
            return m / missing_first / (jnp.sqrt(v / missing_second) + eps)

        means = jax.tree.map(mean, updates, state.mu)
        squares = jax.tree.map(square, updates, state.nu)
        found = jax.tree.map(direction, means, squares)
        return found, optax.ScaleByAdamState(count=count, mu=means, nu=squares)

    return optax.GradientTransformation(init, update)
