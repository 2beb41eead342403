"""Grids whose truth is known: a formula says when each seed reaches the event.

    log time = log(a) + p log(K) + q log(c K^b / x) + noise;   it is followed for a steps at K = 1

At the boundary x = c K^b half of the seeds reach in time, so the boundary's law is b exactly.
"""

import numpy as np

from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid

WIDTHS = tuple(float(x) for x in 2 ** np.arange(0, 8.5, 0.5))
SIZES = (2, 4, 8, 16, 32)
BOUNDARY = 3.0  # at K = 1
POWER = 0.75
STEPS = 1000.0


def true_boundary(size):
    return BOUNDARY * size**POWER


def planted_boundary(
    rng, noise, shared, seeds=32, widths=WIDTHS, sizes=SIZES, boundary=true_boundary
):
    """A grid of widths and sizes whose boundary is known.

    Args:
        rng: draws the seeds.
        noise: how far apart the seeds' own boundaries are, in logarithms; 0: they are all one.
        shared: whether a seed has one boundary for all widths, or another luck in every cell.
        seeds: in each cell.
        widths: the axis that the share crosses one half along.
        sizes: the other axis.
        boundary: by size, the width at which half of the seeds reach.
    """
    cells = []
    for size in sizes:
        luck = rng.normal(size=seeds)
        for width in widths:
            if not shared:
                luck = rng.normal(size=seeds)
            over = np.log(width / boundary(size)) + noise * luck
            times = np.ceil(STEPS * np.exp(-over))
            reached = over >= 0
            cells.append(
                Cell(
                    {"width": width, "size": size},
                    tuple(range(seeds)),
                    np.where(reached, times, STEPS),
                    reached,
                    np.zeros(seeds, bool),
                )
            )
    return Grid({"size": tuple(sizes), "width": tuple(widths)}, tuple(cells), "planted")


def true_time(size):
    return 100.0 * size**POWER


def planted_times(rng, followed, seeds=32, sizes=SIZES):
    """Cells along sizes whose median time is known; times beyond `followed` are censored."""
    cells = []
    for size in sizes:
        times = true_time(size) * np.exp(0.5 * rng.normal(size=seeds))
        reached = times <= followed
        # one seed in ten diverges, and would have reached late: it is censored as well
        lost = ~reached & (rng.random(seeds) < 0.1)
        cells.append(
            Cell(
                {"size": size},
                tuple(range(seeds)),
                np.where(reached, times, followed),
                reached,
                lost,
            )
        )
    return Grid({"size": tuple(sizes)}, tuple(cells), "planted")


def part_of(full, trained):
    """What is known of a full grid when only these seeds are trained, by place."""
    cells = []
    for place, seeds in trained.items():
        cell = full.cell_at(place)
        chosen = [cell.seeds.index(seed) for seed in seeds]
        cells.append(
            Cell(
                cell.at,
                tuple(seeds),
                cell.times[chosen],
                cell.reached[chosen],
                cell.diverged[chosen],
            )
        )
    return Grid(full.axes, tuple(cells), full.event)
