"""The page of a sweep: its map, and of each cell its survival curve and the way to its models.

One HTML file with everything in it: it loads nothing from anywhere. Cells are drawn on a canvas,
so that ten thousand are no slower than ten. A number that the page shows was worked out here: of a
curve it gets how many seeds reached at each step, and Wilson's interval of each such share from a
table.

A cell opens its models by a command to type; of a few cells the explorer's page is written beside
this one, those first whose share is nearest to one half.
"""

import json
import os
import warnings
from collections.abc import Callable, Mapping
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from mnemoscope.core.errors import Notice, UserError
from mnemoscope.core.theme import css_variables
from mnemoscope.core.working import Told, show_progress
from mnemoscope.explorer import build_page, describe_run, pack_run
from mnemoscope.report.requested_files import writing
from mnemoscope.sweeps.boundary_curve import boundary_curve
from mnemoscope.sweeps.boundary_marks import boundary_marks
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.laid_out import Laid, Plane, label, lay_out
from mnemoscope.sweeps.shares import HALF, USUAL, cell_share
from mnemoscope.sweeps.survival import cell_survival, wilson_table
from mnemoscope.sweeps.sweep_result import Sweep

NAME = "sweep.html"
EXPLORERS = 4
"""Cells whose models are packed beside the page, unless more are asked for."""
Links = Mapping[tuple[int, ...], str]


def write_sweep_page(
    sweep: Sweep,
    folder: str | os.PathLike[str],
    boundary: str | None = None,
    explorers: int = EXPLORERS,
    progress: Told | bool | None = None,
) -> Path:
    """Write a sweep's page into a folder, and beside it the explorer of a few cells.

    Args:
        sweep: whose cells are shown.
        folder: where the page is written, as sweep.html.
        boundary: the axis along which the boundary is drawn over the map; None: none is.
        explorers: of how many cells the models are packed into an explorer page each.
        progress: whether a bar is shown; None: in a terminal and in a notebook.
    """
    where = Path(folder)
    chosen = sorted(sweep.cells, key=lambda cell: abs(cell_share(cell).value - HALF))
    # an explorer has models to show where at least one seed was trained to the end
    chosen = [cell for cell in chosen if not cell.diverged.all()][:explorers]
    links: dict[tuple[int, ...], str] = {}
    with show_progress(f"packing the models of {len(chosen)} cells", progress) as tell:
        for i, cell in enumerate(chosen):
            place = sweep.place(cell.at)
            name = f"cell-{'-'.join(map(str, place))}.html"
            described = describe_run(sweep.run(cell.at), cell.name)
            try:
                page = build_page([pack_run(described, sweep.store)], back=NAME)
            except UserError as error:
                # what the explorer cannot show it cannot show of any cell
                warnings.warn(f"no explorer beside the page: {error}", Notice, stacklevel=2)
                break
            _write(where / name, page)
            links[place] = name
            if tell:
                tell(i + 1, len(chosen))

    def command(cell: Cell) -> str:
        return f"mnemoscope explore {sweep.spec(cell.at).digest()[:12]}" if sweep.store else ""

    return _write(where / NAME, sweep_page(sweep, boundary, links, command))


def sweep_page(
    grid: Grid,
    boundary: str | None = None,
    links: Links | None = None,
    command: Callable[[Cell], str] | None = None,
    level: float = USUAL,
) -> str:
    """The page of a grid, as HTML.

    Args:
        grid: on at most three axes that have more than one value.
        boundary: the axis along which the boundary is drawn over the map; None: none is.
        links: the address of the explorer of some cells, by place.
        command: what one types to explore a cell; empty where there is nothing to explore.
        level: of the intervals.
    """
    event = grid.event or "the event"
    data = json.dumps(page_data(grid, boundary, links or {}, command, level), separators=(",", ":"))
    title = escape(f"Sweep: seeds that reach {event}")
    parts = {
        "__TITLE__": title,
        "__STYLE__": css_variables() + _static("page.css"),
        "__HEAD__": title,
        "__LEAD__": _lead(grid, boundary, level),
        # inside a script nothing but its end is special
        "__DATA__": data.replace("<", "\\u003c"),
        "__SCRIPT__": _static("page.js"),
    }
    page = _static("page.html")
    # in the order of the page: what has been put in is not looked through again
    for placeholder, part in parts.items():
        before, _, after = page.partition(placeholder)
        page = f"{before}{part}{after}"
    return page


def page_data(
    grid: Grid,
    boundary: str | None,
    links: Links,
    command: Callable[[Cell], str] | None,
    level: float,
) -> dict[str, Any]:
    """What the page's script reads.

    Args:
        grid: whose cells are shown.
        boundary: the axis along which the boundary is drawn; None: none is.
        links: the address of the explorer of some cells, by place.
        command: what one types to explore a cell.
        level: of the intervals.
    """
    plane = lay_out(grid)
    places = [
        (cell, (p, r, c))
        for p, panel in enumerate(plane.cells)
        for r, row in enumerate(panel)
        for c, cell in enumerate(row)
        if cell is not None
    ]
    sizes = sorted({len(cell.seeds) for cell, _ in places})
    return {
        "event": grid.event or "the event",
        "columns": _axis(plane.columns),
        "rows": _axis(plane.rows),
        "panels": _axis(plane.panels),
        "level": level,
        "wilson": {n: np.round(wilson_table(n, level), 6).tolist() for n in sizes},
        "shares": {n: _shares_in_words(n, level) for n in sizes},
        "marks": _marks(grid, plane, boundary, level),
        "cells": [
            _cell(cell, at, links.get(grid.place(cell.at), ""), command, level)
            for cell, at in places
        ],
    }


def _shares_in_words(n: int, level: float) -> list[str]:
    """How the share of each number of hits out of n is written, with its interval."""
    ends = enumerate(wilson_table(n, level).tolist())
    return [f"{hits / n:.2f} [{low:.2f}, {high:.2f}]" for hits, (low, high) in ends]


def _axis(laid: Laid) -> dict[str, Any]:
    """An axis as the script draws it."""
    return {"name": laid.axis, "values": [label(value) for value in laid.values]}


def _marks(
    grid: Grid, plane: Plane, boundary: str | None, level: float
) -> list[list[list[float | bool]]]:
    """By panel: the boundary and its band."""
    if boundary is None:
        return []
    panels = range(len(plane.panels.values))
    return [
        [[mark.is_band, *(round(x, 3) for x in mark[1:])] for mark in marks]
        for marks in (boundary_marks(grid, plane, boundary, i, level) for i in panels)
    ]


def _cell(
    cell: Cell,
    at: tuple[int, int, int],
    link: str,
    command: Callable[[Cell], str] | None,
    level: float,
) -> dict[str, Any]:
    """One cell: where it is, how many reached at which step, and how one gets to its models."""
    curve = cell_survival(cell, level)
    steps, counts = np.unique(cell.times[cell.reached], return_counts=True)
    found: dict[str, Any] = {
        "at": at,
        "n": len(cell.seeds),
        "k": int(cell.reached.sum()),
        "end": curve.median.followed,
        "median": str(curve.median),
        "reached": [[float(s), int(k)] for s, k in zip(steps, counts, strict=True)],
        "seeds": ",".join(map(str, cell.seeds)) if len(cell.seeds) <= 8 else len(cell.seeds),
    }
    if cell.diverged.any():
        found["diverged"] = int(cell.diverged.sum())
    if curve.method != "order statistics":
        # not a plain share: the curve itself
        arrays = (curve.steps, curve.values, curve.low, curve.high)
        found["curve"] = [np.round(array, 4).tolist() for array in arrays]
    if link:
        found["link"] = link
    said = command(cell) if command else ""
    if said:
        found["command"] = said
    return found


def _lead(grid: Grid, boundary: str | None, level: float) -> str:
    """What the sweep is, in a few words above the map."""
    seeds = sum(len(cell.seeds) for cell in grid.cells)
    lost = sum(int(cell.diverged.sum()) for cell in grid.cells)
    text = f"{len(grid.cells):,} cells, {seeds:,} seeds"
    if lost:
        text += f"; {lost:,} diverged, and count as not reached"
    lines = [f"<p>{escape(text)}.</p>"]
    long = [axis for axis, values in grid.axes.items() if len(values) > 1]
    if boundary is not None and len(long) == 2 and boundary in long:
        (along,) = [axis for axis in long if axis != boundary]
        fixed = {axis: values[0] for axis, values in grid.axes.items() if axis not in long}
        curve = boundary_curve(grid, boundary, along, fixed, level)
        rows = "".join(
            f"<tr><td>{escape(label(value))}</td><td>{escape(str(found))}</td></tr>"
            for value, found in zip(curve.values, curve.boundaries, strict=True)
        )
        lines.append(
            f"<details><summary>Where half of the seeds reach it, for each {escape(along)}"
            f"</summary><table><tr><th>{escape(along)}</th><th>boundary</th></tr>{rows}</table>"
            "</details>"
        )
    return "".join(lines)


def _static(name: str) -> str:
    """One of the browser's files."""
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")


def _write(path: Path, text: str) -> Path:
    """Write a file, or say in one line why it cannot be written."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path
