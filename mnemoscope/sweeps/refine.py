"""Which cells to train next, so that a boundary is known for a fraction of the seeds.

    1. coarse   a few seeds in every so many-th cell along each axis of numbers, in random order:
                the picture means something early
    2. halve    a box of cells whose corners do not all lean to one side is cut in half along each
                axis, with a few seeds in the new corners, until boxes are no larger than a cell
    3. settle   wherever two neighbors lean to different sides, both get all seeds; if one is then
                not surely on its side, so does the next cell behind it, and so on
    4. ends     a line of cells that all lean to one side gets all seeds at its end, so that "no
                crossing inside the grid" rests on something

A cell leans to the side of one half on which more than half of its seeds are. What is to be trained
follows from the cells so far and from nothing else, so an interrupted sweep goes on as it would
have. Cells in which nothing is trained lie in boxes that agree at all corners: a patch that is
smaller than the coarse cells may be missed.

A cell is settled with all seeds or not at all, and a few seeds never settle anything: each cell's
interval is still made from one look.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.boundary import most_hits_below
from mnemoscope.sweeps.grid import Grid, Place
from mnemoscope.sweeps.scale import is_numeric
from mnemoscope.sweeps.shares import USUAL

FEW = 4
"""Seeds with which a cell is looked at first."""
COARSE = 3
"""At least so many steps does a coarse axis have, if it has so many values."""
Box = tuple[tuple[int, ...], ...]  # for each axis, the indices of its two sides, or of its one


class Wanted(NamedTuple):
    """Seeds that are to be trained in one cell."""

    place: Place
    """Where the cell stands: for each axis, which of its values."""
    seeds: tuple[int, ...]
    """Those that it does not have yet."""


class _Known(NamedTuple):
    """What the cells so far say, with the values of each axis of numbers in order."""

    is_halved: tuple[bool, ...]
    """For each axis, whether boxes are cut along it: numbers have an order, names have none."""
    order: tuple[tuple[int, ...], ...]
    """For each axis, which of its values comes first, which second."""
    seeds: Int[np.ndarray, "..."]
    """By place: how many there are."""
    side: Int[np.ndarray, "..."]
    """By place: 1 where more than half of the seeds reached, -1 where less than half, 0 else."""
    is_sure: np.ndarray
    """By place: whether the cell is surely on its side."""


def next_cells(
    grid: Grid, seeds: Sequence[int], budget: int | None = None, key: int = 0
) -> tuple[Wanted, ...]:
    """What to train next, in random order; nothing where all is known or the budget is spent.

    Args:
        grid: the axes, and the cells so far.
        seeds: that a cell may have, in the order in which they are added.
        budget: how many seeds may be trained in all cells together, those so far included; None:
            as many as it takes.
        key: of the order.
    """
    if not seeds:
        raise UserError("a sweep needs at least one seed, got none")
    known = _read(grid)
    few = min(FEW, len(seeds))
    wanted = _missing_corners(known, few)
    number = few
    if not wanted:
        number = len(seeds)
        wanted = _unsettled(known, number)
    have = int(known.seeds.sum())
    left = math.inf if budget is None else budget - have
    found: list[Wanted] = []
    for at in _shuffled(sorted(wanted), key, have):
        place = tuple(order[i] for order, i in zip(known.order, at, strict=True))
        cell = grid.cell_at(place)
        trained = set(cell.seeds) if cell else set()
        new = tuple(seed for seed in seeds[:number] if seed not in trained)
        # a cell is trained whole, or its few seeds would be taken for more than they say
        if new and len(new) <= left:
            left -= len(new)
            found.append(Wanted(place, new))
    return tuple(found)


def _shuffled(places: list[Place], key: int, have: int) -> list[Place]:
    """Places in an order that depends on nothing but the key and how much is trained."""
    order = np.random.default_rng([key, have]).permutation(len(places))
    return [places[i] for i in order]


def _read(grid: Grid) -> _Known:
    """The cells so far as arrays."""
    is_halved = tuple(len(values) > 1 and is_numeric(values) for values in grid.axes.values())
    order = tuple(
        tuple(
            np.argsort([float(value) for value in values]).tolist()
            if halved
            else range(len(values))
        )
        for halved, values in zip(is_halved, grid.axes.values(), strict=True)
    )
    n = np.zeros(grid.shape, int)
    side = np.zeros(grid.shape, int)
    is_sure = np.zeros(grid.shape, bool)
    for cell in grid.cells:
        place = grid.place(cell.at)
        count = len(cell.seeds)
        hits = int(cell.reached.sum())
        n[place] = count
        side[place] = np.sign(2 * hits - count)
        fewer = min(hits, count - hits)
        is_sure[place] = fewer <= most_hits_below(count, (1 - USUAL) / 4)
    ordered = np.ix_(*order)
    return _Known(is_halved, order, n[ordered], side[ordered], is_sure[ordered])


def _coarse_boxes(known: _Known) -> Iterator[Box]:
    """The largest boxes: together they cover the grid."""
    by_axis: list[list[tuple[int, ...]]] = []
    for size, halved in zip(known.seeds.shape, known.is_halved, strict=True):
        if not halved:
            by_axis.append([(i,) for i in range(size)])
            continue
        step = 2 ** max(0, int(math.log2((size - 1) / COARSE))) if size > COARSE else 1
        ends = [*range(0, size - 1, step), size - 1]
        by_axis.append(list(itertools.pairwise(ends)))
    yield from itertools.product(*by_axis)


def _missing_corners(known: _Known, few: int) -> set[Place]:
    """Corners of boxes that have not got a few seeds yet, of boxes that must be looked at."""
    missing: set[Place] = set()
    waiting = list(_coarse_boxes(known))
    while waiting:
        box = waiting.pop()
        corners = list(itertools.product(*box))
        new = [corner for corner in corners if known.seeds[corner] < few]
        missing.update(new)
        sides = {int(known.side[corner]) for corner in corners}
        if not new and (len(sides) > 1 or 0 in sides):
            waiting.extend(_halves(box))
    return missing


def _halves(box: Box) -> Iterator[Box]:
    """The boxes that a box is cut into; none if it is no larger than a cell."""
    if all(sides[-1] - sides[0] <= 1 for sides in box):
        return
    by_axis: list[list[tuple[int, ...]]] = []
    for sides in box:
        middle = (sides[0] + sides[-1]) // 2
        is_cut = sides[-1] - sides[0] > 1
        by_axis.append([(sides[0], middle), (middle, sides[-1])] if is_cut else [sides])
    yield from itertools.product(*by_axis)


def _unsettled(known: _Known, number: int) -> set[Place]:
    """Cells beside the boundary, and at the ends of lines, that have not got all seeds yet."""
    wanted: set[Place] = set()
    for axis in np.flatnonzero(known.is_halved).tolist():
        lines = list(_lines(known, axis))
        slopes = [_slopes(line, known) for line in lines]
        leaning = sum(up - down for up, down in slopes)
        for line, (up, down) in zip(lines, slopes, strict=True):
            if up or down:
                wanted |= _at_crossings(line, known, number)
            else:
                wanted |= _at_end(line, known, number, leaning)
    return wanted


def _lines(known: _Known, axis: int) -> Iterator[list[Place]]:
    """The places along an axis, lowest value first, for each place of the other axes."""
    shape = known.seeds.shape
    others = [range(size) if i != axis else (0,) for i, size in enumerate(shape)]
    for place in itertools.product(*others):
        line = [(*place[:axis], i, *place[axis + 1 :]) for i in range(shape[axis])]
        if any(known.seeds[each] for each in line):
            yield line


def _steps(line: list[Place], known: _Known) -> list[tuple[int, int]]:
    """The pairs of cells with seeds, one next to the other along a line, on different sides."""
    trained = [i for i, place in enumerate(line) if known.seeds[place]]
    return [
        (i, j)
        for i, j in itertools.pairwise(trained)
        if not known.side[line[i]] == known.side[line[j]] != 0
    ]


def _slopes(line: list[Place], known: _Known) -> tuple[int, int]:
    """How often the share rises through one half along a line, and how often it falls."""
    steps = [(known.side[line[i]], known.side[line[j]]) for i, j in _steps(line, known)]
    up = sum(bool(before <= after) for before, after in steps)
    return up, len(steps) - up


def _at_crossings(line: list[Place], known: _Known, number: int) -> set[Place]:
    """On both sides of each crossing: the first cell without all seeds, up to one that is sure."""
    wanted: set[Place] = set()
    can_be_sure = most_hits_below(number, (1 - USUAL) / 4) >= 0
    for i, j in _steps(line, known):
        for way in (line[i::-1], line[j:]):
            for place in way:
                if known.seeds[place] < number:
                    wanted.add(place)
                    break
                if known.is_sure[place] or not can_be_sure:
                    break
    return wanted


def _at_end(line: list[Place], known: _Known, number: int, leaning: int) -> set[Place]:
    """The end of a line beyond which its crossing lies; both if the other lines do not tell."""
    trained = [place for place in line if known.seeds[place]]
    ends = {trained[0], trained[-1]}
    if leaning != 0:
        is_beyond = (known.side[trained[0]] < 0) == (leaning > 0)
        ends = {trained[-1] if is_beyond else trained[0]}
    return {place for place in ends if known.seeds[place] < number}
