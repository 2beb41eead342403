"""The explorer's page in a real browser: runs to put into it, and what is done with it."""

import json
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from mnemoscope.explorer import describe_run
from mnemoscope.models import parameter_shapes
from mnemoscope.training.loop import fit
from mnemoscope.training.optimizers import SGD
from mnemoscope.training.run import Run
from mnemoscope.training.spec import Spec

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: nothing was clicked"
)
PATIENCE = 120_000  # milliseconds: a busy machine is slow, not wrong


def launch_browser():
    """A browser, as a fixture yields it."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: nothing was clicked"
    )
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"], timeout=PATIENCE
        )
        yield found
        found.close()


@contextmanager
def watched_tab(browser, address, ready=".badge"):
    """The page, watched: an error in the console or a request to anywhere fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE)
    tab, trouble = context.new_page(), []
    tab.on(
        "console",
        lambda message: (
            trouble.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    tab.on("pageerror", lambda error: trouble.append(str(error)))
    tab.on(
        "request",
        lambda request: (
            None
            if request.url.startswith(("file:", "data:", "blob:"))
            else trouble.append(request.url)
        ),
    )
    tab.goto(address)
    tab.wait_for_selector(ready)
    yield tab
    assert trouble == []
    context.close()


def piece(name, task, model, seeds=3):
    run = fit(Spec(task=task, model=model, steps=30, batch=16, snapshots=4), range(seeds))
    return describe_run(run, name, tuple(range(min(2, seeds))))


def planted_piece(name, task, model, seeds=3):
    """The same without training: the page shows weights, wherever they come from. It trains no SGD,
    so it does not compare its steps with losses that nobody had."""
    spec = Spec(task=task, model=model, optimizer=SGD(), steps=30, batch=16, snapshots=4)
    rng, looks = np.random.default_rng(0), len(spec.snapshot_steps())
    snapshots = {
        name: (name.endswith(".w") + 0.3 * rng.normal(size=(seeds, looks, *size))).astype(
            np.float32
        )
        for name, size in parameter_shapes(model, task.d_vocab, task.n_ctx).items()
    }
    stops, losses = np.array([10, 20, 30]), rng.uniform(1, 2, (seeds, 3)).astype(np.float32)
    run = Run(spec, tuple(range(seeds)), snapshots, stops, losses, np.full(seeds, 30))
    return describe_run(run, name, tuple(range(min(2, seeds))))


def shown(tab):
    """The model's probabilities as the downloaded numbers give them."""
    with tab.expect_download() as waiting:
        tab.click("#json")
    with open(waiting.value.path()) as file:
        return json.load(file)


def choose(tab, name):
    tab.select_option("#run", label=name)


def open_part(tab, part):
    """Open the numbers of a part in the drawing."""
    if tab.get_attribute(f"[data-key='numbers-{part}']", "aria-expanded") == "false":
        tab.click(f"[data-key='numbers-{part}']")


def unfold(tab, step):
    """Open a step of the walk; browsers tell of it (`toggle`) only after the click has returned."""
    tab.click(f"#walk summary >> nth={step}")
    tab.wait_for_selector(f"#walk details:nth-child({step + 1}) .lines")


def move_to(tab, at):
    """Scrub to a snapshot."""
    tab.evaluate(
        "const t = document.getElementById('time'); "
        f"t.value = {at}; "
        "t.dispatchEvent(new Event('input'))"
    )


def summary(tab):
    return tab.text_content("#summary")
