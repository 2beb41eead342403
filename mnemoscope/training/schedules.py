r"""How the learning rate changes over a training: its share of `lr` at each step.

    constant               1
    linear                 1 - (1 - end) t/T
    cosine                 end + (1 - end) (1 + cos(pi t/T)) / 2
    warmup-stable-decay    1, and over the last `decay` of the steps down to `end` in a line

with t the step and T all steps. Warming up is the optimizer's own `warmup`, for any schedule. In a
Spec a schedule's name alone stands for it with everything at its default.
"""

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import jax.numpy as jnp
from pydantic import AfterValidator, BeforeValidator, Field

from mnemoscope.core.axes import Array, Float, Int
from mnemoscope.core.kinds import any_kind
from mnemoscope.training.numbered import Number, Numbered, as_float

Share = Annotated[float, Field(ge=0, le=1)]


class Schedule(Numbered):
    """The share of the learning rate at each step.

    One of one's own is a class with a `kind`, and its fields are arguments of the compiled program,
    so that another number compiles nothing anew:

        class Halving(ms.Schedule):
            "Half the rate after every so many steps."

            kind: Literal["halving"] = "halving"
            every: int = 1000

            def share(self, step, steps):
                return 0.5 ** (jnp.asarray(step, float) / self.every)

        ms.Spec(task=ms.Cycle(), optimizer=ms.Adam(schedule=Halving(every=500)))
    """

    family: ClassVar[str] = "schedule"

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


# of these the name alone stands in files, where everything is at its default
NAMED: dict[str, type[Schedule]] = {
    cls.kind_name(): cls for cls in (Constant, Linear, Cosine, WarmupStableDecay)
}


def find_schedule(name_or_schedule: str | Schedule) -> Schedule:
    """The schedule that a field of an optimizer means."""
    if isinstance(name_or_schedule, str):
        return NAMED[name_or_schedule]()
    return name_or_schedule


def _by_name_if_short(schedule: Schedule) -> str | Schedule:
    """A schedule of ours with everything at its default, by its name: one identity for both."""
    kind = schedule.kind_name()
    is_default = NAMED.get(kind) is type(schedule) and schedule == NAMED[kind]()
    return kind if is_default else schedule


def _from_name(value: Any) -> Any:
    """A schedule's name as its fields."""
    return {"kind": value} if isinstance(value, str) else value


AnySchedule = Annotated[
    Schedule | str,
    AfterValidator(_by_name_if_short),
    *any_kind(Schedule),
    BeforeValidator(_from_name),
]


def share_behind(step: Int[Array, ""] | int, steps: Number) -> Float[Array, ""]:
    """How much of the training is behind, from 0 to 1."""
    return jnp.minimum(as_float(step) / as_float(steps), 1.0)


def _between(share: Float[Array, ""], end: Number) -> Float[Array, ""]:
    """From 1 to `end`, as a share goes from 1 to 0."""
    return share + (1 - share) * end
