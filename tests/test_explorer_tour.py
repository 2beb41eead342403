"""Guided tours: which seed and snapshot their rules pick, what they say, and a walk to the end."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import launch_browser, move_to, needs_browser, planted_piece, watched_tab

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import build_page, pack_run
from mnemoscope.explorer.tours import SeedRule, SnapshotRule, Tour, TourStep, pack_tour
from mnemoscope.models import ModelConfig, knock_out_head
from mnemoscope.tasks import Cycle, Permutation

TRAP = jnp.array([2, 4, 5, 3, 4, 5, 3, 2, 2])
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"


@pytest.fixture(scope="module")
def piece():
    task = Permutation(repeat=0.3)
    return planted_piece("tour", task, ModelConfig(d_model=8, n_heads=2, d_mlp=8), 3)


@pytest.fixture(scope="module")
def packed(piece):
    """With planted skills: seed 1 ends best, leads at snapshot 1 and recalls from snapshot 2 on."""
    found = pack_run(piece)
    found["curves"] = {
        "elimination": [[0.1, 0.2, 0.3, 0.4], [0.1, 0.9, 0.9, 1.0]],
        "recall": [[0.1, 0.1, 0.1, 0.2], [0.1, 0.05, 0.52, 0.75]],
    }
    found["outcomes"] |= {"elimination": [0.4, 1.0, 0.3], "recall": [0.2, 0.75, 0.1]}
    return found


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


@pytest.fixture
def page(browser, packed, tmp_path):
    """The page of a pack, watched."""

    def build(found=packed, end=""):
        path = tmp_path / "tour.html"
        path.write_text(build_page([found]))
        return watched_tab(browser, path.as_uri() + end)

    return build


def says(model, *edits):
    """The answer to the trap as the page writes it."""
    p = np.asarray(jax.nn.softmax(model(TRAP, edits)[-1]))
    percent = 100 * p.max()
    return f"{p.argmax()} ({percent:.1f}%)" if percent < 10 else f"{p.argmax()} ({percent:.0f}%)"


def title(tab):
    return tab.text_content("#tour-title")


def text(tab):
    return tab.text_content("#tour-text")


@needs_browser
def test_a_tour_is_walked_to_its_end_by_clicks_and_keys(page, piece):
    run, config = piece.run, piece.run.spec.model
    answers = [jax.nn.softmax(run.model(seed)(TRAP)[-1]) for seed in run.seeds]
    effects = [
        np.abs(
            jax.nn.softmax(run.model(1)(TRAP, (knock_out_head(config, 0, head),))[-1]) - answers[1]
        ).sum()
        for head in range(2)
    ]
    head = int(np.argmax(effects))
    edit = knock_out_head(config, 0, head)
    without = [jax.nn.softmax(run.model(seed)(TRAP, (edit,))[-1]) for seed in run.seeds]
    other = max((0, 2), key=lambda seed: np.abs(without[seed] - without[1]).sum())
    with page() as tab:
        assert tab.locator("#tour").is_hidden()
        question = "does it work the answer out, or remember it?"
        assert tab.text_content("#tour-start") == f"Tour in 7 steps: {question}"
        tab.click("#tour-start button")
        assert title(tab) == "1 of 7. A question with two answers"
        assert f"at step 0, this model says {says(run.model(1, 0))}." in text(tab)
        assert tab.input_value("#seed") == "1"
        assert tab.is_disabled("[data-key=tour-back]")
        tab.keyboard.press("Enter")  # the focus is on the way on
        steps = run.spec.snapshot_steps()
        assert title(tab) == "2 of 7. Where elimination leads"
        said = f"At step {steps[1]} elimination is right on 90% of the held-out"
        assert text(tab).startswith(said)
        assert "recall on 5.0% of" in text(tab)
        assert f"it says {says(run.model(1, 1))}: the answer of " in text(tab)
        assert tab.text_content("#step") == f"step {steps[1]} of {steps[-1]}"
        tab.keyboard.press("ArrowRight")
        assert "From 5.0% here, the accuracy of recall comes to 75% at step 30." in text(tab)
        tab.click("[data-key=tour-next]")
        assert text(tab).startswith(f"Step {steps[2]} is the first snapshot where")
        assert "at least half of the time: 52%." in text(tab)
        tab.keyboard.press("ArrowRight")
        assert title(tab) == "5 of 7. Knock out a head"
        was, now = says(run.model(1)), says(run.model(1), edit)
        assert text(tab).startswith(f"At the end of training it said {was}. Now it says {now}, ")
        assert f"with head {head} knocked out: of all heads" in text(tab)
        assert f"was {was}, now {now}, with head {head}" in tab.text_content("#summary")
        assert tab.locator("#answer .ghost").count() > 0
        # all of it on one screen
        tab.set_viewport_size({"width": 1280, "height": 800})
        for part in ("#tour", "#typed", "#flow", "#summary", "#answer"):
            box = tab.locator(part).bounding_box()
            assert box["y"] >= 0, part
            assert box["y"] + box["height"] <= 800, part
        tab.keyboard.press("ArrowRight")
        assert text(tab).startswith(f"Seed {other} learned the same task")
        assert f"With head {head} knocked out, too, it says {says(run.model(other), edit)}" in text(
            tab
        )
        assert f"where it said {says(run.model(other))}: of 3 seeds" in text(tab)
        tab.keyboard.press("ArrowRight")
        assert title(tab) == "7 of 7. You try"
        assert tab.locator("[data-key=tour-next]").count() == 0
        tab.keyboard.press("ArrowRight")
        assert title(tab) == "7 of 7. You try"
        tab.keyboard.press("ArrowLeft")
        assert title(tab).startswith("6 of 7.")
        # leaving keeps what is shown
        before = tab.text_content("#summary")
        tab.keyboard.press("Escape")
        assert tab.locator("#tour").is_hidden()
        assert tab.text_content("#summary") == before
        assert f"seed={other}" in tab.url
        assert "stop=" not in tab.url


@needs_browser
def test_a_step_is_an_address_and_survives_what_one_tries(page):
    with page(end="#stop=4") as tab:
        assert title(tab).startswith("4 of 7.")
        tab.click("[data-key=tour-again]")  # the address had only the number
        first, url = text(tab), tab.url
        assert tab.locator("[data-key=tour-again]").count() == 0
        move_to(tab, 0)
        tab.fill("#typed", "243")
        # what it says was computed for its own view
        assert text(tab) == first
        assert tab.input_value("#typed") == "243"
        tab.click("[data-key=tour-again]")
        assert tab.url == url
        assert tab.input_value("#typed") == "245345322"
        tab.reload()
        assert text(tab) == first
        assert tab.locator("[data-key=tour-again]").count() == 0


@needs_browser
def test_a_step_whose_rule_nothing_meets_is_left_out(page, packed):
    found = copy.deepcopy(packed)
    found["curves"]["recall"] = [[0.1] * 4] * 2
    with page(found, "#stop=7") as tab:
        assert tab.locator("#tour").is_hidden()
        assert "step of a tour “7”" in tab.text_content("#notice")
        assert "Tour in 6 steps" in tab.text_content("#tour-start")
        for _ in range(6):
            tab.click("[data-key=tour-begin], [data-key=tour-next]")
            assert "Where recall sets in" not in title(tab)
        assert title(tab).startswith("6 of 6.")
        assert "undefined" not in tab.text_content("body")


@needs_browser
def test_words_of_a_tour_become_text_and_not_markup(page, packed):
    found = copy.deepcopy(packed)
    found["tour"]["title"] = HOSTILE
    found["tour"]["steps"][0] |= {"title": HOSTILE, "text": HOSTILE}
    with page(found, "#stop=1") as tab:
        assert text(tab) == HOSTILE
        assert tab.locator("img").count() == 0


def tour(**of_step):
    step = {"title": "one", "text": "It says {answer}.", "look": "answer"} | of_step
    return Tour(title="t", task={}, steps=(TourStep.model_validate(step),))


@pytest.mark.parametrize(
    ("of_step", "message"),
    [
        ({"text": "{anwser}"}, r"step 'one': unknown value 'anwser' .did you mean 'answer'."),
        ({"text": "{recal_end}"}, r"unknown value 'recal_end' .did you mean 'recall_end'."),
        ({"seed": {"highest": "recal"}}, r"unknown skill 'recal' .did you mean 'recall'."),
        ({"at": {"first": "x", "at_least": 0.5}}, "unknown skill 'x'"),
        ({"at": {"largest": "recall", "minus": "y"}}, "unknown skill 'y'"),
        ({"prompt": [6]}, r"the prompt is \[6\]; allowed: 1 to 9 tokens from 0 to 5"),
        ({"prompt": []}, r"the prompt is \[\]; allowed: 1 to 9 tokens"),
    ],
)
def test_a_tour_that_cannot_be_filled_in_is_one_line(of_step, message):
    with pytest.raises(UserError, match=message):
        pack_tour(Permutation(), tour(**of_step), ("recall", "elimination"))


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (SeedRule, {}),
        (SeedRule, {"highest": "a", "lowest": "a"}),
        (SeedRule, {"most_different": False}),
        (SnapshotRule, {"first": "a"}),
        (SnapshotRule, {"first": "a", "at_least": 0.5, "minus": "b"}),
    ],
)
def test_a_rule_is_one_rule(rule, fields):
    with pytest.raises(ValueError, match=r"picked by|Input should be True"):
        rule(**fields)


def test_a_tour_is_offered_with_its_task_alone():
    skills = ("recall", "elimination")
    assert pack_tour(Permutation(repeat=0.3), None, skills) is not None
    assert pack_tour(Permutation(), None, skills) is None
    own = pack_tour(Cycle(), None, ("accuracy",))
    assert own is not None
    assert own["title"] == "what does a model of two dimensions learn of ABC?"
    assert pack_tour(Cycle(n_symbols=4), None, ("accuracy",)) is None
    brought = pack_tour(Cycle(), tour(text="{accuracy_end}"), ("accuracy",))
    assert brought == {
        "title": "t",
        "steps": [{"title": "one", "text": "{accuracy_end}", "look": "answer"}],
    }
