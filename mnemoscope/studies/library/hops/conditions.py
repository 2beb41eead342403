"""What `hops` trains: on the hardest question alone, on a mixture, and by curricula.

All of them see the same number of sequences, in proportion to k. At full scale everything that
asks 4 hops is trained in every reading: as it is, with a norm before each part, and at another
rate; how steps grow with k is followed in the plain reading alone.
"""

from typing import Literal, NamedTuple

from mnemoscope.models import Init, ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Hops
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec
from mnemoscope.verdicts.claim import PLAIN

REPLAY = 0.2  # of the sequences, spread evenly over the hops that came before
# How large W_V and W_O start, of what is drawn. What a layer finds has to be heard over the
# embeddings: as drawn, it comes in at a third of their length, and fewer than half of the quick
# scale's seeds learn 4 hops
LOUD = 3.0
OTHER_RATE = 0.3  # of the rate, in the reading with another one


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
    ladder: int  # seeds of what is dear and only says how steps grow with k
    mixtures: tuple[int, ...]  # k of each mixture
    curricula: tuple[int, ...]  # k of each curriculum but the study's own
    long: int  # the longest training on 4 hops alone, in budgets
    readings: tuple[str, ...]  # in which 4 hops are trained, besides the plain one


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
        ladder=8,
        mixtures=(2, 4),
        curricula=(),
        long=1,
        readings=(),
    ),
    "full": Size(
        n=4,
        d=128,
        lr=1e-3,
        schedule="constant",
        start=0.1,
        steps=8000,
        n_evals=160,
        seeds=128,
        mixed=128,
        ladder=40,
        mixtures=(2, 4, 8),
        curricula=(2, 8),
        long=4,
        readings=("norm", "rate"),
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


def curriculum(
    steps: int, replay: float = 0.0, levels: int = 3
) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """1 hop, then 2, then 4 and so on; each stage but the first is twice as long as the first.

    Args:
        steps: of the whole training.
        replay: the share of a stage's sequences that is spread evenly over earlier levels.
        levels: how many there are.
    """
    first_lengths = 2 * levels - 1  # of all stages together
    begins = [max(0, 2 * level - 1) for level in range(levels)]
    return tuple(
        (steps * begin // first_lengths, only(level, levels, replay))
        for level, begin in enumerate(begins)
    )


def _spec(
    size: Size, task: Hops, layers: int | None = None, budgets: int = 1, reading: str = PLAIN
) -> Spec:
    """One training with so many layers (as many as levels if not said), for so many budgets."""
    model = ModelConfig(
        d_model=size.d,
        n_heads=1,
        n_layers=layers or task.levels,
        d_mlp=0,
        bias=False,
        causal=False,
        norm="pre" if reading == "norm" else "none",
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
        lr=size.lr * (OTHER_RATE if reading == "rate" else 1),
        b2=0.98,
        weight_decay=0.01,
        schedule=size.schedule,
        warmup=100,
        clip=1.0,
    )
    return Spec(
        task=task,
        model=model,
        optimizer=optimizer,
        steps=_steps(size, task.k, budgets),
        batch=32,
        metrics="hops",
        n_evals=max(1, size.n_evals * budgets * task.k // 4),
    )


def _steps(size: Size, k: int, budgets: int = 1) -> int:
    """How long k permutations are trained."""
    return size.steps * budgets * k // 4


def _hard(size: Size, k: int) -> Hops:
    """The task of training on k hops alone."""
    levels = Hops(n=size.n, k=k).levels
    return Hops(n=size.n, k=k, schedule=((0, only(levels - 1, levels)),))


def _taught(size: Size, k: int, replay: float = 0.0) -> Hops:
    """The task of a curriculum up to k hops."""
    levels = Hops(n=size.n, k=k).levels
    return Hops(n=size.n, k=k, schedule=curriculum(_steps(size, k), replay, levels))


def _in_reading(size: Size, reading: str) -> dict[str, Spec]:
    """All that is trained of 4 hops, by name, in one reading."""
    mixture = Hops(n=size.n, k=4)
    pure = _taught(size, 4)
    found = {
        "mixture/k=4": _spec(size, mixture, reading=reading),
        "hard/k=4": _spec(size, _hard(size, 4), reading=reading),
        "curriculum/pure": _spec(size, pure, reading=reading),
        "curriculum/shallow": _spec(size, pure, layers=2, reading=reading),
    }
    return {name if reading == PLAIN else f"{name}/{reading}": x for name, x in found.items()}


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition of a scale, by name.

    `k=4` is the study's question, the others say how cost grows with k.
    """
    size = SIZES[scale]
    specs = {f"mixture/k={k}": _spec(size, Hops(n=size.n, k=k)) for k in size.mixtures}
    specs |= {f"hard/k={k}": _spec(size, _hard(size, k)) for k in (1, 2, 4)}
    specs |= _in_reading(size, PLAIN)
    specs["curriculum/replay"] = _spec(size, _taught(size, 4, REPLAY))
    if size.long > 1:
        specs["long/k=4"] = _spec(size, _hard(size, 4), budgets=size.long)
    for k in size.curricula:
        specs[f"curriculum/k={k}/pure"] = _spec(size, _taught(size, k))
        specs[f"curriculum/k={k}/replay"] = _spec(size, _taught(size, k, REPLAY))
    for reading in size.readings:
        specs |= _in_reading(size, reading)
    first = FRESH_SEED if scale == "full" else 0
    return {name: Condition(x, _seeds(size, name), first) for name, x in specs.items()}


def _seeds(size: Size, name: str) -> int:
    """How many seeds a condition has."""
    if name.startswith("mixture/k=4"):
        return size.mixed
    is_dear = "k=8" in name or name.startswith("long/")
    return size.ladder if is_dear else size.seeds
