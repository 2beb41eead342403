"""Checks of a metric: that it can be read while a model trains, of each seed by itself.

ms.testing.check_metric(copying, task=CopyBack())
"""

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from mnemoscope.core.axes import Array, Params
from mnemoscope.core.errors import UserError, short
from mnemoscope.models import Model, ModelConfig, Site, bind
from mnemoscope.tasks import Cycle, Facts, Hops, Task, World
from mnemoscope.testing.check_result import (
    Check,
    CheckResult,
    NotApplicable,
    require,
    run_checks,
)
from mnemoscope.training.loop import fit
from mnemoscope.training.metric import Metric
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.spec import Spec

N_SEEDS = 3
CLOSE = 1e-5
TRANSFORMER = ModelConfig(d_model=8, n_heads=1, d_mlp=0)
OTHER_TASKS = (Cycle(), Facts(subjects=2, relations=2, per_relation=2, length=4), Hops(n=2, k=2))
OTHER_TRANSFORMERS = (
    ModelConfig(d_model=4, n_heads=2, n_layers=2, d_mlp=4, norm="pre"),
    ModelConfig(d_model=4, n_heads=1, n_layers=1, attn_layers=(), d_mlp=4),
)


class TokenTable(Model):
    """The least model that there is: logits are looked up by token."""

    kind: Literal["token-table"] = "token-table"
    """The name of this model in files."""

    def parameter_shapes(
        self, d_vocab: int, n_ctx: int, d_vocab_out: int | None = None
    ) -> dict[str, tuple[int, ...]]:
        return {"W_E": (d_vocab, d_vocab if d_vocab_out is None else d_vocab_out)}

    def sites(self) -> dict[str, str]:
        return {"hook_logits": "pos answer"}

    def forward(self, params: Params, tokens: Array, site: Site) -> Array:
        return site("hook_logits", jnp.asarray(params["W_E"])[tokens])


def check_metric(
    metric: Metric,
    task: Task | None = None,
    model: Model = TRANSFORMER,
    *,
    train: bool = True,
    raise_on_failure: bool = True,
) -> CheckResult:
    """Check all that a metric promises.

    Args:
        metric: what `@ms.metric` made, or an object of a class of its own.
        task: one that it reads; None: a cycle of three symbols.
        model: one that it reads.
        train: whether it is read in a short training, which takes some seconds.
        raise_on_failure: raise one AssertionError that names every check that failed.
    """
    checks = list_metric_checks(metric, task, model, train=train)
    subject = f"metric {metric.kind_name()!r}"
    return run_checks(subject, checks, raise_on_failure=raise_on_failure)


def list_metric_checks(
    metric: Metric, task: Task | None = None, model: Model = TRANSFORMER, *, train: bool = True
) -> tuple[Check, ...]:
    """The checks of a metric, each to be called by itself, as a test with a parameter does.

    Args:
        metric: what `@ms.metric` made, or an object of a class of its own.
        task: one that it reads; None: a cycle of three symbols.
        model: one that it reads.
        train: whether it is read in a short training, which takes some seconds.
    """
    readings = _Readings(metric, task or Cycle(), model, train)

    def check(name: str, look: Callable[[_Readings], str | None], *needs: Check) -> Check:
        return Check(name, partial(look, readings), needs)

    is_kind = check("it is a registered kind whose code can be read", _check_kind)
    reads = check("it goes through jit and vmap", _check_reads, is_kind)
    return (
        is_kind,
        check("JSON gives the same metric and digest again", _check_json, is_kind),
        reads,
        check("what it reads is finite", _check_finite, reads),
        check("it reads the same twice", _check_again, reads),
        check("a seed does not depend on its neighbors", _check_neighbors, reads),
        check("what it cannot read it refuses in one line", _check_refuses, reads),
        check("it is read while a model trains", _check_trains, reads),
    )


class _Readings:
    """What a metric reads of a few models, each made when it is first asked for."""

    def __init__(self, metric: Metric, task: Task, model: Model, train: bool):
        self.metric = metric
        self.task = task
        self.model = model
        self.train = train

    @property
    def spec(self) -> Spec:
        """Which names it."""
        return Spec(
            task=self.task, model=self.model, metrics=self.metric, steps=2, batch=4, snapshots=2
        )

    def program(self) -> Callable[[Array], Mapping[str, Array]]:
        """Compiled, traced anew: what is read of the models of some seeds."""
        return jax.jit(jax.vmap(lambda seed: _read(self.metric, self.task, self.model, seed)))

    @cached_property
    def compiled(self) -> Callable[[Array], Mapping[str, Array]]:
        """One of these programs."""
        return self.program()

    @cached_property
    def found(self) -> Mapping[str, np.ndarray]:
        """What is read of the first seeds."""
        return jax.device_get(self.compiled(jnp.arange(N_SEEDS)))


def _read(metric: Metric, task: Task, model: Model, seed: Array) -> dict[str, Array]:
    """What a metric reads of the model that a seed starts with."""
    key = jax.random.key(seed)
    world: World = task.world(key=key)
    params = model.draw_parameters(task.d_vocab, task.n_ctx, task.d_vocab_out, key=key)
    found = metric(task, bind(model, params), world)
    return {name: jnp.asarray(value) for name, value in found.items()}


def _check_kind(readings: _Readings) -> str:
    metric = readings.metric
    require(
        isinstance(metric, Metric),
        f"a metric is what @ms.metric makes, or an object of a class that extends Metric; got "
        f"{short(metric)}",
    )
    metrics_of(readings.spec)  # raises where it cannot read this task or model
    return metric.code() and f"code {metric.code()}"


def _check_json(readings: _Readings) -> None:
    spec = readings.spec
    again = Spec.model_validate_json(spec.canonical_json())
    require(again == spec, f"it comes back as {short(again.metrics)}")
    require(again.digest() == spec.digest(), "its digest comes back as another one")


def _check_reads(readings: _Readings) -> str:
    require(readings.found, "it reads nothing; allowed: an array, or arrays by name")
    return ", ".join(f"{name} {list(x.shape[1:])}" for name, x in readings.found.items())


def _check_finite(readings: _Readings) -> None:
    for name, x in readings.found.items():
        require(np.isfinite(x).all(), f"{name} is not finite: {short(x)}")


def _check_again(readings: _Readings) -> None:
    again = jax.device_get(readings.program()(jnp.arange(N_SEEDS)))
    for name, x in readings.found.items():
        require(
            again[name].tobytes() == x.tobytes(),
            f"{name} is another the second time; what is random in it must come from a fixed key",
        )


def _check_neighbors(readings: _Readings) -> None:
    turned = jax.device_get(readings.compiled(jnp.arange(N_SEEDS)[::-1]))
    alone = jax.device_get(readings.program()(jnp.arange(1)))
    for name, x in readings.found.items():
        same = np.allclose(turned[name][::-1], x, atol=CLOSE)
        require(
            same and np.allclose(alone[name], x[:1], atol=CLOSE),
            f"{name} of a seed changes with the seeds beside it",
        )


def _check_refuses(readings: _Readings) -> str:
    refused: list[str] = []
    pairs = [(task, readings.model) for task in OTHER_TASKS]
    pairs += [(readings.task, model) for model in (*OTHER_TRANSFORMERS, TokenTable())]
    for task, model in pairs:
        what = f"task {task.kind_name()!r}, model {short(model.describe())}"
        try:
            readings.metric.require(task, model)
            jax.eval_shape(
                partial(_read, readings.metric, task, model), jax.ShapeDtypeStruct((), jnp.int32)
            )
        except UserError as error:
            refused.append(str(error))
        except Exception as error:
            first = (str(error).splitlines() or [""])[0]
            require(
                False,
                f"{what}: it raised {type(error).__name__}: {first}; allowed: to read it, or a "
                "UserError that says what it reads",
            )
    return f"of {len(pairs)} others it reads {len(pairs) - len(refused)}"


def _check_trains(readings: _Readings) -> str:
    if not readings.train:
        raise NotApplicable("no training was asked for")
    run = fit(readings.spec, 2)
    for name, x in readings.found.items():
        require(name in run.metrics, f"the run has no {name}, but {', '.join(run.metrics)}")
        wanted = (2, 2, *x.shape[1:])
        came = run.metrics[name].shape
        require(came == wanted, f"{name} must have seeds and evals in front, {wanted}; got {came}")
    return f"{', '.join(readings.found)} of 2 seeds at 2 steps"
