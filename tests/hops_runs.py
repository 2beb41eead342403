"""Runs of the hops study with planted evaluations: forty seeds, and when each number of hops is
known.
"""

from planted import planted

from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Hops
from mnemoscope.training.spec import Spec

SEEDS = 40  # enough to show at least 90%
K1, K2, K4, K8 = (Hops(n=4, k=k) for k in (1, 2, 4, 8))
CHANCE = [0.25] * 5
FIRST = [0.25, 0.95, 1, 1, 1]
SECOND = [0.25, 0.5, 0.95, 1, 1]
THIRD = [0.25, 0.25, 0.3, 0.95, 1]


def evaluated(task, curves, steps=400, layers=None, n_evals=4):
    """A run of forty seeds whose evaluations, at every quarter, say this:
    number of hops -> a row for all seeds, or one for each.
    """
    model = ModelConfig(
        d_model=4, n_heads=1, n_layers=layers or task.levels, d_mlp=0, bias=False, causal=False
    )
    spec = Spec(task=task, model=model, steps=steps, metrics="hops", n_evals=n_evals)
    return planted(spec, SEEDS, metrics={f"{h} hops": rows for h, rows in curves.items()})


def some(rows, n, others=CHANCE):
    """The first n seeds do it, the others stay at chance."""
    return [rows] * n + [others] * (SEEDS - n)


def part_of(entry, name, reading="plain"):
    (part,) = [part for part in entry.parts if (part.name, part.reading) == (name, reading)]
    return part
