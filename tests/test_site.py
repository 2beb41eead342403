"""The site and its figures: made from what is on the disk, the same bytes each time,
and nothing from elsewhere.
"""

import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from markupsafe import escape

import mnemoscope
from mnemoscope.cli import ledgers
from mnemoscope.core import theme
from mnemoscope.core.errors import UserError
from mnemoscope.explorer.shipped import list_shipped
from mnemoscope.report.claim_figures import claim_figures, seeds_figure, svg, write_figure
from mnemoscope.report.plots import curves_figure, grids_figure, maps_figure
from mnemoscope.report.site import write_site
from mnemoscope.store import Store
from mnemoscope.studies.discover import STUDIES
from mnemoscope.studies.ledger_files import read_all_series, read_ledger, read_plots
from mnemoscope.studies.library.remember.drawings import DRAWINGS
from mnemoscope.studies.plot_data import AttentionMap, Curve, Grid, Plots
from mnemoscope.studies.presentation import Panel, load_page, load_panels, require_words
from mnemoscope.studies.published import published_folder

HOME = Path(mnemoscope.__file__).parent
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: nothing was clicked"
)


MOST_BYTES = 15_000_000  # of the whole site


class Reader(HTMLParser):
    """Ids, links and tags of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.tags.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.links += [found[name] for name in ("href", "src") if name in found]


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The site of an empty store: published results, and the models that travel with studies."""
    folder = tmp_path_factory.mktemp("site")
    written = write_site(folder / "a", Store(folder / "store"))
    return {path.name: path.read_text() for path in written}


def test_the_site_of_a_fresh_clone_shows_the_published_results(pages):
    studies = {f"{name}.html" for name in STUDIES}
    assert set(pages) == {"index.html", *studies, "walk-through.html", "explorer.html"}
    # with nothing stored, nothing trained
    assert sum(len(text.encode()) for text in pages.values()) <= MOST_BYTES
    for name, study in STUDIES.items():
        book = read_ledger(published_folder() / "full", name, "full")
        for test in study.tests:
            assert f'id="{test.claim.id}"' in pages[f"{name}.html"]
            assert f'id="{test.claim.id}"' in pages["index.html"]
        for entry in book.claims if book else ():
            assert f'class="verdict {entry.verdict}"' in pages[f"{name}.html"]
        assert escape(load_page(study).question[:40]) in pages[f"{name}.html"]
        is_old = book is not None and book.format == 1
        assert ("by version 0.1, on its number" in pages[f"{name}.html"]) == is_old
    assert "does not hold" in pages["walk.html"]


def test_the_overview_opens_with_a_figure_and_says_where_to_start(pages):
    text = pages["index.html"]
    hero, start, studies = (text.index(mark) for mark in ("<svg", 'id="start"', 'class="cards"'))
    assert hero < start < studies
    words = load_page(STUDIES["remember"])
    caption = re.search(r"<figcaption>(.*?)</figcaption>", text, re.DOTALL)[1]
    assert f'href="remember.html#{words.hero}"' in caption
    assert escape(words.hero_says.strip()[:60]) in caption
    # the same figure as beside the claim
    figure = text[hero : text.index("</svg>")]
    assert figure in pages["remember.html"]
    for link in ("explorer.html", "walk-through.html", "#ledger"):
        assert start < text.index(f'href="{link}"', start) < studies
    for study in STUDIES.values():
        assert escape(load_page(study).in_short) in text[studies:]


def test_a_hero_that_is_no_claim_is_refused():
    study = replace(STUDIES["remember"], tests=())
    with pytest.raises(UserError, match=r"claim in hero= in page.toml of 'remember' 'R16'"):
        require_words(study)


def test_a_study_with_models_opens_the_explorer_on_its_first(pages):
    carried = json.loads(re.search(r'id="data">(.*?)</script>', pages["explorer.html"])[1])["runs"]
    for name, study in STUDIES.items():
        found = re.findall(r'href="explorer.html#run=(\w+)"', pages[f"{name}.html"])
        shipped = list_shipped(study)
        assert found == [model.spec.digest() for model in shipped[:1]], name
        names = [run["name"] for run in carried if run["id"] in found]
        assert names == [f"{name}: {model.name}" for model in shipped[:1]]


def test_figures_are_the_same_each_time(pages, tmp_path, monkeypatch):
    """Two studies have every kind of figure: seeds, curves, maps and grids."""
    names = ("birth", "facts")
    monkeypatch.setattr("mnemoscope.report.site.STUDIES", {name: STUDIES[name] for name in names})
    again = write_site(tmp_path / "site", Store(tmp_path / "store"))
    studies = [f"{name}.html" for name in names]
    assert [path.name for path in again] == ["index.html", *studies, "explorer.html"]
    for path in again[1:-1]:
        drawn, before = (
            re.findall(r"<svg.*?</svg>", text, re.DOTALL)
            for text in (path.read_text(), pages[path.name])
        )
        assert len(drawn) > 5
        assert drawn == before


@pytest.mark.long
def test_same_input_same_bytes(pages, tmp_path):
    again = write_site(tmp_path / "site", Store(tmp_path / "store"))
    assert {path.name: path.read_text() for path in again} == pages


def test_pages_load_nothing_from_elsewhere_and_link_to_what_is_there(pages):
    for name, text in pages.items():
        page = Reader(text)
        assert len(page.ids) == len(set(page.ids)), f"{name} has an id twice"
        assert "link" not in page.tags
        assert not re.search(r"url\((?!#)", text)
        for link in page.links:
            file, _, place = link.partition("#")
            if not file and not place.startswith("m"):  # matplotlib's markers point at themselves
                assert place in page.ids or place in text
                continue
            if file:
                assert file in pages, f"{name} links to {link}"
                # in the explorer an address names what is looked at
                is_view = file == "explorer.html" and place.startswith("run=")
                assert not place or is_view or f'id="{place}"' in pages[file]


def test_names_become_text_and_not_markup(tmp_path, monkeypatch):
    hostile = "<script>alert(1)</script>\"'&"
    store = Store(tmp_path / "store")
    book = read_ledger(published_folder() / "full", "remember", "full")
    entry = book.claims[0].model_copy(update={"sentence": hostile, "published": hostile})
    forged = book.model_copy(update={"scale": "quick", "hardware": hostile, "claims": (entry,)})
    store.write_text("ledger/quick/remember.json", forged.model_dump_json())
    monkeypatch.setattr("mnemoscope.report.site.STUDIES", {"remember": STUDIES["remember"]})
    written = {path.name: path.read_text() for path in write_site(tmp_path / "site", store)}
    assert set(written) == {"index.html", "remember.html", "explorer.html"}
    assert not any("<script>alert" in text for text in written.values())
    assert "&lt;script&gt;alert" in written["remember.html"]


@pytest.mark.parametrize("study", STUDIES)
def test_every_series_of_every_claim_has_a_panel(study):
    drawn, found = (
        load_panels(STUDIES[study]),
        read_all_series(published_folder() / "full", study),
    )
    known = {test.claim.id for test in STUDIES[study].tests}
    assert set(drawn) <= known
    if read_ledger(published_folder() / "full", study, "full").format == 1:
        return  # 0.1 measured other things under the same ids
    for claim, series in found.items():
        by_seed = series.by_seed
        if by_seed:
            dots = [panel for panel in drawn[claim] if panel.kind == "seeds"]
            shown = {name for panel in dots for name in panel.chosen(tuple(by_seed))}
            # who masters both skills, and who divides the work, is counted in the sentence;
            # the figure shows the skills
            assert set(by_seed) - shown <= {"masters both", "divided"}, claim
            assert all(set(panel.published) <= shown for panel in dots), claim


@needs_browser
def test_the_ledger_is_filtered_sorted_and_opened(pages, tmp_path):
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: nothing was clicked"
    )
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    with sync_api.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=120_000
        )
        tab, trouble = browser.new_page(), []
        tab.on(
            "console",
            lambda message: trouble.append(message.text) if message.type == "error" else None,
        )
        tab.on("pageerror", lambda error: trouble.append(str(error)))
        tab.goto((tmp_path / "index.html").as_uri())
        total = sum(len(study.tests) for study in STUDIES.values())
        assert tab.locator(".row:visible").count() == total
        tab.select_option("[name=study]", "walk")
        assert tab.locator(".row:visible").count() == len(STUDIES["walk"].tests)
        tab.select_option("[name=verdict]", "partly")
        ids = [row.get_attribute("id") for row in tab.locator(".row:visible").all()]
        book = read_ledger(published_folder() / "full", "walk", "full")
        assert ids == [entry.id for entry in book.claims if entry.verdict == "partly"]
        tab.select_option("[name=study]", "")
        tab.select_option("[name=verdict]", "")
        tab.select_option("[name=sort]", "verdict")
        verdicts = [row.get_attribute("data-verdict") for row in tab.locator(".row").all()]
        assert verdicts == sorted(
            verdicts, key=["reproduced", "partly", "refuted", "undecided", "none"].index
        )
        assert tab.text_content("#filters output") == f"{total} of {total} claims"
        tab.click("#R13 summary")
        assert tab.locator("#R13 .facts").is_visible()
        without = browser.new_context(java_script_enabled=False).new_page()
        without.goto((tmp_path / "index.html").as_uri())
        assert without.locator(".row:visible").count() == total
        without.click("#R13 summary")
        assert without.locator("#R13 .facts").is_visible()
        browser.close()
    assert trouble == []


def luminance(color):
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_text_has_the_contrast_of_wcag_aa():
    """4.5 to 1 for every color that text has, on the paper and on the band,
    in light and in dark.
    """
    light, dark = re.findall(r":root \{([^}]*)\}", theme.css_variables())
    for part in (light, dark):
        colors = dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", part))
        names = set(colors) - {
            "paper",
            "band",
            "line",
            "heat",
            "cold",
            "bar",
            "strong",
            "seed",
            "published",
        }  # not the color of a text
        assert names >= {"ink", "quiet"}
        for name in names:
            for ground in ("paper", "band"):
                bright, dim = sorted(
                    (luminance(colors[name]), luminance(colors[ground])), reverse=True
                )
                assert (bright + 0.05) / (dim + 0.05) >= 4.5, f"{name} on {ground}"


def test_a_figure_shows_every_seed_and_the_paper():
    panel = Panel(series=("recall*",), axis="recall", limits=(0, 1), published={"recall": 0.25})
    figure = seeds_figure(
        [panel], {"recall": [0.0, 0.5, 1.0], "recall more": [0.1] * 7, "other": [3.0]}
    )
    axes = figure.axes[0]
    dots = [line.get_xdata() for line in axes.lines if line.get_marker() == "o"]
    np.testing.assert_array_equal(np.concatenate(dots), [0.0, 0.5, 1.0, *[0.1] * 7])
    medians = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "|"]
    assert medians == [0.5, 0.1]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"] == [0.25]
    assert axes.get_xlabel() == "recall"
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "recall  (3)",
        "recall more  (7)",
    ]
    text = svg(figure, "x", 'a "name" <b>')
    assert 'aria-label="a &quot;name&quot; &lt;b&gt;"' in text
    assert "currentColor" in text
    assert "#1c1e21" not in text


def test_a_log_axis_keeps_zeros_in_sight():
    figure = seeds_figure([Panel(series=("*",), axis="loss", log=True)], {"loss": [0.0, 1e-4, 1.0]})
    assert min(figure.axes[0].lines[0].get_xdata()) == pytest.approx(1e-4 / 2)
    assert "zero drawn at the left edge" in figure.axes[0].get_xlabel()


def test_curves_are_drawn_with_their_bands_and_one_legend():
    curve = Curve(steps=(0, 10, 20), mean=(0, 0.5, 1), low=(0, 0.4, 0.9), high=(0.1, 0.6, 1))
    panels = [
        Panel(kind="curves", series=(f"{name}: *",), axis="accuracy", title=name)
        for name in ("one", "two")
    ]
    curves = {
        f"{condition}: {series}": curve for condition in ("one", "two") for series in ("a", "b")
    }
    figure = curves_figure(panels, curves)
    assert [ax.get_title() for ax in figure.axes] == ["one", "two"]
    for ax in figure.axes:
        assert [line.get_ydata().tolist() for line in ax.lines] == [[0, 0.5, 1]] * 2
        assert len(ax.collections) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b"]
    assert figure.axes[0].lines[0].get_marker() == "o", "three points are marked"
    near = Curve(steps=(10, 60), mean=(10, 60), low=(10, 60), high=(10, 60))
    ax = curves_figure(
        [Panel(kind="curves", series=("a",), axis="N", log=True, log_x=True)], {"a": near}
    ).axes[0]
    for axis in (ax.xaxis, ax.yaxis):
        shown = [
            axis.get_major_formatter()(x, 0) for x in axis.get_major_locator()() if 10 <= x <= 60
        ]
        assert shown == ["10", "20", "50"], "less than two decades have no powers of ten"
    with pytest.raises(ValueError, match="none of the curves"):
        curves_figure(panels, {"three: a": curve})


def test_an_attention_map_has_a_square_for_each_weight_worth_seeing():
    shown = AttentionMap(
        tokens=("a", "b", "a"), weights=((1, 0, 0), (0.99, 0.01, 0), (0.2, 0.5, 0.3))
    )
    figure = maps_figure({"layer 0": shown, "layer 1": shown})
    assert [ax.get_title() for ax in figure.axes] == ["layer 0", "layer 1"]
    squares = figure.axes[0].collections[0]
    assert [round(color[3], 2) for color in squares.get_facecolors()] == [1, 0.99, 0.2, 0.5, 0.3]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["a", "b", "a"]


def test_a_grid_has_a_square_for_each_cell_and_prints_a_few():
    grid = Grid.of((1, 2), ("a", "b", "c"), np.array([[0.0, 1.0, np.nan], [10.0, 100.0, 1000.0]]))
    assert grid.values == ((0.0, 1.0, None), (10.0, 100.0, 1000.0))
    assert str(Grid.of(("a",), ("b",), np.array([[-0.0]])).values) == "((0.0,),)"
    panel = Panel(kind="grid", series=("*",), axis="error", x="column", y="row", log=True)
    lined = grid.model_copy(update={"lines": {"edge": ((-0.5, 0.0), (2.5, 1.0))}})
    figure = claim_figures([panel], {}, Plots(grids={"one": lined}))["grids"]
    ax = figure.axes[0]
    squares = ax.collections[0]
    corners = [path.vertices[0].tolist() for path in squares.get_paths()]
    assert corners == [[c - 0.5, r - 0.5] for r in (0, 1) for c in (0, 1, 2)]
    full = 0.65
    # zero is below a logarithmic scale, which runs from 1 to 1000 here;
    # what was not measured has no color
    rise = [0.04, 0.04, 0, 0.04 + (full - 0.04) / 3, 0.04 + (full - 0.04) * 2 / 3, full]
    np.testing.assert_allclose([color[3] for color in squares.get_facecolors()], rise, atol=1e-9)
    assert [text.get_text() for text in ax.texts] == ["0", "1", "-", "10", "100", "1000"]
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == ("one", "column", "row")
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "2"]
    assert ax.lines[0].get_xydata().tolist() == [[-0.5, 0], [2.5, 1]]
    beside = ax.child_axes[0]
    assert beside.get_ylabel() == "error"
    assert [label.get_text() for label in beside.get_yticklabels()][::2] == ["1", "1000"]
    text = svg(figure, "x", "a grid")
    assert "var(--seed" in text
    assert "<image" not in text


def test_grids_stand_beside_each_other_under_their_names():
    grid = Grid.of(range(3), range(9), np.arange(27.0).reshape(3, 9))
    panels = [
        Panel(kind="grid", series=("loss",), axis="nats", title="the loss"),
        Panel(kind="grid", series=("rise", "fall"), axis=""),
    ]
    figure = grids_figure(panels, {"fall": grid, "loss": grid, "rise": grid})
    assert [ax.get_title() for ax in figure.axes if ax.get_title()] == ["the loss", "fall", "rise"]
    assert not any(ax.texts for ax in figure.axes), (
        "eighteen cells across are too many to be printed"
    )
    same = Grid.of(("a",), ("b",), np.full((1, 1), 0.5))
    assert grids_figure(panels, {"loss": same}).axes[0].child_axes == [], (
        "one value alone has no scale"
    )
    with pytest.raises(ValueError, match="none of the grids other has a panel"):
        grids_figure(panels, {"other": grid})


def test_a_grid_that_is_not_rectangular_is_refused():
    with pytest.raises(UserError, match="Grid: values must be 2 rows of 1"):
        Grid(rows=("a", "b"), columns=("c",), values=((1.0,), (1.0, 2.0)))


def test_every_curve_and_map_of_the_published_results_is_drawn(tmp_path):
    drawn = load_panels(STUDIES["birth"])
    for claim, found in read_plots(published_folder() / "full", "birth").items():
        shown = {
            name
            for panel in drawn[claim]
            if panel.kind == "curves"
            for name in panel.chosen(tuple(found.curves))
        }
        assert shown == set(found.curves), claim
    ledgers.figure("B2", tmp_path / "b2.svg", store=tmp_path / "none")
    assert {path.name for path in tmp_path.glob("*.svg")} == {
        "b2.svg",
        "b2-curves.svg",
        "b2-maps.svg",
    }


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_a_figure_alone_is_the_same_each_time(tmp_path, ending, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        ledgers.figure("R13", tmp_path / name / f"r13.{ending}", store=tmp_path / "none")
    assert (tmp_path / "a" / f"r13.{ending}").read_bytes() == (
        tmp_path / "b" / f"r13.{ending}"
    ).read_bytes()


def test_drawing_leaves_the_callers_matplotlib_alone():
    import matplotlib
    import matplotlib.pyplot as plt

    with matplotlib.rc_context({"font.size": 31.0}):
        before = dict(matplotlib.rcParams)
        svg(claim_figures((), {}, Plots(), DRAWINGS["R1"])["seeds"], "x", "a name")
        assert dict(matplotlib.rcParams) == before
    assert plt.get_fignums() == [], "nothing stays open"


def test_figures_that_cannot_be_made_say_so(tmp_path):
    with pytest.raises(
        UserError, match=r"unknown kind of figure 'r\.gif'; allowed endings: \.svg, \.pdf, \.png"
    ):
        write_figure(claim_figures((), {}, Plots(), DRAWINGS["R1"])["seeds"], tmp_path / "r.gif")
    with pytest.raises(
        UserError,
        match=r"nothing to draw for R3 at the scale quick; make it with 'mnemoscope run remember",
    ):
        ledgers.figure("R3", scale="quick", store=tmp_path / "none")
    with pytest.raises(UserError, match="cannot write"):
        ledgers.figure("R1", tmp_path / "no" / "r1.svg", store=tmp_path / "none")
