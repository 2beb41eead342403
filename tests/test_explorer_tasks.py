"""What the explorer says and asks of tasks, ours and those from elsewhere."""

import json
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from explorer_page import launch_browser, needs_browser, planted_piece, shown, watched_tab

from mnemoscope.core.errors import UserError
from mnemoscope.explorer import Adapter, build_page, pack_run, register_adapter
from mnemoscope.explorer.task_adapters import N_SAMPLES, get_adapter
from mnemoscope.models import ModelConfig
from mnemoscope.tasks import Cycle, Example, Facts, Permutation, Task

HOSTILE = "</script><img src=x onerror=alert(1)>\"'&<b>"
TINY = ModelConfig(d_model=4, n_heads=1, d_mlp=4)


class Echo(Task):
    """Say the token
    that stood two places ago.

    And this is more about it.
    """

    # a name that every object of JavaScript has: the page must not take it for an adapter's
    kind: Literal["constructor"] = "constructor"

    @property
    def d_vocab(self):
        return 3

    @property
    def n_ctx(self):
        return 4

    @property
    def token_names(self):
        return ("a", "␣", ",")

    @property
    def loss_positions(self):
        return (2, 3)

    def sample(self, world, *, key):
        tokens = jax.random.randint(key, (4,), 0, 2)
        targets = jnp.roll(tokens, 2)
        return Example(tokens, targets, jnp.array([0.0, 0.0, 1.0, 1.0]))


@pytest.fixture(scope="module")
def piece():
    return planted_piece("echo", Echo(), TINY, 1)


@pytest.fixture
def presented(piece):
    """Its page after an adapter was registered; without one afterwards."""

    def build(adapter):
        register_adapter(Echo, adapter)
        return pack_run(piece)

    yield build
    register_adapter(Echo, Adapter())


@pytest.fixture(scope="module")
def browser():
    yield from launch_browser()


def words(task):
    return get_adapter(task).in_words(task)


def test_a_task_is_said_in_words_with_an_example_that_is_right():
    said = words(Permutation(repeat=0.3))
    assert said.endswith("2→4 5→3 4→5 3→2 2→?. It may recall 4, or eliminate and say 1.")
    said = words(Permutation(n_symbols=4, repeat=0.3))
    assert said.endswith("1→2 2→3 3→4 1→?. It may recall 2, or eliminate and say 1.")
    # without repeats nothing can be recalled
    said = words(Permutation())
    assert said.endswith("2→4 5→3 4→5 3→2 1→?. Only 1 is left: it can be found by elimination.")
    said = words(Cycle(n_symbols=3, length=4))
    assert "A B C A ?. It is B, whatever" in said
    assert words(Facts()) == (
        "Facts told by a subject and a relation among noise; the answer is asked at the end."
    )
    assert words(Echo()) == "Say the token that stood two places ago."


def test_a_task_brings_its_words_and_presets(presented):
    preset = {"name": "mine", "tokens": [0, 1, 0], "why": "because"}
    found = presented(
        Adapter(in_words=lambda task: "In words.", make_presets=lambda task, world: [preset])
    )
    assert found["words"] == "In words."
    assert found["presets"] == [preset]
    assert len(found["worlds"][0]["samples"]) == N_SAMPLES


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        (
            [{"name": "x", "tokens": [3], "why": ""}],
            r"has \[3\]; allowed: 1 to 4 tokens from 0 to 2",
        ),
        ([{"name": "x", "tokens": [], "why": ""}], r"has \[\]; allowed: 1 to 4 tokens"),
        ([{"name": "x", "tokens": [0] * 5, "why": ""}], r"allowed: 1 to 4 tokens"),
        ([{"name": "x"}], r"a preset of 'constructor' has name, tokens and why, got name"),
        ([], r"task 'constructor' has no presets; the page opens on the first one"),
    ],
)
def test_presets_that_cannot_be_read_are_one_line(presented, presets, message):
    with pytest.raises(UserError, match=message):
        presented(Adapter(make_presets=lambda task, world: presets))


@needs_browser
def test_a_task_from_elsewhere_is_shown_with_what_it_says_of_itself(browser, piece, tmp_path):
    packed = pack_run(piece)
    (tmp_path / "page.html").write_text(build_page([packed]))
    with watched_tab(browser, (tmp_path / "page.html").as_uri()) as tab:
        assert tab.text_content("#words") == "Say the token that stood two places ago."
        # a space is a token here, and so is a comma
        tab.fill("#typed", "a ,")
        assert shown(tab)["prompt"] == ["a", "␣", ","]
        assert tab.text_content("#warning") == ""
        assert [each["position"] for each in shown(tab)["exact"]] == [2]
        tab.fill("#typed", "a ")
        assert "No training asked for an answer after position 1" in tab.text_content("#warning")
        tab.click("[data-key=draw]")
        names = packed["token_names"]
        drawn = [names.index(name) for name in shown(tab)["prompt"]]
        assert drawn in packed["worlds"][0]["samples"]
        # a part at its mean is at its mean over the task's own sequences
        tab.click("[data-key='numbers-mlp0']")
        tab.click("[data-key='off-mlp0-mean']")
        now = shown(tab)["probabilities"]
        assert np.isfinite(now).all()


@needs_browser
def test_words_become_text_and_not_markup(browser, presented, tmp_path):
    preset = {"name": HOSTILE, "tokens": [0], "why": HOSTILE}
    packed = presented(
        Adapter(
            in_words=lambda task: HOSTILE,
            make_presets=lambda task, world: [preset],
            draw_label=HOSTILE,
        )
    )
    (tmp_path / "page.html").write_text(build_page([json.loads(json.dumps(packed))]))
    with watched_tab(browser, (tmp_path / "page.html").as_uri()) as tab:
        assert tab.text_content("#words") == HOSTILE
        assert tab.locator("img").count() == 0
        assert tab.text_content("[data-key='preset-0']") == HOSTILE
