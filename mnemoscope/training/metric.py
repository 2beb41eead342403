"""What reads a model while it trains: a metric, which a Spec names.

    @metric
    def copying(task, model, world):
        logits = model(jnp.arange(task.n_ctx))
        return {"first": ..., "last": ...}

A metric reads one model of one seed, inside a compiled program, and returns an array, or arrays by
name. It is called at the start and at every evaluation of a Spec (`n_evals`), and can be read later
over stored snapshots.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import numpy as np
from pydantic import AfterValidator, BeforeValidator

from mnemoscope.core.axes import Array
from mnemoscope.core.errors import UserError, short
from mnemoscope.core.kinds import Kind, announce_kinds, any_kind, is_ours
from mnemoscope.core.users_code import calling, require_arguments
from mnemoscope.models import HookedModel, Model
from mnemoscope.tasks import Task, World

# of a model and its world: what is read of one seed
Observe = Callable[[HookedModel, World], Mapping[str, Array]]
# of a task, a model and a world; what comes back is checked when it is called
Read = Callable[[Any, HookedModel, Any], Any]


class Metric(Kind):
    """Reads numbers off a model while it trains."""

    family: ClassVar[str] = "metric"

    def require(self, task: Task, config: Model) -> None:
        """Raise for a task or a model that it cannot read; by default it reads any.

        Args:
            task: what the model is trained on.
            config: the model.
        """

    @abstractmethod
    def read(self, task: Task, model: HookedModel, world: World) -> Array | Mapping[str, Array]:
        """What is read of one seed's model: an array, or arrays by name.

        Args:
            task: what it is trained on.
            model: as it is now.
            world: what its seed hides.
        """

    def __call__(self, task: Task, model: HookedModel, world: World) -> dict[str, Array]:
        """What is read, by the names under which it is stored.

        They are the metric's own, and `metric/name` where it reads several; metrics of this
        package have names of their own.
        """
        kind = self.kind_name()
        with calling(f"metric {kind!r}", model.params):
            found = self.read(task, model, world)
        by_name = dict(found) if isinstance(found, Mapping) else {"": found}
        for value in by_name.values():
            if not isinstance(value, jax.Array | np.ndarray | float | int | bool):
                raise UserError(
                    f"the metric {kind!r} returned {short(value)}; allowed: an array, or arrays by "
                    "name"
                )
        if is_ours(type(self)):
            return by_name
        return {f"{kind}/{name}" if name else kind: value for name, value in by_name.items()}


class FunctionMetric(Metric):
    """A metric that is a function."""

    function: ClassVar[Read]
    """The function."""

    def read(self, task: Task, model: HookedModel, world: World) -> Any:
        return type(self).function(task, model, world)


def metric(function: Read | None = None, *, kind: str = "") -> Any:
    """Make a metric of a function of a task, a model and a world: `@metric`, or, in an installed
    package, whose kinds begin with its name, `@metric(kind="package/name")`.

    Args:
        function: reads one seed's model; returns an array, or arrays by name.
        kind: the name of the metric in files; the function's own unless it is given.
    """
    if function is None:
        return partial(_make_metric, kind=kind)
    return _make_metric(function, kind)


def _about_functions(came: object) -> str:
    """What is said of a function where a metric is needed."""
    if not callable(came) or isinstance(came, type):
        return ""
    name = getattr(came, "__name__", "")
    if not name.isidentifier():
        return "a function with a name, and @ms.metric above it"
    return f"@ms.metric above def {name}(task, model, world), or ms.metric({name})"


def _make_metric(function: Read, kind: str) -> Metric:
    """A metric that is a function, under a kind or the function's name."""
    name = kind or function.__name__
    require_arguments(f"the metric {name!r}", function, "task", "model", "world")
    members: dict[str, Any] = {
        "__module__": function.__module__,
        "__qualname__": function.__qualname__,
        "__doc__": function.__doc__,
        "__annotations__": {"kind": Literal[name]},  # pyright: ignore[reportInvalidTypeForm]
        "kind": name,
        "function": staticmethod(function),
    }
    made: type[FunctionMetric] = type(function.__name__, (FunctionMetric,), members)
    return made()


announce_kinds("metric", "mnemoscope.training.metrics", "bigrams", "facts", "noise", "hops")
announce_kinds("metric", "mnemoscope.training.answers", "answers")


def _by_name_if_short(found: Metric) -> str | Metric:
    """A metric of ours that says no more than its name, by that name."""
    is_short = is_ours(type(found)) and set(type(found).model_fields) == {"kind"}
    return found.kind_name() if is_short else found


def _from_name(value: Any) -> Any:
    """A metric's name as its fields."""
    return {"kind": value} if isinstance(value, str) else value


def _one_is_no_tuple(value: Any) -> Any:
    """One metric stands by itself: one identity for both ways to write it."""
    if isinstance(value, list | tuple):
        if len(value) == 0:
            return None
        if len(value) == 1:
            return value[0]
    return value


_OneMetric = Annotated[
    Metric | str,
    AfterValidator(_by_name_if_short),
    *any_kind(Metric, hint=_about_functions),
    BeforeValidator(_from_name),
]
AnyMetrics = Annotated[
    _OneMetric | tuple[_OneMetric, ...] | None, BeforeValidator(_one_is_no_tuple)
]
