"""The command `memories grid`: any cell of the grid of optimized memories."""

from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from mnemoscope.cli.console import make_console
from mnemoscope.cli.options import check_seeds
from mnemoscope.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from mnemoscope.core.axes import Float


def command(
    action: Annotated[Literal["grid"], tyro.conf.Positional],
    /,
    d: int = 100,
    lr: float = 1.0,
    batch: int = 64,
    samples: int = 10_240,
    optimizer: Literal["sgd", "adam"] = "sgd",
    norm: bool = False,
    learned: bool = False,
    seeds: int = 10,
) -> None:
    """Ask for any cell of the grid of optimized memories: its mean error over seeds, with its
    interval.

    100 inputs with probabilities proportional to x^-2 and the answer x mod 5, random embeddings in
    d dimensions, one pass over the samples. Published, SGD at rate 1, batch 64, 10,240
    samples: .0638, .0307, .0183 at d = 10, 100, 1000.

    Args:
        action: grid.
        d: Dimensions.
        lr: The rate; Adam's is divided by d, and its betas are zero.
        batch: Draws in a step.
        samples: Draws in all, a multiple of the batch.
        optimizer: sgd or adam.
        norm: Divide what the matrix returns by its length before it is read out.
        learned: Train the embeddings too.
        seeds: How many, from 42 on.
    """
    from mnemoscope.studies.library.memories.optimized import SEEDS, Cell, errors

    check_seeds(seeds)
    cell = Cell(
        d=d,
        lr=lr,
        batch=batch,
        samples=samples,
        optimizer=optimizer,
        norm=norm,
        learned=learned,
    )
    from mnemoscope.core.numerics import fixed_numerics
    from mnemoscope.execution.machine import use_all_devices

    use_all_devices()
    chosen = tuple(SEEDS[0] + i for i in range(seeds))
    doing = f"{action}: {seeds} seeds, {samples // batch:,} steps"
    with fixed_numerics(), make_console(stderr=True).status(doing):
        by_seed = errors(cell, chosen)
    _print_errors(chosen, by_seed, lr)


def _print_errors(seeds: tuple[int, ...], errors: 'Float[np.ndarray, "seed"]', lr: float) -> None:
    """The mean error with its interval, and each seed's; seeds that diverged are left out."""
    import numpy as np

    from mnemoscope.verdicts.intervals import estimate

    finite = np.isfinite(errors)
    diverged = [str(seed) for seed, is_finite in zip(seeds, finite, strict=True) if not is_finite]
    if len(diverged) == len(seeds):
        raise UserError(f"all {len(seeds)} seeds diverge at the rate {lr:g}; give a smaller --lr")
    found = estimate("mean", errors[finite].tolist())
    over = f"over seeds {seeds[0]} to {seeds[-1]}"
    if found.interval is None:
        print(f"error {found.value:.4f}, mean {over}; no interval: {found.why_open}")
    else:
        low, high = found.interval
        print(f"error {found.value:.4f} [{low:.4f}, {high:.4f}], mean and 95% interval {over}")
    print("by seed: " + " ".join(f"{error:.4f}" for error in errors))
    if diverged:
        print(f"diverged and left out: {', '.join(diverged)}")
