"""What the permutation study trains, and how it reads the paper.

The paper: V = 5, 96 mappings trained and 24 held out, one layer, feed-forward of twice the width,
50 epochs of 100,000 samples with Adam; with repeats, 30% of the sequences end with the first pair
again. Batch size and learning rate are not published: `full` takes 128 and 1e-3 at the paper's
number of samples. The paper lists no norm and no seed.

Our choices: no norm; matrices and biases drawn as PyTorch draws a linear layer; and a split of its
own for every seed, so that an interval over seeds covers the luck of the split. Everything is
trained in two other *readings* of what the paper leaves open at `full`: a norm after each sum
(`post`), and a larger rate (`lr3e-3`).

`quick` trains on a tenth of the samples or less, in smaller batches, with a larger rate that falls
to zero. A verdict that longer training could overturn is then `undecided`, and what was added since
0.1 is trained at `full` alone.
"""

from typing import Any, Literal

from mnemoscope.models import ModelConfig
from mnemoscope.studies.scales import FRESH_SEED, Scale
from mnemoscope.studies.study import Condition
from mnemoscope.tasks import Permutation
from mnemoscope.training.optimizers import Adam
from mnemoscope.training.spec import Spec

PAPER_SAMPLES = 50 * 100_000
PAPER_BATCH = 128  # not published: ours
PAPER_STEPS = PAPER_SAMPLES // PAPER_BATCH
CONFIGURATIONS = 96 * 120  # trained mappings and orders: an epoch shows each 8.7 times
# what repeats / width and heads
PLAIN = "plain/d16h1"
PLAIN_WIDE = "plain/d32h1"
PLAIN_TWO = "plain/d32h2"
SMALL = "repeat/d16h1"
SMALL_TWO = "repeat/d16h2"
WIDE = "repeat/d32h1"
WIDER = "repeat/d64h1"
WIDER_TWO = "repeat/d64h2"
TWO = "repeat/d32h2"
ANY = "any/d32h2"
# the same width with four and with six symbols
FOUR = "plain/v4d32h1"
SIX = "plain/v6d32h1"
# one thing of the data or of the model changed
ORDERED = "ordered/d16h1"
FIXED = "fixed/d16h1"
FIXED_TWO = "fixed/d32h2"
ALL_LOSSES = "all losses/d16h1"
ALL_LOSSES_TWO = "all losses/d32h2"
NO_POSITIONS = "no positions/d32h2"
# other trainings of d=16 with repeats
SMALL_SLOW = "capacity/rate 3e-4"
SMALL_FAST = "capacity/rate 1e-2"
SMALL_LONG = "capacity/five times the steps"
SMALL_TWO_LONG = "capacity/two heads, five times the steps"
# what no verdict rests on, trained in the plain reading alone
SHOWN_BESIDE = (ANY, WIDER_TWO)

WIDTHS = {"quick": (8, 12, 16), "full": (4, 8, 12, 16, 24, 32)}

Repeat = Literal["none", "first", "any"]
Norm = Literal["none", "post"]


def spec(
    scale: Scale,
    d: int,
    heads: int,
    repeat: Repeat,
    *,
    norm: Norm = "none",
    lr: float = 1e-3,
    positions: bool = True,
    longer: int = 1,
    **of_task: Any,
) -> Spec:
    """One training of the study.

    Args:
        scale: How long it trains, and at which rate.
        d: Width of the stream.
        heads: Number of heads.
        repeat: Which pair 30% of the sequences end with again.
        norm: Where a norm is.
        lr: Adam's rate at `full`; ten times as much falls to zero at `quick`.
        positions: Whether the model is told where a token stands.
        longer: How many times the paper's steps it trains at `full`.
        of_task: Other fields of the task.
    """
    task = Permutation(
        repeat=0.0 if repeat == "none" else 0.3,
        repeat_of="any" if repeat == "any" else "first",
        **of_task,
    )
    model = ModelConfig(
        d_model=d,
        n_heads=heads,
        d_mlp=2 * d,
        norm=norm,
        positions="learned" if positions else "none",
    )
    if scale == "full":
        return Spec(
            task=task,
            model=model,
            optimizer=Adam(lr=lr),
            batch=PAPER_BATCH,
            steps=longer * PAPER_STEPS,
            snapshots=16,
        )
    return Spec(
        task=task,
        model=model,
        optimizer=Adam(lr=10 * lr, schedule="cosine"),
        batch=64,
        steps=3000 if repeat == "none" else 8000,
        snapshots=12,
    )


def specs_at_both_scales(scale: Scale, norm: Norm = "none", lr: float = 1e-3) -> dict[str, Spec]:
    """What is trained at either scale, in one reading.

    Args:
        scale: How long it trains; at `full` there are more widths.
        norm: Where a norm is.
        lr: Adam's rate.
    """

    def of(d: int, heads: int, repeat: Repeat) -> Spec:
        return spec(scale, d, heads, repeat, norm=norm, lr=lr)

    found = {f"plain/d{d}h1": of(d, 1, "none") for d in WIDTHS[scale]}
    for name, d, heads in ((SMALL, 16, 1), (WIDE, 32, 1), (TWO, 32, 2), (WIDER, 64, 1)):
        found[name] = of(d, heads, "first")
    found[ANY] = of(32, 2, "any")
    return found


def specs_at_full_scale(norm: Norm = "none", lr: float = 1e-3) -> dict[str, Spec]:
    """What is trained at full scale alone, in one reading.

    Args:
        norm: Where a norm is.
        lr: Adam's rate.
    """

    def of(d: int, heads: int, repeat: Repeat, **rest: Any) -> Spec:
        return spec("full", d, heads, repeat, norm=norm, lr=lr, **rest)

    return {
        PLAIN_TWO: of(32, 2, "none"),
        FOUR: of(32, 1, "none", n_symbols=4),
        SIX: of(32, 1, "none", n_symbols=6),
        SMALL_TWO: of(16, 2, "first"),
        WIDER_TWO: of(64, 2, "first"),
        ORDERED: of(16, 1, "none", x_order="fixed"),
        FIXED: of(16, 1, "none", fixed_set=CONFIGURATIONS),
        FIXED_TWO: of(32, 2, "first", fixed_set=CONFIGURATIONS),
        ALL_LOSSES: of(16, 1, "none", loss="all"),
        ALL_LOSSES_TWO: of(32, 2, "first", loss="all"),
        NO_POSITIONS: of(32, 2, "first", positions=False),
    }


def specs_of_capacity() -> dict[str, Spec]:
    """Other trainings of d=16 with repeats: slower, faster, longer, and with a second head."""
    return {
        SMALL_SLOW: spec("full", 16, 1, "first", lr=3e-4),
        SMALL_FAST: spec("full", 16, 1, "first", lr=1e-2),
        SMALL_LONG: spec("full", 16, 1, "first", longer=5),
        SMALL_TWO_LONG: spec("full", 16, 2, "first", longer=5),
    }


def build_conditions(scale: Scale) -> dict[str, Condition]:
    """Every condition by name: what repeats / width and heads / reading of the paper.

    At `full`, 256 seeds of each reading of the three models for R8, R9, R10 and R13, and 128 of the
    rest, that nobody has seen; at `quick`, 8, and 12 where only the seeds that master both skills
    count.
    """
    specs = specs_at_both_scales(scale)
    if scale == "quick":
        return {name: Condition(each, 12 if name == TWO else 8) for name, each in specs.items()}
    specs |= specs_at_full_scale()
    other_readings: tuple[tuple[str, Norm, float], ...] = (
        ("post", "post", 1e-3),
        ("lr3e-3", "none", 3e-3),
    )
    for reading, norm, lr in other_readings:
        others = specs_at_both_scales("full", norm, lr) | specs_at_full_scale(norm, lr)
        specs |= {
            f"{name}/{reading}": each for name, each in others.items() if name not in SHOWN_BESIDE
        }
    specs |= specs_of_capacity()

    def seeds(name: str) -> int:
        return 256 if name.startswith((SMALL, WIDE, TWO)) else 128

    return {name: Condition(each, seeds(name), FRESH_SEED) for name, each in specs.items()}
