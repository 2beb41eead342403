"""A Spec is everything that decides a training run but the seed: task, model, optimizer, length,
snapshots."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from mnemoscope.core.errors import short, unknown
from mnemoscope.core.kinds import codes_in
from mnemoscope.core.legacy import SPEC_NAMES
from mnemoscope.core.strict import Strict
from mnemoscope.models import AnyModel, ModelConfig
from mnemoscope.models.precision import Precision
from mnemoscope.tasks import AnyTask
from mnemoscope.training.loss import AnyLoss, CrossEntropy
from mnemoscope.training.metric import AnyMetrics
from mnemoscope.training.optimizers import Adam, AnyOptimizer

Positive = Annotated[int, Field(ge=1, le=2**31 - 1)]  # steps are counted in 32 bits


class Spec(Strict):
    """Everything that decides a training but the seed: task, model, optimizer and length."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"snapshot_at", "unfreeze_at", "metrics", "n_evals", "imported", "precision", "loss"}
    )

    stored_names: ClassVar[Mapping[str, str]] = SPEC_NAMES

    format: Literal[1] = 1
    """A number that rises when the same Spec would train differently than before."""

    task: AnyTask
    """What is learned."""

    model: AnyModel = ModelConfig()
    """What learns it."""

    optimizer: AnyOptimizer = Adam()
    """How gradients become changes."""

    loss: AnyLoss = CrossEntropy()
    """What is minimized."""

    steps: Positive = 2000
    """How many steps it is trained."""

    batch: Positive = 128
    """How many sequences a step draws."""

    snapshots: Annotated[int, Field(ge=1, le=100_000)] = 2
    """How many times weights are kept; `snapshot_steps` says when."""

    snapshot_at: tuple[Positive, ...] = ()
    """After which steps weights are kept, besides the start and the last one; none leaves it to
    `snapshots`. A training comes to the same weights whenever they are kept."""

    unfreeze_at: tuple[tuple[str, Positive], ...] = ()
    """Parameters that are held back for a while: (name or pattern, step) leaves them as they were
    drawn before that step."""

    metrics: AnyMetrics = None
    """What reads the model while it trains: a metric or several, those of
    `mnemoscope.training.metrics` by their names."""

    n_evals: Annotated[int, Field(ge=0, le=100_000)] = 0
    """At how many evenly spaced steps, and at the start, `metrics` are read; 0 is at the
    snapshots."""

    precision: Precision = "default"
    """In what a step computes: `default`, float32 with products as the device multiplies (TF32 on
    some GPUs); `highest`, float32 throughout; `bfloat16`, activations and products in bfloat16,
    parameters, norms, softmax and loss in float32."""

    imported: str | None = None
    """The fingerprint of weights that came from elsewhere: such a Spec describes a model that was
    read and cannot be trained."""

    @model_validator(mode="after")
    def _check(self) -> "Spec":
        if type(self) is not Spec:
            name = type(self).__name__
            raise ValueError(
                f"{name} extends Spec, and its runs could not be told from a Spec's; allowed: Spec"
            )
        self._check_snapshots()
        self.unfreeze_steps()
        return self

    def _check_snapshots(self) -> None:
        """Raise where it is not plain when weights are kept."""
        at = self.snapshot_at
        if list(at) != sorted(set(at)) or (at and at[-1] >= self.steps):
            raise ValueError(
                f"snapshot_at: steps must rise and lie below the last one, {self.steps}, "
                f"got {short(at)}"
            )
        if at and self.snapshots != 2:
            raise ValueError(
                f"snapshot_at says when weights are kept, and snapshots={self.snapshots} how many "
                "times; allowed: one of them"
            )

    def unfreeze_steps(self) -> dict[str, int]:
        """From which step each parameter that is frozen at first is trained.

        A pattern that matches nothing trained raises.
        """
        frozen = self.model.frozen_names()
        names = [name for name in self.model.parameter_shapes(1, 1) if name not in frozen]
        found: dict[str, int] = {}
        for pattern, step in self.unfreeze_at:
            matching = [name for name in names if fnmatchcase(name, pattern)]
            if not matching:
                raise ValueError(unknown("trained parameter in unfreeze_at", pattern, names))
            found |= dict.fromkeys(matching, step)
        return found

    def snapshot_steps(self) -> tuple[int, ...]:
        """Steps after which weights are kept: the last one, the start, and between them those of
        `snapshot_at`, or log-spaced ones."""
        if self.snapshot_at:
            return (0, *self.snapshot_at, self.steps)
        if self.snapshots == 1:
            return (self.steps,)
        if self.snapshots == 2:
            return (0, self.steps)
        spaced = np.rint(np.geomspace(1, self.steps, self.snapshots - 1))
        return tuple(sorted({0, self.steps, *(int(step) for step in spaced)}))

    def eval_steps(self) -> tuple[int, ...]:
        """Steps after which the metrics are read."""
        if not self.n_evals:
            return self.snapshot_steps()
        even = {round(self.steps * i / self.n_evals) for i in range(self.n_evals + 1)}
        return tuple(sorted(even))

    def compile_key(self) -> tuple[Any, ...]:
        """What a compiled step depends on: trainings that agree in it share their program.

        Numbers are arguments (`mnemoscope.training.step.numbers_of`); how long is trained and what
        is kept on the way is no part of a step.
        """
        shape = self.model_copy(
            update={
                "unfreeze_at": (("*", 1),) if self.unfreeze_at else (),
                "optimizer": Adam(),
                "loss": CrossEntropy(),
                "steps": 1,
                "snapshots": 1,
                "snapshot_at": (),
                "metrics": None,
                "n_evals": 0,
            }
        )
        return shape, self.optimizer.compile_key(), self.loss.compile_key(), codes_in(self)
