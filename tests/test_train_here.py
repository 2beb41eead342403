"""Training in the explorer's page, in a real browser, by clicks and keys."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import (
    PATIENCE,
    choose,
    launch_browser,
    move_to,
    needs_browser,
    planted_piece,
    shown,
    summary,
    watched_tab,
)

from mnemoscope.exchange.run_files import read_run_file
from mnemoscope.explorer import build_page, describe_run, pack_run
from mnemoscope.explorer.train_here import pack_training
from mnemoscope.models import ModelConfig
from mnemoscope.studies.library.walk.conditions import ABC
from mnemoscope.studies.library.walk.conditions import build_conditions as walk_conditions
from mnemoscope.tasks import Permutation
from mnemoscope.training.loop import fit

pytestmark = needs_browser

STEPS = 70
SPEC = walk_conditions("quick")[ABC].spec.model_copy(update={"steps": STEPS})


@pytest.fixture(scope="module")
def run():
    return fit(SPEC, range(2))


@pytest.fixture(scope="module")
def packed(run):
    tiny = ModelConfig(d_model=4, n_heads=1, d_mlp=4)
    bent = SPEC.model_copy(update={"model": tiny.model_copy(update={"act": "gelu"})})
    abc = pack_run(describe_run(run, "abc"))
    pairs = pack_run(planted_piece("pairs", Permutation(), tiny, 1))
    return [abc, pairs, {**abc, "id": "bent", "name": "bent", **pack_training(bent)}]


@pytest.fixture(scope="module")
def address(packed, tmp_path_factory):
    path = tmp_path_factory.mktemp("explorer") / "explorer.html"
    path.write_text(build_page(packed))
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


@pytest.fixture
def tab(browser, address):
    with watched_tab(browser, address) as tab:
        yield tab


def enter(tab, name, value):
    """Type one of the numbers of a training."""
    tab.fill(f"#train-{name}", str(value))
    tab.press(f"#train-{name}", "Tab")


def train(tab):
    """Train to the end; the status line then."""
    tab.click("[data-key=train-start]")
    tab.wait_for_selector("[data-status=done]", timeout=4 * PATIENCE)
    return tab.text_content("#train-status")


def numbers_of(tab, what):
    return [
        float(each.get_attribute(f"data-{what}")) for each in tab.locator(f"[data-{what}]").all()
    ]


def test_the_page_repeats_the_first_steps_of_the_stored_training(tab, browser, packed, tmp_path):
    badge = tab.locator(".badge")
    assert "in the first steps of 1 trainings" in badge.text_content()
    assert float(badge.get_attribute("data-worst-loss")) < 1e-5
    assert packed[0]["loss_steps"][:2] == [1, 2]
    (first, second, *rest), *others = packed[0]["losses"]
    one = {**packed[0], "losses": [[first, second + 2e-3, *rest], *others]}
    (tmp_path / "bad.html").write_text(build_page([one]))
    other = browser.new_page()
    other.goto((tmp_path / "bad.html").as_uri())
    other.wait_for_selector(".badge.bad")
    other.close()


def test_a_model_is_trained_opened_and_taken_home(tab, run, tmp_path):
    """With the Spec and the seeds of the stored run it becomes the stored run."""
    assert "About a second for" in tab.text_content("#train-cost")
    enter(tab, "seeds", 2)
    assert train(tab).startswith("Trained after ")
    np.testing.assert_allclose(numbers_of(tab, "loss"), run.losses[:, -1], rtol=1e-3)
    curves = tab.locator(".train-curves svg")
    assert curves.count() == 2
    label = curves.first.get_attribute("aria-label")
    assert "chance: 3 answers alike: 1.10; exact floor: 0" in label
    assert "exact floor 0" in curves.first.text_content()

    tab.click("[data-key=train-open]")
    assert "run=trained-here-1&seed=0" in tab.url
    assert tab.evaluate("document.activeElement.id") == "run"
    assert tab.text_content("#run option:checked") == "trained here 1: abc"
    tokens = jnp.array([0, 1, 2])
    for seed in (0, 1):
        tab.click(f"[data-key='seed-accuracy-{seed}']")
        expected = jax.nn.softmax(run.model(seed)(tokens))
        np.testing.assert_allclose(shown(tab)["probabilities"], expected, atol=1e-4)
    tab.click("[data-key='seed-accuracy-0']")
    # the start, and the tools on it
    move_to(tab, 0)
    expected = jax.nn.softmax(run.model(0, 0)(tokens))
    np.testing.assert_allclose(shown(tab)["probabilities"], expected, atol=1e-5)
    assert tab.text_content("#step") == f"step 0 of {STEPS}"
    tab.click("[data-key='node-0.0']")
    assert "was " in summary(tab)
    tab.select_option("#beside", label="abc, seed 0")
    both = "trained here 1: abc, seed 0 and abc, seed 0, at step 0"
    assert tab.text_content("#first-difference").startswith(f"Nowhere do {both}, differ by")

    with tab.expect_download() as waiting:
        tab.click("[data-key=train-save]")
    path = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(path)
    assert path.name == "trained-here-1.safetensors"
    taken = read_run_file(path)
    assert taken.seeds == (0, 1)
    assert taken.spec.snapshots == 40
    assert taken.spec.model_copy(update={"snapshots": SPEC.snapshots, "imported": None}) == SPEC
    # as any stored run, it is explored again
    (tmp_path / "taken.html").write_text(build_page([pack_run(describe_run(taken, "taken"))]))
    with watched_tab(tab.context.browser, (tmp_path / "taken.html").as_uri()) as other:
        assert other.is_enabled("#time")
        assert other.locator("#curves svg").count() == 2
        told = "a model that was imported, with no training to repeat"
        assert told in other.text_content("#train-controls")
    ours, theirs = (each.snapshots["unembed.W_U"][:, -1] for each in (taken, run))
    np.testing.assert_allclose(ours, theirs, atol=1e-3)


def test_a_training_is_held_gone_on_with_and_stopped(tab):
    enter(tab, "steps", 100_000)
    enter(tab, "seeds", 1)
    tab.click("[data-key=train-start]")
    assert tab.is_disabled("#train-lr")
    tab.wait_for_function("Number(document.querySelector('progress')?.value) > 0")
    tab.click("[data-key=train-pause]")
    tab.wait_for_selector("[data-status=paused]")
    # the stretch that is under way is the last one
    tab.wait_for_timeout(500)
    held = tab.text_content("#train-status")
    tab.wait_for_timeout(500)
    assert tab.text_content("#train-status") == held
    assert held.startswith("Paused: step ")
    tab.click("[data-key=train-pause]")
    tab.wait_for_function(f"document.getElementById('train-status').textContent !== {held!r}")
    tab.click("[data-key=train-stop]")
    # drawn with the next picture
    tab.wait_for_selector("[data-status=stopped]")
    assert tab.text_content("#train-status").startswith("Stopped after ")
    assert tab.is_disabled("[data-key=train-save]")
    assert "a run is a whole training" in tab.text_content("#train-result")
    tab.click("[data-key=train-open]")
    assert re.search(r"Stopped at step [\d,]+\.", tab.text_content(".about"))
    # trained again, from what was trained here, with another rate
    enter(tab, "steps", 40)
    enter(tab, "lr", "0.02")
    train(tab)
    tab.click("[data-key=train-open]")
    assert tab.text_content("#run option:checked") == "trained here 2: abc"
    assert "40 steps at rate 0.02." in tab.text_content(".about")


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ("throw new Error('no workers')", "This browser trains nothing here: no workers."),
        (
            "return new Kept(URL.createObjectURL(new Blob([`throw new Error('lost')`])))",
            "The training failed: Uncaught Error: lost after ",
        ),
    ],
)
def test_a_worker_that_fails_says_so(browser, address, worker, told):
    tab = browser.new_page()  # not watched: the console tells of it too
    tab.goto(address)
    tab.evaluate(f"const Kept = Worker; window.Worker = function () {{ {worker} }}; 0")
    tab.click("[data-key=train-start]")
    tab.wait_for_function(f"document.getElementById('train').textContent.includes({told!r})")
    assert tab.locator("[data-key=train-open]").count() == 0
    tab.close()


def test_a_recipe_is_trained_beside_the_model_that_is_open(tab):
    choose(tab, "pairs")
    tab.select_option("#train-what", label="four symbols")
    assert "24 mappings, 5 of them held out" in tab.text_content("#train-controls")
    enter(tab, "seeds", 1)
    enter(tab, "steps", 20)
    train(tab)
    assert len(numbers_of(tab, "skill")) == 2
    tab.click("[data-key=train-open]")
    assert tab.locator("#keys button").count() == 5 + 1
    assert tab.text_content("#run option:checked") == "trained here 1: four symbols"
    tab.click("#presets button:has-text('a random held-out sequence')")
    assert len(tab.input_value("#typed")) == 7
    assert "training mappings" in tab.text_content("#key")


def test_what_the_page_cannot_train_says_so(tab):
    choose(tab, "bent")
    told = "The page cannot train this one: act='gelu' (allowed: 'relu', 'linear')."
    assert tab.text_content("#train-controls") == told
    assert tab.locator("[data-key=train-start]").count() == 0


def test_the_address_has_the_numbers_of_a_training(tab, address):
    enter(tab, "seeds", 3)
    enter(tab, "first", 7)
    enter(tab, "lr", "0.003")
    assert tab.url.endswith("train=seeds%3A3%2Cfirst%3A7%2Clr%3A0.003")
    enter(tab, "lr", "0.01")
    assert tab.url.endswith("train=seeds%3A3%2Cfirst%3A7")
    enter(tab, "steps", "many")
    told = "Steps: whole numbers from 2 to 100,000, not “many”."
    assert told in tab.text_content("#train-controls")
    assert tab.is_disabled("[data-key=train-start]")
    enter(tab, "steps", 30)
    assert tab.is_enabled("[data-key=train-start]")
    tab.goto("about:blank")
    tab.goto(f"{address}#train=seeds:2,lr:x,steps:0,recipe:none,more:1&run=trained-here-1")
    tab.wait_for_selector(".badge.good")
    assert tab.input_value("#train-seeds") == "2"
    assert tab.input_value("#train-lr") == "0.01"
    told = "run “trained-here-1”, training “lr:x”, training “steps:0”, training “recipe:none”, "
    assert told in tab.text_content("#notice")
    assert "What was trained in a page is gone when it is closed" in tab.text_content("#notice")


@pytest.mark.parametrize("width", [360, 1280])
def test_it_can_be_used_on_any_screen_and_without_a_mouse(tab, width):
    tab.set_viewport_size({"width": width, "height": 800})
    enter(tab, "steps", 30)
    tab.focus("[data-key=train-start]")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[data-status=done]")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    small = tab.evaluate("""
        [...document.querySelectorAll('#train button, #train input, #train select')]
            .map(e => [e.dataset.key ?? e.id, e.getBoundingClientRect()])
            .filter(([, box]) => box.width < 24 || box.height < 24)
            .map(([name]) => name)
    """)
    assert small == []
    nameless = tab.evaluate("""
        [...document.querySelectorAll('#train button, #train input, #train svg, #train progress')]
            .filter(e => !e.hasAttribute('aria-hidden'))
            .filter(e => !(
                e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length
            ))
            .map(e => e.outerHTML)
    """)
    assert nameless == []


# ---- whole trainings


@pytest.mark.long
def test_walk_comes_below_a_hundredth(browser, tmp_path):
    """The study's own quick training."""
    spec = walk_conditions("quick")[ABC].spec
    tiny = fit(spec.model_copy(update={"steps": 2}), [0])
    one = pack_run(describe_run(tiny, "abc"))
    one["spec"]["steps"] = spec.steps
    (tmp_path / "walk.html").write_text(build_page([one]))
    with watched_tab(browser, (tmp_path / "walk.html").as_uri()) as tab:
        enter(tab, "seeds", 4)
        train(tab)
        losses = numbers_of(tab, "loss")
        assert len(losses) == 4
        assert max(losses) < 0.01
        assert numbers_of(tab, "skill") == [1.0] * 4


@pytest.mark.long
def test_four_symbols_are_eliminated_on_held_out_mappings(tab):
    """The recipe as the study has it; the last answer of held-out mappings."""
    choose(tab, "pairs")
    tab.select_option("#train-what", label="four symbols")
    enter(tab, "seeds", 2)
    train(tab)
    elimination = numbers_of(tab, "skill")[0::2]
    assert len(elimination) == 2
    assert min(elimination) >= 0.95
