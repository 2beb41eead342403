"""The page of a sweep: what a click shows is what Python says, and a cell opens its models."""

from dataclasses import replace

import numpy as np
import pytest
import sweep_worlds as worlds
from explorer_page import launch_browser, needs_browser, watched_tab

import mnemoscope as ms
from mnemoscope.report.sweep_page import sweep_page, write_sweep_page
from mnemoscope.sweeps.cell import Cell
from mnemoscope.sweeps.grid import Grid
from mnemoscope.sweeps.shares import cell_share
from mnemoscope.sweeps.survival import cell_survival

browser = pytest.fixture(scope="module")(launch_browser)
WIDTHS = (4.0, 8.0, 16.0)


@pytest.fixture(scope="module")
def grid():
    """A grid with a hole, a seed that diverged, and a cell followed for different times."""
    full = worlds.planted_boundary(np.random.default_rng(0), 0.4, False, 16, WIDTHS, (2, 4, 8))
    cells = {cell.name: cell for cell in full.cells}
    del cells["width=4.0, size=8"]
    lost = cells["width=4.0, size=4"]
    first = np.flatnonzero(~lost.reached)[0]
    cells["width=4.0, size=4"] = replace(lost, diverged=np.arange(16) == first)
    times = np.array([1, 2, 2, 3, 5, 5, 7, 8.0])
    reached = np.array([1, 1, 0, 1, 1, 0, 0, 1], bool)
    early = Cell({"width": 4.0, "size": 2}, tuple(range(8)), times, reached, np.zeros(8, bool))
    cells["width=4.0, size=2"] = early
    return Grid(full.axes, tuple(cells.values()), "accuracy < </script>")


def corners(svg):
    """The corners of the curve of a chosen cell, as steps and shares."""
    points = [point.split(",") for point in svg.get_attribute("points").split()]
    return np.array(points, float)


@needs_browser
def test_a_click_shows_what_python_says(grid, browser, tmp_path):
    command = "mnemoscope explore 0123"
    path = tmp_path / "sweep.html"
    path.write_text(sweep_page(grid, "width", {(0, 0): "cell.html"}, lambda _: command))
    with watched_tab(browser, path.as_uri(), "body[data-drawn]") as tab:
        assert "8 cells" in tab.inner_text("body")
        assert "1 diverged" in tab.inner_text("body")
        tab.focus("#map")
        seen = set()
        # to every cell by the keys: right, then up from the lowest row, over the hole
        for key in ["ArrowDown"] * 3 + ["ArrowLeft"] * 3 + ["ArrowUp", "ArrowRight", "ArrowUp"]:
            tab.keyboard.press(key)
            size, width = (part.split(" = ")[1] for part in tab.inner_text("h2").split(", "))
            cell = grid.cell({"width": float(width), "size": int(size)})
            seen.add(cell.name)
            share = cell_share(cell)
            text = tab.inner_text("#cell")
            said = f"{share.reached} of {share.seeds} seeds reach it: {share.value:.2f} "
            assert said + f"[{share.low:.2f}, {share.high:.2f}]" in text
            assert ("1 diverged" in text) == bool(cell.diverged.any())
            curve = cell_survival(cell)
            assert f"Median step: {curve.median}." in text
            assert command in text
            assert (tab.locator("#cell a").count() == 1) == (cell.name == "width=4.0, size=2")
            # in a picture of 330 by 140 pixels
            drawn = corners(tab.locator("#cell polyline"))
            end = curve.median.followed
            np.testing.assert_allclose(drawn[-1], (366, 8 + 140 * (1 - curve.values[-1])), atol=0.1)
            at = np.searchsorted(curve.steps, (drawn[:, 0] - 36) / 330 * end + 0.02 * end / 330)
            assert (np.diff(at) >= 0).all()
            shares = 1 - (drawn[:, 1] - 8) / 140
            np.testing.assert_allclose(
                np.unique(shares.round(3)), np.unique(curve.values.round(3)), atol=2e-3
            )
            band = corners(tab.locator("#cell polygon"))
            lowest = 1 - (band[:, 1].max() - 8) / 140
            assert abs(lowest - curve.low.min()) < 2e-3
        assert {"width=4.0, size=2", "width=4.0, size=4"} <= seen
        # a click on the middle of the first square of the lowest row
        tab.locator("#map").click(position={"x": 62, "y": 75})
        assert tab.inner_text("h2") == "size = 2, width = 4"


@pytest.fixture
def swept(store):
    """Two cells that were trained, and are kept."""
    spec = ms.Spec(
        task=ms.Cycle(n_symbols=3, length=2),
        model=ms.ModelConfig(d_model=4, n_heads=1, d_mlp=0),
        steps=4,
        batch=2,
    )
    over = {"optimizer.lr": [1e-3, 1e-2]}
    return ms.sweep(spec, over, seeds=2, store=store, progress=False)


def test_a_cell_says_what_opens_its_models(swept, store, tmp_path):
    page = write_sweep_page(swept, tmp_path, explorers=0, progress=False)
    for cell in swept.cells:
        # what is to be typed begins the name of a run in the store
        (typed,) = {row.id[:12] for row in store.blocks(swept.spec(cell.at), cell.seeds)[0]}
        assert f"mnemoscope explore {typed}" in page.read_text()


@pytest.mark.long
def test_a_few_cells_have_their_models_beside_the_page(swept, tmp_path):
    page = write_sweep_page(swept, tmp_path / "page", explorers=1, progress=False)
    (explorer,) = [path for path in page.parent.iterdir() if path != page]
    assert f'"link":"{explorer.name}"' in page.read_text()
    assert '<a href="sweep.html">' in explorer.read_text()
