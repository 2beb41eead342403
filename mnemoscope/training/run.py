"""A Run is the outcome of a training: weights, losses, metrics, how each seed ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import mnemoscope  # the public functions, which are loaded when they are first called
from mnemoscope.core import notebook
from mnemoscope.core.axes import Float, Int, Params, Shaped, UInt
from mnemoscope.core.errors import UserError, short
from mnemoscope.core.fingerprint import TrainedBy, describe_origins
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.models import HookedModel, bind
from mnemoscope.tasks import World
from mnemoscope.training.by_seed import By, BySeed, Progress
from mnemoscope.training.spec import Spec
from mnemoscope.training.worlds import draw_worlds, hash_worlds

MOST_NAMED = 16  # seeds that a sentence names before it counts the rest


@dataclass(frozen=True, repr=False)
class Run:
    """The outcome of `fit`: weights at the snapshots, the loss curve, metrics, and how each
    seed ended."""

    spec: Spec
    """What was trained."""

    seeds: tuple[int, ...]
    """The seeds, one model each, in the order of every seed axis below."""

    snapshots: dict[str, Float[np.ndarray, "seed snap ..."]]
    """Weights by name of parameter; the steps are `spec.snapshot_steps()`."""

    loss_steps: Int[np.ndarray, "stop"]
    """After which step each stop was made."""

    losses: Float[np.ndarray, "seed stop"]
    """Mean training loss over the stretch that ends at each stop."""

    finite_steps: Int[np.ndarray, "seed"]
    """How many steps of each seed had a finite loss."""

    metrics: dict[str, Shaped[np.ndarray, "seed eval ..."]] = field(
        default_factory=dict[str, np.ndarray]
    )
    """What was read, by its name; the steps are `spec.eval_steps()`."""

    world_hashes: UInt[np.ndarray, "seed 32"] | None = None
    """The hash of the world that each seed was trained in; None where it was not kept (0.1)."""

    origins: tuple[TrainedBy | None, ...] = ()
    """Every program and kind of device that trained some of the seeds; None is one that left no
    fingerprint (0.1)."""

    def outcome(self, seed: int) -> Literal["finished", "diverged"]:
        """`diverged` when the loss of any step was not a finite number."""
        return "finished" if self.finite_steps[self._row(seed)] == self.spec.steps else "diverged"

    @property
    def finished(self) -> np.ndarray:
        """Which seeds finished, as a mask along the seed axis."""
        return self.finite_steps == self.spec.steps

    def diverged(self) -> str:
        """The seeds that diverged, each with the steps whose loss was a finite number, in words;
        empty if there is none."""
        steps = self.spec.steps
        lost: list[str] = []
        for seed, good in zip(self.seeds, self.finite_steps.tolist(), strict=True):
            if good < steps:
                lost.append(f"seed {seed} (after {good:,} of {steps:,} steps)")
        named = ", ".join(lost[:MOST_NAMED])
        if len(lost) > MOST_NAMED:
            named += f" and {len(lost) - MOST_NAMED} more"
        return named

    def step_of(self, snapshot: int) -> int:
        """The step after which a snapshot was kept; one that there is not raises.

        Args:
            snapshot: the stored moment of training, from 0 up, or from -1 down from the end.
        """
        steps = self.spec.snapshot_steps()
        if not -len(steps) <= snapshot < len(steps):
            raise UserError(
                f"no snapshot {snapshot} in this run; allowed: 0 to {len(steps) - 1}, or -1 for "
                "the end"
            )
        return steps[snapshot]

    def model(self, seed: int, snapshot: int = -1) -> HookedModel:
        """One seed's model, at the end of training or at an earlier snapshot."""
        row = self._row(seed)
        self.step_of(snapshot)
        params: Params = {name: jnp.asarray(x[row, snapshot]) for name, x in self.snapshots.items()}
        return bind(self.spec.model, params)

    def models(self, snapshot: int = -1) -> HookedModel:
        """All seeds' models at once, with a leading seed axis, for `vmap`."""
        self.step_of(snapshot)
        params: Params = {name: x[:, snapshot] for name, x in self.snapshots.items()}
        return bind(self.spec.model, params)

    @fixed_numerics()
    def worlds(self) -> World:
        """Each seed's world, drawn again from the seed, with a leading seed axis; it must be the
        one it was trained in."""
        worlds = draw_worlds(self.spec.task, jnp.array(self.seeds))
        self._check_worlds(worlds, range(len(self.seeds)))
        return worlds

    @fixed_numerics()
    def world(self, seed: int) -> World:
        """One seed's world, drawn again from the seed; it must be the one it was trained in."""
        worlds = draw_worlds(self.spec.task, jnp.array([seed]))
        self._check_worlds(worlds, [self._row(seed)])
        return jax.tree.map(itemgetter(0), worlds)

    # ---- what its models can do

    def accuracy(
        self,
        by: By = "seed",
        *,
        sample: int = 1024,
        snapshot: int = -1,
        progress: Progress = None,
    ) -> BySeed:
        """The share of right answers where the loss is read, by weight, of each seed.

        It is exact where the task says on which sequences a model is evaluated
        (`Task.n_examples`), else over a fixed sample.

        Args:
            by: `seed`, a number for each; `position`, one for each seed and position.
            sample: how many sequences are drawn, where the task has no list of them.
            snapshot: the stored moment of training; -1 is the end.
            progress: whether a bar is shown; None: in a terminal and in a notebook.
        """
        from mnemoscope.training.evaluation import evaluate

        return evaluate(self, "accuracy", by, sample, snapshot, progress)

    def loss(
        self,
        by: By = "seed",
        *,
        sample: int = 1024,
        snapshot: int = -1,
        progress: Progress = None,
    ) -> BySeed:
        """The mean of -log p(target) on the same sequences as `accuracy`, of each seed.

        Args:
            by: `seed`, a number for each; `position`, one for each seed and position.
            sample: how many sequences are drawn, where the task has no list of them.
            snapshot: the stored moment of training; -1 is the end.
            progress: whether a bar is shown; None: in a terminal and in a notebook.
        """
        from mnemoscope.training.evaluation import evaluate

        return evaluate(self, "loss", by, sample, snapshot, progress)

    def measure(
        self, metric: Any, store: Any = None, progress: Progress = None
    ) -> dict[str, Shaped[np.ndarray, "seed snap ..."]]:
        """What a metric reads of every seed at every snapshot; nothing is trained.

        Args:
            metric: a metric (`@ms.metric`), the name of one of ours, or several.
            store: a store, or its folder, where it is kept and found again.
            progress: whether a bar is shown; None: in a terminal and in a notebook.
        """
        return mnemoscope.measure(self, metric, store, progress)

    def explore(self, path: Any = None, **options: Any) -> Any:
        """The explorer of this run: inline in a notebook, elsewhere a page that is opened.

        Args:
            path: the file to write; None: explorer.html, or none in a notebook.
            **options: those of `mnemoscope.explore`.
        """
        return mnemoscope.explore(self, path, **options)

    def _check_worlds(self, worlds: World, rows: Sequence[int]) -> None:
        """Raise where a world is not the one of its row."""
        if self.world_hashes is None:
            return
        drawn = hash_worlds(worlds, len(rows))
        same = (drawn == self.world_hashes[list(rows)]).all(axis=1)
        if not same.all():
            seed = self.seeds[rows[int(same.argmin())]]
            raise UserError(
                f"the world that {self.spec.task.kind_name()!r} draws for seed {seed} now is not "
                f"the one it was trained in (Spec {self.spec.digest()}, "
                f"{', '.join(describe_origins(self.origins))}); "
                "'mnemoscope runs --delete' and train again"
            )

    def __repr__(self) -> str:
        ended = f"{self.finished.sum()} finished"
        if len(self.loss_steps):  # a model from elsewhere may have none
            ended = f"{ended}; loss {self.losses[:, -1].mean():.4g}"
        return (
            f"<Run of {self.spec.task.kind_name()}: {len(self.seeds)} seeds, "
            f"{self.spec.steps:,} steps of {self.spec.batch}, {ended}, "
            f"{len(self.spec.snapshot_steps())} snapshots>"
        )

    def _repr_html_(self) -> str:
        title = (
            f"Run of {len(self.seeds)} seeds, {self.spec.steps:,} steps of {self.spec.batch}; "
            f"{self.finished.sum()} finished"
        )
        shown = notebook.format_table(title, ("task", "model"), [(self.spec.task, self.spec.model)])
        if not len(self.loss_steps):
            return shown
        return shown + notebook.draw_losses(self.loss_steps.tolist(), self.losses)

    def _row(self, seed: int) -> int:
        """The place of a seed along the seed axis."""
        if seed not in self.seeds:
            first = min(self.seeds)
            last = max(self.seeds)
            is_range = len(self.seeds) == last - first + 1 > 3
            allowed = f"{first} to {last}" if is_range else short(self.seeds)[1:-1].rstrip(",")
            raise UserError(f"no seed {seed} in this run; allowed: {allowed}")
        return self.seeds.index(seed)
