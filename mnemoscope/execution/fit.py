"""Training as one calls it from Python: `fit`, with or without a store, and with a bar to look at.

    fit(spec, seeds)                      trained here and handed back; nothing is kept
    fit(spec, seeds, store="my-store")    what the folder holds is read, the rest trained and kept

The loop itself is `mnemoscope.training.loop`.
"""

import os
from collections.abc import Sequence

from mnemoscope.core.errors import UserError
from mnemoscope.core.seeds import different_seeds
from mnemoscope.core.working import show_progress
from mnemoscope.execution.local import describe_training, load_or_train
from mnemoscope.store import Store
from mnemoscope.training import loop
from mnemoscope.training.loop import Progress
from mnemoscope.training.metric import Observe
from mnemoscope.training.run import Run
from mnemoscope.training.sinks import Sink
from mnemoscope.training.spec import Spec


def fit(
    spec: Spec,
    seeds: int | Sequence[int],
    observe: Observe | None = None,
    progress: Progress | bool | None = None,
    *,
    store: Store | str | os.PathLike[str] | None = None,
    sink: Sink | None = None,
) -> Run:
    """Train one model for each seed, side by side on all CPU cores, or on all accelerators.

    Args:
        spec: what is trained, and how; the metrics that it names are read on the way.
        seeds: how many, 16 for 0 to 15; or which ones, different whole numbers from 0 up.
        observe: `observe(model, world)` is called for every seed at every evaluation of the Spec,
            beside its metrics. Nothing of it is kept in a store.
        progress: hears how many steps are done, and how many there are in all; True and False show
            a bar, or none; None shows one in a terminal and in a notebook.
        store: a store, or its folder: seeds that it holds are not trained again, and new ones are
            kept there. None: nothing is kept.
        sink: gets numbers at every stop.
    """
    if store is None:
        doing = describe_training(spec, len(different_seeds(seeds)))
        with show_progress(doing, progress) as tell:
            return loop.fit(spec, seeds, observe, tell, sink=sink)
    if observe is not None:
        raise UserError(
            "what observe reads is not kept in a store, where nobody could tell it apart; name a "
            "metric in the Spec (@ms.metric), or leave out store"
        )
    return load_or_train(store, spec, seeds, progress, sink)
