r"""How the learning rate changes over a training: its share of `lr` at each step.

    constant               1
    linear                 1 - (1 - end) t/T
    cosine                 end + (1 - end) (1 + cos(pi t/T)) / 2
    warmup-stable-decay    1, and over the last `decay` of the steps down to `end` in a line

with t the step and T all steps. Warming up is the optimizer's own `warmup`, for any schedule. In a
Spec a schedule's name alone stands for it with everything at its default.
"""

from abc import abstractmethod
from typing import Annotated, Any, Literal, cast, get_args

import jax.numpy as jnp
from pydantic import BeforeValidator, Field

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.errors import unknown
from mnemoscope.training.numbered import Number, Numbered, as_float

Share = Annotated[float, Field(ge=0, le=1)]


class Schedule(Numbered):
    """The share of the learning rate at each step."""

    @abstractmethod
    def share(self, step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
        """The share of `lr` at a step.

        Args:
            step: how many steps are behind.
            steps: all steps of the training.
        """


class Constant(Schedule):
    """The same rate at every step."""

    kind: Literal["constant"] = "constant"
    """The name of this schedule in files."""

    def share(self, step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
        return jnp.ones(())


class Linear(Schedule):
    """In a line from the whole rate to a share of it."""

    kind: Literal["linear"] = "linear"
    """The name of this schedule in files."""

    end: Share = 0.0
    """The share that is left at the last step."""

    def share(self, step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
        return _between(1 - share_behind(step, steps), self.end)


class Cosine(Schedule):
    """Along half a cosine from the whole rate to a share of it."""

    kind: Literal["cosine"] = "cosine"
    """The name of this schedule in files."""

    end: Share = 0.0
    """The share that is left at the last step."""

    def share(self, step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
        behind = jnp.minimum(as_float(step), as_float(steps))
        falling = 0.5 * (1 + jnp.cos(jnp.pi * behind / as_float(steps)))
        return _between(falling, self.end)


class WarmupStableDecay(Schedule):
    """The whole rate for most of the training, and then in a line to a share of it."""

    kind: Literal["warmup-stable-decay"] = "warmup-stable-decay"
    """The name of this schedule in files."""

    decay: Annotated[float, Field(gt=0, le=1)] = 0.2
    """The share of all steps over which the rate falls, at the end."""

    end: Share = 0.0
    """The share of the rate that is left at the last step."""

    def share(self, step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
        left = 1 - share_behind(step, steps)
        return _between(jnp.minimum(1.0, left / self.decay), self.end)


ScheduleName = Literal["constant", "linear", "cosine", "warmup-stable-decay"]
# those with fields of their own; all others are written by their name
WrittenOut = Linear | Cosine | WarmupStableDecay
SCHEDULES: dict[str, type[Schedule]] = {
    cls.model_fields["kind"].default: cls for cls in (Constant, *get_args(WrittenOut))
}


def find_schedule(name_or_schedule: str | Schedule) -> Schedule:
    """The schedule that a field of an optimizer means."""
    if isinstance(name_or_schedule, str):
        return SCHEDULES[name_or_schedule]()
    return name_or_schedule


def _shortest(value: Any) -> Any:
    """A schedule of which everything is at its default, by its name: one identity for both."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        kind = str(fields.get("kind", ""))
        value = SCHEDULES[kind](**fields) if kind in SCHEDULES else kind
    if isinstance(value, str) and value not in SCHEDULES:
        raise ValueError(unknown("schedule", value, SCHEDULES))
    for name, cls in SCHEDULES.items():
        if type(value) is cls and value == cls():
            return name
    return value


AnySchedule = Annotated[ScheduleName | WrittenOut, BeforeValidator(_shortest)]


def share_behind(step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
    """How much of the training is behind, from 0 to 1."""
    return jnp.minimum(as_float(step) / as_float(steps), 1.0)


def _between(share: Float[Array, ""], end: Number) -> Float[Array, ""]:
    """From 1 to `end`, as a share goes from 1 to 0."""
    return share + (1 - share) * end
