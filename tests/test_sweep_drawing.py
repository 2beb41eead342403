"""Maps and survival curves as SVG: every share and interval, and where the boundary stands."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
import sweep_worlds as worlds

from mnemoscope.core.errors import UserError
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.draw_survival import SurvivalCurves
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.shares import cell_share

WIDTHS = (4.0, 8.0, 16.0, 32.0)


@pytest.fixture(scope="module")
def grid():
    rng = np.random.default_rng(0)
    return worlds.planted_boundary(rng, 0.4, False, 16, WIDTHS, (2, 4, 8))


def test_every_cell_says_its_share_and_whether_it_is_open(grid):
    text = str(grid.plot())
    ElementTree.fromstring(text)
    assert text == str(grid.plot())
    assert len(re.findall("<title>", text)) == len(grid.cells) == 12
    for cell in grid.cells:
        assert f"<title>{cell.name}: {cell_share(cell)}</title>" in text
    is_open = [cell_share(cell).is_open for cell in grid.cells]
    assert any(is_open)
    # one more ring is the legend's
    assert len(re.findall(r'<circle [^>]*fill="none"', text)) == sum(is_open) + 1
    # the fullest squares are those of share 1
    full = sum(cell_share(cell).value == 1 for cell in grid.cells)
    assert text.count('fill-opacity="0.650" stroke') == full > 0


def test_the_boundary_stands_where_it_is():
    # one row, seeds all agree: none reach at 4 and 8, all do at 16 and 32
    rng = np.random.default_rng(0)
    row = worlds.planted_boundary(rng, 0.0, True, 16, WIDTHS, (5,), lambda size: 12.0)
    text = str(row.plot("width"))
    side = 58.0
    tall = 34.0
    # halfway by logarithms between the middles of the second and the third square
    assert f'd="M{2 * side:.1f} 0.0L{2 * side:.1f} {tall:.1f}"' in text
    # and the band from the one middle to the other, drawn half a pixel inside
    assert f'x="{1.5 * side + 0.5:.1f}" y="0.5" width="{side - 1:.1f}"' in text

    # along the rows it runs the other way: the lowest is at the bottom
    turned = Grid({"width": WIDTHS, "size": (5,)}, row.cells)
    assert f'd="M0.0 {2 * tall:.1f}L{side:.1f} {2 * tall:.1f}"' in str(turned.plot("width"))
    later = worlds.planted_boundary(rng, 0.0, True, 16, WIDTHS, (5,), lambda size: 24.0)
    turned = Grid({"width": WIDTHS, "size": (5,)}, later.cells)
    assert f'd="M0.0 {1 * tall:.1f}L{side:.1f} {1 * tall:.1f}"' in str(turned.plot("width"))


def test_a_third_axis_is_a_row_of_panels_and_a_fourth_is_refused(grid):
    kinds = ("adam", "sgd")
    cells = [replace(c, at={**c.at, "kind": kind}) for kind in kinds for c in grid.cells]
    three = Grid({"kind": kinds, **grid.axes}, tuple(cells), "accuracy < 0.5")
    text = str(three.plot("width"))
    assert "kind = adam" in text
    assert "kind = sgd" in text
    assert "accuracy &lt; 0.5" in text
    assert len(re.findall("<title>", text)) == 24
    with pytest.raises(UserError, match=r"unknown axis for a boundary 'kind'"):
        three.plot("kind")
    more = [replace(c, at={**c.at, "decay": decay}) for decay in (0.0, 0.1) for c in cells]
    four = Grid({"decay": (0.0, 0.1), **three.axes}, tuple(more))
    with pytest.raises(UserError, match="at most three axes"):
        four.plot()
    assert four._repr_html_() is None


def test_a_file_is_black_on_white_and_a_notebook_shows_the_map(grid, tmp_path):
    where = grid.plot().save(tmp_path / "map.svg")
    text = where.read_text()
    assert '<rect width="100%" height="100%" fill="#ffffff"/>' in text
    assert "currentColor" in text  # which the file itself says
    assert ' color="#1c1e21"' in text
    assert str(grid.plot()) in grid._repr_html_()
    with pytest.raises(UserError, match=r"written as \.svg"):
        grid.plot().save(tmp_path / "map.png")


def test_survival_curves_end_with_what_is_left():
    times = np.array([100.0, 200.0, 400.0, 400.0])
    cell = Cell({}, (0, 1, 2, 3), times, times < 400, np.zeros(4, bool))
    text = str(SurvivalCurves({"a < b": cell}, "accuracy >= 0.9"))
    ElementTree.fromstring(text)
    assert "a &lt; b: median step 200 [0, more than 400]" in text
    # from (0, 1) down a quarter of 200 pixels at 100 and at 200, then on to the end at one half
    left, top, width = 44, 10, 460
    x = [left + width * step / 400 for step in (0, 100, 200, 400)]
    y = [top, top + 50, top + 100]
    corners = [(x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[2], y[1]), (x[2], y[2]), (x[3], y[2])]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b in [*corners, corners[-1]])
    assert line in text
    with pytest.raises(UserError, match="1 to 5 survival curves"):
        SurvivalCurves({})
