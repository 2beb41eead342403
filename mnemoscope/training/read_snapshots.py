"""A metric read later, over the snapshots that a run keeps, without training again.

It is the function that training would have called, on the same models and worlds: what it reads is
what would have stood in `Run.metrics` at these steps.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from mnemoscope.core.axes import Array, Params, Shaped
from mnemoscope.core.errors import UserError, short
from mnemoscope.core.numerics import fixed_numerics
from mnemoscope.core.seeds import map_over_seeds
from mnemoscope.core.working import Told
from mnemoscope.models import bind
from mnemoscope.tasks import World
from mnemoscope.training.metric import AnyMetrics
from mnemoscope.training.metrics import metrics_of
from mnemoscope.training.run import Run
from mnemoscope.training.shared_arrays import with_arrays
from mnemoscope.training.spec import Spec

Measured = dict[str, Shaped[np.ndarray, "seed snap ..."]]


def asked_of(spec: Spec, metric: AnyMetrics) -> Spec:
    """The Spec with a metric in place of its own, read at the snapshots; a metric that it does not
    take is refused."""
    asked = spec.model_copy(update={"metrics": metric, "n_evals": 0})
    if metrics_of(asked) is None:
        raise UserError(f"a metric or its name is needed, got {short(metric)}")
    return asked


@fixed_numerics()
def read_snapshots(run: Run, metric: AnyMetrics, progress: Told | None = None) -> Measured:
    """What a metric reads of every seed at every snapshot, by the names under which it is stored.

    Args:
        run: whose snapshots are read; the steps are `run.spec.snapshot_steps()`.
        metric: a metric, the name of one, or several.
        progress: hears how many snapshots are read.
    """
    asked = asked_of(run.spec, metric)

    def of_seed(each: tuple[Params, World], arrays: Any) -> Mapping[str, Array]:
        params, world = each
        read = metrics_of(with_arrays(asked, arrays))
        assert read is not None
        return read(bind(asked.model, params), world)

    read_all = map_over_seeds(of_seed, len(run.seeds))
    worlds = run.worlds()
    arrays = jax.tree.map(jax.numpy.asarray, asked.task.load_arrays())
    n_snapshots = len(asked.snapshot_steps())
    times: list[Mapping[str, np.ndarray]] = []
    for at in range(n_snapshots):
        params = {name: x[:, at] for name, x in run.snapshots.items()}
        times.append(read_all((params, worlds), arrays))
        if progress:
            progress(at + 1, n_snapshots)
    return {name: np.stack([each[name] for each in times], axis=1) for name in times[0]}
