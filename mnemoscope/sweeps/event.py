"""The event of a sweep: a metric, read while a model trains, passes a number.

    accuracy>=.99        loss<0.1        my_metric/first>3

Its time is the first evaluation at which it holds. Where it holds at none, the time is censored at
the last step: the event comes later, or never.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from mnemoscope.core.axes import Bool, Float, Shaped
from mnemoscope.core.errors import UserError, short, unknown
from mnemoscope.core.kinds import known_kinds
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import bind
from mnemoscope.training.metrics import list_metrics, metrics_of
from mnemoscope.training.run import Run
from mnemoscope.training.shared_arrays import with_arrays
from mnemoscope.training.spec import Spec

EVALS = 32  # where a Spec says nothing of it: the time is known to 3% of the training
ANSWERS = "answers"  # the metric that reads accuracy and loss of any task
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


class Event(NamedTuple):
    """A metric that passes a number."""

    name: str
    """Of what is read, as the Run's `metrics` have it."""
    comparison: str
    """`>=`, `<=`, `>` or `<`."""
    level: float
    """The number."""

    def __str__(self) -> str:
        return f"{self.name} {self.comparison} {self.level:g}"

    def holds(self, values: Shaped[np.ndarray, "..."]) -> Bool[np.ndarray, "..."]:
        """Where it holds; never where a value is no number."""
        # 9 of 10 right is the float nearest to .9, whatever the width of floats
        level = values.dtype.type(self.level) if values.dtype.kind == "f" else self.level
        return COMPARISONS[self.comparison](values, level)


def parse_event(text: str) -> Event:
    """An event as it is written.

    Args:
        text: a metric, a comparison and a number, such as `accuracy>=.99`.
    """
    found = re.fullmatch(r"\s*([^<>=]+?)\s*(>=|<=|>|<)\s*([^<>=\s]+)\s*", text)
    try:
        if found and np.isfinite(level := float(found[3])):
            return Event(found[1], found[2], level)
    except ValueError:
        pass
    raise UserError(
        f"an event is a metric, a comparison ({', '.join(COMPARISONS)}) and a number, got "
        f"{short(text)}; allowed: 'accuracy>=.99', 'loss<0.1'"
    )


# ---- what a Spec must read


def reading(spec: Spec, event: Event, evals: int | None = None) -> Spec:
    """The Spec with what the event needs: its metric, and evaluations at which it is read.

    What the Spec says already stays.

    Args:
        spec: what is trained.
        event: what is waited for.
        evals: at how many steps its metrics are read; None: as the Spec says, or 32.
    """
    update: dict[str, Any] = {}
    if event.name not in shapes_read(spec):
        update["metrics"] = (*list_metrics(spec.metrics), _metric_reading(spec, event))
    if evals is not None or not spec.n_evals:
        update["n_evals"] = min(EVALS if evals is None else evals, spec.steps)
    return spec.model_copy(update=update) if update else spec


def require_event(spec: Spec, event: Event) -> None:
    """Raise unless the Spec's metrics read the event's, as one number for each seed.

    Nothing is computed.

    Args:
        spec: what is trained.
        event: what is waited for.
    """
    shapes = shapes_read(spec)
    if event.name not in shapes:
        raise UserError(unknown("metric in the event", event.name, shapes))
    shape = shapes[event.name]
    if shape != ():
        raise UserError(
            f"the event needs one number for each seed, and {event.name!r} is an array of shape "
            f"{shape}; allowed: {_numbers_in(shapes)}"
        )


@fixed_numerics()
def shapes_read(spec: Spec) -> dict[str, tuple[int, ...]]:
    """What the Spec's metrics read of a seed, by name, each with its shape; nothing is computed."""
    if spec.metrics is None:
        return {}
    task = spec.task

    def read(key: Any) -> Mapping[str, Any]:
        inside = with_arrays(spec, task.load_arrays())
        world = inside.task.world(key=key)
        params = spec.model.draw_parameters(task.d_vocab, task.n_ctx, task.d_vocab_out, key=key)
        observe = metrics_of(inside)
        assert observe is not None
        return observe(bind(spec.model, params), world)

    found = jax.eval_shape(read, jax.random.key(0))
    return {name: tuple(np.shape(value)) for name, value in found.items()}


def _metric_reading(spec: Spec, event: Event) -> Any:
    """The metric to add to a Spec for an event that none of its own reads."""
    if event.name in ("accuracy", "loss"):
        return ANSWERS
    kind = event.name.partition("/")[0]
    if kind in known_kinds("metric"):
        return kind
    names = dict.fromkeys([*shapes_read(spec), "accuracy", "loss"])
    raise UserError(
        f"{unknown('metric in the event', event.name, names)}; or one of your own: --plugin "
        f"FILE, and metrics={event.name!r}"
    )


def _numbers_in(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The names of what is one number."""
    return ", ".join(name for name, shape in shapes.items() if shape == ()) or "none of this Spec"


# ---- when it came


def first_seen(
    run: Run, event: Event
) -> tuple[Float[np.ndarray, "seed"], Bool[np.ndarray, "seed"]]:
    """After which step each seed first met the event, and whether it did.

    A seed that diverged did not, and one that did not has the last step.

    Args:
        run: read its metrics while it trained.
        event: what is waited for.
    """
    steps = np.array(run.spec.eval_steps(), float)
    values = run.metrics[event.name]
    held = event.holds(cast(np.ndarray, values))  # seed, eval
    reached = held.any(axis=1) & run.finished
    first = steps[held.argmax(axis=1)]
    return np.where(reached, first, float(run.spec.steps)), reached
