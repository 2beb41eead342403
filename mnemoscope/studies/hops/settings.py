"""What `hops` trains: on the hardest question alone, on a mixture, and by two curricula, all from the same number of sequences."""

from typing import NamedTuple

from mnemoscope.model import ModelConfig
from mnemoscope.spec import Adam, Spec
from mnemoscope.studies.claims import Scale, Setting
from mnemoscope.tasks import Hops

REPLAY = 0.2  # of the sequences, spread evenly over the hops that came before


class Size(NamedTuple):
    """How large a scale is."""

    n: int
    d: int
    lr: float
    start: float  # how large W_Q and W_K start, of what is drawn
    steps: int
    looks: int
    seeds: int
    mixtures: tuple[int, ...]  # k
    long: int  # the longest training on 4 hops alone, in budgets


SIZES: dict[Scale, Size] = {
    "quick": Size(3, 64, 4e-3, 0.3, 1500, 60, 8, (2, 4), 1),
    "full": Size(4, 128, 1e-3, 0.1, 2000, 80, 32, (2, 4, 8), 8),
}


def only(level: int, levels: int, replay: float = 0.0) -> tuple[float, ...]:
    """A stage that asks one level, and earlier ones for a share of the sequences."""
    share = replay if level else 0.0
    return tuple(share / level if j < level else 1 - share if j == level else 0.0 for j in range(levels))


def curriculum(steps: int, replay: float = 0.0) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """1 hop, then 2, then 4, for a fifth, two fifths and two fifths of the training."""
    return tuple((steps * begin // 5, only(level, 3, replay)) for level, begin in enumerate((0, 1, 3)))


def settings(scale: Scale) -> dict[str, Setting]:
    """Every setting of a scale, by name; `k=4` is the study's question, the others say how cost grows with k."""
    size = SIZES[scale]

    def setting(task: Hops, layers: int | None = None, budgets: int = 1) -> Setting:
        model = ModelConfig(
            d_model=size.d, n_heads=1, n_layers=layers or task.levels, d_mlp=0, bias=False, causal=False,
            frozen=("embed.W_E", "pos_embed.W_pos"), scaled=(("*.W_Q", size.start), ("*.W_K", size.start)),
        )  # fmt: skip
        spec = Spec(
            task=task, model=model, optimiser=Adam(lr=size.lr, b2=0.98, weight_decay=0.01, warmup=100, clip=1.0),
            steps=size.steps * budgets, batch=32, watch="hops", looks=size.looks * budgets,
        )  # fmt: skip
        return Setting(spec, size.seeds)

    def hard(k: int, budgets: int = 1) -> Setting:
        levels = Hops(n=size.n, k=k).levels
        return setting(Hops(n=size.n, k=k, schedule=((0, only(levels - 1, levels)),)), budgets=budgets)

    pure = Hops(n=size.n, k=4, schedule=curriculum(size.steps))
    found = {f"mixture/k={k}": setting(Hops(n=size.n, k=k)) for k in size.mixtures}
    found |= {f"hard/k={k}": hard(k) for k in (1, 2, 4)}
    found["curriculum/pure"] = setting(pure)
    found["curriculum/replay"] = setting(Hops(n=size.n, k=4, schedule=curriculum(size.steps, REPLAY)))
    found["curriculum/shallow"] = setting(pure, layers=2)
    if size.long > 1:
        found["long/k=4"] = hard(4, size.long)
    return found
