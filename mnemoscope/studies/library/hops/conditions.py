"""What `hops` trains: on the hardest question alone, on a mixture, and by two curricula.

All of them see the same number of sequences.
"""

from typing import Literal, NamedTuple

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.claims import Condition, Scale
from mnemoscope.tasks import Hops
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

REPLAY = 0.2  # of the sequences, spread evenly over the hops that came before
# How large W_V and W_O start, of what is drawn. What a layer finds has to be heard over the
# embeddings: as drawn, it comes in at a third of their length, and fewer than half of the quick
# scale's seeds learn 4 hops
LOUD = 3.0


class Size(NamedTuple):
    """How large a scale is."""

    n: int  # values that are permuted
    d: int  # width of the model
    lr: float
    schedule: Literal["constant", "cosine"]  # of the learning rate
    start: float  # how large W_Q and W_K start, of what is drawn
    steps: int  # for k = 4; others in proportion to k
    n_evals: int  # for k = 4; others in proportion to k
    seeds: int
    mixed: int  # seeds of the mixture, of which only those that learn say in which order
    mixtures: tuple[int, ...]  # k of each mixture
    long: int  # the longest training on 4 hops alone, in budgets


# Chosen on seeds from 900 on. Embeddings at right angles leave little for a narrow model to
# confuse; at the quick scale the rate is as high as it may be and falls, which a mixture needs and
# which leaves little of it for the last stage of a curriculum.
SIZES: dict[Scale, Size] = {
    "quick": Size(
        n=3,
        d=32,
        lr=5e-3,
        schedule="cosine",
        start=0.3,
        steps=1200,
        n_evals=48,
        seeds=8,
        mixed=12,
        mixtures=(2, 4),
        long=1,
    ),
    "full": Size(
        n=4,
        d=128,
        lr=1e-3,
        schedule="constant",
        start=0.1,
        steps=8000,
        n_evals=160,
        seeds=32,
        mixed=32,
        mixtures=(2, 4, 8),
        long=4,
    ),
}


def only(level: int, levels: int, replay: float = 0.0) -> tuple[float, ...]:
    """The weights of a stage that asks one level, and earlier ones for a share of the sequences.

    Args:
        level: what is asked: 2^level hops.
        levels: how many there are.
        replay: the share of the sequences that is spread evenly over earlier levels.
    """
    share = replay if level else 0.0
    earlier = [share / level] * level if level else []
    later = [0.0] * (levels - level - 1)
    return (*earlier, 1 - share, *later)


def curriculum(steps: int, replay: float = 0.0) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """1 hop, then 2, then 4, for a fifth, two fifths and two fifths of the training."""
    begins = (0, 1, 3)  # fifths
    return tuple((steps * begin // 5, only(level, 3, replay)) for level, begin in enumerate(begins))


def _condition(size: Size, task: Hops, layers: int | None = None, budgets: int = 1) -> Condition:
    """A condition with so many layers (as many as levels if not said), for so many budgets."""
    model = ModelConfig(
        d_model=size.d,
        n_heads=1,
        n_layers=layers or task.levels,
        d_mlp=0,
        bias=False,
        causal=False,
        frozen=("embed.W_E", "pos_embed.W_pos"),
        init=Init(
            orthogonal=True,
            scale=(
                ("*.W_Q", size.start),
                ("*.W_K", size.start),
                ("*.W_V", LOUD),
                ("*.W_O", LOUD),
            ),
        ),
    )
    optimizer = Adam(
        lr=size.lr,
        b2=0.98,
        weight_decay=0.01,
        schedule=size.schedule,
        warmup=100,
        clip=1.0,
    )
    spec = Spec(
        task=task,
        model=model,
        optimizer=optimizer,
        steps=size.steps * budgets * task.k // 4,
        batch=32,
        metrics="hops",
        n_evals=max(1, size.n_evals * budgets * task.k // 4),
    )
    is_mixture_of_4 = task.k == 4 and not task.schedule
    return Condition(spec, size.mixed if is_mixture_of_4 else size.seeds)


def _hard(size: Size, k: int, budgets: int = 1) -> Condition:
    """Training on k hops alone."""
    levels = Hops(n=size.n, k=k).levels
    schedule = ((0, only(levels - 1, levels)),)
    return _condition(size, Hops(n=size.n, k=k, schedule=schedule), budgets=budgets)


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition of a scale, by name.

    `k=4` is the study's question, the others say how cost grows with k.
    """
    size = SIZES[scale]
    pure = Hops(n=size.n, k=4, schedule=curriculum(size.steps))
    replay = Hops(n=size.n, k=4, schedule=curriculum(size.steps, REPLAY))
    found = {f"mixture/k={k}": _condition(size, Hops(n=size.n, k=k)) for k in size.mixtures}
    found |= {f"hard/k={k}": _hard(size, k) for k in (1, 2, 4)}
    found["curriculum/pure"] = _condition(size, pure)
    found["curriculum/replay"] = _condition(size, replay)
    found["curriculum/shallow"] = _condition(size, pure, layers=2)
    if size.long > 1:
        found["long/k=4"] = _hard(size, 4, size.long)
    return found
