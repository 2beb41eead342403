"""Functions to be composed as the explorer presents them; the JavaScript half is
`static/hops_task.js`."""

from typing import Any

import numpy as np

from mnemoscope.core.axes import Array
from mnemoscope.explorer.task_adapters import Adapter, draw_samples, make_preset, register_adapter
from mnemoscope.models import Transformer
from mnemoscope.probes.hop_accuracy import by_level
from mnemoscope.tasks import Hops, HopWorld


def _say_hops(task: Hops) -> str:
    """What a hop is, and how many are asked."""
    hops = [2**level for level in range(task.levels)]
    asked = " or ".join(str(number) for number in hops)
    return (
        f"{task.k} permutations of {task.n} values are shown, one after another, and as many are "
        "hidden. A hop goes through a hidden one and then through the one shown beside it; asked "
        f"is where {asked} hops lead from each place. More hops are read after later layers."
    )


def _make_hops_presets(task: Hops, world: HopWorld) -> list[dict[str, Any]]:
    """Contexts, and one of identities."""
    first, second = draw_samples(task, world)[:2]
    straight = list(range(task.n)) * task.k
    return [
        make_preset("a context", first, "Permutations drawn at random."),
        make_preset("another one", second, "Permutations drawn at random."),
        make_preset(
            "nothing is moved",
            straight,
            "Only what is hidden moves anything: one hop from each place shows it.",
        ),
    ]


def _export_hidden(task: Hops, world: HopWorld) -> dict[str, Any]:
    """Contexts, and the hidden permutations."""
    return {
        "samples": draw_samples(task, world),
        "hidden": np.asarray(world.hidden).tolist(),
    }


def _measure_hops(task: Hops, model: Transformer, world: HopWorld) -> dict[str, Array]:
    """Accuracy for each number of hops, read where training reads it."""
    accuracy = by_level(task, model, world)
    names = ["1 hop", *(f"{2**level} hops" for level in range(1, task.levels))]
    return {name: accuracy[level] for level, name in enumerate(names)}


register_adapter(
    Hops,
    Adapter(
        in_words=_say_hops,
        draw_label="a random context",
        make_presets=_make_hops_presets,
        export_world=_export_hidden,
        measure_skills=_measure_hops,
    ),
)
